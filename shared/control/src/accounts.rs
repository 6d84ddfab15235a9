//! Names of users and groups, through the system's own account databases.
//!
//! `nix` asks the C library, which asks NSS: accounts that live in LDAP or SSSD count, which a
//! reader of `/etc/passwd` would miss. The calls block, and may wait for a network.

use std::ffi::CString;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

/// The user of this process for messages, e.g. `alice (uid 1001)`.
pub(crate) fn own_user() -> String {
    let uid = Uid::effective();
    match User::from_uid(uid) {
        Ok(Some(user)) => format!("{} (uid {uid})", user.name),
        Ok(None) | Err(_) => format!("uid {uid}"),
    }
}

/// Number of a user given by name or number.
pub(crate) fn user_id(user: &str) -> Result<Option<u32>, nix::Error> {
    if let Ok(uid) = user.parse() {
        return Ok(Some(uid));
    }
    Ok(User::from_name(user)?.map(|user| user.uid.as_raw()))
}

/// Number of a group given by name or number.
pub(crate) fn group_id(group: &str) -> Result<Option<u32>, nix::Error> {
    if let Ok(gid) = group.parse() {
        return Ok(Some(gid));
    }
    Ok(Group::from_name(group)?.map(|group| group.gid.as_raw()))
}

/// Groups that the databases give a user; none when the user is not in them.
pub(crate) fn groups_of(uid: u32, gid: u32) -> Vec<u32> {
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else {
        return Vec::new();
    };
    let Ok(name) = CString::new(user.name) else {
        return Vec::new();
    };
    getgrouplist(&name, Gid::from_raw(gid))
        .map(|groups| groups.into_iter().map(Gid::as_raw).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{group_id, groups_of, user_id};

    #[test]
    fn names_and_numbers_are_understood() {
        assert_eq!(user_id("root").unwrap(), Some(0));
        assert_eq!(user_id("4000000001").unwrap(), Some(4_000_000_001));
        assert_eq!(user_id("no-such-user-here").unwrap(), None);
        assert_eq!(group_id("17").unwrap(), Some(17));
        assert_eq!(group_id("no-such-group-here").unwrap(), None);
        assert_eq!(group_id("").unwrap(), None);
    }

    #[test]
    fn root_is_in_its_own_group_and_a_stranger_in_none() {
        assert!(groups_of(0, 0).contains(&0));
        assert!(groups_of(4_000_000_001, 7).is_empty());
    }
}
