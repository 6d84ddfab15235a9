//! Cores: who else runs on them, how fast they are, how deep they sleep.

use super::cpus::Cpus;
use super::finding::{Check, Finding, NOT_IN_KERNEL, Section, Step};
use super::host::{Host, cpus_in};
use super::root::folder_of;

const CPU: &str = "/sys/devices/system/cpu";
/// A core that takes longer than this to wake, in microseconds, sleeps too deep.
const WAKE_US: u64 = 2;
/// Kernels have at most ten states.
const STATES_MAX: usize = 10;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    vec![
        isolated(host),
        ticks(host),
        callbacks(host),
        siblings(host),
        governor(host),
        preference(host),
        sleep_states(host),
    ]
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Cpu, format!("cpu.{id}"), title, wanted, why)
}

/// A parameter that takes the hot CPUs away from the kernel. Of all of them it cannot be.
fn boot_parameter(host: &Host<'_>, what: &str, parameter: &str) -> Vec<Step> {
    if host.all_are_hot() {
        let text = "leave at least one CPU to the kernel: name fewer with --cpus";
        return vec![Step::by_hand("every CPU is hot", text)];
    }
    vec![Step::by_hand(
        what.to_owned(),
        format!(
            "add {parameter} to GRUB_CMDLINE_LINUX in /etc/default/grub, run update-grub, restart"
        ),
    )]
}

/// Hot CPUs as a text, or what stands for them.
fn hot_list(host: &Host<'_>) -> String {
    if host.hot.is_empty() { "the hot CPUs".to_owned() } else { host.hot.to_string() }
}

/// How a set of CPUs is shown.
fn shown(cpus: &Cpus) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}

/// Whether all hot CPUs are in the list of a file.
fn covered(host: &Host<'_>, check: Check, path: &str, parameter: &str) -> Finding {
    match cpus_in(host.root, path) {
        Err(reason) => check.unknown(reason),
        Ok(listed) => {
            let good = !listed.is_empty() && host.hot.without(&listed).is_empty();
            check.warn_unless(good, shown(&listed), || {
                boot_parameter(
                    host,
                    "keeps everything else off the cores of sender and receiver",
                    &format!("{parameter}{}", hot_or_any(host)),
                )
            })
        }
    }
}

/// What to write where nobody has said which CPUs are hot.
fn hot_or_any(host: &Host<'_>) -> String {
    if host.hot.is_empty() { "LIST".to_owned() } else { host.hot.to_string() }
}

fn isolated(host: &Host<'_>) -> Finding {
    let why = "any other task on the sender's core delays a snapshot by a time slice";
    let check = new("isolated", "isolated CPUs", hot_list(host), why);
    covered(host, check, &format!("{CPU}/isolated"), "isolcpus=managed_irq,domain,")
}

fn ticks(host: &Host<'_>) -> Finding {
    let why = "the scheduler's tick interrupts a core 100 to 1000 times a second";
    let check = new("nohz_full", "CPUs without a tick", hot_list(host), why);
    covered(host, check, &format!("{CPU}/nohz_full"), "nohz_full=")
}

/// Callbacks of the kernel's RCU; CPUs without a tick are without them, too.
fn callbacks(host: &Host<'_>) -> Finding {
    let why = "freeing the kernel's memory on the sender's core takes microseconds";
    let check = new("rcu_nocbs", "CPUs without RCU callbacks", hot_list(host), why);
    let line = match host.root.value("/proc/cmdline") {
        Ok(line) => line,
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    };
    let parameter = line.split_whitespace().find_map(|word| word.strip_prefix("rcu_nocbs="));
    let listed = match parameter {
        Some("all") => host.online().unwrap_or_default(),
        Some(list) => match list.parse() {
            Ok(listed) => listed,
            Err(_) => return check.unreadable("/proc/cmdline", &format!("rcu_nocbs={list}")),
        },
        None => Cpus::default(),
    };
    let without_tick = cpus_in(host.root, &format!("{CPU}/nohz_full")).unwrap_or_default();
    let all: Cpus = listed.iter().chain(without_tick.iter()).collect();
    let good = !all.is_empty() && host.hot.without(&all).is_empty();
    check.warn_unless(good, shown(&all), || {
        let parameter = format!("rcu_nocbs={}", hot_or_any(host));
        boot_parameter(host, "moves those callbacks to other cores", &parameter)
    })
}

fn siblings(host: &Host<'_>) -> Finding {
    let why = "two hardware threads share one core's caches and ports";
    let check = new("smt", "hardware threads", "off, or the sibling of a hot CPU idle", why);
    match host.root.value(&format!("{CPU}/smt/active")).as_deref() {
        Ok("0") => return check.ok("off"),
        Ok("1") => {}
        Ok(other) => return check.unreadable(&format!("{CPU}/smt/active"), other),
        Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
    }
    if host.hot.is_empty() {
        return check.unknown("no CPU is known as hot: name them with --cpus");
    }
    let isolated = cpus_in(host.root, &format!("{CPU}/isolated")).unwrap_or_default();
    let mut threads = Threads::default();
    for cpu in host.hot.iter() {
        let path = format!("{CPU}/cpu{cpu}/topology/thread_siblings_list");
        match cpus_in(host.root, &path) {
            Ok(siblings) => threads.add(cpu, &siblings, host, &isolated),
            Err(reason) => return check.unknown(reason),
        }
    }
    let busy: Cpus = threads.hot.iter().chain(threads.others.iter()).collect();
    let seen = format!("on; busy siblings of hot CPUs: {}", shown(&busy));
    check.warn_unless(busy.is_empty(), seen, || threads.steps())
}

/// Hot CPUs and who shares their cores.
#[derive(Default)]
struct Threads {
    /// The first hot CPU of each core.
    first: Cpus,
    /// Hot CPUs whose sibling is hot.
    hot: Cpus,
    /// Siblings that others may run on.
    others: Cpus,
}

impl Threads {
    fn add(&mut self, cpu: u32, siblings: &Cpus, host: &Host<'_>, isolated: &Cpus) {
        let hot = siblings.both(&host.hot);
        if hot.iter().next().is_none_or(|first| first == cpu) {
            self.first = self.first.iter().chain([cpu]).collect();
        }
        if hot.iter().any(|other| other != cpu) {
            self.hot = self.hot.iter().chain([cpu]).collect();
        }
        // A sibling that nothing runs on is as good as none.
        let others = siblings.without(&host.hot).without(isolated);
        self.others = self.others.iter().chain(others.iter()).collect();
    }

    /// By hand: switching threads off takes CPUs away from whoever runs on them, hot ones, too.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        if !self.hot.is_empty() {
            let text = format!("choose one thread per core: --cpus {}", self.first);
            steps.push(Step::by_hand("hot CPUs share a core with each other", text));
        }
        if !self.others.is_empty() {
            let text = format!(
                "isolate CPUs {}, too; or switch hardware threads off in the firmware's setup or \
                 with nosmt on the kernel's command line, then restart",
                self.others
            );
            steps.push(Step::by_hand("keeps the other threads of hot cores idle", text));
        }
        steps
    }
}

fn governor(host: &Host<'_>) -> Finding {
    let why = "a core that has clocked down takes tens of microseconds to come up";
    let check = new("governor", "frequency governor", "performance", why);
    let cpus = match host.hot_or_all() {
        Ok(cpus) => cpus,
        Err(reason) => return check.unknown(reason),
    };
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for cpu in cpus.iter() {
        let path = format!("{CPU}/cpu{cpu}/cpufreq/scaling_governor");
        match host.root.value(&path) {
            Ok(name) if !super::root::is_plain(&name) => return check.unreadable(&path, &name),
            Ok(name) => {
                if name != "performance" {
                    wrong.push((cpu, path));
                }
                if !seen.contains(&name) {
                    seen.push(name);
                }
            }
            // Nothing governs the frequency, as in a virtual machine.
            Err(gap) if host.root.lacks(&gap, &format!("{CPU}/cpu{cpu}")) => {}
            Err(gap) => return check.unknown(gap.reason("nothing of this CPU is shown")),
        }
    }
    let which: Cpus = wrong.iter().map(|(cpu, _)| *cpu).collect();
    let suffix = if which.is_empty() { String::new() } else { format!(" (CPUs {which})") };
    let seen = if seen.is_empty() { NOT_IN_KERNEL.to_owned() } else { seen.join(", ") };
    check.warn_unless(wrong.is_empty(), seen + &suffix, || {
        let command = format!("cpupower -c {which} frequency-set -g performance");
        let files = wrong.into_iter().map(|(_, path)| (path, "performance".to_owned())).collect();
        vec![Step::writes("keeps the cores at their full frequency", command, files)]
    })
}

/// What the hardware is told to prefer, where it chooses the frequency itself.
fn preference(host: &Host<'_>) -> Finding {
    let why = "the hardware itself clocks a core down that it thinks idle";
    let check = new("preference", "energy preference of the hardware", "performance", why);
    let cpus = match host.hot_or_all() {
        Ok(cpus) => cpus,
        Err(reason) => return check.unknown(reason),
    };
    let (mut seen, mut files) = (Vec::new(), Vec::new());
    for cpu in cpus.iter() {
        let home = format!("{CPU}/cpu{cpu}");
        let path = format!("{home}/cpufreq/energy_performance_preference");
        let word = match host.root.value(&path) {
            Ok(word) if super::root::is_plain(&word) => word,
            Ok(other) => return check.unreadable(&path, &other),
            // There with some drivers alone.
            Err(gap)
                if [home.as_str(), folder_of(&path)].iter().any(|at| host.root.lacks(&gap, at)) =>
            {
                continue;
            }
            Err(gap) => return check.unknown(gap.reason("this kernel does not tell")),
        };
        if word != "performance" {
            files.push((path, "performance".to_owned()));
        }
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    let seen = if seen.is_empty() { NOT_IN_KERNEL.to_owned() } else { seen.join(", ") };
    check.warn_unless(files.is_empty(), seen, || {
        let commands: Vec<String> =
            files.iter().map(|(path, word)| format!("echo {word} > {path}")).collect();
        let what = "the hardware keeps the cores at their full frequency";
        vec![Step::writes(what, commands.join("; "), files)]
    })
}

/// States that a CPU may sleep in although it wakes late: the file that disables each. None where
/// the kernel manages no such states, as in a virtual machine.
fn deep_states(host: &Host<'_>, cpu: u32) -> Result<Option<Vec<(String, String)>>, String> {
    let home = format!("{CPU}/cpu{cpu}/cpuidle");
    let absence = "nothing of this CPU's idle states is shown";
    let states = match host.root.list(&home) {
        Ok(states) => states,
        Err(gap) if host.root.lacks(&gap, &format!("{CPU}/cpu{cpu}")) => return Ok(None),
        Err(gap) => return Err(gap.reason(absence)),
    };
    let mut deep = Vec::new();
    for state in states.iter().filter(|name| name.starts_with("state")).take(STATES_MAX) {
        let number = |file: &str| {
            let path = format!("{home}/{state}/{file}");
            let text = host.root.value(&path).map_err(|gap| gap.reason(absence))?;
            let shown = super::finding::excerpt(&text);
            text.parse::<u64>().map_err(|_| format!("{path} reads {shown:?}, which is no number"))
        };
        if number("latency")? > WAKE_US && number("disable")? == 0 {
            let name = host.root.value(&format!("{home}/{state}/name")).unwrap_or_default();
            deep.push((name, format!("{home}/{state}/disable")));
        }
    }
    Ok(Some(deep))
}

fn sleep_states(host: &Host<'_>) -> Finding {
    let why = "a core in a deep state takes 20 to 200 us to wake";
    let wanted = format!("none that takes more than {WAKE_US} us to leave");
    let check = new("c_states", "idle states", wanted, why);
    let cpus = match host.hot_or_all() {
        Ok(cpus) => cpus,
        Err(reason) => return check.unknown(reason),
    };
    let (mut names, mut files, mut managed) = (Vec::new(), Vec::new(), false);
    for cpu in cpus.iter() {
        match deep_states(host, cpu) {
            Err(reason) => return check.unknown(reason),
            Ok(deep) => {
                managed |= deep.is_some();
                for (name, path) in deep.into_iter().flatten() {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                    files.push((path, "1".to_owned()));
                }
            }
        }
    }
    let seen = match names.is_empty() {
        true => if managed { "none" } else { NOT_IN_KERNEL }.to_owned(),
        false => names.join(", "),
    };
    check.warn_unless(names.is_empty(), seen, || {
        // It takes the least latency that is too much.
        let command = format!("cpupower -c {cpus} idle-set -D {}", WAKE_US + 1);
        vec![Step::writes("keeps the cores from sleeping deep", command, files)]
    })
}
