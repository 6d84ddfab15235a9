//! What can be wrong with a host, one thing at a time, and what is found then.

use crate::trees::{Kind, Tree};

pub(crate) type Spoil = Box<dyn Fn(&Tree)>;
/// Machine, what is spoiled, and all that is then not ok.
pub(crate) type Case = (Kind, Spoil, Vec<&'static str>);

pub(crate) fn set(path: impl Into<String>, text: &'static str) -> Spoil {
    let path = path.into();
    Box::new(move |tree| tree.set(&path, text))
}

pub(crate) fn boxed(spoil: fn(&Tree)) -> Spoil {
    Box::new(spoil)
}

const CPU: &str = "sys/devices/system/cpu";

/// Everything that is spoiled on a host, whatever card it has.
pub(crate) fn spoiled_host() -> Vec<Case> {
    [spoiled_cpu(), spoiled_kernel(), spoiled_memory_and_clock()].into_iter().flatten().collect()
}

fn spoiled_cpu() -> Vec<Case> {
    use Kind::NoDevice;
    vec![
        (
            NoDevice,
            set(format!("{CPU}/isolated"), ""),
            vec!["warn cpu.isolated", "unknown kernel.workqueues", "unknown kernel.irq_default"],
        ),
        (NoDevice, set(format!("{CPU}/nohz_full"), "(null)"), vec!["warn cpu.nohz_full"]),
        (
            NoDevice,
            boxed(|tree| {
                tree.set("sys/devices/system/cpu/nohz_full", "4-5");
                tree.set("proc/cmdline", "quiet rcu_nocbs=2");
            }),
            vec!["warn cpu.nohz_full", "warn cpu.rcu_nocbs"],
        ),
        (
            NoDevice,
            boxed(|tree| {
                tree.set("sys/devices/system/cpu/smt/active", "1");
                for cpu in 2..6 {
                    let path =
                        format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
                    tree.set(&path, &format!("{cpu},{}", cpu + 4));
                }
            }),
            vec!["warn cpu.smt"],
        ),
        (
            NoDevice,
            set(format!("{CPU}/cpu4/cpufreq/scaling_governor"), "powersave"),
            vec!["warn cpu.governor"],
        ),
        // Not a hot CPU: nobody waits for it.
        (NoDevice, set(format!("{CPU}/cpu7/cpufreq/scaling_governor"), "powersave"), vec![]),
        // As in a virtual machine.
        (
            NoDevice,
            boxed(|tree| {
                for cpu in 0..8 {
                    tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"));
                    tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cpuidle"));
                    tree.set(&format!("sys/devices/system/cpu/cpu{cpu}/online"), "1");
                }
            }),
            vec![],
        ),
        (
            NoDevice,
            set(format!("{CPU}/cpu4/cpufreq/energy_performance_preference"), "balance_power"),
            vec!["warn cpu.preference"],
        ),
        (
            NoDevice,
            set(format!("{CPU}/cpu3/cpuidle/state2/disable"), "0"),
            vec!["warn cpu.c_states"],
        ),
    ]
}

fn spoiled_kernel() -> Vec<Case> {
    use Kind::NoDevice;
    vec![
        (NoDevice, set("proc/sys/kernel/nmi_watchdog", "1"), vec!["warn kernel.nmi_watchdog"]),
        (NoDevice, set("proc/sys/kernel/watchdog", "1"), vec!["warn kernel.watchdog"]),
        (
            NoDevice,
            set("proc/sys/kernel/sched_rt_runtime_us", "950000"),
            vec!["warn kernel.sched_rt_runtime_us"],
        ),
        (NoDevice, set("proc/sys/vm/stat_interval", "1"), vec!["warn vm.stat_interval"]),
        (NoDevice, set("proc/sys/vm/swappiness", "60"), vec!["warn vm.swappiness"]),
        (
            NoDevice,
            set("sys/devices/virtual/workqueue/cpumask", "ff"),
            vec!["warn kernel.workqueues"],
        ),
        (NoDevice, set("proc/900/comm", "irqbalance"), vec!["warn kernel.irqbalance"]),
        (NoDevice, set("proc/irq/default_smp_affinity", "ff"), vec!["warn kernel.irq_default"]),
    ]
}

fn spoiled_memory_and_clock() -> Vec<Case> {
    use Kind::{Mlx5, NoDevice};
    vec![
        (
            NoDevice,
            boxed(|tree| {
                tree.set(
                    "proc/swaps",
                    "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2",
                );
            }),
            vec!["warn memory.swap"],
        ),
        (
            NoDevice,
            set("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never"),
            vec!["warn memory.thp"],
        ),
        (
            NoDevice,
            set("sys/kernel/mm/transparent_hugepage/defrag", "[always] defer never"),
            vec!["warn memory.thp_defrag"],
        ),
        (NoDevice, set("sys/kernel/mm/ksm/run", "1"), vec!["warn memory.ksm"]),
        (
            NoDevice,
            boxed(|tree| {
                let home = "sys/devices/system/clocksource/clocksource0";
                tree.set(&format!("{home}/current_clocksource"), "hpet");
            }),
            vec!["warn clock.source"],
        ),
        (NoDevice, set("proc/cpuinfo", "flags : fpu constant_tsc"), vec!["warn clock.tsc"]),
        (
            NoDevice,
            boxed(|tree| tree.remove("proc")),
            vec![
                "unknown cpu.rcu_nocbs",
                "unknown kernel.nmi_watchdog",
                "unknown kernel.watchdog",
                "unknown kernel.sched_rt_runtime_us",
                "unknown kernel.timer_migration",
                "unknown kernel.numa_balancing",
                "unknown vm.stat_interval",
                "unknown kernel.irqbalance",
                "unknown kernel.irq_default",
                "unknown memory.memlock",
                "unknown memory.swap",
                "unknown vm.zone_reclaim_mode",
                "unknown vm.swappiness",
                "unknown clock.tsc",
            ],
        ),
        // Memory that may be locked matters to RDMA alone.
        (NoDevice, set("proc/self/limits", "Max locked memory  8388608  8388608  bytes"), vec![]),
        (
            Mlx5,
            set("proc/self/limits", "Max locked memory  8388608  8388608  bytes"),
            vec!["FAIL memory.memlock"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.set_bytes("proc/77/cmdline", b"/usr/bin/tapecast-publisher\0run\0");
                tree.set("proc/77/limits", "Max locked memory  65536  65536  bytes");
            }),
            vec!["FAIL memory.memlock"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.set_bytes("proc/77/cmdline", b"/usr/bin/tapecast-publisher\0run\0");
                tree.set("proc/77/limits", "Max locked memory  unlimited  unlimited  bytes");
                tree.set("proc/77/cgroup", "0::/system.slice/tapecast-publisher.service");
                let group = "sys/fs/cgroup/system.slice/tapecast-publisher.service";
                tree.set(&format!("{group}/memory.max"), "67108864");
            }),
            vec!["FAIL memory.cgroup"],
        ),
        (Mlx5, boxed(|tree| tree.remove("proc/813")), vec!["warn clock.synchronised"]),
        // A program that runs may have nothing to go by.
        (
            Mlx5,
            set("tool-output/timedatectl show --property=NTPSynchronized", "NTPSynchronized=no"),
            vec!["warn clock.kernel_state"],
        ),
        (
            Mlx5,
            boxed(|tree| tree.remove("tool-output/timedatectl show --property=NTPSynchronized")),
            vec!["unknown clock.kernel_state"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.remove("proc/813");
                tree.set("proc/814/comm", "chronyd");
            }),
            vec![],
        ),
    ]
}
