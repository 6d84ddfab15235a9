//! Who is let in by TLS, who is not, and what each side is told.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, SanType, date_time_ymd,
};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tapecast_control::client::{AttachError, TcpTarget, TlsProblem};
use tapecast_control::{
    ListenerStats, TcpListener, TcpListenerOptions, TlsFileError, TlsIdentity, certificates,
};
use tapecast_wire::attach::{AttachRequest, Message, Refusal};

use crate::place::{
    Certificates, bare, beside, connect, options, read_message, read_to_end, request, session,
    target, write_message,
};

/// Certificates of an authority that makes wrong ones too. In the places of [`Certificates`].
fn replace(place: &Certificates, change: impl Fn(&mut CertificateParams, Who)) {
    let mut authority = CertificateParams::new(vec![]).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "an authority of a test");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    fs::write(place.path("ca.pem"), authority.pem()).unwrap();
    for (who, stem, name, purpose) in [
        (Who::Server, "server", "localhost", ExtendedKeyUsagePurpose::ServerAuth),
        (Who::Client, "client-risk.example", "risk.example", ExtendedKeyUsagePurpose::ClientAuth),
    ] {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress("127.0.0.1".parse().unwrap()));
        params.extended_key_usages = vec![purpose];
        change(&mut params, who);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        fs::write(place.path(&format!("{stem}.pem")), certificate.pem()).unwrap();
        fs::write(place.path(&format!("{stem}.key")), key.serialize_pem()).unwrap();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Server,
    Client,
}

/// What a subscriber is told that TLS does not let through.
async fn problem(target: &TcpTarget) -> TlsProblem {
    match connect(target).await.unwrap().unwrap_err() {
        AttachError::Tls { problem, .. } => problem,
        error => panic!("{error}"),
    }
}

/// The counts, when the one connection there was has been judged.
async fn judged(listener: &TcpListener) -> ListenerStats {
    loop {
        let stats = listener.stats();
        if stats != (ListenerStats { connections: stats.connections, ..ListenerStats::default() }) {
            return stats;
        }
        tokio::task::yield_now().await;
    }
}

fn one(change: impl Fn(&mut ListenerStats)) -> ListenerStats {
    let mut stats = ListenerStats { connections: 1, ..ListenerStats::default() };
    change(&mut stats);
    stats
}

#[tokio::test]
async fn a_client_whose_certificate_has_expired_is_told_so() {
    let place = Certificates::new();
    replace(&place, |params, who| {
        if who == Who::Client {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
    });
    let listener = place.listener();
    assert_eq!(problem(&place.target(&listener)).await, TlsProblem::OwnExpired);
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_expired = 1));
}

#[tokio::test]
async fn a_client_of_another_authority_is_told_so() {
    let (place, other) = (Certificates::new(), Certificates::new());
    let listener = place.listener();
    let mut target = place.target(&listener);
    let tls = target.tls.as_mut().unwrap();
    (tls.certificate, tls.key) = (other.client().certificate, other.client().key);
    assert_eq!(problem(&target).await, TlsProblem::OwnUnknownCa);
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_unknown_ca = 1));
}

#[tokio::test]
async fn a_certificate_for_servers_is_none_for_clients() {
    let place = Certificates::new();
    let listener = place.listener();
    let mut target = place.target(&listener);
    let tls = target.tls.as_mut().unwrap();
    (tls.certificate, tls.key) = (place.path("server.pem"), place.path("server.key"));
    let problem = problem(&target).await;
    assert!(matches!(problem, TlsProblem::OwnRefused { .. }), "{problem:?}");
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_other = 1));
}

#[tokio::test]
async fn a_client_without_a_certificate_is_not_let_in() {
    let place = Certificates::new();
    let listener = place.listener();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(place.path("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tls = ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
    let mut stream = bare(listener.local_address());
    let error = beside(move || {
        loop {
            if let Err(error) = tls.complete_io(&mut stream) {
                return error.to_string();
            }
        }
    });
    let error = error.await;
    assert!(error.contains("CertificateRequired"), "{error}");
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_no_certificate = 1));
}

#[tokio::test]
async fn a_certificate_without_a_name_admits_nobody() {
    let place = Certificates::new();
    replace(&place, |params, who| {
        if who == Who::Client {
            params.subject_alt_names.clear();
        }
    });
    let listener = place.listener();
    let error = connect(&place.target(&listener)).await.unwrap().unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::NotAllowed), "{error}");
    assert!(error.to_string().contains("no DNS name"), "{error}");
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_other = 1));
}

#[tokio::test]
async fn tls_1_2_is_not_spoken() {
    let place = Certificates::new();
    let listener = place.listener();
    let mut hello = vec![0x03, 0x03];
    hello.extend([7; 32]);
    // No session, one cipher suite, no compression; groups and signatures, but no versions.
    hello.extend([0, 0, 2, 0xc0, 0x2b, 1, 0, 0, 22]);
    hello.extend([0, 0x0a, 0, 4, 0, 2, 0, 0x17, 0, 0x0d, 0, 4, 0, 2, 4, 3, 0, 0x0b, 0, 2, 1, 0]);
    let mut record = vec![0x16, 3, 1, 0, hello.len() as u8 + 4, 1, 0, 0, hello.len() as u8];
    record.extend(hello);
    let mut stream = bare(listener.local_address());
    stream.write_all(&record).unwrap();
    let answer = beside(move || read_to_end(&mut stream)).await;
    // A fatal alert, protocol_version.
    assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 70]);
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_other = 1));
}

#[tokio::test]
async fn a_publisher_of_another_authority_or_name_or_time_is_not_believed() {
    let (place, other) = (Certificates::new(), Certificates::new());
    let listener = place.listener();
    let mut target = place.target(&listener);
    target.tls.as_mut().unwrap().ca = other.path("ca.pem");
    assert_eq!(problem(&target).await, TlsProblem::UnknownCa);

    let mut target = place.target(&listener);
    target.tls.as_mut().unwrap().server_name = Some("feed.example".into());
    let mismatch = problem(&target).await;
    assert!(matches!(mismatch, TlsProblem::NameMismatch { .. }), "{mismatch:?}");
    let text = mismatch.to_string();
    assert!(text.contains("not for feed.example") && text.contains("localhost"), "{text}");

    replace(&place, |params, who| {
        if who == Who::Server {
            params.not_after = date_time_ymd(2020, 1, 1);
        }
    });
    let listener = place.listener();
    assert_eq!(problem(&place.target(&listener)).await, TlsProblem::Expired);
}

#[tokio::test]
async fn a_client_without_tls_is_told_what_to_give() {
    let place = Certificates::new();
    let listener = place.listener();
    let error = connect(&target(&listener)).await.unwrap().unwrap_err();
    assert_eq!(error.refusal(), Some(Refusal::NotAllowed), "{error}");
    assert!(error.to_string().contains("with TLS only"), "{error}");
    assert_eq!(judged(&listener).await, one(|stats| stats.tls_other = 1));

    // A request whose first byte is that of a TLS handshake: TLS itself refuses it.
    let request = AttachRequest { symbols: symbols_to(0x16), ..request() };
    let target = target(&listener);
    let error = beside(move || {
        tapecast_control::client::connect(&target, &request, crate::place::LONG).unwrap_err()
    });
    let error = error.await;
    let problem = TlsProblem::TlsWanted;
    assert!(
        matches!(&error, AttachError::Tls { problem: told, .. } if *told == problem),
        "{error}"
    );
}

/// Symbols that give a request this first byte.
fn symbols_to(first: u8) -> Vec<String> {
    let symbols = |count: usize| {
        let full = vec!["S".repeat(10); count / 12];
        full.into_iter().chain(["S".repeat(count % 12)]).collect::<Vec<_>>()
    };
    let fits = |count: &usize| {
        let symbols = symbols(*count);
        Message::Attach(AttachRequest { symbols, ..request() }).encode().unwrap()[0] == first
    };
    symbols((0..1000).find(fits).unwrap())
}

#[tokio::test]
async fn a_client_with_tls_is_told_that_the_publisher_has_none() {
    let place = Certificates::new();
    let listener = TcpListener::bind(options()).unwrap();
    assert_eq!(problem(&place.target(&listener)).await, TlsProblem::NotTls);
    assert_eq!(judged(&listener).await, one(|stats| stats.malformed = 1));
}

#[tokio::test]
async fn new_files_are_used_from_the_next_connection_on_and_sessions_stay() {
    let place = Certificates::new();
    let mut listener = place.listener();
    let target = place.target(&listener);
    let (_lifeline, mut granted) = session(&mut listener, &target).await;
    place.renew();
    listener.tls().unwrap().reload().unwrap();
    session(&mut listener, &target).await;
    assert_eq!(granted.lifeline.status(), tapecast_control::client::LifelineStatus::Alive);
}

#[tokio::test]
async fn changed_files_are_noticed_without_being_told() {
    let place = Certificates::new();
    let mut listener = place.listener();
    let target = place.target(&listener);
    place.renew();
    // Once a second at most: until then the old certificate is shown.
    loop {
        let asked = connect(&target);
        tokio::select! {
            pending = listener.accept() => {
                drop(pending);
                break;
            }
            refused = asked => {
                let error = refused.unwrap().unwrap_err();
                assert!(matches!(error, AttachError::Tls { .. }), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_those_before_in_use() {
    let place = Certificates::new();
    let mut listener = place.listener();
    let target = place.target(&listener);
    let key = fs::read(place.path("server.key")).unwrap();
    fs::write(place.path("server.key"), "nothing").unwrap();
    let error = listener.tls().unwrap().reload().unwrap_err();
    assert!(matches!(&error, TlsFileError::NoKey { path } if path.ends_with("server.key")));
    session(&mut listener, &target).await;
    fs::write(place.path("server.key"), key).unwrap();
    listener.tls().unwrap().reload().unwrap();
    session(&mut listener, &target).await;
}

#[tokio::test]
async fn a_client_that_is_added_later_is_let_in() {
    let place = Certificates::new();
    let mut listener = place.listener();
    let added = certificates::add_client(place.folder.path(), "desk.example", 7, false).unwrap();
    let mut target = place.target(&listener);
    let tls = target.tls.as_mut().unwrap();
    [tls.certificate, tls.key] = added;
    let (lifeline, _granted) = session(&mut listener, &target).await;
    assert_eq!(lifeline.peer().client().unwrap().names(), ["desk.example"]);
}

#[test]
fn files_that_cannot_be_used_are_named_with_a_remedy() {
    let load = |place: &Certificates| TlsIdentity::load(place.files()).unwrap_err();
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let place = Certificates::new();
    let key = place.path("server.key");
    for open in [0o644, 0o604, 0o660] {
        mode(&key, open);
        let error = load(&place);
        assert!(matches!(error, TlsFileError::KeyMode { mode, .. } if mode == open), "{error}");
        assert!(error.to_string().contains("chmod 0600"), "{error}");
    }
    for closed in [0o640, 0o600] {
        mode(&key, closed);
        assert!(TlsIdentity::load(place.files()).is_ok());
    }
    fs::write(&key, fs::read(place.path("ca.key")).unwrap()).unwrap();
    let error = load(&place);
    assert!(matches!(error, TlsFileError::Mismatch { .. }), "{error}");
    fs::write(&key, fs::read(place.path("server.pem")).unwrap()).unwrap();
    let error = load(&place);
    assert!(matches!(&error, TlsFileError::NoKey { .. }), "{error}");
    fs::write(place.path("server.pem"), "").unwrap();
    let error = load(&place);
    assert!(matches!(&error, TlsFileError::NoCertificate { .. }), "{error}");
    fs::remove_file(place.path("server.pem")).unwrap();
    let error = load(&place);
    assert!(matches!(&error, TlsFileError::Read { path, .. } if path.ends_with("server.pem")));
}

#[tokio::test]
async fn a_bare_refusal_before_tls_is_readable_without_it() {
    let place = Certificates::new();
    let options = TcpListenerOptions { tls: Some(place.identity()), ..options() };
    let listener = TcpListener::bind(options).unwrap();
    let mut stream = bare(listener.local_address());
    write_message(&mut stream, &Message::Detach);
    let told = beside(move || read_message(&mut stream)).await;
    assert!(matches!(told, Some(Message::Refused(Refusal::NotAllowed, _))), "{told:?}");
}
