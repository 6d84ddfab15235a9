//! Records by type, for reports. Sums to the number of records.

use dbn::{MboMsg, Mbp10Msg, RType, rtype};

use super::records::Frame;

/// Counters of one input.
pub(super) struct Counts {
    actions: Box<[u64; 256]>,
    types: Box<[u64; 256]>,
}

impl Default for Counts {
    fn default() -> Self {
        Self { actions: Box::new([0; 256]), types: Box::new([0; 256]) }
    }
}

impl Counts {
    pub(super) fn add(&mut self, frame: Frame<'_>) {
        let action = match frame.rtype() {
            rtype::MBO => frame.get::<MboMsg>().map(|record| record.action),
            rtype::MBP_10 => frame.get::<Mbp10Msg>().map(|record| record.action),
            _ => None,
        };
        match action {
            Some(action) => self.actions[usize::from(action as u8)] += 1,
            None => self.types[usize::from(frame.rtype())] += 1,
        }
    }

    /// Records of types that the crate does not know.
    pub(super) fn unknown(&self) -> u64 {
        (0..=u8::MAX).filter(|rtype| RType::try_from(*rtype).is_err()).map(|r| self.of(r)).sum()
    }

    /// Orders and levels by action letter, the rest by type name.
    pub(super) fn by_type(&self) -> Vec<(String, u64)> {
        let seen = |counts: &[u64; 256], name: fn(u8) -> String| -> Vec<(String, u64)> {
            let seen = (0..=u8::MAX).zip(*counts).filter(|(_, count)| *count > 0);
            seen.map(|(kind, count)| (name(kind), count)).collect()
        };
        [seen(&self.actions, printable), seen(&self.types, type_name)].concat()
    }

    fn of(&self, rtype: u8) -> u64 {
        self.types[usize::from(rtype)]
    }
}

fn printable(action: u8) -> String {
    if action.is_ascii_graphic() {
        char::from(action).to_string()
    } else {
        format!("action {action:#04x}")
    }
}

fn type_name(rtype: u8) -> String {
    match RType::try_from(rtype) {
        Ok(known) => known.as_str().to_owned(),
        Err(_) => format!("type {rtype:#04x}"),
    }
}
