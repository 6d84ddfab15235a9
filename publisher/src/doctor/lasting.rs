//! What makes a remedy last: files of the kernel forget at a restart, files of the system's
//! configuration set them again.

use super::finding::{Act, Step};
use super::root::{Gap, Root, is_plain};

/// Where `sysctl` settings are set at each start.
const SYSCTL: &str = "/etc/sysctl.d/90-tapecast.conf";
/// Where systemd-tmpfiles finds what to write at each start.
const TMPFILES: &str = "/etc/tmpfiles.d/90-tapecast.conf";
/// Files that are there only once the card's driver is.
const OF_CARD: [&str; 4] =
    ["/sys/class/", "/sys/kernel/debug/", "/sys/kernel/config/", "/sys/devices/pci"];

/// A file of the system's configuration as it should be: what it had of ours, and what is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Its path.
    pub path: &'static str,
    /// What it is for.
    pub what: &'static str,
    /// Its lines.
    pub lines: Vec<String>,
}

impl Keep {
    /// As a step that makes the file.
    pub(super) fn step(&self) -> Step {
        let text = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let act = Act::Keep(self.path.to_owned(), text);
        Step { what: self.what.to_owned(), command: format!("write {}", self.path), act }
    }
}

/// The files that make these steps last, as far as files can.
pub(super) fn files(root: &Root, steps: &[&Step]) -> Vec<Keep> {
    let written = || steps.iter().flat_map(|step| step.act.writes());
    let settings = written().filter_map(|(path, value)| setting(path, value));
    let of_kernel = written().filter_map(|(path, value)| start_up(path, value));
    [
        merged(root, (SYSCTL, "settings of the kernel, at each start", is_setting), settings),
        merged(root, (TMPFILES, "other files of the kernel, at each start", is_write), of_kernel),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Whether a step is lost at a restart although no file keeps it: there only with the card, or done
/// by a program. What firmware is set to stays.
pub(super) fn is_lost(step: &Step) -> bool {
    match &step.act {
        Act::Run(words) => ["ip", "ethtool", "dcb"].contains(&words[0].as_str()),
        Act::Write(files) => files
            .iter()
            .any(|(path, value)| setting(path, value).or_else(|| start_up(path, value)).is_none()),
        Act::Keep(..) | Act::ByHand => false,
    }
}

/// A key and the whole line that sets it.
type Line = (String, String);

fn setting(path: &str, value: &str) -> Option<Line> {
    let key = path.strip_prefix("/proc/sys/")?.replace('/', ".");
    let line = format!("{key} = {value}");
    Some((key, line))
}

fn start_up(path: &str, value: &str) -> Option<Line> {
    let of_kernel = path.starts_with("/sys/") && !OF_CARD.iter().any(|home| path.starts_with(home));
    of_kernel.then(|| (path.to_owned(), format!("w {path} - - - - {value}")))
}

/// The key of a line of ours; what else the file holds is not ours to repeat.
fn is_setting(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let (key, value) = (key.trim(), value.trim());
    (is_plain(key) && value.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()))
        .then_some(key)
}

fn is_write(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["w", path, "-", "-", "-", "-", value] => {
            let plain = path.starts_with("/sys/") && path[1..].split('/').all(is_plain);
            (plain && (is_plain(value) || is_mask(value))).then_some(path)
        }
        _ => None,
    }
}

/// A set of CPUs as the kernel writes it, in words of 32.
fn is_mask(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b',')
}

/// A file, what it is for, and how a line of it shows its key.
type Kind = (&'static str, &'static str, fn(&str) -> Option<&str>);

/// What the file has of ours and is not set anew, and after it what is; none without anything new,
/// or where what it has cannot be seen.
fn merged(root: &Root, kind: Kind, new: impl Iterator<Item = Line>) -> Option<Keep> {
    let (path, what, key_of) = kind;
    let new: Vec<Line> = new.collect();
    if new.is_empty() {
        return None;
    }
    let before = match root.read(path) {
        Ok(text) => text,
        // To write it anew would lose what it has.
        Err(Gap::Denied(_)) => return None,
        // Where something else than a file is in its place, whoever makes the file says so.
        Err(_) => String::new(),
    };
    let stays = |line: &&str| key_of(line).is_some_and(|key| new.iter().all(|(one, _)| one != key));
    let mut lines = vec!["# Written by tapecast-publisher doctor.".to_owned()];
    lines.extend(before.lines().filter(stays).map(str::to_owned));
    lines.extend(new.iter().map(|(_, line)| line.clone()));
    Some(Keep { path, what, lines })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_by_their_keys_and_what_is_not_ours_has_none() {
        assert_eq!(
            is_setting("kernel.sched_rt_runtime_us = -1"),
            Some("kernel.sched_rt_runtime_us")
        );
        assert_eq!(is_write("w /sys/kernel/mm/ksm/run - - - - 2"), Some("/sys/kernel/mm/ksm/run"));
        for line in ["END", "# a = 1", "a = $(reboot)", "", "a b = 1"] {
            assert_eq!(is_setting(line), None, "{line}");
        }
        for line in ["END", "w /etc/passwd - - - - 1", "w /sys/a;b - - - - 1", "d /sys/a - - - - 1"]
        {
            assert_eq!(is_write(line), None, "{line}");
        }
    }

    #[test]
    fn every_line_that_is_written_is_known_again_when_the_file_is_written_anew() {
        for value in ["2", "performance", "0000ffff,ffffffff", "ff"] {
            let (key, line) = start_up("/sys/devices/virtual/workqueue/cpumask", value).unwrap();
            assert_eq!(is_write(&line), Some(&*key), "{line}");
        }
        for value in ["0", "-1", "65536"] {
            let (key, line) = setting("/proc/sys/vm/max_map_count", value).unwrap();
            assert_eq!(is_setting(&line), Some(&*key), "{line}");
        }
    }

    #[test]
    fn files_of_the_card_are_not_there_yet_when_a_start_writes_files() {
        assert!(start_up("/sys/kernel/mm/ksm/run", "2").is_some());
        for path in [
            "/sys/class/net/eth0/mtu",
            "/sys/kernel/debug/mlx5/0000:3b:00.0/cc_params/rp_gd",
            "/proc/irq/64/smp_affinity_list",
        ] {
            let step = Step::write("", path, 1);
            assert!(start_up(path, "1").is_none() && is_lost(&step), "{path}");
        }
    }
}
