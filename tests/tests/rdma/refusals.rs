//! Who may not attach over RDMA is told why, and the publisher logs and counts it.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use rustix::process::Signal;
use serde_json::Value;

use super::device::device;
use super::programs::{programs, run, stderr};
use super::stage::{Stage, assert_pool_whole};

const ENTITLED: &str = "risk.example";

/// Authorities and what they have signed, as files. `ca.pem` signs the server's.
struct Papers(PathBuf);

impl Papers {
    fn write(folder: &Path) -> io::Result<Self> {
        let papers = Self(folder.to_owned());
        let (ours, others) = (authority("ours"), authority("others"));
        fs::write(papers.path("ca.pem"), ours.pem())?;
        papers.sign(&ours, "server", "localhost", |_| {})?;
        papers.sign(&ours, "entitled", ENTITLED, |_| {})?;
        papers.sign(&ours, "unlisted", "web.example", |_| {})?;
        papers.sign(&ours, "expired", ENTITLED, |params| {
            params.not_after = date_time_ymd(2020, 1, 1);
        })?;
        papers.sign(&others, "stranger", ENTITLED, |_| {})?;
        Ok(papers)
    }

    fn sign(
        &self,
        authority: &CertifiedIssuer<'_, KeyPair>,
        stem: &str,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> io::Result<()> {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, authority).expect("a certificate");
        fs::write(self.path(&format!("{stem}.pem")), certificate.pem())?;
        let path = self.path(&format!("{stem}.key"));
        fs::write(&path, key.serialize_pem())?;
        // A key that others may read is not taken.
        fs::set_permissions(&path, Permissions::from_mode(0o600))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn server(&self) -> [String; 3] {
        [
            format!("tls.certificate={}", self.text("server.pem")),
            format!("tls.key={}", self.text("server.key")),
            format!("tls.client_ca={}", self.text("ca.pem")),
        ]
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, format!("{name}, of a test"));
    let key = KeyPair::generate().expect("a key");
    CertifiedIssuer::self_signed(params, key).expect("an authority")
}

/// Attaches as the shipped CLI does, for one snapshot.
fn attach(stage: &Stage, papers: &Papers, who: &str, more: &[&str]) -> Output {
    let (ca, cert) = (papers.text("ca.pem"), papers.text(&format!("{who}.pem")));
    let key = papers.text(&format!("{who}.key"));
    let address = &*stage.address;
    let mut arguments = vec!["tail", "--connect", address, "--count", "1", "--json"];
    if who != "nobody" {
        arguments.extend(["--ca", &ca, "--cert", &cert, "--key", &key]);
    }
    arguments.extend(more);
    run("tapecast-subscriber", &arguments)
}

/// The client fails, and is told `reason`.
fn assert_refused(output: &Output, reason: &str) {
    assert!(!output.status.success(), "let in, instead of: {reason}");
    let said = stderr(output);
    assert!(said.contains(reason), "not told {reason:?} but: {said}");
}

/// Runs the CLI as another user, who may lock 64 KiB.
fn attach_with_little_lockable_memory(stage: &Stage) -> Output {
    let line = "ulimit -l 64; exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let program = programs().join("tapecast-subscriber");
    Command::new("bash")
        .args(["-c", line, "bash"])
        .arg(program)
        .args(["tail", "--connect", &stage.address, "--count", "1", "--json"])
        .output()
        .expect("bash")
}

#[test]
fn a_limit_on_locked_memory_is_named_with_what_is_needed_before_anything_is_asked_for() {
    if device().is_none() {
        return;
    }
    let mut stage = Stage::new();
    let publisher = stage.publish(&["--seconds", "3600", "--instruments", "4"]);
    stage.await_publisher();
    let output = attach_with_little_lockable_memory(&stage);
    // A ring of 1 MiB with its control block, and the cell: 256 pages and two.
    assert_refused(&output, "1056768 bytes have to be locked");
    assert_refused(&output, "RLIMIT_MEMLOCK is 65536");
    assert_refused(&output, "ulimit -l 1032");
    stage.processes.signal(publisher, Signal::TERM);
    assert_eq!(stage.report()["sessions"].as_array().map(Vec::len), Some(0));
}

fn assert_counted(report: &Value) {
    let (listener, refusals) = (&report["listener"], &report["refusals"]);
    assert_eq!(listener["tls_expired"], 1, "{listener}");
    assert_eq!(listener["tls_unknown_ca"], 1, "{listener}");
    assert_eq!(refusals["not_entitled"], 3, "{refusals}");
}

#[test]
fn unauthorised_expired_foreign_and_unentitled_clients_are_refused_with_a_reason() {
    if device().is_none() {
        return;
    }
    let mut stage = Stage::new();
    let papers = Papers::write(stage.file("").as_path()).expect("files");
    let config = stage.file("publisher.toml");
    let entitlement = format!(
        "[[entitlement]]\nclient = \"{ENTITLED}\"\nsymbols = [\"TC0001\"]\n\
         policies = [\"conflate\"]\n"
    );
    fs::write(&config, entitlement).expect("a file");
    let config = config.display().to_string();
    let mut arguments = vec!["--config", &*config, "--instruments", "4", "--seconds", "3600"];
    arguments.extend(["--lossless", "--log-level", "info"]);
    let server = papers.server();
    for setting in &server {
        arguments.extend(["--set", setting]);
    }
    let publisher = stage.publish(&arguments);
    stage.await_publisher();

    assert_refused(&attach(&stage, &papers, "nobody", &[]), "TLS");
    assert_refused(&attach(&stage, &papers, "expired", &[]), "certificate has expired");
    assert_refused(&attach(&stage, &papers, "stranger", &[]), "authority");
    assert_refused(&attach(&stage, &papers, "unlisted", &["--symbols", "TC0001"]), "web.example");
    assert_refused(&attach(&stage, &papers, "entitled", &["--symbols", "TC0002"]), "TC0002");
    let lossless =
        attach(&stage, &papers, "entitled", &["--symbols", "TC0001", "--policy", "lossless"]);
    assert_refused(&lossless, "conflate");
    let entitled = attach(&stage, &papers, "entitled", &["--symbols", "TC0001"]);
    assert!(entitled.status.success(), "{}", stderr(&entitled));

    stage.processes.signal(publisher, Signal::TERM);
    let (report, log) = stage.report_and_log();
    // The first handshake that fails is told of, then one a second at most; the counters have all.
    assert!(log.contains("refused a TLS handshake"), "{log}");
    for told in ["web.example", "TC0002", "conflate"] {
        assert!(log.lines().any(|line| line.contains("refused") && line.contains(told)), "{log}");
    }
    assert_counted(&report);
    assert_pool_whole(&report);
}
