//! The knobs of congestion control: their names on each face, their ranges, what they are for.

/// Upper end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Number(u64),
    /// So many per cent of the link's rate, in Mb/s.
    Line(u64),
}

/// One knob.
#[derive(Debug)]
pub(crate) struct Knob {
    /// Its name here and in profiles.
    pub(crate) name: &'static str,
    /// File below `ecn/` of the vendor's driver; of bnxt_re, of its configfs.
    pub(crate) vendor: &'static str,
    /// File of the in-tree driver's debugfs.
    pub(crate) debugfs: &'static str,
    /// Name in the firmware's configuration, without the port.
    pub(crate) firmware: &'static str,
    /// What the hardware takes.
    pub(crate) range: (u64, Bound),
    pub(crate) unit: &'static str,
    pub(crate) why: &'static str,
}

impl Knob {
    /// Whether the hardware takes this value on a link of this rate. With a rate that is not known
    /// only what any link takes is within the range.
    pub(crate) fn takes(&self, value: u64, line_mbps: Option<u64>) -> bool {
        let top = match self.range.1 {
            Bound::Number(top) => top,
            Bound::Line(percent) => {
                line_mbps.map_or(self.range.0, |line| line.saturating_mul(percent) / 100)
            }
        };
        self.range.0 <= value && value <= top
    }
}

const fn knob(
    name: &'static str,
    faces: [&'static str; 3],
    range: (u64, Bound),
    unit: &'static str,
    why: &'static str,
) -> Knob {
    let [vendor, debugfs, firmware] = faces;
    Knob { name, vendor, debugfs, firmware, range, unit, why }
}

const FLAG: (u64, Bound) = (0, Bound::Number(1));
const MICROSECONDS: (u64, Bound) = (1, Bound::Number(131_071));
const LINE: (u64, Bound) = (1, Bound::Line(100));

/// ConnectX-4 to 7.
pub(crate) const MLX5: [Knob; 17] = [
    knob(
        "clamp_tgt_rate_after_time_inc",
        [
            "roce_rp/clamp_tgt_rate_after_time_inc",
            "rp_clamp_tgt_rate_ati",
            "CLAMP_TGT_RATE_AFTER_TIME_INC",
        ],
        FLAG,
        "",
        "a notification after an increase by time takes the target rate down, too",
    ),
    knob(
        "clamp_tgt_rate",
        ["roce_rp/clamp_tgt_rate", "rp_clamp_tgt_rate", "CLAMP_TGT_RATE"],
        FLAG,
        "",
        "with 1, a burst of marks costs over 100 ms until the rate is back",
    ),
    knob(
        "rpg_time_reset",
        ["roce_rp/rpg_time_reset", "rp_time_reset", "RPG_TIME_RESET"],
        MICROSECONDS,
        "us",
        "time between two increases of a rate that was cut",
    ),
    knob(
        "rpg_byte_reset",
        ["roce_rp/rpg_byte_reset", "rp_byte_reset", "RPG_BYTE_RESET"],
        (0, Bound::Number(32_767)),
        "x 64 B",
        "bytes between two increases of a rate that was cut",
    ),
    knob(
        "rpg_threshold",
        ["roce_rp/rpg_threshold", "rp_threshold", "RPG_THRESHOLD"],
        (1, Bound::Number(31)),
        "",
        "steps of fast recovery before the additive ones",
    ),
    knob(
        "rpg_max_rate",
        ["roce_rp/rpg_max_rate", "rp_max_rate", "RPG_MAX_RATE"],
        (0, Bound::Line(100)),
        "Mb/s",
        "0 lets a queue pair come back to the line's rate",
    ),
    knob(
        "rpg_ai_rate",
        ["roce_rp/rpg_ai_rate", "rp_ai_rate", "RPG_AI_RATE"],
        LINE,
        "Mb/s",
        "step of an additive increase; it has to grow with the line's rate",
    ),
    knob(
        "rpg_hai_rate",
        ["roce_rp/rpg_hai_rate", "rp_hai_rate", "RPG_HAI_RATE"],
        LINE,
        "Mb/s",
        "step of a hyper increase; it has to grow with the line's rate",
    ),
    knob(
        "rpg_gd",
        ["roce_rp/rpg_gd", "rp_gd", "RPG_GD"],
        (10, Bound::Number(11)),
        "",
        "weight of alpha in a decrease: 11 cuts by half of alpha",
    ),
    knob(
        "rpg_min_dec_fac",
        ["roce_rp/rpg_min_dec_fac", "rp_min_dec_fac", "RPG_MIN_DEC_FAC"],
        (0, Bound::Number(100)),
        "%",
        "what one decrease leaves at least",
    ),
    knob(
        "rpg_min_rate",
        ["roce_rp/rpg_min_rate", "rp_min_rate", "RPG_MIN_RATE"],
        LINE,
        "Mb/s",
        "lowest rate of a queue pair: at 1 Mb/s a 4 KB snapshot takes 34 ms on the wire",
    ),
    knob(
        "rate_to_set_on_first_cnp",
        [
            "roce_rp/rate_to_set_on_first_cnp",
            "rp_rate_to_set_on_first_cnp",
            "RATE_TO_SET_ON_FIRST_CNP",
        ],
        (0, Bound::Line(85)),
        "Mb/s",
        "anything but 0 cuts the rate to that at the first mark",
    ),
    knob(
        "dce_tcp_g",
        ["roce_rp/dce_tcp_g", "rp_dce_tcp_g", "DCE_TCP_G"],
        (0, Bound::Number(1023)),
        "/1024",
        "how fast alpha follows the marks",
    ),
    knob(
        "dce_tcp_rtt",
        ["roce_rp/dce_tcp_rtt", "rp_dce_tcp_rtt", "DCE_TCP_RTT"],
        MICROSECONDS,
        "us",
        "time between two updates of alpha",
    ),
    knob(
        "rate_reduce_monitor_period",
        [
            "roce_rp/rate_reduce_monitor_period",
            "rp_rate_reduce_monitor_period",
            "RATE_REDUCE_MONITOR_PERIOD",
        ],
        (1, Bound::Number(u32::MAX as u64)),
        "us",
        "least time between two decreases",
    ),
    knob(
        "initial_alpha_value",
        ["roce_rp/initial_alpha_value", "rp_initial_alpha_value", "INITIAL_ALPHA_VALUE"],
        (1, Bound::Number(1023)),
        "/1024",
        "alpha at the first notification",
    ),
    knob(
        "min_time_between_cnps",
        ["roce_np/min_time_between_cnps", "np_min_time_between_cnps", "MIN_TIME_BETWEEN_CNPS"],
        (0, Bound::Number(4095)),
        "us",
        "how often this end tells a sender about marks",
    ),
];

/// DSCP of notifications on ConnectX; its value is the profile's.
pub(crate) const MLX5_CNP_DSCP: Knob = knob(
    "cnp_dscp",
    ["roce_np/cnp_dscp", "np_cnp_dscp", "CNP_DSCP"],
    (0, Bound::Number(63)),
    "",
    "notifications need a queue that is served before the data",
);

/// Priority of notifications on ConnectX; its value is the profile's.
pub(crate) const MLX5_CNP_PRIORITY: Knob = knob(
    "cnp_802p_prio",
    ["roce_np/cnp_802p_prio", "np_cnp_prio", "CNP_802P_PRIO"],
    (0, Bound::Number(7)),
    "",
    "notifications must not queue behind the data that they are about",
);

/// NetXtreme-E, Thor, Thor 2.
pub(crate) const BNXT_RE: [Knob; 3] = [
    knob(
        "enable_cc",
        ["ecn_enable", "enable_cc", ""],
        FLAG,
        "",
        "without it a sender ignores notifications and the switch drops",
    ),
    knob("cc_mode", ["cc_mode", "cc_mode", ""], FLAG, "", "1 is the mode that follows DCQCN"),
    knob(
        "tos_ecn",
        ["ecn_marking", "tos_ecn", ""],
        // The vendor's file is a flag; the in-tree one shows ECN bits, of which 1 is as good as 2.
        FLAG,
        "",
        "without ECN bits the switch drops instead of marking",
    ),
];

/// DSCP of the data on bnxt_re; its value is the profile's.
pub(crate) const BNXT_RE_DSCP: Knob = knob(
    "tos_dscp",
    ["roce_dscp", "tos_dscp", ""],
    (0, Bound::Number(63)),
    "",
    "the switch finds the queue of the data by it",
);

/// DSCP of notifications on bnxt_re; its value is the profile's.
pub(crate) const BNXT_RE_CNP_DSCP: Knob = knob(
    "cnp_dscp",
    ["cnp_dscp", "alt_vlan_dscp", ""],
    (0, Bound::Number(63)),
    "",
    "notifications need a queue that is served before the data",
);

/// Priority of the data on bnxt_re, in the vendor's configfs alone; its value is the profile's.
pub(crate) const BNXT_RE_PRIORITY: Knob = knob(
    "roce_prio",
    ["roce_prio", "", ""],
    (0, Bound::Number(7)),
    "",
    "the card's queue of the data must be the one that the switch knows",
);

/// Priority of notifications on bnxt_re, in the vendor's configfs alone. Made at the factory for 7,
/// where ConnectX has 6: both ends need one that the switch serves first.
pub(crate) const BNXT_RE_CNP_PRIORITY: Knob = knob(
    "cnp_prio",
    ["cnp_prio", "", ""],
    (0, Bound::Number(7)),
    "",
    "notifications must not queue behind the data that they are about",
);
