//! Trees as `doctor` reads them: /sys, /proc and the output of tools of machines that are in order,
//! made by hand, so that a test can spoil one file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tapecast_publisher::doctor::{Profile, Report, Root, Wishes, examine};
use tempfile::TempDir;

/// The machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Mlx5,
    Mlx5Vendor,
    BnxtRe,
    Rxe,
    NoDevice,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] =
        [Self::Mlx5, Self::Mlx5Vendor, Self::BnxtRe, Self::Rxe, Self::NoDevice];
}

/// Interface of each machine with a device.
pub(crate) const IF: &str = "enp59s0f0np0";
/// The other port of the card, where a test has joined them.
pub(crate) const SECOND: &str = "enp59s0f1np1";
const ADDRESS: &str = "0000:3b:00.0";
const SLOT: &str = "sys/devices/pci0000:3a/0000:3b:00.0";

/// Settings of ConnectX as a machine in order has them at 100 Gb/s: vendor's file, in-tree file,
/// name in the firmware, value.
pub(crate) const MLX5: [(&str, &str, &str, u32); 19] = [
    ("roce_rp/clamp_tgt_rate", "rp_clamp_tgt_rate", "CLAMP_TGT_RATE", 0),
    (
        "roce_rp/clamp_tgt_rate_after_time_inc",
        "rp_clamp_tgt_rate_ati",
        "CLAMP_TGT_RATE_AFTER_TIME_INC",
        1,
    ),
    ("roce_rp/rpg_time_reset", "rp_time_reset", "RPG_TIME_RESET", 300),
    ("roce_rp/rpg_byte_reset", "rp_byte_reset", "RPG_BYTE_RESET", 32_767),
    ("roce_rp/rpg_threshold", "rp_threshold", "RPG_THRESHOLD", 1),
    ("roce_rp/rpg_max_rate", "rp_max_rate", "RPG_MAX_RATE", 0),
    ("roce_rp/rpg_ai_rate", "rp_ai_rate", "RPG_AI_RATE", 20),
    ("roce_rp/rpg_hai_rate", "rp_hai_rate", "RPG_HAI_RATE", 200),
    ("roce_rp/rpg_gd", "rp_gd", "RPG_GD", 11),
    ("roce_rp/rpg_min_dec_fac", "rp_min_dec_fac", "RPG_MIN_DEC_FAC", 50),
    ("roce_rp/rpg_min_rate", "rp_min_rate", "RPG_MIN_RATE", 1700),
    (
        "roce_rp/rate_to_set_on_first_cnp",
        "rp_rate_to_set_on_first_cnp",
        "RATE_TO_SET_ON_FIRST_CNP",
        0,
    ),
    ("roce_rp/dce_tcp_g", "rp_dce_tcp_g", "DCE_TCP_G", 1019),
    ("roce_rp/dce_tcp_rtt", "rp_dce_tcp_rtt", "DCE_TCP_RTT", 1),
    (
        "roce_rp/rate_reduce_monitor_period",
        "rp_rate_reduce_monitor_period",
        "RATE_REDUCE_MONITOR_PERIOD",
        4,
    ),
    ("roce_rp/initial_alpha_value", "rp_initial_alpha_value", "INITIAL_ALPHA_VALUE", 1023),
    ("roce_np/min_time_between_cnps", "np_min_time_between_cnps", "MIN_TIME_BETWEEN_CNPS", 4),
    ("roce_np/cnp_dscp", "np_cnp_dscp", "CNP_DSCP", 48),
    ("roce_np/cnp_802p_prio", "np_cnp_prio", "CNP_802P_PRIO", 6),
];

/// How the firmware's tool is asked.
pub(crate) const FIRMWARE: &str = "mlxconfig -d 0000:3b:00.0 -e q";

/// Lines of the firmware's tool with as many columns as the odd setting has values.
fn firmware_lines(odd: &str, values: &[u32]) -> String {
    let settings = MLX5.iter().map(|(_, _, name, value)| (*name, *value));
    let lines = settings.chain([("ROCE_CC_PRIO_MASK", 255)]).map(|(name, good)| {
        let shown = |value: u32| match name.starts_with("CLAMP") {
            true => ["False(0)", "True(1)"][value as usize].to_owned(),
            false => value.to_string(),
        };
        let columns = values.iter().map(|value| shown(if name == odd { *value } else { good }));
        format!("        {name}_P1          {}", columns.collect::<Vec<_>>().join("          "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A machine's files in a folder that goes with it.
pub(crate) struct Tree {
    folder: TempDir,
}

impl Tree {
    /// A machine that is in order.
    pub(crate) fn good(kind: Kind) -> Self {
        let tree = Self { folder: TempDir::with_prefix("tapecast-doctor-").unwrap() };
        tree.host();
        match kind {
            Kind::Mlx5 => tree.mlx5(),
            Kind::Mlx5Vendor => tree.mlx5_vendor(),
            Kind::BnxtRe => tree.bnxt_re(),
            Kind::Rxe => tree.rxe(),
            Kind::NoDevice => tree.set("sys/class/net/eth0/operstate", "up"),
        }
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn at(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file as the kernel shows it.
    pub(crate) fn set(&self, path: &str, text: &str) {
        self.set_bytes(path, format!("{text}\n").as_bytes());
    }

    pub(crate) fn set_bytes(&self, path: &str, bytes: &[u8]) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap().trim_end().to_owned()
    }

    /// Takes a file or a folder away.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.at(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    }

    /// Lets everybody enter, and nobody but root read this.
    pub(crate) fn forbid(&self, path: &str) {
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(self.path(), 0o755);
        mode(&self.at(path), 0o000);
    }

    /// What a tool prints.
    pub(crate) fn tool(&self, command: &str, output: &str) {
        self.set(&format!("tool-output/{command}"), output);
    }

    /// Every file, in order; links are none.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut folders = vec![self.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let path = entry.path();
                    let path = path.strip_prefix(self.path()).unwrap();
                    found.push(path.to_str().unwrap().to_owned());
                }
            }
        }
        found.sort();
        found
    }

    pub(crate) fn examine(&self, profile: &str) -> Report {
        let root = Root::open(self.path()).unwrap();
        examine(&root, &Profile::find(profile).unwrap(), &Wishes::default()).unwrap()
    }

    /// The configfs of the vendor's bnxt_re, which is then seen in place of the debugfs.
    pub(crate) fn vendors_bnxt_re(&self, ecn_enable: &str, dscp: &str) -> String {
        self.remove("sys/kernel/debug");
        let home = "sys/kernel/config/bnxt_re/bnxt_re0/ports/1/cc";
        for (name, value) in [
            ("ecn_enable", ecn_enable),
            ("ecn_marking", "0x1"),
            ("cc_mode", "0x1"),
            ("roce_prio", "3"),
            ("roce_dscp", dscp),
            ("cnp_prio", "6"),
            ("cnp_dscp", "0x30"),
            ("apply", "0x0"),
        ] {
            self.set(&format!("{home}/{name}"), value);
        }
        home.to_owned()
    }

    /// Joins the two ports of the card in a bond, as RoCE over link aggregation has it: the device
    /// tells the bond, the card's files are those of the members.
    pub(crate) fn bond(&self) {
        let device = "sys/class/infiniband/mlx5_0";
        for index in 0..4 {
            self.set(&format!("{device}/ports/1/gid_attrs/ndevs/{index}"), "bond0");
        }
        self.set("sys/class/net/bond0/operstate", "up");
        self.set("sys/class/net/bond0/mtu", "4200");
        self.set("sys/class/net/bond0/speed", "200000");
        self.set("sys/class/net/bond0/bonding/slaves", &format!("{IF} {SECOND}"));
        self.set(&format!("{SLOT}/net/{IF}/mtu"), "4200");
        self.second_port();
    }

    /// The card's other port, with everything that the first has.
    fn second_port(&self) {
        for path in self.files() {
            let text = self.get(&path);
            if path.starts_with(&format!("sys/class/net/{IF}/")) || path.ends_with(IF) {
                self.set(&path.replace(IF, SECOND), &text);
            }
        }
        let slot = "../../../devices/pci0000:3a/0000:3b:00.0";
        symlink(slot, self.at(&format!("sys/class/net/{SECOND}/device"))).unwrap();
    }

    fn host(&self) {
        self.processors();
        for (key, value) in [
            ("kernel/nmi_watchdog", "0"),
            ("kernel/watchdog", "0"),
            ("kernel/sched_rt_runtime_us", "-1"),
            ("kernel/timer_migration", "0"),
            ("kernel/numa_balancing", "0"),
            ("vm/stat_interval", "120"),
            ("vm/zone_reclaim_mode", "0"),
            ("vm/swappiness", "1"),
        ] {
            self.set(&format!("proc/sys/{key}"), value);
        }
        self.set("sys/devices/virtual/workqueue/cpumask", "c3");
        self.set("proc/irq/default_smp_affinity", "c3");
        for (pid, name) in [(1, "systemd"), (812, "ptp4l"), (813, "phc2sys")] {
            self.set(&format!("proc/{pid}/comm"), name);
        }
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max locked memory         unlimited            unlimited            bytes";
        self.set("proc/self/limits", limits);
        self.set("proc/swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority");
        self.set("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
        let defrag = "always defer defer+madvise madvise [never]";
        self.set("sys/kernel/mm/transparent_hugepage/defrag", defrag);
        self.set("sys/kernel/mm/ksm/run", "0");
        let clock = "sys/devices/system/clocksource/clocksource0";
        self.set(&format!("{clock}/current_clocksource"), "tsc");
        self.set(&format!("{clock}/available_clocksource"), "tsc hpet acpi_pm ");
        self.set("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu constant_tsc nonstop_tsc avx2");
        self.tool("timedatectl show --property=NTPSynchronized", "NTPSynchronized=yes");
    }

    fn processors(&self) {
        let home = "sys/devices/system/cpu";
        self.set(&format!("{home}/online"), "0-7");
        self.set(&format!("{home}/isolated"), "2-5");
        self.set(&format!("{home}/nohz_full"), "2-5");
        self.set(&format!("{home}/smt/active"), "0");
        self.set("proc/cmdline", "root=/dev/sda1 isolcpus=2-5 nohz_full=2-5 rcu_nocbs=2-5");
        for cpu in 0..8 {
            for file in ["scaling_governor", "energy_performance_preference"] {
                self.set(&format!("{home}/cpu{cpu}/cpufreq/{file}"), "performance");
            }
            let states = [("POLL", 0, 0), ("C1", 2, 0), ("C6", 133, 1)];
            for (index, (name, latency, disable)) in states.into_iter().enumerate() {
                let state = format!("{home}/cpu{cpu}/cpuidle/state{index}");
                self.set(&format!("{state}/name"), name);
                self.set(&format!("{state}/latency"), &latency.to_string());
                self.set(&format!("{state}/disable"), &disable.to_string());
            }
        }
    }

    /// A port of a RoCE device with its interface.
    fn port(&self, device: &str) {
        let home = format!("sys/class/infiniband/{device}");
        self.set(&format!("{home}/ports/1/state"), "4: ACTIVE");
        self.set(&format!("{home}/ports/1/phys_state"), "5: LinkUp");
        self.set(&format!("{home}/ports/1/link_layer"), "Ethernet");
        let kinds = ["IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2"];
        for (index, kind) in kinds.into_iter().enumerate() {
            self.set(&format!("{home}/ports/1/gid_attrs/types/{index}"), kind);
            self.set(&format!("{home}/ports/1/gid_attrs/ndevs/{index}"), IF);
            let gid = match index {
                0 | 1 => "fe80:0000:0000:0000:0e42:a1ff:fe00:0001",
                _ => "0000:0000:0000:0000:0000:ffff:c000:0207",
            };
            self.set(&format!("{home}/ports/1/gids/{index}"), gid);
        }
        self.set(&format!("sys/class/net/{IF}/operstate"), "up");
        self.set(&format!("sys/class/net/{IF}/mtu"), "4200");
    }

    /// A card in a slot.
    fn card(&self, device: &str, driver: &str, firmware: &str) {
        self.port(device);
        let home = format!("sys/class/infiniband/{device}");
        self.set(&format!("{home}/fw_ver"), firmware);
        self.set(&format!("sys/class/net/{IF}/speed"), "100000");
        let events = format!("DRIVER={driver}\nPCI_CLASS=20000\nPCI_SLOT_NAME={ADDRESS}");
        for (file, text) in [
            ("uevent", events.as_str()),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("max_link_width", "16"),
            ("link/l1_aspm", "0"),
            ("numa_node", "0"),
            ("local_cpulist", "0-7"),
            ("iommu_group/type", "identity"),
            ("aer_dev_correctable", "RxErr 0\nBadTLP 0\nTOTAL_ERR_COR 0"),
            ("aer_dev_nonfatal", "Undefined 0\nTOTAL_ERR_NONFATAL 0"),
            ("aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 0"),
            ("msi_irqs/64", "msix"),
            ("msi_irqs/65", "msix"),
            ("ptp/ptp0/clock_name", "mlx5_ptp"),
        ] {
            self.set(&format!("{SLOT}/{file}"), text);
        }
        symlink("../../../devices/pci0000:3a/0000:3b:00.0", self.at(&format!("{home}/device")))
            .unwrap();
        symlink(
            "../../../devices/pci0000:3a/0000:3b:00.0",
            self.at(&format!("sys/class/net/{IF}/device")),
        )
        .unwrap();
        self.set("sys/module/pcie_aspm/parameters/policy", "default [performance] powersave");
        self.set("proc/irq/64/smp_affinity_list", "0-1");
        self.set("proc/irq/65/smp_affinity_list", "6-7");
        self.tool(
            &format!("ethtool -a {IF}"),
            &format!("Pause parameters for {IF}:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n"),
        );
        self.tool(&format!("dcb -N app show dev {IF}"), "dscp-prio 26:3 48:6 ");
        self.pauses("");
    }

    /// What may be paused: a list such as "3".
    pub(crate) fn pauses(&self, on: &str) {
        let states: Vec<String> = (0..8)
            .map(|index: u8| {
                let state =
                    if on.split(',').any(|one| one == index.to_string()) { "on" } else { "off" };
                format!("{index}:{state}")
            })
            .collect();
        let text = format!("pfc-cap 8 macsec-bypass off delay 0 \nprio-pfc {} ", states.join(" "));
        self.tool(&format!("dcb pfc show dev {IF}"), &text);
    }

    fn connectx(&self) {
        self.card("mlx5_0", "mlx5_core", "28.45.1020");
        let home = "sys/class/infiniband/mlx5_0/ports/1";
        for name in ["out_of_sequence", "rnr_nak_retry_err", "local_ack_timeout_err"] {
            self.set(&format!("{home}/hw_counters/{name}"), "0");
        }
        self.set(&format!("{home}/hw_counters/rp_cnp_ignored"), "0");
        self.set(&format!("{home}/hw_counters/rx_write_requests"), "31415926");
        self.set(&format!("{home}/counters/link_downed"), "0");
        self.set(&format!("{home}/counters/port_xmit_data"), "27182818");
        self.tool(
            &format!("ethtool -S {IF}"),
            "NIC statistics:\n     rx_prio3_pause: 0\n     tx_pause_storm_error_events: 0\n     \
             outbound_pci_stalled_rd_events: 0",
        );
    }

    fn mlx5(&self) {
        self.connectx();
        for (_, file, _, value) in MLX5 {
            let path = format!("sys/kernel/debug/mlx5/{ADDRESS}/cc_params/{file}");
            self.set(&path, &value.to_string());
        }
        self.firmware("ROCE_CC_PRIO_MASK", 255, 255);
    }

    /// What the firmware's tool prints when all but one setting is in order.
    pub(crate) fn firmware(&self, odd: &str, now: u32, next: u32) {
        let heading =
            "Device #1:\n----------\n\nConfigurations:     Default     Current     Next Boot";
        let text = format!("{heading}\n{}", firmware_lines(odd, &[0, now, next]));
        self.tool(FIRMWARE, &text);
    }

    /// The same by a tool that does not show what is in force, which is asked otherwise.
    pub(crate) fn old_firmware(&self, odd: &str, next: u32) {
        let heading = "Device #1:\n----------\n\nConfigurations:                   Next Boot";
        self.remove(&format!("tool-output/{FIRMWARE}"));
        let text = format!("{heading}\n{}", firmware_lines(odd, &[next]));
        self.tool(&format!("mlxconfig -d {ADDRESS} q"), &text);
    }

    fn mlx5_vendor(&self) {
        self.connectx();
        for (file, _, _, value) in MLX5 {
            self.set(&format!("sys/class/net/{IF}/ecn/{file}"), &value.to_string());
        }
        for priority in 0..8 {
            for role in ["roce_np", "roce_rp"] {
                self.set(&format!("sys/class/net/{IF}/ecn/{role}/enable/{priority}"), "1");
            }
        }
        self.set(&format!("sys/class/net/{IF}/qos/trust"), "dscp");
        self.set("sys/class/infiniband/mlx5_0/tc/1/traffic_class", "Global tclass=106");
    }

    fn bnxt_re(&self) {
        self.card("bnxt_re0", "bnxt_en", "230.2.49.0");
        let home = "sys/class/infiniband/bnxt_re0/ports/1/hw_counters";
        for name in ["oos_drop_count", "to_retransmits", "rnr_naks_rcvd", "seq_err_naks_rcvd"] {
            self.set(&format!("{home}/{name}"), "0");
        }
        let values = [
            ("enable_cc", 1),
            ("cc_mode", 1),
            ("tos_ecn", 1),
            ("tos_dscp", 26),
            ("alt_vlan_dscp", 48),
        ];
        for (name, value) in values {
            let path = format!("sys/kernel/debug/bnxt_re/{ADDRESS}/cc_config/{name}");
            self.set(&path, &value.to_string());
        }
    }

    /// As Debian's kernel 6.1 shows it.
    fn rxe(&self) {
        self.port("rxe0");
        let port = "sys/class/infiniband/rxe0/ports/1";
        let gid = "0000:0000:0000:0000:0000:ffff:0a09:0001";
        for index in [0, 1] {
            self.set(&format!("{port}/gid_attrs/types/{index}"), "RoCE v2");
            self.set(&format!("{port}/gids/{index}"), gid);
        }
        for index in [2, 3] {
            self.set(&format!("{port}/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000");
            self.remove(&format!("{port}/gid_attrs/types/{index}"));
            self.remove(&format!("{port}/gid_attrs/ndevs/{index}"));
        }
        self.set("sys/class/infiniband/rxe0/parent", IF);
        self.set("sys/class/infiniband/rxe0/fw_ver", "");
        for (name, value) in [
            ("ack_deferred", 0),
            ("completer_retry_err", 0),
            ("duplicate_request", 0),
            ("lifespan", 10),
            ("link_downed", 0),
            ("out_of_seq_request", 0),
            ("rcvd_pkts", 4711),
            ("rcvd_rnr_err", 0),
            ("rcvd_seq_err", 0),
            ("rdma_recvs", 0),
            ("rdma_sends", 815),
            ("retry_exceeded_err", 0),
            ("retry_rnr_exceeded_err", 0),
            ("send_err", 0),
            ("send_rnr_err", 0),
            ("sent_pkts", 4711),
        ] {
            self.set(&format!("{port}/hw_counters/{name}"), &value.to_string());
        }
        self.set("sys/class/ptp/ptp0/clock_name", "kvm_ptp");
    }
}
