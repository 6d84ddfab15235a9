//! What can change while the publisher runs.

use super::check::value_of;
use super::keys::KEYS;
use super::{Config, ConfigError, Effective, FabricKind};

/// A configuration that was read again, as far as it can be used.
#[derive(Clone, Debug)]
pub struct Adopted {
    /// The running configuration, with what can change as it was read.
    pub effective: Effective,
    /// Keys that have changed with it.
    pub changed: Vec<&'static str>,
    /// Keys whose new value takes a restart.
    pub needs_restart: Vec<&'static str>,
}

impl Effective {
    /// Takes over what can change from `fresh`, and keeps the rest.
    ///
    /// # Errors
    /// [`ConfigError`] when what can change does not go with what cannot.
    pub fn adopt(&self, fresh: &Self) -> Result<Adopted, ConfigError> {
        let mut mixed = fresh.clone();
        mixed.config = with_live_of(self.config.clone(), &fresh.config);
        mixed.check()?;
        Ok(Adopted {
            changed: differing(&self.config, &mixed.config),
            needs_restart: differing(&mixed.config, &fresh.config),
            effective: mixed,
        })
    }
}

/// This alone says what can change.
fn with_live_of(running: Config, fresh: &Config) -> Config {
    let mut mixed = running;
    mixed.source.silent_after_s = fresh.source.silent_after_s;
    mixed.access.users = fresh.access.users.clone();
    mixed.access.groups = fresh.access.groups.clone();
    mixed.access.stall_max_s = fresh.access.stall_max_s;
    // Over RDMA that many queue pairs and cells were made ready at the start.
    if mixed.fabric.kind == FabricKind::Shm {
        mixed.access.sessions_max = fresh.access.sessions_max;
    }
    mixed.lag = fresh.lag.clone();
    mixed.metrics.departed_s = fresh.metrics.departed_s;
    mixed.log.level = fresh.log.level;
    mixed.entitlement = fresh.entitlement.clone();
    mixed
}

fn differing(a: &Config, b: &Config) -> Vec<&'static str> {
    let differs = KEYS.iter().filter(|key| value_of(a, key) != value_of(b, key));
    differs.map(|key| key.path).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::{Effective, Layers, load};

    fn effective(settings: &[(&str, &str)]) -> Effective {
        let flag = |(key, value): &(&str, &str)| {
            (format!("--set {key}"), (*key).to_owned(), (*value).to_owned())
        };
        let flags = settings.iter().map(flag).collect();
        load(&Layers { flags, ..Layers::default() }).unwrap()
    }

    #[test]
    fn what_can_change_does_and_what_cannot_is_named() {
        let running = effective(&[("lag.soft_ms", "100"), ("shm.ring_bytes", "1 MiB")]);
        let fresh = effective(&[
            ("lag.soft_ms", "300"),
            ("log.level", "debug"),
            ("access.sessions_max", "3"),
            ("shm.ring_bytes", "2 MiB"),
            ("log.format", "json"),
        ]);
        let adopted = running.adopt(&fresh).unwrap();
        assert_eq!(adopted.changed, ["access.sessions_max", "lag.soft_ms", "log.level"]);
        assert_eq!(adopted.needs_restart, ["shm.ring_bytes", "log.format"]);
        let config = &adopted.effective.config;
        assert_eq!(config.access.sessions_max.get(), 3);
        assert_eq!(config.shm.ring_bytes, running.config.shm.ring_bytes);

        let again = adopted.effective.adopt(&fresh).unwrap();
        assert_eq!(again.changed, [""; 0], "it has changed already");
        assert_eq!(again.needs_restart, adopted.needs_restart, "it still takes a restart");
    }

    #[test]
    fn over_rdma_the_number_of_sessions_was_made_ready_at_the_start() {
        let running = effective(&[("fabric.kind", "verbs"), ("access.sessions_max", "8")]);
        let fresh = effective(&[("fabric.kind", "verbs"), ("access.sessions_max", "9")]);
        assert_eq!(running.adopt(&fresh).unwrap().needs_restart, ["access.sessions_max"]);
    }
}
