//! Files below a root: this machine's own, or a tree that was recorded from another.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// More of a file than this is not looked at.
const READ_BYTES: u64 = 256 * 1024;
/// More entries of a folder than this are not looked at.
const LIST_ENTRIES: usize = 65_536;

/// Where the files are.
#[derive(Clone, Debug)]
pub struct Root {
    /// Absolute, without symbolic links.
    path: PathBuf,
}

/// Why a file was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// It is not there.
    Absent(String),
    /// It may not be read by this user.
    Denied(String),
    /// Anything else: the path and the system's words.
    Broken(String, String),
}

impl Gap {
    fn of(path: &str, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::Absent(path.to_owned()),
            ErrorKind::PermissionDenied => Self::Denied(path.to_owned()),
            _ => Self::Broken(path.to_owned(), error.to_string()),
        }
    }

    /// A sentence's middle; `absence` says what it means when the file is not there.
    pub(crate) fn reason(&self, absence: &str) -> String {
        match self {
            Self::Absent(path) => format!("{absence} (there is no {path})"),
            Self::Denied(path) => format!("{path} may be read by root alone: run this with sudo"),
            Self::Broken(path, error) => format!("{path} cannot be read: {error}"),
        }
    }

    pub(crate) const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent(_))
    }
}

impl Root {
    /// Opens a root.
    ///
    /// # Errors
    /// When it is no folder that can be entered, or one without anything of a kernel.
    pub fn open(path: &Path) -> io::Result<Self> {
        let path = path.canonicalize()?;
        std::fs::read_dir(&path)?;
        if ["sys", "proc"].iter().all(|folder| !path.join(folder).is_dir()) {
            return Err(io::Error::other("it has neither sys/ nor proc/"));
        }
        Ok(Self { path })
    }

    /// Whether this is the machine itself.
    #[must_use]
    pub fn is_this_machine(&self) -> bool {
        self.path == Path::new("/")
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's own place. A link that leads out of the root would be another machine's file.
    fn locate(&self, path: &str) -> io::Result<PathBuf> {
        let place = self.path.join(path.trim_start_matches('/')).canonicalize()?;
        if place.starts_with(&self.path) {
            Ok(place)
        } else {
            Err(io::Error::other("it is a link that leads out of the root"))
        }
    }

    /// The text of a file; what is no text is replaced by signs that say so.
    pub(crate) fn read(&self, path: &str) -> Result<String, Gap> {
        self.read_bytes(path).map_err(|error| Gap::of(path, &error))
    }

    fn read_bytes(&self, path: &str) -> io::Result<String> {
        let place = self.locate(path)?;
        if !place.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        let mut bytes = Vec::new();
        File::open(place)?.take(READ_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file without blanks around it.
    pub(crate) fn value(&self, path: &str) -> Result<String, Gap> {
        Ok(self.read(path)?.trim().to_owned())
    }

    /// The names in a folder, sorted; only names that are safe in a command.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Gap> {
        let entries = self.locate(path).and_then(std::fs::read_dir);
        let mut names: Vec<String> = entries
            .map_err(|error| Gap::of(path, &error))?
            .take(LIST_ENTRIES)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| is_plain(name))
            .collect();
        names.sort_by_key(|name| (digits(name), name.clone()));
        Ok(names)
    }

    /// Whether something is there. Not allowed to know counts as no.
    pub(crate) fn holds(&self, path: &str) -> bool {
        self.locate(path).is_ok()
    }

    /// Whether the kernel is without what was looked for: this folder is there, and has nothing on
    /// the way to the file that is absent.
    pub(crate) fn lacks(&self, gap: &Gap, folder: &str) -> bool {
        let Gap::Absent(path) = gap else { return false };
        let way = path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
        let Some(entry) = way.and_then(|way| way.split('/').next()) else { return false };
        self.list(folder).is_ok_and(|names| names.iter().all(|name| name != entry))
    }

    /// Writes a value into a file that is there.
    pub(crate) fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let place = self.locate(path)?;
        if !place.metadata()?.is_file() {
            return Err(io::Error::other("it is not a file"));
        }
        // Without waiting, should somebody have put a pipe there meanwhile.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut options = OpenOptions::new();
        let mut file = options.write(true).truncate(true).custom_flags(flags).open(place)?;
        // One call: files of the kernel take a value whole.
        file.write_all(format!("{value}\n").as_bytes())
    }

    /// Makes a file that everybody may read, or puts one in the place of another, in a folder that
    /// is there: whole, or not at all.
    pub(crate) fn make(&self, path: &str, text: &str) -> io::Result<()> {
        let name = path.trim_start_matches(folder_of(path)).trim_start_matches('/');
        let folder = self.locate(folder_of(path))?;
        let place = folder.join(name);
        // A link in its place may be meant, and lead anywhere.
        if place.symlink_metadata().is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("something else than a file is in its place"));
        }
        let mut file = tempfile::Builder::new().prefix(".tapecast-").tempfile_in(&folder)?;
        file.write_all(text.as_bytes())?;
        file.as_file().set_permissions(Permissions::from_mode(0o644))?;
        file.as_file().sync_all()?;
        file.persist(place)?;
        Ok(())
    }
}

/// The folder of a file.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("/", |(folder, _)| folder)
}

/// Whether a name can stand in a path and in a shell's command without quotes.
pub(crate) fn is_plain(name: &str) -> bool {
    let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:@+".contains(&byte);
    !name.starts_with(['.', '-']) && (1..=64).contains(&name.len()) && name.bytes().all(sign)
}

/// The number that a name ends in, so that cpu10 comes after cpu9.
fn digits(name: &str) -> Option<u64> {
    let start = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[start..].parse().ok()
}
