//! What can be wrong with a card, one thing at a time, and what is found then.

use crate::spoiled_host::{Case, boxed, set};
use crate::trees::{IF, Kind};

const ECN: &str = "sys/class/net/enp59s0f0np0/ecn";
const CC: &str = "sys/kernel/debug/mlx5/0000:3b:00.0/cc_params";
const BNXT: &str = "sys/kernel/debug/bnxt_re/0000:3b:00.0/cc_config";
const SLOT_AT: &str = "sys/devices/pci0000:3a/0000:3b:00.0";
const HW: &str = "ports/1/hw_counters";

/// Everything that is spoiled on a card, its slot, its port and its counters.
pub(crate) fn spoiled_card() -> Vec<Case> {
    let parts = [
        spoiled_slot(),
        spoiled_link_and_device(),
        spoiled_priorities(),
        spoiled_control(),
        spoiled_counters(),
    ];
    parts.into_iter().flatten().collect()
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
