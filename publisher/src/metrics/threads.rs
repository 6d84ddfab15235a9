//! What each thread of the publisher takes of the processor, as the kernel counts it.

use std::fs;
use std::path::Path;

use tapecast_telemetry::families::{Families, Named};

/// The kernel keeps 15 bytes of a thread's name.
const THREADS: [(&str, &str); 5] = [
    ("tapecast-sender", "sender"),
    ("tapecast-feed", "feed"),
    ("tapecast-waker", "waker"),
    ("tapecast-journa", "journal"),
    ("tapecast-metric", "metrics"),
];
/// The process's first thread, whose number is that of the process. Its name says nothing: a thread
/// that has just been started has its parent's until it gives itself its own.
const FIRST: &str = "conductor";

/// CPU time and context switches of the process's first thread, `first`, and of those that have a
/// name of ours.
pub(super) fn collect(out: &mut Families, tasks: &Path, first: u32) {
    let first = tasks.join(first.to_string());
    let Ok(entries) = fs::read_dir(tasks) else { return };
    for task in entries.filter_map(Result::ok).map(|entry| entry.path()) {
        // A thread may end while it is looked at.
        let _ended = one(out, &task, task == first);
    }
}

fn one(out: &mut Families, task: &Path, is_first: bool) -> Option<()> {
    let read = |file: &str| fs::read_to_string(task.join(file)).ok();
    let comm = read("comm")?;
    let named = || THREADS.iter().find(|(name, _)| *name == comm.trim_end());
    let thread = if is_first { FIRST } else { named()?.1 };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread as the kernel shows it.
    fn thread(tasks: &Path, number: u32, comm: &str) {
        let task = tasks.join(number.to_string());
        fs::create_dir(&task).unwrap();
        fs::write(task.join("comm"), format!("{comm}\n")).unwrap();
        fs::write(task.join("schedstat"), "2000000000 5 7\n").unwrap();
        let status = "voluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        fs::write(task.join("status"), status).unwrap();
    }

    #[test]
    fn a_thread_that_has_not_given_itself_its_name_yet_is_not_taken_for_its_parent() {
        let tasks = tempfile::tempdir().unwrap();
        for (number, comm) in
            [(70, "whatever"), (71, "whatever"), (72, "tapecast-publis"), (73, "tapecast-sender")]
        {
            thread(tasks.path(), number, comm);
        }
        let mut out = Families::default();
        collect(&mut out, tasks.path(), 70);
        let families = out.into_inner();
        let mut told: Vec<_> = families[0]
            .get_metric()
            .iter()
            .map(|metric| metric.get_label()[0].value().to_owned())
            .collect();
        told.sort();
        assert_eq!(told, ["conductor", "sender"]);
        assert_eq!(families[0].get_metric()[0].get_counter().get_value(), 2.0);
    }
}
