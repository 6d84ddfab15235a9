//! The files of a journal: their names, their order, and which of them stay.

use std::io;
use std::path::{Path, PathBuf};

use tapecast_wire::Epoch;

/// How the names of journal files end.
pub const FILE_ENDING: &str = "tapejournal";

/// Name of one file of a journal. Names sort in the order in which files were begun.
#[must_use]
pub fn file_name(epoch: Epoch, number: u32) -> String {
    format!("{:020}-{number:08}.{FILE_ENDING}", epoch.get())
}

/// The journal files in a folder, oldest first. Whatever else lies there is left alone.
///
/// # Errors
/// When the folder cannot be read.
pub fn files_of(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if is_ours(&path) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn is_ours(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let Some((epoch, rest)) = name.split_once('-') else { return false };
    let Some((number, ending)) = rest.split_once('.') else { return false };
    let is_number =
        |text: &str, digits| text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(epoch, 20) && is_number(number, 8) && ending == FILE_ENDING
}

/// Removes the oldest files until fewer than `keep` are left, so that one more makes `keep`; 0
/// keeps all.
pub(crate) fn make_room(folder: &Path, keep: usize) -> io::Result<()> {
    if keep == 0 {
        return Ok(());
    }
    let files = files_of(folder)?;
    let surplus = (files.len() + 1).saturating_sub(keep);
    files.iter().take(surplus).try_for_each(std::fs::remove_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        names.iter().for_each(|name| std::fs::write(folder.path().join(name), b"x").unwrap());
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let files = files_of(folder).unwrap();
        files.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn files_come_in_the_order_in_which_they_were_begun_and_strangers_are_left_out() {
        let (old, new) = (file_name(Epoch(9), 12), file_name(Epoch(10), 1));
        let folder = folder_with(&[&new, "notes.txt", &old, "1-2.tapejournal"]);
        assert_eq!(names(folder.path()), [old, new]);
    }

    #[test]
    fn only_the_oldest_go_and_only_ours() {
        let files: Vec<String> = (1..=5).map(|number| file_name(Epoch(1), number)).collect();
        let folder = folder_with(&["0.txt"]);
        files.iter().for_each(|name| std::fs::write(folder.path().join(name), b"x").unwrap());
        make_room(folder.path(), 0).unwrap();
        assert_eq!(names(folder.path()).len(), 5);
        make_room(folder.path(), 3).unwrap();
        assert_eq!(names(folder.path()), files[3..]);
        assert!(folder.path().join("0.txt").exists());
    }
}
