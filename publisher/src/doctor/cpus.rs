//! Sets of CPUs in the kernel's notation.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The kernel's own limit is 8192 CPUs.
const CPUS_MAX: u32 = 8192;

/// A set of CPUs, written like `0,2-5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus(BTreeSet<u32>);

impl Cpus {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Those that `others` does not have.
    pub(crate) fn without(&self, others: &Self) -> Self {
        Self(&self.0 - &others.0)
    }

    pub(crate) fn both(&self, others: &Self) -> Self {
        Self(&self.0 & &others.0)
    }

    /// Reads a mask of the kernel: hexadecimal words of 32 bits, the highest first.
    pub(crate) fn from_mask(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.trim().split(',').collect();
        if words.len() > CPUS_MAX as usize / 32 {
            return None;
        }
        let mut cpus = BTreeSet::new();
        for (base, word) in (0..).step_by(32).zip(words.iter().rev()) {
            let bits = u32::from_str_radix(word, 16).ok()?;
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| base + bit));
        }
        Some(Self(cpus))
    }

    /// As the kernel's mask: hexadecimal words of 32 bits, the highest first.
    pub(crate) fn to_mask(&self) -> String {
        let top = self.0.last().map_or(0, |cpu| cpu / 32);
        let word = |index: u32| {
            let bits = self.0.iter().filter(|cpu| *cpu / 32 == index);
            format!("{:08x}", bits.fold(0_u32, |bits, cpu| bits | 1 << (cpu % 32)))
        };
        (0..=top).rev().map(word).collect::<Vec<_>>().join(",")
    }
}

impl FromIterator<u32> for Cpus {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cpus = BTreeSet::new();
        let bad = || format!("{text:?} is no list of CPUs; write it like 2-5,8");
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| bad())?;
            let last: u32 = last.trim().parse().map_err(|_| bad())?;
            if last < first || last >= CPUS_MAX {
                return Err(bad());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_as_it_was_written() {
        for text in ["", "0", "0-3", "1,3,5", "0,2-5,8191"] {
            assert_eq!(text.parse::<Cpus>().unwrap().to_string(), text);
        }
        assert_eq!("3,1,2".parse::<Cpus>().unwrap().to_string(), "1-3");
    }

    #[test]
    fn what_is_no_list_is_refused_without_filling_the_memory() {
        for text in ["a", "5-2", "0-4294967295", "-1", "1-", "99999999999", "(null)"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
    }

    #[test]
    fn masks_are_words_of_32_bits_with_the_highest_first() {
        let cpus = Cpus::from_mask("00000001,0000000f").unwrap();
        assert_eq!(cpus.to_string(), "0-3,32");
        assert_eq!(cpus.to_mask(), "00000001,0000000f");
        assert_eq!(Cpus::from_mask("xyz"), None);
        assert_eq!(Cpus::from_mask(""), None);
    }
}
