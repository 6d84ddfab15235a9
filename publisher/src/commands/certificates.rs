//! `certificates`: makes what TLS needs at both ends.

use std::fmt::Write;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow};
use tapecast_control::certificates::{self, CertificateError, Plan};

use crate::cli::CertificatesArgs;

/// Makes the certificates, and prints what to do with them.
///
/// # Errors
/// When a name cannot be one, files are there already, or the folder cannot be written.
pub fn certificates(args: &CertificatesArgs) -> Result<ExitCode> {
    let mut made = Vec::new();
    if args.add_client.is_empty() {
        made.extend(certificates::create(&args.out, &plan(args)).map_err(|e| problem(args, e))?);
    }
    for name in &args.add_client {
        let added = certificates::add_client(&args.out, name, args.days, args.force);
        made.extend(added.map_err(|error| problem(args, error))?);
    }
    super::print(&told(args, &made)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Names the flags that help.
fn problem(args: &CertificatesArgs, error: CertificateError) -> anyhow::Error {
    match &error {
        CertificateError::Exists { path } => anyhow!(
            "{path:?} is there already: remove it, choose another folder with --out, or replace it \
             with --force"
        ),
        CertificateError::Io { path, source, .. }
            if path.ends_with("ca.key") && source.kind() == ErrorKind::NotFound =>
        {
            let folder = &args.out;
            anyhow!(
                "there is no authority in {folder:?}, because ca.key is not there: create one \
                 first, with --server NAME instead of --add-client, or name its folder with --out"
            )
        }
        _ => error.into(),
    }
}

/// Clients whose certificates are in the folder and were not made just now, by name.
fn clients_left(folder: &Path, made: &[PathBuf]) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).context("cannot list the folder")?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.context("cannot list the folder")?.path();
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = file.strip_prefix("client-").and_then(|name| name.strip_suffix(".pem"));
        if let Some(name) = name
            && !made.contains(&path)
        {
            names.push(name.to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn plan(args: &CertificatesArgs) -> Plan {
    let mut plan = Plan {
        server_names: Vec::new(),
        server_addresses: Vec::new(),
        clients: args.client.clone(),
        days: args.days,
        force: args.force,
    };
    for server in &args.server {
        match server.parse::<IpAddr>() {
            Ok(address) => plan.server_addresses.push(address),
            Err(_) => plan.server_names.push(server.clone()),
        }
    }
    plan
}

/// What was made, and the lines that use it.
fn told(args: &CertificatesArgs, made: &[PathBuf]) -> Result<String> {
    let folder = std::path::absolute(&args.out).context("cannot tell the folder's full path")?;
    let mut text = String::new();
    for path in made {
        writeln!(text, "made {}", path.display())?;
    }
    if args.add_client.is_empty() {
        tell_left(&mut text, args, &clients_left(&args.out, made)?)?;
        let file = |name: &str| toml::Value::from(folder.join(name).display().to_string());
        let (certificate, key, ca) = (file("server.pem"), file("server.key"), file("ca.pem"));
        writeln!(
            text,
            "\nIn the publisher's configuration:\n\n\
             [fabric]\nkind = \"verbs\"\n\n\
             [listen]\naddress = \"0.0.0.0:7411\"\n\n\
             [tls]\ncertificate = {certificate}\nkey = {key}\nclient_ca = {ca}"
        )?;
    }
    let clients: Vec<&String> = args.client.iter().chain(&args.add_client).collect();
    tell_clients(&mut text, args, &folder, &clients)?;
    Ok(text)
}

/// A new authority is the end of all certificates of the old one.
fn tell_left(text: &mut String, args: &CertificatesArgs, left: &[String]) -> Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nOf another authority, and no longer good for this publisher:\n")?;
    for name in left {
        writeln!(text, "  client-{name}.pem")?;
    }
    let (out, names) = (args.out.display(), left.join(" "));
    writeln!(
        text,
        "\nMake them again with\n\n\
         \x20 tapecast-publisher certificates --out {out} --force --add-client {names}\n\n\
         and give every client the new ca.pem too."
    )?;
    Ok(())
}

fn tell_clients(
    text: &mut String,
    args: &CertificatesArgs,
    folder: &Path,
    clients: &[&String],
) -> Result<()> {
    if clients.is_empty() {
        let out = args.out.display();
        writeln!(
            text,
            "\nNo client has a certificate yet. Make one with\n\n\
             \x20 tapecast-publisher certificates --out {out} --add-client NAME"
        )?;
    } else {
        writeln!(
            text,
            "\nOnly if clients are to be limited (with one [[entitlement]], every client needs its \
             own):\n"
        )?;
        for client in clients {
            let client = toml::Value::from(client.as_str());
            writeln!(text, "[[entitlement]]\nclient = {client}\nsessions_max = 4\n")?;
        }
        let server = args.server.first().map_or("PUBLISHER", String::as_str);
        let server = if server.contains(':') { format!("[{server}]") } else { server.to_owned() };
        writeln!(
            text,
            "Each client gets ca.pem and its own two files, in a folder of its own; then it \
             attaches with\n"
        )?;
        for client in clients {
            writeln!(
                text,
                "  tapecast-subscriber tail --connect {server}:7411 --ca ca.pem \\\n      \
                 --cert client-{client}.pem --key client-{client}.key"
            )?;
        }
    }
    let key = folder.join("ca.key");
    writeln!(
        text,
        "\nKeep {} to yourself: whoever has it can make clients. Only --add-client needs it.",
        key.display()
    )?;
    Ok(())
}
