//! What the kernel and its helpers do on their own, and on which cores.

use std::collections::BTreeSet;

use super::cpus::Cpus;
use super::finding::{Check, Finding, NOT_IN_KERNEL, Section, Step};
use super::host::{Device, Host, cpus_in};
use super::root::folder_of;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let settings = SETTINGS.iter().map(|setting| setting.check(host, Section::Kernel));
    let own = [work_queues(host), balancer(host), new_interrupts(host)];
    settings.chain(own).chain(interrupts(host)).collect()
}

/// What is wanted of a kernel setting.
#[derive(Debug)]
pub(super) enum Want {
    Is(i64),
    AtLeast(i64),
    AtMost(i64),
}

/// A kernel setting, as `sysctl` names it.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) key: &'static str,
    pub(super) want: Want,
    pub(super) why: &'static str,
}

const SETTINGS: [Setting; 6] = [
    Setting {
        key: "kernel.nmi_watchdog",
        want: Want::Is(0),
        why: "it takes a performance counter and interrupts every core",
    },
    Setting {
        key: "kernel.watchdog",
        want: Want::Is(0),
        why: "its thread runs on every core, every four seconds",
    },
    Setting {
        key: "kernel.sched_rt_runtime_us",
        want: Want::Is(-1),
        why: "a spinning real-time thread is otherwise stopped for 50 ms in each second",
    },
    Setting {
        key: "kernel.timer_migration",
        want: Want::Is(0),
        why: "timers of other cores otherwise move to the busy one",
    },
    Setting {
        key: "kernel.numa_balancing",
        want: Want::Is(0),
        why: "it unmaps pages to see who uses them: each costs a page fault",
    },
    Setting {
        key: "vm.stat_interval",
        want: Want::AtLeast(60),
        why: "statistics of memory are gathered on every core, each second by default",
    },
];

impl Setting {
    pub(super) fn check(&self, host: &Host<'_>, section: Section) -> Finding {
        let (good, wanted, set): (fn(i64, i64) -> bool, String, i64) = match self.want {
            Want::Is(value) => (|seen, value| seen == value, value.to_string(), value),
            Want::AtLeast(value) => {
                (|seen, value| seen >= value, format!("at least {value}"), value)
            }
            Want::AtMost(value) => (|seen, value| seen <= value, format!("at most {value}"), value),
        };
        let check = Check::new(section, self.key, self.key, wanted, self.why);
        let path = format!("/proc/sys/{}", self.key.replace('.', "/"));
        let text = match host.root.value(&path) {
            Ok(text) => text,
            Err(gap) if host.root.lacks(&gap, folder_of(&path)) => {
                return check.ok(NOT_IN_KERNEL);
            }
            Err(gap) => return check.unknown(gap.reason("no settings of a kernel are shown")),
        };
        let Ok(seen) = text.parse::<i64>() else { return check.unreadable(&path, &text) };
        check.warn_unless(good(seen, set), seen, || {
            let command = format!("sysctl -w {}={set}", self.key);
            let files = vec![(path, set.to_string())];
            vec![Step::writes(self.why, command, files)]
        })
    }
}

fn work_queues(host: &Host<'_>) -> Finding {
    let why = "deferred work of the kernel runs where it likes";
    let check = Check::new(
        Section::Kernel,
        "kernel.workqueues",
        "kernel work queues on",
        "no hot CPU",
        why,
    );
    let what = "keeps deferred work off the hot CPUs";
    masked(host, check, "/sys/devices/virtual/workqueue/cpumask", what)
}

/// Where interrupts go that nobody has placed yet, as those of a driver that is loaded later.
fn new_interrupts(host: &Host<'_>) -> Finding {
    let why = "a driver that is loaded later interrupts the CPUs in this mask";
    let check = Check::new(
        Section::Kernel,
        "kernel.irq_default",
        "interrupts that nobody has placed on",
        "no hot CPU",
        why,
    );
    let what = "keeps interrupts to come off the hot CPUs";
    masked(host, check, "/proc/irq/default_smp_affinity", what)
}

/// A mask of CPUs that must not have a hot one.
fn masked(host: &Host<'_>, check: Check, path: &str, what: &str) -> Finding {
    let text = match host.root.value(path) {
        Ok(text) => text,
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    };
    let Some(allowed) = Cpus::from_mask(&text) else { return check.unreadable(path, &text) };
    if host.hot.is_empty() {
        return check.unknown("no CPU is known as hot: name them with --cpus");
    }
    let online = host.online().unwrap_or_default();
    let allowed = if online.is_empty() { allowed } else { allowed.both(&online) };
    let rest = allowed.without(&host.hot);
    let good = allowed.both(&host.hot).is_empty();
    check.warn_unless(good, format!("CPUs {allowed}"), || {
        if rest.is_empty() {
            let text = "leave at least one CPU to the kernel: name fewer with --cpus";
            return vec![Step::by_hand("every CPU is hot", text)];
        }
        vec![Step::write(what, path, rest.to_mask())]
    })
}

fn balancer(host: &Host<'_>) -> Finding {
    let why = "it moves interrupts of other devices to the hot cores";
    let check = Check::new(Section::Kernel, "kernel.irqbalance", "irqbalance", "not running", why);
    match &host.running {
        Err(reason) => check.unknown(reason),
        Ok(names) => check.warn_unless(!names.contains("irqbalance"), state(names), || {
            let command = "systemctl disable --now irqbalance";
            vec![Step::run("interrupts stay where they are put", command)]
        }),
    }
}

fn state(names: &BTreeSet<String>) -> &'static str {
    if names.contains("irqbalance") { "running" } else { "not running" }
}

/// Interrupts of the RDMA device.
fn interrupts(host: &Host<'_>) -> Option<Finding> {
    let device = host.device.as_ref().filter(|device| device.is_card())?;
    Some(interrupts_of(host, device))
}

fn interrupts_of(host: &Host<'_>, device: &Device) -> Finding {
    let why = "an interrupt of the NIC on the sender's core costs microseconds";
    let check = Check::new(
        Section::Kernel,
        "kernel.irq_affinity",
        "interrupts of the device on",
        "no hot CPU",
        why,
    );
    if host.hot.is_empty() {
        return check.unknown("no CPU is known as hot: name them with --cpus");
    }
    let numbers = match host.root.list(&device.file("device/msi_irqs")) {
        Ok(numbers) => numbers,
        Err(gap) => return check.unknown(gap.reason("the device has no interrupts of its own")),
    };
    let rest = host.online().unwrap_or_default().without(&host.hot);
    let (mut used, mut wrong) = (Cpus::default(), Vec::new());
    for number in numbers {
        let path = format!("/proc/irq/{number}/smp_affinity_list");
        match cpus_in(host.root, &path) {
            Ok(cpus) => {
                if !cpus.both(&host.hot).is_empty() {
                    wrong.push((path, rest.to_string()));
                }
                used = used.iter().chain(cpus.iter()).collect();
            }
            // Not every vector that the device has is in use.
            Err(_) if !host.root.holds(&path) => {}
            Err(reason) => return check.unknown(reason),
        }
    }
    check.warn_unless(wrong.is_empty(), format!("CPUs {used}"), || {
        if rest.is_empty() {
            let text = "leave at least one CPU to interrupts: name fewer with --cpus";
            return vec![Step::by_hand("every CPU is hot", text)];
        }
        let command: Vec<String> =
            wrong.iter().map(|(path, list)| format!("echo {list} > {path}")).collect();
        vec![Step::writes("moves the device's interrupts", command.join("; "), wrong)]
    })
}
