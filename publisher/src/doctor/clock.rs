//! Time: how it is read, and whether this machine's agrees with others'.

use tapecast_fabric::KernelClock;

use super::finding::{Check, Finding, Section, Step};
use super::host::Host;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let mut found = vec![source(host), counter(host)];
    // On one host there is one clock.
    if host.device.is_some() {
        found.extend([hardware(host), synchronised(host), kernel_state(host)]);
    }
    found
}

fn new(id: &str, title: &str, wanted: &str, why: &str) -> Check {
    Check::new(Section::Clock, format!("clock.{id}"), title, wanted, why)
}

/// Sources that are read without a system call.
const FAST: [&str; 3] = ["tsc", "arch_sys_counter", "kvm-clock"];

fn source(host: &Host<'_>) -> Finding {
    let why = "other sources take a system call or a device's register for every time stamp";
    let check = new("source", "clock source", "tsc (arch_sys_counter on Arm)", why);
    let home = "/sys/devices/system/clocksource/clocksource0";
    let path = format!("{home}/current_clocksource");
    let name = match host.root.value(&path) {
        Ok(name) => name,
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    };
    if !super::root::is_plain(&name) {
        return check.unreadable(&path, &name);
    }
    let offered = host.root.value(&format!("{home}/available_clocksource")).unwrap_or_default();
    check.warn_unless(FAST.contains(&name.as_str()), &name, || {
        if offered.split_whitespace().any(|source| source == "tsc") {
            return vec![Step::write("reads the time from the CPU's own counter", &path, "tsc")];
        }
        let text = "the kernel does not offer tsc: look for why in dmesg; tsc=reliable on its \
                    command line overrules it where the hardware is known to be good";
        vec![Step::by_hand("the kernel has put tsc aside", text)]
    })
}

fn counter(host: &Host<'_>) -> Finding {
    let why = "it must count at one rate in every state of power";
    let check = new("tsc", "CPU's time-stamp counter", "constant_tsc, nonstop_tsc", why);
    let text = match host.root.read("/proc/cpuinfo") {
        Ok(text) => text,
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    };
    let flags = text.lines().find_map(|line| {
        line.split_once(':').filter(|(name, _)| name.trim() == "flags").map(|(_, flags)| flags)
    });
    let Some(flags) = flags else {
        return check.unknown("/proc/cpuinfo shows no flags: this is no x86 machine");
    };
    let has = |wanted: &str| flags.split_whitespace().any(|flag| flag == wanted);
    let missing: Vec<&str> =
        ["constant_tsc", "nonstop_tsc"].into_iter().filter(|flag| !has(flag)).collect();
    let seen = match missing.is_empty() {
        true => "constant_tsc, nonstop_tsc".to_owned(),
        false => format!("without {}", missing.join(", ")),
    };
    check.warn_unless(missing.is_empty(), seen, || {
        let text = "a virtual machine has to be given an invariant counter by its host";
        vec![Step::by_hand("times taken on two cores may differ", text)]
    })
}

/// A PTP clock of the interface, or of any.
fn hardware(host: &Host<'_>) -> Finding {
    let why = "without time stamps of the NIC, one-way latency between hosts is a guess";
    let check = new("ptp_hardware", "PTP clock of the NIC", "present", why);
    let home = match host.ports.first() {
        Some(port) => format!("/sys/class/net/{port}/device/ptp"),
        None => "/sys/class/ptp".to_owned(),
    };
    match host.root.list(&home) {
        Ok(clocks) if !clocks.is_empty() => check.ok(clocks.join(", ")),
        Err(gap) if !gap.is_absent() => check.unknown(gap.reason("")),
        _ => check.warn(
            "none",
            vec![Step::by_hand(
                "one-way figures across hosts stay marked as unreliable",
                "use a NIC with a PTP clock, or trust round trips alone",
            )],
        ),
    }
}

/// Programs that steer the system's clock, by the first 15 letters of their names.
const STEERERS: [&str; 5] = ["ptp4l", "phc2sys", "chronyd", "ntpd", "systemd-timesyn"];

/// Whether one of them runs that can be good enough.
fn synchronised(host: &Host<'_>) -> Finding {
    let why = "one-way latency is the difference of two machines' clocks";
    let wanted = "ptp4l and phc2sys, or chronyd";
    let check = new("synchronised", "programs that steer the clock", wanted, why);
    let names = match &host.running {
        Ok(names) => names,
        Err(reason) => return check.unknown(reason),
    };
    let mut running = STEERERS.to_vec();
    running.retain(|name| names.contains(*name));
    let has = |name| running.contains(&name);
    let good = has("ptp4l") && has("phc2sys") || has("chronyd");
    let seen = if running.is_empty() { "none".to_owned() } else { running.join(", ") };
    check.warn_unless(good, seen, || {
        let interface = host.ports.first().map_or("IF", String::as_str);
        let text = format!(
            "run ptp4l -i {interface} -s and phc2sys -s {interface} -w (package linuxptp), or \
             chronyd with a hwtimestamp line"
        );
        vec![Step::by_hand("keeps the clock within a microsecond of the others", text)]
    })
}

/// Whether they have come to an end with it: a program that runs may have no source.
fn kernel_state(host: &Host<'_>) -> Finding {
    let why = "a program that steers the clock may run and have nothing to go by";
    let check = new("kernel_state", "kernel's state of the clock", "synchronised", why);
    match kernels_word(host) {
        Err(reason) => check.unknown(reason),
        Ok((good, seen)) => check.warn_unless(good, seen, || {
            let text = "look at the log of ptp4l and phc2sys, or at `chronyc tracking`";
            vec![Step::by_hand("finds out why the clock has no source", text)]
        }),
    }
}

/// The kernel itself is asked on this machine; of another, what was recorded.
fn kernels_word(host: &Host<'_>) -> Result<(bool, String), String> {
    if host.root.is_this_machine() {
        let clock = KernelClock::read();
        let clock = clock.map_err(|error| format!("the kernel does not tell: {error}"))?;
        let error = format!("off by at most {} us", clock.max_error_ns / 1_000);
        return Ok(match clock.synchronised {
            true => (true, format!("synchronised, {error}")),
            false => (false, "not synchronised".to_owned()),
        });
    }
    let command = "timedatectl show --property=NTPSynchronized";
    let text = host.tools().ask(command)?;
    match text.trim() {
        "NTPSynchronized=yes" => Ok((true, "synchronised".to_owned())),
        "NTPSynchronized=no" => Ok((false, "not synchronised".to_owned())),
        _ => Err(format!("the output of `{command}` is not understood")),
    }
}
