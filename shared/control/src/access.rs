//! Who may attach.

use std::fs;

use crate::accounts;
use crate::peer::PeerCredentials;

/// Users and groups whose processes may attach.
///
/// The publisher's own user and root are always among them: either could take over the publisher
/// anyway, and an administrator must not lock out the tools. What counts is the peer's effective
/// user and group when it connected, as the kernel tells them, and its supplementary groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    own_uid: u32,
    uids: Vec<u32>,
    gids: Vec<u32>,
    unmapped: Unmapped,
}

/// A user or group that cannot be admitted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// No such user.
    #[error(
        "there is no user {user:?}: correct the list of users that may attach, or create the user"
    )]
    UnknownUser {
        /// As configured.
        user: String,
    },
    /// No such group.
    #[error(
        "there is no group {group:?}: correct the list of groups that may attach, or create the \
         group"
    )]
    UnknownGroup {
        /// As configured.
        group: String,
    },
    /// The account databases did not answer.
    #[error(
        "cannot look up {name:?}: {source}; check the name service, or give the number instead"
    )]
    LookUp {
        /// As configured.
        name: String,
        /// What the name service said.
        source: std::io::Error,
    },
}

/// What a peer's user and first group say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    /// Its supplementary groups decide.
    AskGroups,
    NotAllowed,
}

impl Access {
    /// The publisher's own user and root, and nobody else.
    #[must_use]
    pub fn own() -> Self {
        Self {
            own_uid: nix::unistd::Uid::effective().as_raw(),
            uids: Vec::new(),
            gids: Vec::new(),
            unmapped: Unmapped::of_this_process(),
        }
    }

    /// Admits these users and groups too, each given by name or number. May wait for a name
    /// service, so call it at start or reload.
    ///
    /// # Errors
    /// [`AccessError`] when a name is unknown.
    pub fn resolve(users: &[String], groups: &[String]) -> Result<Self, AccessError> {
        let mut access = Self::own();
        for user in users {
            let uid = accounts::user_id(user).map_err(|error| look_up(user, error))?;
            let unknown = || AccessError::UnknownUser { user: user.clone() };
            access.uids.push(uid.ok_or_else(unknown)?);
        }
        for group in groups {
            let gid = accounts::group_id(group).map_err(|error| look_up(group, error))?;
            let unknown = || AccessError::UnknownGroup { group: group.clone() };
            access.gids.push(gid.ok_or_else(unknown)?);
        }
        Ok(access)
    }

    /// Whether somebody beyond the publisher's own user and root may attach.
    pub(crate) fn admits_others(&self) -> bool {
        !self.gids.is_empty() || self.uids.iter().any(|uid| *uid != 0 && *uid != self.own_uid)
    }

    pub(crate) fn verdict(&self, peer: &PeerCredentials) -> Verdict {
        let user = self.unmapped.uid != Some(peer.uid)
            && (peer.uid == 0 || peer.uid == self.own_uid || self.uids.contains(&peer.uid));
        if user || self.admits_group(peer.gid) {
            Verdict::Admitted
        } else if self.gids.is_empty() {
            Verdict::NotAllowed
        } else {
            Verdict::AskGroups
        }
    }

    pub(crate) fn admits_group(&self, gid: u32) -> bool {
        self.unmapped.gid != Some(gid) && self.gids.contains(&gid)
    }
}

fn look_up(name: &str, error: nix::Error) -> AccessError {
    AccessError::LookUp { name: name.to_owned(), source: error.into() }
}

/// The numbers that stand for every user and group outside this process's user namespace; none
/// where all have numbers of their own.
///
/// Inside a namespace (systemd's `PrivateUsers=yes`, rootless containers) the kernel shows all
/// strangers as 65534. Admitting "nobody" there would admit everybody, so nobody it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unmapped {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// What the kernel shows unless `/proc/sys/kernel/overflow{u,g}id` says otherwise.
const OVERFLOW_ID: u32 = 65534;

impl Unmapped {
    fn of_this_process() -> Self {
        let read = |map: &str, overflow: &str| {
            let partial = fs::read_to_string(map).is_ok_and(|map| !maps_everyone(&map));
            let number =
                fs::read_to_string(overflow).ok().and_then(|text| text.trim().parse().ok());
            partial.then(|| number.unwrap_or(OVERFLOW_ID))
        };
        Self {
            uid: read("/proc/self/uid_map", "/proc/sys/kernel/overflowuid"),
            gid: read("/proc/self/gid_map", "/proc/sys/kernel/overflowgid"),
        }
    }
}

/// Whether a `uid_map` gives every user its own number, as in the initial namespace.
fn maps_everyone(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::{Access, AccessError, Unmapped, Verdict, maps_everyone};
    use crate::PeerCredentials;

    fn access(uids: &[u32], gids: &[u32]) -> Access {
        let unmapped = Unmapped::default();
        Access { own_uid: 1000, uids: uids.to_vec(), gids: gids.to_vec(), unmapped }
    }

    fn peer(uid: u32, gid: u32) -> PeerCredentials {
        PeerCredentials { pid: Some(7), uid, gid }
    }

    #[test]
    fn own_user_and_root_are_always_admitted() {
        for access in [access(&[], &[]), access(&[5], &[6])] {
            assert_eq!(access.verdict(&peer(1000, 1)), Verdict::Admitted);
            assert_eq!(access.verdict(&peer(0, 1)), Verdict::Admitted);
        }
    }

    #[test]
    fn strangers_are_not_allowed() {
        assert_eq!(access(&[], &[]).verdict(&peer(1001, 1000)), Verdict::NotAllowed);
        assert_eq!(access(&[5], &[]).verdict(&peer(6, 5)), Verdict::NotAllowed);
    }

    #[test]
    fn groups_are_asked_only_where_groups_are_admitted() {
        let access = access(&[5], &[6]);
        assert_eq!(access.verdict(&peer(5, 1)), Verdict::Admitted);
        assert_eq!(access.verdict(&peer(9, 6)), Verdict::Admitted);
        assert_eq!(access.verdict(&peer(9, 9)), Verdict::AskGroups);
    }

    #[test]
    fn a_number_that_stands_for_all_strangers_admits_nobody() {
        let mut access = access(&[65534], &[65534]);
        assert_eq!(access.verdict(&peer(65534, 65534)), Verdict::Admitted);
        access.unmapped = Unmapped { uid: Some(65534), gid: Some(65534) };
        assert_eq!(access.verdict(&peer(65534, 65534)), Verdict::AskGroups);
        assert!(!access.admits_group(65534));
        access.own_uid = 65534;
        assert_eq!(access.verdict(&peer(65534, 1)), Verdict::AskGroups);
    }

    #[test]
    fn only_the_full_map_maps_everyone() {
        assert!(maps_everyone("         0          0 4294967295\n"));
        assert!(!maps_everyone("         0     100000      65536\n"));
        assert!(!maps_everyone("0 1000 1\n1 100000 65536\n"));
        assert!(!maps_everyone(""));
    }

    #[test]
    fn others_are_those_who_are_not_admitted_anyway() {
        assert!(!access(&[], &[]).admits_others());
        assert!(!access(&[0, 1000], &[]).admits_others());
        assert!(access(&[1001], &[]).admits_others());
        assert!(access(&[], &[1000]).admits_others());
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        let error = Access::resolve(&["no-such-user-here".into()], &[]).unwrap_err();
        assert!(matches!(&error, AccessError::UnknownUser { user } if user == "no-such-user-here"));
        assert!(error.to_string().contains("\"no-such-user-here\""), "{error}");
        let error = Access::resolve(&[], &["no-such-group-here".into()]).unwrap_err();
        assert!(matches!(error, AccessError::UnknownGroup { .. }), "{error}");
    }

    #[test]
    fn names_and_numbers_mean_the_same() {
        let names = Access::resolve(&["root".into()], &["17".into()]).unwrap();
        let numbers = Access::resolve(&["0".into()], &["17".into()]).unwrap();
        assert_eq!(names, numbers);
    }
}
