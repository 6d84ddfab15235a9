//! What is found on each machine, in full, and what changes when one thing is spoiled.

use tapecast_publisher::doctor::{Report, Status};

use crate::spoiled_card::spoiled_card;
use crate::spoiled_host::spoiled_host;
use crate::support::{lines, troubles};
use crate::trees::{Kind, Tree};

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

#[test]
fn one_thing_that_is_spoiled_is_found_with_a_remedy_or_a_reason_and_nothing_else() {
    for (index, (kind, spoil, expected)) in
        spoiled_host().into_iter().chain(spoiled_card()).enumerate()
    {
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
