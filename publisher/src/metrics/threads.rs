//! What each thread of the publisher takes of the processor, as the kernel counts it.

use std::fs;
use std::path::Path;

use super::series::{Families, Named};

/// The kernel keeps 15 bytes of a thread's name.
const THREADS: [(&str, &str); 6] = [
    ("tapecast-sender", "sender"),
    ("tapecast-feed", "feed"),
    ("tapecast-waker", "waker"),
    ("tapecast-journa", "journal"),
    ("tapecast-metric", "metrics"),
    ("tapecast-publis", "conductor"),
];

/// CPU time and context switches of the threads that have a name of ours.
pub(super) fn collect(out: &mut Families, tasks: &Path) {
    let Ok(entries) = fs::read_dir(tasks) else { return };
    for task in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        // A thread may end while it is looked at.
        let _ended = one(out, &task);
    }
}

fn one(out: &mut Families, task: &Path) -> Option<()> {
    let read = |file: &str| fs::read_to_string(task.join(file)).ok();
    let comm = read("comm")?;
    let (_, thread) = THREADS.iter().find(|(name, _)| *name == comm.trim_end())?;
    let on_cpu_ns: u64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
    out.counter_of(
        Named("tapecast_thread_cpu_seconds_total", "Time that a thread ran on a processor."),
        &[("thread", thread)],
        on_cpu_ns as f64 / 1e9,
    );
    let status = read("status")?;
    for (line, kind) in
        [("voluntary_ctxt_switches:", "voluntary"), ("nonvoluntary_ctxt_switches:", "involuntary")]
    {
        let count = status.lines().find_map(|found| found.strip_prefix(line))?;
        out.counter_of(
            Named(
                "tapecast_thread_context_switches_total",
                "Times that a thread left the processor, because it slept or was made to.",
            ),
            &[("thread", thread), ("kind", kind)],
            count.trim().parse().ok()?,
        );
    }
    Some(())
}
