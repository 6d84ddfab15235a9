//! What should have gone with the processes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::demo::Link;

/// What there was before.
#[derive(Debug)]
pub(super) struct Leftovers {
    segments: BTreeSet<String>,
}

impl Leftovers {
    /// Looks at what there is now.
    pub(super) fn before() -> Self {
        Self { segments: segments() }
    }

    /// What is there that was not before: files where publishers had their sockets, processes that
    /// were given a path below `folder`, segments of shared memory, and resources of RDMA.
    pub(super) fn found(&self, run: &Path, folder: &Path, link: &Link) -> Vec<String> {
        let mut found: Vec<_> =
            names(run).into_iter().map(|name| format!("left behind: the file {name}")).collect();
        let fresh = segments();
        let fresh = fresh.difference(&self.segments);
        found.extend(fresh.map(|name| format!("left behind: the segment {name}")));
        found.extend(processes(folder).map(|line| format!("left behind: the process {line}")));
        if let Link::Rdma(_) = link {
            found.extend(["qp", "cq", "mr", "pd"].into_iter().filter_map(resources));
        }
        found
    }
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn segments() -> BTreeSet<String> {
    let mut all = names(Path::new("/dev/shm"));
    all.retain(|name| name.contains("tapecast"));
    all
}

fn processes(folder: &Path) -> impl Iterator<Item = String> {
    let (folder, own) = (folder.display().to_string(), std::process::id().to_string());
    let others = names(Path::new("/proc")).into_iter().filter(move |pid| *pid != own);
    others.filter_map(move |pid| {
        // Most names are no processes, and those that have ended have no command line.
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&words).replace('\0', " ");
        line.contains(&folder).then(|| format!("{pid} {line}"))
    })
}

fn resources(kind: &str) -> Option<String> {
    let output = Command::new("rdma").args(["resource", "show", kind]).output();
    let text = match output {
        Ok(output) if output.status.success() => output.stdout,
        other => return Some(format!("rdma resource show {kind}: {other:?}")),
    };
    // Those of the kernel itself have no process.
    let text = String::from_utf8_lossy(&text);
    let count = text.lines().filter(|line| line.contains(" pid ")).count();
    (count > 0).then(|| format!("left behind: {count} of rdma's {kind}"))
}
