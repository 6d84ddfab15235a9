//! What single values cannot say: whether they fit together.

use std::net::SocketAddr;
use std::path::Path;

use super::keys::{KEYS, Key};
use super::layers::{FLAG, SHARED_SOCKET_VARIABLE, VARIABLE, flat_config, variable_origin};
use super::{Config, ConfigError, Effective, FabricKind, Seal, SourceKind, TlsConfig, TlsMode};

/// `sun_path` of a Unix socket address, less its terminating zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;

impl Effective {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.check_source()?;
        self.check_journal()?;
        self.check_fabric()?;
        self.check_metrics()?;
        match self.config.fabric.kind {
            FabricKind::Shm => {
                self.check_keep()?;
                self.check_socket()
            }
            FabricKind::Verbs => {
                self.check_queues()?;
                self.check_access()?;
                self.check_tls()
            }
        }
    }

    fn check_source(&self) -> Result<(), ConfigError> {
        let source = &self.config.source;
        let needs_file = source.kind != SourceKind::Synthetic;
        if needs_file && source.file.is_none() {
            let kind = source.kind.word();
            let problem = format!("a source of kind {kind} needs source.file (--file PATH)");
            return Err(self.contradiction("source.kind", problem));
        }
        if !needs_file && source.file.is_some() {
            let problem = "set, but the source is synthetic and reads no file: choose \
                           source.kind itch, dbn or journal (--source), or remove the file";
            return Err(self.contradiction("source.file", problem.to_owned()));
        }
        Ok(())
    }

    /// A journal that is played must not be written to: it would never end.
    fn check_journal(&self) -> Result<(), ConfigError> {
        let (source, journal) = (&self.config.source, &self.config.journal);
        let played = source.file.as_ref().filter(|_| source.kind == SourceKind::Journal);
        let (Some(played), Some(written)) = (played, &journal.path) else { return Ok(()) };
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (played, written) = (real(played), real(written));
        if played == written || played.parent() == Some(&written) {
            let problem = "this is where the journal lies that is played: write to another folder";
            return Err(self.contradiction("journal.path", problem.to_owned()));
        }
        Ok(())
    }

    /// A key that nothing reads must not look as if it had an effect.
    fn check_fabric(&self) -> Result<(), ConfigError> {
        let kind = self.config.fabric.kind.word();
        for key in &KEYS {
            if let Some(needed) = self.idle_without(key)
                && self.was_chosen(key)
            {
                let needed = needed.word();
                let problem = format!(
                    "set, but fabric.kind is \"{kind}\", which does not use it: set fabric.kind = \
                     \"{needed}\" (--fabric {needed}), or remove it"
                );
                return Err(self.contradiction(key.path, problem));
            }
        }
        Ok(())
    }

    /// The other fabric, when only that uses the key.
    pub(super) fn idle_without(&self, key: &Key) -> Option<FabricKind> {
        let used_by = key.fabric()?;
        (used_by != self.config.fabric.kind).then_some(used_by)
    }

    /// Whether somebody wants this value. A file may write out all defaults, and the variable that
    /// is meant for subscribers too says nothing about the fabric.
    fn was_chosen(&self, key: &Key) -> bool {
        let origin = self.origin(key.path);
        if origin == "default" || origin == variable_origin(SHARED_SOCKET_VARIABLE) {
            return false;
        }
        let is_in_file = !origin.starts_with(FLAG) && !origin.starts_with(VARIABLE);
        !is_in_file || value_of(&self.config, key) != value_of(&Config::default(), key)
    }

    /// The seal that refuses every later writer refuses the next publisher too.
    fn check_keep(&self) -> Result<(), ConfigError> {
        let shm = &self.config.shm;
        if !shm.keep.0 || shm.seal == Seal::Owner {
            return Ok(());
        }
        let problem = format!(
            "true, but shm.seal is \"{}\", with which no later publisher could write in the ring: \
             set shm.seal = \"owner\", or shm.keep = false",
            shm.seal.word()
        );
        Err(self.contradiction("shm.keep", problem))
    }

    fn check_socket(&self) -> Result<(), ConfigError> {
        let socket = self.config.publisher.socket.as_os_str().len();
        if socket == 0 || socket > SOCKET_PATH_BYTES_MAX {
            let problem = format!(
                "{socket} bytes long, but a socket's path has 1 to {SOCKET_PATH_BYTES_MAX} bytes: \
                 choose a shorter one"
            );
            return Err(self.contradiction("publisher.socket", problem));
        }
        Ok(())
    }

    /// When a subscriber fails, everything that is outstanding for it completes at once, and that
    /// may happen to all of them together.
    fn check_queues(&self) -> Result<(), ConfigError> {
        let rdma = &self.config.rdma;
        let sessions = self.config.access.sessions_max.get();
        let (send, depth) = (rdma.send_depth.get(), rdma.completion_depth.get());
        let needed = sessions * send;
        if needed > depth {
            let problem = format!(
                "rdma.completion_depth is {depth}, less than access.sessions_max × \
                 rdma.send_depth = {sessions} × {send} = {needed}: raise the first, or lower one \
                 of the others"
            );
            let keys = ["rdma.completion_depth", "rdma.send_depth", "access.sessions_max"];
            let chosen = keys.into_iter().find(|key| self.origin(key) != "default");
            return Err(self.contradiction(chosen.unwrap_or(keys[0]), problem));
        }
        let every = rdma.signal_every.get();
        if every > send / 2 {
            let problem = format!(
                "{every} is more than half of rdma.send_depth, which is {send}: lower it to {}, \
                 or raise rdma.send_depth",
                send / 2
            );
            return Err(self.contradiction("rdma.signal_every", problem));
        }
        Ok(())
    }

    /// A protection that is not there must not look as if it were.
    fn check_access(&self) -> Result<(), ConfigError> {
        let access = &self.config.access;
        let local = [("access.users", &access.users), ("access.groups", &access.groups)];
        match local.iter().find(|(_, names)| !names.0.is_empty()) {
            None => Ok(()),
            Some((key, _)) => {
                let problem = "set, but with fabric.kind = \"verbs\" clients attach over the \
                               network, as no user of this host: use [[entitlement]] with the \
                               names in their certificates";
                Err(self.contradiction(key, problem.to_owned()))
            }
        }
    }

    fn check_tls(&self) -> Result<(), ConfigError> {
        let (tls, address) = (&self.config.tls, self.config.listen.address);
        if tls.mode == TlsMode::Off && !is_loopback(address) {
            let problem = format!(
                "off, but listen.address is {address}: without TLS only a loopback address \
                 such as 127.0.0.1 is allowed; set tls.mode = \"auto\" and the files (make them \
                 with `tapecast-publisher certificates`)"
            );
            return Err(self.contradiction("tls.mode", problem));
        }
        self.check_tls_files("tls", tls, address)
    }

    /// Unlike the control plane, figures may be served unprotected, when somebody says so.
    fn check_metrics(&self) -> Result<(), ConfigError> {
        let metrics = &self.config.metrics;
        let Some(address) = metrics.address else { return Ok(()) };
        self.check_tls_files("metrics", &metrics.protection(), address).map_err(|error| {
            if metrics.tls == TlsMode::Auto && !is_loopback(address) {
                let problem = format!(
                    "{address} is no loopback address, so with metrics.tls = \"auto\" it is served \
                     with TLS, for which metrics.certificate, metrics.key and metrics.client_ca \
                     are needed (`tapecast-publisher certificates` makes them): set these, or \
                     metrics.tls = \"off\" where the network is trusted"
                );
                return self.contradiction("metrics.address", problem);
            }
            error
        })
    }

    fn check_tls_files(
        &self,
        section: &str,
        tls: &TlsConfig,
        address: SocketAddr,
    ) -> Result<(), ConfigError> {
        if !tls.is_on(address) {
            return Ok(());
        }
        let files =
            [("certificate", &tls.certificate), ("key", &tls.key), ("client_ca", &tls.client_ca)];
        match files.iter().find(|(_, file)| file.is_none()) {
            None => Ok(()),
            Some((key, _)) => {
                let problem = format!(
                    "not set, but {address} is served with TLS: name the file; \
                     `tapecast-publisher certificates` makes all that are needed"
                );
                Err(self.contradiction(&format!("{section}.{key}"), problem))
            }
        }
    }
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

pub(super) fn value_of(config: &Config, key: &Key) -> Option<toml::Value> {
    let found = flat_config(config).into_iter().find(|(path, _)| path == key.path);
    found.map(|(_, value)| value)
}
