//! Reads the configuration file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ConfigError;

/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The text of the file, which is called `shown` in errors.
pub(super) fn read_file(path: &Path, shown: &str) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: shown.to_owned(), source };
    // Before it is opened: to open a pipe would wait for its writer.
    let kind = std::fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() {
        let kind = if kind.is_dir() { "a directory" } else { "a device, pipe or socket" };
        return Err(ConfigError::NotAFile { path: shown.to_owned(), kind });
    }
    let mut text = String::new();
    let file = File::open(path).map_err(failed)?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(ConfigError::TooLarge { path: shown.to_owned(), max: FILE_BYTES_MAX });
    }
    Ok(text)
}
