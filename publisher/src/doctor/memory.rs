//! Memory: what may be locked, what is swapped, what the kernel rearranges.

use super::finding::{Check, Finding, NOT_IN_KERNEL, Section, Step};
use super::host::Host;
use super::kernel::{Setting, Want};

/// The largest ring of a subscriber is 64 MiB; a publisher's pool and queues are less.
const LOCKED_BYTES: u64 = 128 << 20;

const SETTINGS: [Setting; 2] = [
    Setting {
        key: "vm.zone_reclaim_mode",
        want: Want::Is(0),
        why: "an allocation otherwise frees pages of its node first",
    },
    Setting {
        key: "vm.swappiness",
        want: Want::AtMost(10),
        why: "pages that are not locked go to the disk",
    },
];

const PAGES: &str = "/sys/kernel/mm";

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let settings = SETTINGS.iter().map(|setting| setting.check(host, Section::Memory));
    let own = [locked(host), swap(host), huge_pages(host), defragmentation(host), merging(host)];
    own.into_iter().chain(group(host)).chain(settings).collect()
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Memory, format!("memory.{id}"), title, wanted, why)
}

/// What the running publisher may lock or, without one, a process of this shell.
fn locked(host: &Host<'_>) -> Finding {
    let why = "memory for RDMA is locked: registering it fails beyond the limit";
    let check = new("memlock", "memory that may be locked", "unlimited, or 128 MiB", why);
    let (path, whose) = match publisher(host) {
        Some(pid) => (format!("/proc/{pid}/limits"), "of the running publisher"),
        None => ("/proc/self/limits".to_owned(), "of this shell"),
    };
    let text = match host.root.read(&path) {
        Ok(text) => text,
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    };
    let line = text.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    let Some(soft) = soft else { return check.unreadable(&path, &text) };
    if soft == "unlimited" {
        return check.ok(format!("unlimited, {whose}"));
    }
    let Ok(bytes) = soft.parse::<u64>() else { return check.unreadable(&path, soft) };
    let seen = format!("{} KiB, {whose}", bytes / 1024);
    if host.device.is_none() {
        return check.ok(format!("{seen}; shared memory is not locked"));
    }
    check.fail_unless(bytes >= LOCKED_BYTES, seen, || {
        let text = "add `* - memlock unlimited` to /etc/security/limits.d/tapecast.conf and log \
                    in again; for a service, LimitMEMLOCK=infinity in its unit";
        vec![Step::by_hand("lets the publisher lock its rings", text)]
    })
}

/// What the group of the running publisher may use; without one there is no group to look at.
fn group(host: &Host<'_>) -> Option<Finding> {
    let list = host.root.read(&format!("/proc/{}/cgroup", publisher(host)?)).ok()?;
    let group = list.lines().find_map(|line| line.strip_prefix("0::/"))?.trim_end_matches('/');
    let why = "rings and pool count, and a group at its limit waits for its pages or is ended";
    let check = new("cgroup", "limit of the publisher's group", "none, or 128 MiB", why);
    let home = ["/sys/fs/cgroup", group].join(if group.is_empty() { "" } else { "/" });
    let path = format!("{home}/memory.max");
    let text = match host.root.value(&path) {
        Ok(text) => text,
        // The root of all groups has no limit.
        Err(gap) if group.is_empty() && host.root.lacks(&gap, &home) => {
            return Some(check.ok("none"));
        }
        Err(gap) => return Some(check.unknown(gap.reason("the group's limit is not shown"))),
    };
    if text == "max" {
        return Some(check.ok("none"));
    }
    let Ok(bytes) = text.parse::<u64>() else { return Some(check.unreadable(&path, &text)) };
    Some(check.fail_unless(bytes >= LOCKED_BYTES, format!("{} KiB", bytes / 1024), || {
        let text = "set MemoryMax=infinity in the publisher's unit, then restart it";
        vec![Step::by_hand("lets the publisher have its rings", text)]
    }))
}

/// The process of a publisher that runs; this one, which only looks, is not meant.
fn publisher(host: &Host<'_>) -> Option<String> {
    let processes = host.root.list("/proc").ok()?;
    processes.into_iter().filter(|name| name.bytes().all(|b| b.is_ascii_digit())).find(|pid| {
        let line = host.root.read(&format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split('\0');
        words.next().is_some_and(|program| program.ends_with("tapecast-publisher"))
            && matches!(words.next(), Some("run" | "replay"))
    })
}

fn swap(host: &Host<'_>) -> Finding {
    let why = "a page that comes back from the disk costs milliseconds";
    let check = new("swap", "swap", "off", why);
    let text = match host.root.read("/proc/swaps") {
        Ok(text) => text,
        Err(gap) if host.root.lacks(&gap, "/proc") => return check.ok(NOT_IN_KERNEL),
        Err(gap) => return check.unknown(gap.reason("no swap is shown")),
    };
    if !text.starts_with("Filename") {
        return check.unreadable("/proc/swaps", &text);
    }
    let used = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let used: Vec<&str> = used.collect();
    let seen = if used.is_empty() { "off".to_owned() } else { used.join(", ") };
    check.warn_unless(used.is_empty(), seen, || {
        vec![
            Step::run("takes every page back into memory", "swapoff -a"),
            Step::by_hand("or it is on again after a restart", "remove swap from /etc/fstab"),
        ]
    })
}

/// The choice in brackets or, where a file was only just written, all of it.
fn chosen(text: &str) -> Option<&str> {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    let word = inside.map_or(text, |(word, _)| word).trim();
    (!word.is_empty() && super::root::is_plain(word)).then_some(word)
}

/// A file that offers words to choose from.
fn choice(host: &Host<'_>, check: Check, path: &str, good: &[&str], what: &str) -> Finding {
    let text = match host.root.value(path) {
        Ok(text) => text,
        Err(gap) if host.root.lacks(&gap, PAGES) => return check.ok(NOT_IN_KERNEL),
        Err(gap) => return check.unknown(gap.reason("nothing of its memory is shown")),
    };
    let Some(word) = chosen(&text) else { return check.unreadable(path, &text) };
    check.warn_unless(good.contains(&word), word, || vec![Step::write(what, path, good[0])])
}

fn huge_pages(host: &Host<'_>) -> Finding {
    let why = "building a huge page under a running process stalls it";
    let check = new("thp", "transparent huge pages", "madvise or never", why);
    let path = format!("{PAGES}/transparent_hugepage/enabled");
    choice(host, check, &path, &["madvise", "never"], "huge pages only for those who ask")
}

fn defragmentation(host: &Host<'_>) -> Finding {
    let why = "a page fault otherwise waits until memory has been moved";
    let wanted = "never, madvise or defer";
    let check = new("thp_defrag", "making room for huge pages", wanted, why);
    let path = format!("{PAGES}/transparent_hugepage/defrag");
    let good = ["never", "madvise", "defer", "defer+madvise"];
    choice(host, check, &path, &good, "no page fault waits for memory to be moved")
}

fn merging(host: &Host<'_>) -> Finding {
    let why = "it scans memory and turns writes into page faults";
    let check = new("ksm", "merging of equal pages", "off (0 or 2)", why);
    let path = format!("{PAGES}/ksm/run");
    match host.root.value(&path) {
        Err(gap) if host.root.lacks(&gap, PAGES) => check.ok(NOT_IN_KERNEL),
        Err(gap) => check.unknown(gap.reason("nothing of its memory is shown")),
        Ok(text) => match text.parse::<u8>() {
            Err(_) => check.unreadable(&path, &text),
            Ok(seen) => check.warn_unless(seen != 1, seen, || {
                vec![Step::write("ends it and takes merged pages apart", &path, 2)]
            }),
        },
    }
}
