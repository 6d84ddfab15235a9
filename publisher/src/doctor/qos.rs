//! Priorities: which one the data has, and which may be paused.

use super::finding::{Check, Finding, Section, Step};
use super::host::{Driver, Host};
use super::profile::Lossless;

const PRIORITIES: u8 = 8;

pub(super) fn check(host: &Host<'_>) -> Vec<Finding> {
    let hardware = host.device.as_ref().is_some_and(|device| device.driver != Driver::Rxe);
    if hardware { host.on_each_port(|port| on_port(host, port)) } else { Vec::new() }
}

fn on_port(host: &Host<'_>, interface: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    if host.driver() == Some(&Driver::Mlx5Vendor) {
        found.push(trust(host, interface));
    }
    let paused = paused(host, interface);
    found.push(mapping(host, interface));
    found.push(lossless(host, interface, &paused));
    found.extend(shared(host, &paused));
    found
}

fn new(id: &str, title: &str, wanted: impl std::fmt::Display, why: &str) -> Check {
    Check::new(Section::Qos, format!("qos.{id}"), title, wanted, why)
}

fn trust(host: &Host<'_>, interface: &str) -> Finding {
    let why = "otherwise the NIC takes the priority from a VLAN tag that is not there";
    let check = new("trust", "priority is taken from", "dscp", why);
    let path = format!("/sys/class/net/{interface}/qos/trust");
    match host.root.value(&path) {
        Err(gap) => check.unknown(gap.reason("the driver does not tell")),
        Ok(text) if !super::root::is_plain(&text) => check.unreadable(&path, &text),
        Ok(text) => check.fail_unless(text == "dscp", &text, || {
            vec![Step::write("goes by the DSCP of each packet", &path, "dscp")]
        }),
    }
}

/// The pairs `N:WORD` that follow a word in the output of `dcb`.
fn pairs(text: &str, heading: &str) -> Option<Vec<(u8, String)>> {
    let mut words = text.split_whitespace().skip_while(|word| *word != heading);
    words.next()?;
    Some(
        words
            .map_while(|word| {
                let (number, value) = word.split_once(':')?;
                Some((number.parse().ok()?, value.to_owned()))
            })
            .collect(),
    )
}

/// Which priority the data and the notifications have.
fn mapping(host: &Host<'_>, interface: &str) -> Finding {
    let traffic = host.profile.traffic;
    let wished = [(traffic.dscp, traffic.priority), (traffic.cnp_dscp, traffic.cnp_priority)];
    let words = wished.map(|(dscp, priority)| format!("{dscp}:{priority}")).join(" ");
    let why = "data and notifications each need a queue of their own";
    let check = new("dscp_priority", "priority of DSCPs", &words, why);
    // The application table of a port; with a first entry mlx5 begins to trust the DSCP.
    let text = match host.tools().ask(&format!("dcb -N app show dev {interface}")) {
        Ok(text) => text,
        Err(reason) => return check.unknown(reason),
    };
    let found = pairs(&text, "dscp-prio").unwrap_or_default();
    // With two entries for one DSCP nobody knows which of them counts.
    let wrong = wished.iter().any(|(dscp, priority)| {
        let mut entries = found.iter().filter(|(found, _)| found == dscp).peekable();
        entries.peek().is_none() || entries.any(|(_, value)| value.parse() != Ok(*priority))
    });
    let shown: Vec<String> = found
        .iter()
        .filter(|(dscp, _)| wished.iter().any(|(wanted, _)| wanted == dscp))
        .map(|(dscp, priority)| format!("{dscp}:{priority}"))
        .collect();
    let seen = if shown.is_empty() { "not mapped".to_owned() } else { shown.join(" ") };
    check.warn_unless(!wrong, seen, || {
        let command = format!("dcb app replace dev {interface} dscp-prio {words}");
        vec![Step::run("gives data and notifications their priorities", &command)]
    })
}

/// The priorities that may be paused.
fn paused(host: &Host<'_>, interface: &str) -> Result<Vec<u8>, String> {
    let command = format!("dcb pfc show dev {interface}");
    let text = host.tools().ask(&command)?;
    let pairs = pairs(&text, "prio-pfc").filter(|pairs| pairs.len() == PRIORITIES as usize);
    let pairs = pairs.ok_or_else(|| format!("the output of `{command}` is not understood"))?;
    Ok(pairs.into_iter().filter(|(_, state)| state == "on").map(|(index, _)| index).collect())
}

fn lossless(host: &Host<'_>, interface: &str, paused: &Result<Vec<u8>, String>) -> Finding {
    let data = host.profile.traffic.priority;
    let lossless = host.profile.pfc.lossless;
    let wanted = match lossless {
        Lossless::None => "none".to_owned(),
        Lossless::AtMostOne => format!("none, or {data} alone"),
        Lossless::One => format!("{data} alone"),
    };
    let why = "each priority with pauses is a way for one host to stop others";
    let check = new("pfc", "priorities that may be paused (PFC)", wanted, why);
    let paused = match paused {
        Ok(paused) => paused,
        Err(reason) => return check.unknown(reason),
    };
    let alone = paused[..] == [data];
    let good = match lossless {
        Lossless::None => paused.is_empty(),
        Lossless::AtMostOne => paused.is_empty() || alone,
        Lossless::One => alone,
    };
    let list: Vec<String> = paused.iter().map(u8::to_string).collect();
    let seen = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
    check.fail_unless(good, seen, || {
        let keep = match lossless {
            Lossless::None => false,
            Lossless::AtMostOne => paused.contains(&data),
            Lossless::One => true,
        };
        let on = if keep { format!(" {data}:on") } else { String::new() };
        let command = format!("dcb pfc set dev {interface} prio-pfc all:off{on}");
        vec![
            Step::run("pauses where the profile wants them and nowhere else", &command),
            Step::by_hand("both ends must agree", "set the switch's port to the same priorities"),
        ]
    })
}

/// With pauses on the data's priority, subscribers can harm each other.
fn shared(host: &Host<'_>, paused: &Result<Vec<u8>, String>) -> Option<Finding> {
    let data = host.profile.traffic.priority;
    let paused = paused.as_ref().ok()?.contains(&data);
    let why = "all subscribers have one priority: a slow one pauses the publisher for all 64";
    let check = new("pfc_shared", "subscribers that can pause each other", "none", why);
    paused.then(|| {
        let text = "keep it only on a network that must not drop; else use --profile lossy";
        check.warn(
            format!("all, on priority {data}"),
            vec![Step::by_hand("a decision about the whole network", text)],
        )
    })
}

#[cfg(test)]
mod tests {
    use super::pairs;

    #[test]
    fn pairs_end_where_another_word_begins() {
        let text = "pfc-cap 8 macsec-bypass off delay 0\nprio-pfc 0:off 3:on requests 0:1 ";
        let expected = vec![(0, "off".to_owned()), (3, "on".to_owned())];
        assert_eq!(pairs(text, "prio-pfc"), Some(expected));
        assert_eq!(pairs("", "prio-pfc"), None);
    }
}
