//! What is found on each machine, in full, and what changes when one thing is spoiled.

use tapecast_publisher::doctor::{Report, Status};

use crate::support::{lines, troubles};
use crate::trees::{IF, Kind, Tree};

/// Every machine has these, in this order.
const HOST: [&str; 23] = [
    "ok cpu.isolated",
    "ok cpu.nohz_full",
    "ok cpu.rcu_nocbs",
    "ok cpu.smt",
    "ok cpu.governor",
    "ok cpu.preference",
    "ok cpu.c_states",
    "ok kernel.nmi_watchdog",
    "ok kernel.watchdog",
    "ok kernel.sched_rt_runtime_us",
    "ok kernel.timer_migration",
    "ok kernel.numa_balancing",
    "ok vm.stat_interval",
    "ok kernel.workqueues",
    "ok kernel.irqbalance",
    "ok kernel.irq_default",
    "ok memory.memlock",
    "ok memory.swap",
    "ok memory.thp",
    "ok memory.thp_defrag",
    "ok memory.ksm",
    "ok vm.zone_reclaim_mode",
    "ok vm.swappiness",
];

const CLOCK: [&str; 5] = [
    "ok clock.source",
    "ok clock.tsc",
    "ok clock.ptp_hardware",
    "ok clock.synchronised",
    "ok clock.kernel_state",
];

const SLOT: [&str; 7] = [
    "ok pcie.link_speed",
    "ok pcie.link_width",
    "ok pcie.aspm",
    "ok pcie.l1_aspm",
    "ok pcie.iommu",
    "ok pcie.numa",
    "ok pcie.errors",
];

const PORT: [&str; 9] = [
    "ok link.state",
    "ok link.mtu",
    "ok link.global_pause",
    "ok rdma.device",
    "ok rdma.port_state",
    "ok rdma.phys_state",
    "ok rdma.link_layer",
    "ok rdma.gid",
    "ok rdma.traffic_class",
];

const MLX5: [&str; 19] = [
    "ok dcqcn.clamp_tgt_rate_after_time_inc",
    "ok dcqcn.clamp_tgt_rate",
    "ok dcqcn.rpg_time_reset",
    "ok dcqcn.rpg_byte_reset",
    "ok dcqcn.rpg_threshold",
    "ok dcqcn.rpg_max_rate",
    "ok dcqcn.rpg_ai_rate",
    "ok dcqcn.rpg_hai_rate",
    "ok dcqcn.rpg_gd",
    "ok dcqcn.rpg_min_dec_fac",
    "ok dcqcn.rpg_min_rate",
    "ok dcqcn.rate_to_set_on_first_cnp",
    "ok dcqcn.dce_tcp_g",
    "ok dcqcn.dce_tcp_rtt",
    "ok dcqcn.rate_reduce_monitor_period",
    "ok dcqcn.initial_alpha_value",
    "ok dcqcn.min_time_between_cnps",
    "ok dcqcn.cnp_dscp",
    "ok dcqcn.cnp_802p_prio",
];

/// Everything that is found on a machine in order.
fn expected(kind: Kind) -> Vec<&'static str> {
    let mut all = HOST.to_vec();
    if kind != Kind::NoDevice && kind != Kind::Rxe {
        all.insert(16, "ok kernel.irq_affinity");
    }
    all.extend(&CLOCK[..if kind == Kind::NoDevice { 2 } else { 5 }]);
    let card = [&SLOT[..], &PORT[..]].concat();
    match kind {
        Kind::NoDevice => all.push("ok rdma.device"),
        Kind::Rxe => {
            all.extend(PORT.iter().filter(|line| **line != "ok link.global_pause"));
            all.extend(["warn dcqcn.engine", "ok counters.device"]);
        }
        Kind::Mlx5 => {
            all.extend(card);
            all.extend(["ok qos.dscp_priority", "ok qos.pfc", "ok dcqcn.priorities"]);
            all.extend(MLX5);
            all.extend(["ok counters.device", "ok counters.interface"]);
        }
        Kind::Mlx5Vendor => {
            all.extend(card);
            all.extend(["ok rdma.forced_class", "ok qos.trust", "ok qos.dscp_priority"]);
            all.extend(["ok qos.pfc", "ok dcqcn.reaction", "ok dcqcn.notification"]);
            all.extend(MLX5);
            all.extend(["ok counters.device", "ok counters.interface"]);
        }
        Kind::BnxtRe => {
            all.extend(card);
            all.extend(["ok qos.dscp_priority", "ok qos.pfc", "ok dcqcn.enable_cc"]);
            all.extend(["ok dcqcn.cc_mode", "ok dcqcn.tos_ecn", "ok dcqcn.tos_dscp"]);
            all.extend(["ok dcqcn.cnp_dscp", "ok counters.device"]);
        }
    }
    all.into_iter()
        .map(|line| match (kind, line) {
            // Software, on an interface without a clock of its own.
            (Kind::Rxe, "ok rdma.device") => "warn rdma.device",
            (Kind::Rxe, "ok clock.ptp_hardware") => "warn clock.ptp_hardware",
            _ => line,
        })
        .collect()
}

#[test]
fn a_machine_in_order_is_found_in_order() {
    for kind in Kind::ALL {
        assert_eq!(lines(&Tree::good(kind).examine("default")), expected(kind), "{kind:?}");
    }
}

type Spoil = Box<dyn Fn(&Tree)>;
/// Machine, what is spoiled, and all that is then not ok.
type Case = (Kind, Spoil, Vec<&'static str>);

fn set(path: impl Into<String>, text: &'static str) -> Spoil {
    let path = path.into();
    Box::new(move |tree| tree.set(&path, text))
}

fn boxed(spoil: fn(&Tree)) -> Spoil {
    Box::new(spoil)
}

const CPU: &str = "sys/devices/system/cpu";
const ECN: &str = "sys/class/net/enp59s0f0np0/ecn";
const CC: &str = "sys/kernel/debug/mlx5/0000:3b:00.0/cc_params";
const BNXT: &str = "sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config";
const SLOT_AT: &str = "sys/devices/pci0000:3a/0000:3b:00.0";
const HW: &str = "ports/1/hw_counters";

fn spoiled() -> Vec<Case> {
    let parts = [
        spoiled_cpu(),
        spoiled_kernel(),
        spoiled_memory_and_clock(),
        spoiled_slot(),
        spoiled_link_and_device(),
        spoiled_priorities(),
        spoiled_control(),
        spoiled_counters(),
    ];
    parts.into_iter().flatten().collect()
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

fn spoiled_slot() -> Vec<Case> {
    use Kind::Mlx5;
    vec![
        (
            Mlx5,
            set(format!("{SLOT_AT}/current_link_speed"), "8.0 GT/s PCIe"),
            vec!["warn pcie.link_speed"],
        ),
        (Mlx5, set(format!("{SLOT_AT}/current_link_width"), "8"), vec!["warn pcie.link_width"]),
        (
            Mlx5,
            set("sys/module/pcie_aspm/parameters/policy", "[default] performance"),
            vec!["warn pcie.aspm"],
        ),
        (Mlx5, set(format!("{SLOT_AT}/link/l1_aspm"), "1"), vec!["warn pcie.l1_aspm"]),
        (Mlx5, set(format!("{SLOT_AT}/iommu_group/type"), "DMA-FQ"), vec!["warn pcie.iommu"]),
        (
            Mlx5,
            boxed(|tree| {
                tree.remove("sys/devices/pci0000:3a/0000:3b:00.0/iommu_group");
            }),
            vec![],
        ),
        (Mlx5, set(format!("{SLOT_AT}/local_cpulist"), "8-15"), vec!["warn pcie.numa"]),
        (
            Mlx5,
            set(format!("{SLOT_AT}/aer_dev_fatal"), "TOTAL_ERR_FATAL 2"),
            vec!["warn pcie.errors"],
        ),
        (Mlx5, set("proc/irq/65/smp_affinity_list", "4-7"), vec!["warn kernel.irq_affinity"]),
        (
            Mlx5,
            boxed(|tree| tree.remove("sys/devices/pci0000:3a/0000:3b:00.0/ptp")),
            vec!["warn clock.ptp_hardware"],
        ),
    ]
}

fn spoiled_link_and_device() -> Vec<Case> {
    use Kind::{Mlx5, Mlx5Vendor, Rxe};
    let on_rxe = ["warn clock.ptp_hardware", "warn rdma.device", "warn dcqcn.engine"];
    vec![
        (Mlx5, set("sys/class/net/enp59s0f0np0/operstate", "down"), vec!["FAIL link.state"]),
        (Mlx5, set("sys/class/net/enp59s0f0np0/mtu", "1500"), vec!["warn link.mtu"]),
        (Mlx5, set("sys/class/net/enp59s0f0np0/mtu", "4191"), vec!["warn link.mtu"]),
        (Mlx5, set("sys/class/net/enp59s0f0np0/mtu", "4192"), vec![]),
        // Its headers are shorter.
        (Rxe, set("sys/class/net/enp59s0f0np0/mtu", "4176"), on_rxe.to_vec()),
        (
            Rxe,
            set("sys/class/net/enp59s0f0np0/mtu", "4175"),
            [&on_rxe[..1], &["warn link.mtu"], &on_rxe[1..]].concat(),
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.tool(&format!("ethtool -a {IF}"), "Pause parameters:\nRX:\ton\nTX:\toff");
            }),
            vec!["warn link.global_pause"],
        ),
        (
            Mlx5,
            boxed(|tree| tree.remove(&format!("tool-output/ethtool -a {IF}"))),
            vec!["unknown link.global_pause"],
        ),
        // RDMA
        (
            Mlx5,
            set("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN"),
            vec!["FAIL rdma.port_state"],
        ),
        (
            Mlx5,
            set("sys/class/infiniband/mlx5_0/ports/1/phys_state", "3: Disabled"),
            vec!["FAIL rdma.phys_state"],
        ),
        (
            Mlx5,
            set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode", "IB/RoCE v1"),
            vec!["warn rdma.default_mode"],
        ),
        (
            Mlx5,
            set("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand"),
            vec!["FAIL rdma.link_layer"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                for index in [1, 3] {
                    let home = "sys/class/infiniband/mlx5_0/ports/1/gid_attrs/types";
                    tree.set(&format!("{home}/{index}"), "IB/RoCE v1");
                }
            }),
            vec!["FAIL rdma.gid"],
        ),
        // Addresses that no other network knows.
        (
            Mlx5,
            set(
                "sys/class/infiniband/mlx5_0/ports/1/gids/3",
                "fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
            ),
            vec!["FAIL rdma.gid"],
        ),
        (
            Mlx5,
            set("etc/tapecast/publisher.toml", "[rdma]\ntraffic_class = 104"),
            vec!["FAIL rdma.traffic_class"],
        ),
        (
            Mlx5,
            set("etc/tapecast/publisher.toml", "[rdma]\ntraffic_class = 98"),
            vec!["warn rdma.traffic_class"],
        ),
        (
            Mlx5,
            set("sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", "0"),
            vec!["warn rdma.default_tos"],
        ),
        (
            Mlx5Vendor,
            set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=104"),
            vec!["FAIL rdma.forced_class"],
        ),
        (
            Mlx5Vendor,
            set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=98"),
            vec!["warn rdma.forced_class"],
        ),
        (Mlx5Vendor, set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", ""), vec![]),
    ]
}

fn spoiled_priorities() -> Vec<Case> {
    use Kind::{Mlx5, Mlx5Vendor};
    vec![
        (Mlx5Vendor, set("sys/class/net/enp59s0f0np0/qos/trust", "pcp"), vec!["FAIL qos.trust"]),
        (
            Mlx5,
            boxed(|tree| tree.tool(&format!("dcb -N app show dev {IF}"), "")),
            vec!["warn qos.dscp_priority"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.tool(&format!("dcb -N app show dev {IF}"), "dscp-prio 26:3 48:3 ");
            }),
            vec!["warn qos.dscp_priority"],
        ),
        // Two priorities for one DSCP: nobody knows which of them counts.
        (
            Mlx5,
            boxed(|tree| {
                tree.tool(&format!("dcb -N app show dev {IF}"), "dscp-prio 26:3 26:5 48:6 ");
            }),
            vec!["warn qos.dscp_priority"],
        ),
        (Mlx5, boxed(|tree| tree.pauses("3,4")), vec!["FAIL qos.pfc", "warn qos.pfc_shared"]),
        (Mlx5, boxed(|tree| tree.pauses("5")), vec!["FAIL qos.pfc"]),
        (
            Mlx5,
            boxed(|tree| tree.remove(&format!("tool-output/dcb pfc show dev {IF}"))),
            vec!["unknown qos.pfc"],
        ),
    ]
}

fn spoiled_control() -> Vec<Case> {
    use Kind::{BnxtRe, Mlx5, Mlx5Vendor};
    vec![
        // Congestion control, in-tree
        (
            Mlx5,
            boxed(|tree| tree.firmware("ROCE_CC_PRIO_MASK", 0xf7, 0xf7)),
            vec!["FAIL dcqcn.priorities"],
        ),
        (
            Mlx5,
            boxed(|tree| tree.remove("tool-output/mlxconfig -d 0000:3b:00.0 -e q")),
            vec!["unknown dcqcn.priorities"],
        ),
        // Through the firmware's tool.
        (Mlx5, boxed(|tree| tree.remove("sys/kernel/debug")), vec![]),
        (
            Mlx5,
            boxed(|tree| {
                tree.remove("sys/kernel/debug");
                tree.remove("tool-output/mlxconfig -d 0000:3b:00.0 -e q");
            }),
            vec!["unknown dcqcn.priorities", "unknown dcqcn.settings"],
        ),
        (Mlx5, set(format!("{CC}/rp_min_rate"), "1"), vec!["FAIL dcqcn.rpg_min_rate"]),
        (Mlx5, set(format!("{CC}/rp_clamp_tgt_rate"), "1"), vec!["FAIL dcqcn.clamp_tgt_rate"]),
        (Mlx5, set(format!("{CC}/rp_ai_rate"), "5"), vec!["warn dcqcn.rpg_ai_rate"]),
        (
            Mlx5,
            boxed(|tree| tree.remove(&format!("sys/class/net/{IF}/speed"))),
            vec!["unknown dcqcn.rpg_ai_rate", "unknown dcqcn.rpg_hai_rate"],
        ),
        // Congestion control, vendor's driver
        (Mlx5Vendor, set(format!("{ECN}/roce_rp/enable/3"), "0"), vec!["FAIL dcqcn.reaction"]),
        (Mlx5Vendor, set(format!("{ECN}/roce_np/enable/3"), "0"), vec!["FAIL dcqcn.notification"]),
        (
            Mlx5Vendor,
            set(format!("{ECN}/roce_rp/rate_to_set_on_first_cnp"), "100"),
            vec!["FAIL dcqcn.rate_to_set_on_first_cnp"],
        ),
        (Mlx5Vendor, set(format!("{ECN}/roce_np/cnp_dscp"), "26"), vec!["warn dcqcn.cnp_dscp"]),
        // Congestion control, bnxt_re
        (BnxtRe, set(format!("{BNXT}/enable_cc"), "0"), vec!["FAIL dcqcn.enable_cc"]),
        (BnxtRe, set(format!("{BNXT}/tos_ecn"), "0x0"), vec!["FAIL dcqcn.tos_ecn"]),
        (BnxtRe, set(format!("{BNXT}/tos_dscp"), "0x1a"), vec![]),
        (BnxtRe, boxed(|tree| tree.remove("sys/kernel/debug")), vec!["unknown dcqcn.settings"]),
        (
            BnxtRe,
            boxed(|tree| {
                tree.vendors_bnxt_re("0x0", "0x1a");
            }),
            vec!["FAIL dcqcn.enable_cc"],
        ),
        // Made at the factory for another priority than the profile's.
        (
            BnxtRe,
            boxed(|tree| {
                let home = tree.vendors_bnxt_re("0x1", "0x1a");
                tree.set(&format!("{home}/cnp_prio"), "7");
                tree.set(&format!("{home}/roce_prio"), "0");
            }),
            vec!["warn dcqcn.roce_prio", "warn dcqcn.cnp_prio"],
        ),
    ]
}

fn spoiled_counters() -> Vec<Case> {
    use Kind::{BnxtRe, Mlx5, Rxe};
    vec![
        (
            Mlx5,
            set(format!("sys/class/infiniband/mlx5_0/{HW}/out_of_sequence"), "7"),
            vec!["warn counters.out_of_sequence"],
        ),
        (
            Mlx5,
            set(format!("sys/class/infiniband/mlx5_0/{HW}/rp_cnp_ignored"), "1"),
            vec!["warn counters.rp_cnp_ignored"],
        ),
        (
            Mlx5,
            boxed(|tree| {
                tree.tool(&format!("ethtool -S {IF}"), "  tx_pause_storm_error_events: 3");
            }),
            vec!["warn counters.tx_pause_storm_error_events"],
        ),
        (
            Mlx5,
            boxed(|tree| tree.remove("sys/class/infiniband/mlx5_0/ports/1/hw_counters")),
            vec!["unknown counters.device"],
        ),
        (
            BnxtRe,
            set(format!("sys/class/infiniband/bnxt_re0/{HW}/to_retransmits"), "2"),
            vec!["warn counters.to_retransmits"],
        ),
        (
            Rxe,
            set(format!("sys/class/infiniband/rxe0/{HW}/rcvd_rnr_err"), "5"),
            vec![
                "warn clock.ptp_hardware",
                "warn rdma.device",
                "warn dcqcn.engine",
                "warn counters.rcvd_rnr_err",
            ],
        ),
        // A card of another make
        (
            Mlx5,
            boxed(|tree| {
                let events = "DRIVER=irdma\nPCI_SLOT_NAME=0000:3b:00.0";
                tree.set(&format!("{SLOT_AT}/uevent"), events);
            }),
            vec!["unknown dcqcn.settings"],
        ),
    ]
}

#[test]
fn one_thing_that_is_spoiled_is_found_with_a_remedy_or_a_reason_and_nothing_else() {
    for (index, (kind, spoil, expected)) in spoiled().into_iter().enumerate() {
        let tree = Tree::good(kind);
        spoil(&tree);
        let report = tree.examine("default");
        assert_eq!(troubles(&report), expected, "{kind:?}, case {index}");
        assert_honest(&report);
    }
}

#[test]
fn the_profile_decides_about_pauses() {
    let cases: [(&str, &str, &[&str]); 8] = [
        ("default", "", &[]),
        ("default", "3", &["warn qos.pfc_shared"]),
        ("lossy", "", &[]),
        ("lossy", "3", &["FAIL qos.pfc", "warn qos.pfc_shared"]),
        ("lossy", "5", &["FAIL qos.pfc"]),
        ("pfc", "", &["FAIL qos.pfc"]),
        ("pfc", "3", &["warn qos.pfc_shared"]),
        ("pfc", "3,6", &["FAIL qos.pfc", "warn qos.pfc_shared"]),
    ];
    for kind in [Kind::Mlx5, Kind::Mlx5Vendor, Kind::BnxtRe] {
        for (profile, paused, expected) in cases {
            let tree = Tree::good(kind);
            tree.pauses(paused);
            let found = troubles(&tree.examine(profile));
            assert_eq!(found, expected, "{kind:?}, {profile}, {paused:?} paused");
        }
    }
}

/// What cannot be known says why, and shows no value; what is not as wanted comes with a remedy.
fn assert_honest(report: &Report) {
    // There is nothing to do about a device that is no device.
    let without_remedy = ["dcqcn.engine"];
    for finding in &report.findings {
        let id = finding.id.as_str();
        let unknown = finding.status == Status::Unknown;
        let reason = finding.reason.as_deref().unwrap_or_default();
        assert_eq!(unknown, reason.len() > 20, "{id}: {reason:?}");
        assert_eq!(unknown, finding.seen.is_none(), "{id}");
        let trouble = matches!(finding.status, Status::Warn | Status::Fail);
        let remedy = without_remedy.contains(&id) || !finding.fix.is_empty();
        assert!(!trouble || remedy, "{id} has no remedy");
    }
}
