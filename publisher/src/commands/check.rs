//! Checks what can be checked without taking anything, for `check-config` and before a start.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use rustix::fs::{Access as Rights, access as access_to};
use rustix::thread::{CpuSet, sched_getaffinity};
use tapecast_control::{Access, TlsFileError, TlsFiles, TlsIdentity};

use crate::config::{ConfigError, Effective, FabricKind, SourceKind, TlsConfig};

/// Checks everything.
///
/// # Errors
/// When something is configured that is not there: a file, certificate, user, group or core, or a
/// fabric that this build does not have.
pub(super) fn check(effective: &Effective) -> Result<()> {
    fabric(effective)?;
    source_file(effective)?;
    journal_folder(effective)?;
    access(effective)?;
    effective.entitlements()?;
    tls_identity(effective)?;
    metrics_identity(effective)?;
    core(effective)
}

/// Who may attach to the Unix socket.
pub(super) fn access(effective: &Effective) -> Result<Access> {
    let config = &effective.config.access;
    Access::resolve(&config.users.0, &config.groups.0).map_err(|error| {
        let (users, groups) = (effective.origin("access.users"), effective.origin("access.groups"));
        anyhow!("access.users ({users}), access.groups ({groups}): {error}")
    })
}

/// What protects the TCP control plane; nothing when it is not protected, or there is none.
pub(super) fn tls_identity(effective: &Effective) -> Result<Option<TlsIdentity>> {
    let config = &effective.config;
    if config.fabric.kind != FabricKind::Verbs || !config.tls.is_on(config.listen.address) {
        return Ok(None);
    }
    identity(effective, "tls", &config.tls).map(Some)
}

/// What protects the metrics endpoint; nothing when it is not protected, or there is none.
pub(super) fn metrics_identity(effective: &Effective) -> Result<Option<TlsIdentity>> {
    let metrics = &effective.config.metrics;
    let protection = metrics.protection();
    match metrics.address {
        Some(address) if protection.is_on(address) => {
            identity(effective, "metrics", &protection).map(Some)
        }
        _ => Ok(None),
    }
}

fn identity(effective: &Effective, section: &str, tls: &TlsConfig) -> Result<TlsIdentity> {
    // They are all set: without one the configuration was refused when it was read.
    let path = |file: &Option<PathBuf>| file.clone().unwrap_or_default();
    let files = TlsFiles {
        certificate: path(&tls.certificate),
        key: path(&tls.key),
        client_ca: path(&tls.client_ca),
    };
    let identity = TlsIdentity::load(files);
    Ok(identity.map_err(|error| tls_problem(effective, section, tls, &error))?)
}

/// Names the key whose file is wrong.
fn tls_problem(
    effective: &Effective,
    section: &str,
    tls: &TlsConfig,
    error: &TlsFileError,
) -> ConfigError {
    let text = error.to_string();
    let keys =
        [("certificate", &tls.certificate), ("key", &tls.key), ("client_ca", &tls.client_ca)];
    let named = keys
        .iter()
        .find(|(_, file)| file.as_ref().is_some_and(|file| text.contains(&format!("{file:?}"))));
    let key = named.map_or("certificate", |(key, _)| key);
    effective.contradiction(&format!("{section}.{key}"), text)
}

fn fabric(effective: &Effective) -> Result<()> {
    if effective.config.fabric.kind == FabricKind::Verbs && !cfg!(feature = "verbs") {
        let problem = "this build has no RDMA: build it with `cargo build --features verbs` on a \
                       machine with libibverbs, or set fabric.kind = \"shm\"";
        return Err(effective.contradiction("fabric.kind", problem.to_owned()).into());
    }
    Ok(())
}

/// Whether the source's file can be opened. What is in it shows when it is played.
fn source_file(effective: &Effective) -> Result<()> {
    let source = &effective.config.source;
    let Some(file) = source.file.as_ref().filter(|_| source.kind != SourceKind::Synthetic) else {
        return Ok(());
    };
    let problem = |error: io::Error| {
        let text = format!("cannot read {}: {error}; give another with --file", file.display());
        effective.contradiction("source.file", text)
    };
    let kind = std::fs::metadata(file).map_err(problem)?.file_type();
    if kind.is_dir() && source.kind != SourceKind::Journal {
        let text = format!("{} is a directory; give a file with --file", file.display());
        return Err(effective.contradiction("source.file", text).into());
    }
    // To open a pipe would wait for its writer, and take what it writes.
    if kind.is_file() {
        File::open(file).map_err(problem)?;
    }
    Ok(())
}

/// Whether files can be made in the journal's folder, or the folder itself.
fn journal_folder(effective: &Effective) -> Result<()> {
    let Some(path) = &effective.config.journal.path else { return Ok(()) };
    let remedy = "name a folder that this user may write to with --journal";
    let problem = |text: String| effective.contradiction("journal.path", text);
    let wanted = match std::fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            let text = format!("{} is no folder; {remedy}", path.display());
            return Err(problem(text).into());
        }
        Ok(_) => path.as_path(),
        // It is made at the start, but not the folders that it is in: that would hide a mistyped
        // path.
        Err(_) => match path.parent() {
            Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
            Some(parent) => parent,
            None => path.as_path(),
        },
    };
    access_to(wanted, Rights::WRITE_OK | Rights::EXEC_OK).map_err(|error| {
        let error = io::Error::from(error);
        let text = format!("cannot write in {}: {error}; {remedy}", wanted.display());
        problem(text).into()
    })
}

fn core(effective: &Effective) -> Result<()> {
    let Some(cpu) = effective.config.sender.cpu else { return Ok(()) };
    let allowed = sched_getaffinity(None).context("cannot ask which cores may be used")?;
    if cpu.count() < CpuSet::MAX_CPU && allowed.is_set(cpu.count()) {
        return Ok(());
    }
    let cores: Vec<String> = (0..CpuSet::MAX_CPU)
        .filter(|core| allowed.is_set(*core))
        .map(|core| core.to_string())
        .collect();
    let problem =
        format!("core {} may not be used; this process may use {}", cpu.get(), cores.join(", "));
    Err(effective.contradiction("sender.cpu", problem).into())
}
