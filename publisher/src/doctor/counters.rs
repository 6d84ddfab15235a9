//! Counters that say trouble: what has gone wrong since the driver was loaded.

use super::finding::{Check, Finding, Section, Step};
use super::host::{Device, Driver, Host};

/// What a counter tells when it is not zero, and what to look at.
struct Meaning {
    name: &'static str,
    tells: &'static str,
    look: &'static str,
}

const NETWORK: &str = "look for drops on the way: the switch's queue, the cable, PFC and ECN";
const READER: &str = "a subscriber does not take what is sent: see its session's lag";
const ENDS: &str = "look for a subscriber that died or was restarted at that time";
const CARD: &str = "look at dmesg, module and cable";
const HOST_BUS: &str = "look at the slot's speed and width, and at the IOMMU";

const fn says(name: &'static str, tells: &'static str, look: &'static str) -> Meaning {
    Meaning { name, tells, look }
}

/// Of RDMA devices, in `hw_counters` and `counters`: mlx5, bnxt_re, rxe.
const DEVICE: [Meaning; 39] = [
    // mlx5
    says("out_of_sequence", "packets came out of order: one before them was lost", NETWORK),
    says("packet_seq_err", "the other end asked for packets again", NETWORK),
    says("implied_nak_seq_err", "an answer was missing: packets were sent again", NETWORK),
    says("local_ack_timeout_err", "no acknowledgement came in time: milliseconds lost", NETWORK),
    says("rnr_nak_retry_err", "a receiver had no room, the sender waited and tried again", READER),
    says("out_of_buffer", "packets were dropped, as no receive was posted", READER),
    says("roce_adp_retrans", "packets were sent again by adaptive retransmission", NETWORK),
    says("roce_adp_retrans_to", "adaptive retransmission ran into its time-out", NETWORK),
    says("roce_slow_restart", "a queue pair was slowed down after an idle time", "see ROCE_ACCL"),
    says("roce_slow_restart_cnps", "notifications were sent without any mark", "see ROCE_ACCL"),
    says("rp_cnp_ignored", "notifications were ignored: DCQCN is off on this end", "see DCQCN"),
    says("req_transport_retries_exceeded", "a queue pair gave up: the other end is gone", ENDS),
    says("req_rnr_retries_exceeded", "a queue pair gave up: the receiver had no room", READER),
    says("req_remote_access_errors", "a write was refused by the other end's memory", ENDS),
    says("req_remote_invalid_request", "a write was refused by the other end", ENDS),
    says("resp_remote_access_errors", "somebody wrote where it may not", ENDS),
    says("resp_local_length_error", "a message did not fit into its receive", ENDS),
    says("rx_icrc_encapsulated", "packets came with a wrong check sum", CARD),
    // bnxt_re
    says("oos_drop_count", "packets came out of order: one before them was lost", NETWORK),
    says("seq_err_naks_rcvd", "the other end asked for packets again", NETWORK),
    says("to_retransmits", "no acknowledgement came in time: milliseconds lost", NETWORK),
    says("rnr_naks_rcvd", "a receiver had no room, the sender waited and tried again", READER),
    says("max_retry_exceeded", "a queue pair gave up: the other end is gone", ENDS),
    says("missing_resp", "an answer was missing: packets were sent again", NETWORK),
    says("rx_roce_errors", "RoCE packets came damaged", CARD),
    says("rx_roce_discards", "RoCE packets were dropped by the card", NETWORK),
    says("rx_out_of_buffer", "packets were dropped, as no receive was posted", READER),
    // rxe
    says("out_of_seq_request", "packets came out of order: one before them was lost", NETWORK),
    says("rcvd_seq_err", "the other end asked for packets again", NETWORK),
    says("rcvd_rnr_err", "a receiver had no room, the sender waited and tried again", READER),
    says("send_rnr_err", "this end had no receive posted", READER),
    says("retry_exceeded_err", "a queue pair gave up: the other end is gone", ENDS),
    says("retry_rnr_exceeded_err", "a queue pair gave up: the receiver had no room", READER),
    says("completer_retry_err", "packets were sent again", NETWORK),
    says("send_err", "packets could not be handed to the interface", CARD),
    // Each of them
    says("link_downed", "the link went down", CARD),
    says("symbol_error", "the line made errors", CARD),
    says("port_rcv_errors", "packets came damaged", CARD),
    says("port_xmit_discards", "the port dropped what it should send", NETWORK),
];

/// Of interfaces, as `ethtool -S` prints them.
const INTERFACE: [Meaning; 9] = [
    says("tx_pause_storm_error_events", "pauses without end: the card cut them off", READER),
    says("tx_pause_storm_warning_events", "pauses that went on for long", READER),
    says("outbound_pci_stalled_rd_events", "the card waited for reads of memory", HOST_BUS),
    says("outbound_pci_stalled_wr_events", "the card waited for writes to memory", HOST_BUS),
    says("outbound_pci_buffer_overflow", "the slot was too slow: packets were dropped", HOST_BUS),
    says("rx_discards_phy", "the port dropped what came: no room behind it", READER),
    says("tx_discards_phy", "the port dropped what it should send", NETWORK),
    says("rx_crc_errors_phy", "frames came damaged", CARD),
    says("link_down_events_phy", "the link went down", CARD),
];

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let Some(device) = &host.device else { return Vec::new() };
    let mut found = of_device(host, device);
    let told = matches!(device.driver, Driver::Mlx5 | Driver::Mlx5Vendor);
    if told {
        found.extend(host.on_each_port(|port| of_interface(host, port)));
    }
    found
}

fn new(name: &str, title: &str, why: &str) -> Check {
    Check::new(Section::Counters, format!("counters.{name}"), title, 0, why)
}

fn trouble(meaning: &Meaning, count: u64) -> Finding {
    let check = new(meaning.name, meaning.name, meaning.tells);
    check.warn(count, vec![Step::by_hand("find out whether it still grows", meaning.look)])
}

fn summary(name: &str, title: &str, looked_at: usize, found: &[Finding]) -> Option<Finding> {
    let why = "a counter that is not zero names what went wrong";
    let check = new(name, title, why);
    found.is_empty().then(|| check.ok(format!("0 in all {looked_at}")))
}

fn of_device(host: &Host<'_>, device: &Device) -> Vec<Finding> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let title = "counters of the device";
    let why = "they tell about packets lost and receivers without room";
    // Soft-RoCE has only the first of them.
    let folders = ["ports/1/hw_counters", "ports/1/counters"].map(|folder| device.file(folder));
    if let Err(gap) = host.root.list(&folders[0]) {
        let reason = gap.reason("the device has none");
        return vec![new("device", title, why).unknown(reason)];
    }
    for meaning in &DEVICE {
        for path in folders.iter().map(|folder| format!("{folder}/{}", meaning.name)) {
            match host.root.value(&path) {
                Err(gap) if gap.is_absent() => {}
                Err(gap) => {
                    let check = new(meaning.name, meaning.name, meaning.tells);
                    found.push(check.unknown(gap.reason("")));
                }
                Ok(text) => {
                    looked_at += 1;
                    match text.parse() {
                        Ok(0) => {}
                        Ok(count) => found.push(trouble(meaning, count)),
                        Err(_) => {
                            let check = new(meaning.name, meaning.name, meaning.tells);
                            found.push(check.unreadable(&path, &text));
                        }
                    }
                }
            }
        }
    }
    if looked_at == 0 && found.is_empty() {
        let reason = format!("{} has none of those that say trouble", folders[0]);
        return vec![new("device", title, why).unknown(reason)];
    }
    found.extend(summary("device", title, looked_at, &found));
    found
}

fn of_interface(host: &Host<'_>, interface: &str) -> Vec<Finding> {
    let title = "counters of the interface";
    let command = format!("ethtool -S {interface}");
    let text = match host.tools().ask(&command) {
        Ok(text) => text,
        Err(reason) => {
            let why = "they tell about pause storms and a slot that is too slow";
            return vec![new("interface", title, why).unknown(reason)];
        }
    };
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        let known = INTERFACE.iter().find(|meaning| meaning.name == name.trim());
        let (Some(meaning), Ok(count)) = (known, value.trim().parse()) else { continue };
        looked_at += 1;
        if count > 0 {
            found.push(trouble(meaning, count));
        }
    }
    if looked_at == 0 {
        let why = "they tell about pause storms and a slot that is too slow";
        let reason = format!("`{command}` prints none of those that say trouble");
        return vec![new("interface", title, why).unknown(reason)];
    }
    found.extend(summary("interface", title, looked_at, &found));
    found
}
