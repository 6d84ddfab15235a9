//! Every key there is, in the order of the file.

use super::choice::FabricKind;
use super::entitlement::ENTITLEMENT;

/// One configuration key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Section and name, e.g. `shm.ring_bytes`.
    pub path: &'static str,
    /// What it may be, for people.
    pub allowed: &'static str,
}

impl Key {
    /// The environment variable that sets this key, e.g. `TAPECAST_SHM_RING_BYTES`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("TAPECAST_{}", self.path.to_uppercase().replace('.', "_"))
    }

    /// The key with this path.
    #[must_use]
    pub fn find(path: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.path == path)
    }

    /// The only fabric that uses this key; none where every fabric does.
    #[must_use]
    pub fn fabric(&self) -> Option<FabricKind> {
        match self.path {
            "publisher.socket" | "shm.ring_bytes" | "shm.seal" | "shm.keep" => {
                Some(FabricKind::Shm)
            }
            path => match path.split_once('.')?.0 {
                "rdma" | "listen" | "tls" => Some(FabricKind::Verbs),
                _ => None,
            },
        }
    }
}

const TRUTH: &str = "true, false";
const NAMES: &str = "a list of names, or names with commas between";

const fn key(path: &'static str, allowed: &'static str) -> Key {
    Key { path, allowed }
}

/// Every key, in the order of the file.
pub const KEYS: [Key; 78] = [
    key("publisher.name", "any text"),
    key("publisher.socket", "a path of at most 107 bytes"),
    key("source.kind", "itch, dbn, journal, synthetic"),
    key("source.file", "a path"),
    key("source.pace", "max, realtime, or a multiple such as 10x (0.001x to 1000000x)"),
    key("source.gap_max_s", "0 to 86400 seconds"),
    key("source.silent_after_s", "0 to 86400 seconds"),
    key("source.loop", TRUTH),
    key("source.symbols", NAMES),
    key("source.allow_truncated", TRUTH),
    key("source.date", "auto, or a day such as 2019-01-30"),
    key("source.event_end", "timestamp, message"),
    key("source.receive_time", "feed, host"),
    key("source.synthetic.seed", "a whole number, 0 to 9223372036854775807"),
    key("source.synthetic.instruments", "1 to 10000"),
    key("source.synthetic.length", "endless, a time such as 60s (1s to 21600s), or 5000 messages"),
    key("source.synthetic.orders_per_instrument", "8 to 2000"),
    key("source.synthetic.burst_rate", "1 to 1000000000 messages per second"),
    key("source.synthetic.burst_ms", "0 to 3600000 milliseconds"),
    key("source.synthetic.steady_rate", "1 to 1000000000 messages per second"),
    key("source.synthetic.halt_every_s", "0 to 21600 seconds"),
    key("source.synthetic.quiet_every_s", "0 to 21600 seconds"),
    key("book.levels", "1 to 83"),
    key("pool.hugepages", TRUTH),
    key("fabric.kind", "shm, verbs"),
    key("shm.ring_bytes", "a power of two, 64 KiB to 16 GiB"),
    key("shm.instruments_max", "1 to 1048576"),
    key("shm.seal", "future-write, owner"),
    key("shm.keep", TRUTH),
    key("rdma.device", "the name of an RDMA device, as ibv_devices prints it"),
    key("rdma.address", "the IP address of an RDMA device's network interface"),
    key("rdma.port_number", "1 to 254"),
    key("rdma.ring_bytes_max", "a power of two, 64 KiB to 16 GiB"),
    key("rdma.receive_depth_max", "1 to 16384 receives"),
    key("rdma.send_depth", "2 to 4096 work requests"),
    key("rdma.completion_depth", "2 to 4194304 completions"),
    key("rdma.signal_every", "1 to half of rdma.send_depth"),
    key("rdma.gather", "1 to 16 records"),
    key("rdma.traffic_class", "0 to 255: DSCP times 4, plus ECN"),
    key("rdma.service_level", "0 to 7"),
    key("rdma.hop_limit", "1 to 255"),
    key("rdma.flow_labels", TRUTH),
    key("rdma.path_mtu", "auto, 256, 512, 1024, 2048, 4096"),
    key("rdma.timeout", "1 to 31: 4.096 us times two to this power"),
    key("rdma.retry_count", "0 to 7"),
    key("rdma.rnr_retry", "0 to 7, where 7 means for ever"),
    key("rdma.min_rnr_timer", "1 to 31, a code of the specification: 1 is 10 us, 12 is 0.64 ms"),
    key("sender.idle", "spin, yield, block"),
    key("sender.cpu", "the number of a core that this process may use"),
    key("listen.address", "an IP address and a port, such as 192.0.2.7:7411 or [::1]:7411"),
    key("tls.mode", "auto, on, off"),
    key("tls.certificate", "a path"),
    key("tls.key", "a path"),
    key("tls.client_ca", "a path"),
    key("access.users", NAMES),
    key("access.groups", NAMES),
    key("access.lossless", TRUTH),
    key("access.sessions_max", "1 to 64"),
    key("access.stall_max_s", "1 to 3600 seconds"),
    key("lag.soft_bytes", "a size, 0 to 16 GiB, 0 for none"),
    key("lag.soft_ms", "0 to 86400000 milliseconds, 0 for none"),
    key("lag.hard_bytes", "a size, 0 to 16 GiB, 0 for none"),
    key("lag.hard_ms", "0 to 86400000 milliseconds, 0 for none"),
    key("journal.path", "a path"),
    key("journal.rotate_bytes", "a size, 64 KiB to 1024 GiB"),
    key("journal.keep", "0 to 1000000 files, 0 for all"),
    key("journal.sync", "never, close"),
    key("journal.buffer_bytes", "a size, 1 MiB to 16 GiB"),
    key("metrics.address", "an IP address and a port, such as 127.0.0.1:7412"),
    key("metrics.tls", "auto, on, off"),
    key("metrics.certificate", "a path"),
    key("metrics.key", "a path"),
    key("metrics.client_ca", "a path"),
    key("metrics.departed_s", "0 to 86400 seconds"),
    key("metrics.clock_error_max_us", "1 to 1000000 microseconds"),
    key("log.level", "error, warn, info, debug, trace"),
    key("log.format", "text, json"),
    key(
        ENTITLEMENT,
        "[[entitlement]] tables in the file, each with client and, where wanted, sessions_max, \
         symbols, policies",
    ),
];

/// Whether `path` is a section.
pub(super) fn is_section(path: &str) -> bool {
    KEYS.iter().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The known name most like `name`, when one is near enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = name.len().div_ceil(4).max(1);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Edits of one character that make one name of the other (Levenshtein).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_keys_share_a_variable() {
        let variables: HashSet<String> = KEYS.iter().map(Key::variable).collect();
        assert_eq!(variables.len(), KEYS.len());
    }

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("ring_byts", "ring_bytes"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }
}
