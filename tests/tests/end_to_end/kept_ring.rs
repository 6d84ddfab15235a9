//! A ring that the service manager keeps: publishers come and go, subscribers read on in it. The
//! test is the service manager.

use std::collections::HashMap;
use std::fs;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::fs::fstat;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};
use rustix::process::Signal;
use tapecast_subscriber::{Event, Subscriber};

use super::programs::{Processes, command, folder, json, programs, stderr, wait_until};

const INSTRUMENTS: usize = 5;
/// Bytes of the header that say whose life it is, where the tail is, and how many snapshots of that
/// life are before it.
const EPOCH_AT: u64 = 16;
const CHANNEL_SEQUENCE_AT: u64 = 264;

/// What a service manager does for its one service.
struct Manager {
    socket: UnixDatagram,
    path: PathBuf,
    /// The descriptor store.
    stored: Option<fs::File>,
}

impl Manager {
    fn new(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket that is asked, not waited for");
        Self { socket, path, stored: None }
    }

    /// Takes one message, if there is any, and does what it asks for.
    fn obey(&mut self) -> Option<String> {
        let mut bytes = [0; 512];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [IoSliceMut::new(&mut bytes)];
        let received = recvmsg(&self.socket, slices, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?;
        assert!(!received.flags.contains(ReturnFlags::CTRUNC));
        let files: Vec<OwnedFd> = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(files) => Some(files),
                _ => None,
            })
            .flatten()
            .collect();
        let text = str::from_utf8(&bytes[..received.bytes]).expect("UTF-8").to_owned();
        let has = |line: &str| text.lines().any(|other| other == line);
        let is_of_a_descriptor = text.lines().any(|line| line.starts_with("FDNAME="));
        if !is_of_a_descriptor {
            // How it is, and that it lives: not what this is about.
            assert!(files.is_empty() && !has("FDSTORE=1"), "{text}");
            return self.obey();
        }
        assert!(has("FDNAME=tapecast-ring"), "{text}");
        if has("FDSTOREREMOVE=1") {
            assert!(files.is_empty());
            self.stored = None;
        }
        if has("FDSTORE=1") {
            assert!(has("FDPOLL=0") && self.stored.is_none(), "{text}");
            let [file] = files.try_into().expect("one descriptor");
            self.stored = Some(file.into());
        }
        Some(text)
    }

    /// Waits until there is a ring in the store.
    fn until_stored(&mut self) {
        wait_until("a ring in the store", || {
            self.obey();
            self.stored.is_some()
        });
    }

    /// Starts the service, and hands it what is in the store.
    fn start(&self, processes: &mut Processes, arguments: &[&str]) -> usize {
        let Some(stored) = &self.stored else {
            let mut start = command("tapecast-publisher", arguments);
            return processes.spawn(start.env("NOTIFY_SOCKET", &self.path));
        };
        // Only the shell knows the id that the service will have. The first of the two descriptors
        // is none of the service's business.
        let script = "LISTEN_PID=$$ exec \"$0\" \"$@\" 3<&0 4<&0 </dev/null";
        let mut start = Command::new("/bin/sh");
        start.args(["-c", script]).arg(programs().join("tapecast-publisher")).args(arguments);
        start.env("NOTIFY_SOCKET", &self.path);
        start.env("LISTEN_FDS", "2").env("LISTEN_FDNAMES", "other:tapecast-ring");
        let stored = stored.try_clone().expect("a descriptor");
        start.stdin(stored).stdout(Stdio::piped()).stderr(Stdio::piped());
        processes.spawn(&mut start)
    }

    /// A word of the ring's header.
    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.stored.as_ref().expect("a ring").read_exact_at(&mut bytes, at).expect("a header");
        u64::from_le_bytes(bytes)
    }

    fn inode(&self) -> u64 {
        fstat(self.stored.as_ref().expect("a ring")).expect("a file").st_ino
    }

    /// How many snapshots of its present life the ring has committed.
    fn committed(&self) -> u64 {
        self.word(CHANNEL_SEQUENCE_AT)
    }

    /// Waits until another life than `epoch` has committed some.
    fn until_succeeded(&self, epoch: u64) {
        wait_until("snapshots of the next life", || {
            self.word(EPOCH_AT) != epoch && self.committed() > 50
        });
    }
}

/// What was delivered, judged one by one.
#[derive(Default)]
struct Account {
    lives: usize,
    /// The present life, and of it:
    epoch: u64,
    /// the channel sequence of the newest snapshot,
    channel: u64,
    /// the newest sequence of each instrument,
    newest: HashMap<u32, u64>,
    /// how many snapshots came as initial images, were delivered, and conflated.
    initial: usize,
    delivered: u64,
    conflated: u64,
}

impl Account {
    /// Whether every instrument has come in this subscriber's so-manieth life of the publisher.
    fn has_all_of(&self, life: usize) -> bool {
        self.lives == life && self.newest.len() == INSTRUMENTS
    }

    /// Polls until `enough`. Returns what happened meanwhile.
    fn receive(
        &mut self,
        subscriber: &mut Subscriber,
        enough: impl Fn(&Self) -> bool,
    ) -> Vec<Event> {
        let mut events = Vec::new();
        while !enough(self) {
            let polled = subscriber.poll(|snapshot| {
                let (epoch, id) = (snapshot.epoch().get(), snapshot.instrument_id().0);
                if epoch != self.epoch {
                    let lives = self.lives + 1;
                    *self = Self { epoch, lives, ..Self::default() };
                }
                let (sequence, skipped) =
                    (snapshot.instrument_sequence().get(), u64::from(snapshot.conflated_count()));
                let before = self.newest.insert(id, sequence);
                // Only in its first life has this subscriber come late.
                if let Some(before) = before.or_else(|| (self.lives > 1).then_some(0)) {
                    assert_eq!(sequence, before + 1 + skipped, "instrument {id}");
                }
                self.initial += usize::from(snapshot.is_initial_image());
                self.channel = snapshot.channel_sequence().get();
                self.delivered += 1;
                self.conflated += skipped;
            });
            if polled.expect("a subscription that goes on") == 0 {
                subscriber.wait(Duration::from_secs(10)).expect("a wait");
            }
            events.extend(subscriber.events());
        }
        events
    }
}

/// Goes on until it is stopped, and has its ring kept.
fn arguments<'a>(socket: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let instruments = "source.synthetic.instruments=5";
    let rest = "source.synthetic.burst_ms=0";
    let rate = "source.synthetic.steady_rate=2000";
    let keep = ["--set", "shm.seal=owner", "--set", "shm.keep=true", "--no-progress"];
    let mut all = vec!["run", "--socket", socket];
    all.extend(["--set", instruments, "--set", rest, "--set", rate].iter().chain(&keep));
    all.extend(more);
    all
}

/// Whether a process has this file mapped, and how many descriptors of it.
fn holds(pid: u32, inode: u64) -> (bool, usize) {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("a living process");
    let inode_of = |line: &str| line.split_whitespace().nth(4).map(str::to_owned);
    let mapped = maps.lines().any(|line| {
        line.contains("memfd:tapecast-region") && inode_of(line) == Some(inode.to_string())
    });
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("a living process");
    let is_region = |name: &Path| {
        fs::read_link(name).is_ok_and(|to| to.to_string_lossy().contains("memfd:tapecast-region"))
    };
    (mapped, open.filter(|entry| is_region(&entry.as_ref().expect("an entry").path())).count())
}

fn reattached(events: &[Event]) -> Vec<bool> {
    let continued = |event: &Event| match event {
        Event::Reattached { continued, .. } => Some(*continued),
        _ => None,
    };
    events.iter().filter_map(continued).collect()
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
}

#[test]
fn over_a_crash_and_an_upgrade_a_subscriber_reads_on_in_the_same_ring_and_nothing_is_missing() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let report = folder.path().join("report.json").display().to_string();
    let with_report = arguments(&socket, &["--report", &report]);
    let mut manager = Manager::new(folder.path());
    let mut processes = Processes::default();
    let first = manager.start(&mut processes, &arguments(&socket, &[]));
    manager.until_stored();
    let (inode, epoch) = (manager.inode(), manager.word(EPOCH_AT));
    let builder = Subscriber::builder().socket(&socket).name("reader");
    let builder = builder.heartbeat_timeout(Duration::from_secs(600));
    let mut subscriber = builder.wait_for_publisher(Duration::from_secs(600)).connect().unwrap();
    let mut account = Account::default();
    account.receive(&mut subscriber, |account| account.delivered > 50);
    let joined = account.initial;

    // It crashes while this subscriber is behind, and the next is at work before that reads on.
    let read = account.channel;
    wait_until("a backlog", || manager.committed() > read + 200);
    processes.signal(first, Signal::KILL);
    processes.finish(first);
    let committed = manager.committed();
    let second = manager.start(&mut processes, &with_report);
    manager.until_succeeded(epoch);
    account.receive(&mut subscriber, |account| account.channel == committed);
    assert_eq!(
        (account.lives, account.epoch),
        (1, epoch),
        "drained to the last that was committed"
    );
    let totals = subscriber.statistics();
    assert_eq!((totals.delivered, totals.lost), (account.delivered, 0));
    let events = account.receive(&mut subscriber, |account| account.has_all_of(2));
    assert_eq!((reattached(&events), account.lives), (vec![true], 2), "{events:?}");
    assert_eq!(account.initial, INSTRUMENTS, "an instrument's first is its first of all");
    let pid = processes.pid(second);
    wait_until("one descriptor that cannot write", || holds(pid, inode) == (true, 1));
    assert_eq!(manager.obey(), None, "what is in the store stays there");

    // An upgrade: it ends in order, and the ring goes on all the same.
    let epoch = account.epoch;
    processes.signal(second, Signal::TERM);
    succeeded(&processes.finish(second));
    let committed = manager.committed();
    let third = manager.start(&mut processes, &arguments(&socket, &[]));
    manager.until_succeeded(epoch);
    account.receive(&mut subscriber, |account| account.channel == committed);
    assert_eq!(account.epoch, epoch);
    // Published, as the publisher says, is what this subscriber has delivered and conflated.
    let report = json(Path::new(&report));
    assert_eq!(report["totals"]["published"], committed);
    assert_eq!(account.delivered + account.conflated, committed);
    for instrument in report["instruments"].as_array().expect("instruments") {
        let id = instrument["instrument_id"].as_u64().expect("an id") as u32;
        assert_eq!(instrument["published"], account.newest[&id], "{instrument}");
    }
    let events = account.receive(&mut subscriber, |account| account.has_all_of(3));
    assert_eq!((reattached(&events), account.lives), (vec![true], 3), "{events:?}");
    assert_eq!(manager.inode(), inode);

    let summary = subscriber.summary();
    let totals = &summary.statistics;
    assert!(summary.balanced, "{summary:?}");
    assert_eq!(totals.published, totals.delivered + totals.conflated);
    assert_eq!((totals.lost, totals.reconnects), (0, 2));
    assert_eq!(totals.initial_images, (joined + 2 * INSTRUMENTS) as u64);
    processes.signal(third, Signal::TERM);
    succeeded(&processes.finish(third));
}

#[test]
fn a_ring_of_another_size_is_dropped_from_the_store_with_the_reason_and_replaced() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let mut manager = Manager::new(folder.path());
    let mut processes = Processes::default();
    let first = manager.start(&mut processes, &arguments(&socket, &[]));
    manager.until_stored();
    let before = manager.inode();
    let mut subscriber = Subscriber::builder()
        .socket(&socket)
        .heartbeat_timeout(Duration::from_secs(600))
        .wait_for_publisher(Duration::from_secs(600))
        .connect()
        .unwrap();
    processes.signal(first, Signal::KILL);
    processes.finish(first);
    let second = manager.start(&mut processes, &arguments(&socket, &["--ring-bytes", "1 MiB"]));
    let mut message = None;
    wait_until("an answer about the ring", || {
        message = manager.obey();
        message.is_some()
    });
    assert!(message.is_some_and(|message| message.contains("FDSTOREREMOVE=1")));
    manager.until_stored();
    assert_ne!(manager.inode(), before);
    let mut events = Vec::new();
    while reattached(&events).is_empty() {
        subscriber.poll(|_| {}).expect("a subscription that goes on");
        subscriber.wait(Duration::from_secs(10)).expect("a wait");
        events.extend(subscriber.events());
    }
    assert_eq!(reattached(&events), [false], "initial images follow");
    processes.signal(second, Signal::TERM);
    let output = processes.finish(second);
    succeeded(&output);
    let said = stderr(&output);
    let reason = "the kept ring cannot be gone on with, a new one is made: the kept region has";
    assert!(said.contains(reason), "{said}");
}

#[test]
fn without_anybody_to_keep_the_ring_one_line_says_what_is_needed() {
    let folder = folder();
    let socket = folder.path().join("s").display().to_string();
    let more = ["--exit-at-end", "--pace", "max", "--set", "source.synthetic.length=100 messages"];
    let mut start = command("tapecast-publisher", &arguments(&socket, &more));
    let output = start.env_remove("NOTIFY_SOCKET").output().expect("a process");
    succeeded(&output);
    let said = stderr(&output);
    let told: Vec<_> = said.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(told[0].contains("FileDescriptorStoreMax=1"), "{said}");
}
