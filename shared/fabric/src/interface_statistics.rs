//! What the driver of a network interface counts by itself, pause frames above all: the numbers of
//! `ethtool -S`, which are not in sysfs.
//!
//! The interface is `linux/ethtool.h`'s, by `SIOCETHTOOL` (netdevice(7)). The three questions that
//! are asked here are among those that take no rights.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const GET_STRINGS: u32 = 0x1b;
const GET_STATISTICS: u32 = 0x1d;
const GET_SET_INFO: u32 = 0x37;
/// The set of names that statistics have (`ETH_SS_STATS`).
const STATISTICS: u32 = 1;
/// Bytes of a name, the terminating zero included (`ETH_GSTRING_LEN`).
const NAME_BYTES: usize = 32;
/// Looks, until two questions in a row are answered alike.
const TRIES: usize = 3;
/// More is not asked for. Large cards have some thousand.
const COUNT_MAX: usize = 8_192;
/// The kernel writes as many as there are when it answers, however many were asked for: a driver
/// that was given more queues meanwhile may have more. Untouched, this is address space alone.
const ROOM: usize = 8 * COUNT_MAX;

/// `struct ifreq`, with the one member of its union that is used.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    data: *mut c_void,
    rest: [u64; 2],
}

/// Every number that the driver of `interface` counts, by the driver's own name for it, in its
/// order. Units are the driver's, too. Empty where it counts nothing.
///
/// # Errors
/// When there is no such interface, the system refuses, or the driver counts other things at each
/// look.
pub fn interface_statistics(interface: &str) -> io::Result<Vec<(String, u64)>> {
    for _ in 0..TRIES {
        if let Some(found) = look(interface)? {
            return Ok(found);
        }
    }
    Err(io::Error::other(format!("what {interface} counts changes all the time")))
}

/// `None` when there is something else to count than a moment ago: then numbers and names are not
/// of each other.
fn look(interface: &str) -> io::Result<Option<Vec<(String, u64)>>> {
    let count = count_of(interface)?;
    if count == 0 {
        return Ok(Some(Vec::new()));
    }
    // Words, because the numbers have to be aligned; names take four words each.
    let mut names = vec![0_u64; 2 + ROOM * NAME_BYTES / 8];
    names[0] = word_of(GET_STRINGS, STATISTICS);
    names[1] = word_of(count as u32, 0);
    ask(interface, &mut names)?;
    let mut numbers = vec![0_u64; 1 + ROOM];
    numbers[0] = word_of(GET_STATISTICS, count as u32);
    ask(interface, &mut numbers)?;
    let [_, numbers_told] = halves_of(numbers[0]);
    if [halves_of(names[1])[0], numbers_told] != [count as u32; 2] {
        return Ok(None);
    }
    // The names begin after three words of four bytes.
    let bytes: Vec<u8> =
        names.iter().take(2 + count * NAME_BYTES / 8).flat_map(|word| word.to_ne_bytes()).collect();
    let names = bytes[12..].chunks_exact(NAME_BYTES).take(count).map(text_of);
    Ok(Some(names.zip(numbers[1..].iter().copied()).collect()))
}

/// How many numbers the driver counts now.
fn count_of(interface: &str) -> io::Result<usize> {
    // Command, an unused word, the mask of the sets that are asked for, and the answer.
    let mut info = [word_of(GET_SET_INFO, 0), 1 << STATISTICS, 0];
    match ask(interface, &mut info) {
        // A driver without statistics, such as that of `lo`.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok(0),
        asked => asked?,
    }
    let is_there = info[1] & 1 << STATISTICS != 0;
    let count = if is_there { halves_of(info[2])[0] as usize } else { 0 };
    if count > COUNT_MAX {
        return Err(io::Error::other(format!("{interface} has {count} statistics")));
    }
    Ok(count)
}

/// Asks the kernel, which answers in `words`.
fn ask(interface: &str, words: &mut [u64]) -> io::Result<()> {
    let mut request = InterfaceRequest {
        name: [0; libc::IFNAMSIZ],
        data: words.as_mut_ptr().cast(),
        rest: [0; 2],
    };
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= request.name.len() || name.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no name of an interface"));
    }
    request.name[..name.len()].copy_from_slice(name);
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // The kernel writes what the command in the first word asks for: for sets three words, for
    // names and numbers as many as the driver has, however many were asked for.
    // SAFETY: `request` is laid out as `struct ifreq`, its name ends with a zero, its pointer is to
    // `words`: writable, aligned for u64, alive through the call, and with room for three words, or
    // for 65,536 names or numbers of a driver that has said to have at most 8,192.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Two numbers of four bytes, in their order in memory.
fn word_of(first: u32, second: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (first.to_ne_bytes(), second.to_ne_bytes());
    u64::from_ne_bytes([a, b, c, d, e, f, g, h])
}

/// The same back.
fn halves_of(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// A name up to its terminating zero.
fn text_of(name: &[u8]) -> String {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_counts_nothing_has_nothing_to_tell() {
        assert_eq!(interface_statistics("lo").unwrap(), []);
    }

    #[test]
    fn what_is_no_interface_is_an_error() {
        let error = interface_statistics("absent0").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for name in ["", "a-name-of-16-byt", "a\0b"] {
            let error = interface_statistics(name).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
        }
    }

    #[test]
    fn every_interface_here_answers_and_names_what_it_counts() {
        for entry in std::fs::read_dir("/sys/class/net").unwrap() {
            let interface = entry.unwrap().file_name().into_string().unwrap();
            // A file beside the interfaces, where bonding is.
            if interface == "bonding_masters" {
                continue;
            }
            let found = match interface_statistics(&interface) {
                // It has gone meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                found => found.unwrap(),
            };
            for (name, _) in found {
                let is_plain = name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
                assert!(is_plain && !name.is_empty(), "{interface} counts {name:?}");
            }
        }
    }
}
