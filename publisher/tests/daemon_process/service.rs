//! What the daemon tells a service manager: here a socket that the test listens at.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use tapecast_wire::attach::Policy;

use crate::support::{Bench, Daemon, Subscriber, request};

const QUIET: [&str; 6] =
    ["--instruments", "5", "--steady-rate", "1", "--set", "source.synthetic.burst_ms=0"];
/// Generous: only a daemon that says nothing comes near it.
const PATIENCE: Duration = Duration::from_secs(60);

struct ServiceManager {
    socket: UnixDatagram,
}

impl ServiceManager {
    fn listen(bench: &Bench) -> Self {
        let socket = UnixDatagram::bind(bench.path("notify")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { socket }
    }

    /// Starts a daemon that tells this one.
    fn start(&self, bench: &Bench, watchdog: Option<Duration>) -> Daemon {
        let mut command = bench.run(QUIET);
        command.env("NOTIFY_SOCKET", bench.path("notify"));
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        bench.start_command(command, "publishing")
    }

    fn next(&self) -> String {
        let mut bytes = [0; 1024];
        let length = self.socket.recv(&mut bytes).expect("a message");
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    /// All messages to the first with this line, which is the last of them.
    fn until(&self, line: &str) -> Vec<String> {
        let mut messages = Vec::new();
        loop {
            messages.push(self.next());
            if messages.last().is_some_and(|last| last.lines().any(|one| one.starts_with(line))) {
                return messages;
            }
        }
    }
}

#[test]
fn it_is_ready_when_subscribers_can_attach_and_says_what_it_does_and_that_it_ends() {
    let bench = Bench::new();
    let manager = ServiceManager::listen(&bench);
    let mut daemon = manager.start(&bench, None);
    assert_eq!(manager.next(), "STATUS=opening the source\n");
    assert_eq!(manager.until("READY=1").last().unwrap(), "READY=1\n");
    let conflate = request("one", Policy::Conflate, &[]);
    let _attached = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    manager.until("STATUS=1 subscriber, ");
    daemon.signal(Signal::TERM);
    let last = manager.until("STOPPING=1");
    let expected = "STOPPING=1\nSTATUS=ending: the publisher was stopped (SIGTERM)\n";
    assert_eq!(last.last().unwrap(), expected);
    assert!(last.iter().all(|message| !message.contains("WATCHDOG")), "nobody asked for it");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
}

#[test]
fn the_watchdog_is_fed_in_an_idle_market() {
    let bench = Bench::new();
    let manager = ServiceManager::listen(&bench);
    let _daemon = manager.start(&bench, Some(Duration::from_millis(400)));
    for _ in 0..5 {
        assert_eq!(manager.until("WATCHDOG=1").last().unwrap(), "WATCHDOG=1\n");
    }
}

#[test]
fn a_reload_is_announced_with_its_time_and_then_over() {
    let bench = Bench::new();
    let manager = ServiceManager::listen(&bench);
    let daemon = manager.start(&bench, None);
    manager.until("READY=1");
    daemon.signal(Signal::HUP);
    let announced = manager.until("RELOADING=1").pop().unwrap();
    let time = announced.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().trim_end();
    assert!(time.parse::<u64>().is_ok_and(|time| time > 0), "{announced}");
    manager.until("READY=1");
}

/// A daemon whose source is a pipe that nobody has opened for writing.
fn start_at_a_pipe(bench: &Bench) -> Daemon {
    let pipe = bench.path("feed");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let mut command = bench.run(["--source", "itch", "--file", pipe.to_str().unwrap()]);
    command.env("NOTIFY_SOCKET", bench.path("notify"));
    bench.start_command(command, "waiting for the writer")
}

fn write_to_its_pipe(bench: &Bench) -> File {
    let day = std::fs::read(bench.generate("day.itch50", 500)).unwrap();
    let mut writer = File::options().write(true).open(bench.path("feed")).unwrap();
    writer.write_all(&day).unwrap();
    writer
}

#[test]
fn a_start_that_waits_for_the_writer_of_a_pipe_says_so_and_asks_for_more_time() {
    let bench = Bench::new();
    let manager = ServiceManager::listen(&bench);
    let _daemon = start_at_a_pipe(&bench);
    assert_eq!(manager.next(), "STATUS=opening the source\n");
    let first = "EXTEND_TIMEOUT_USEC=90000000\nSTATUS=waiting for the writer of the input\n";
    assert_eq!(manager.next(), first);
    assert_eq!(manager.next(), "EXTEND_TIMEOUT_USEC=90000000\n", "as long as it waits");
    let _writer = write_to_its_pipe(&bench);
    manager.until("READY=1");
    let since = manager.until("STATUS=0 subscribers, ");
    assert!(since.iter().all(|message| !message.contains("EXTEND")), "it has started: {since:?}");
}

#[test]
fn a_reload_during_the_start_is_no_sign_that_it_is_ready() {
    let bench = Bench::new();
    let manager = ServiceManager::listen(&bench);
    let mut daemon = start_at_a_pipe(&bench);
    daemon.signal(Signal::HUP);
    let _writer = write_to_its_pipe(&bench);
    let start = manager.until("READY=1");
    assert!(start.iter().all(|message| !message.contains("RELOADING")), "{start:?}");
    daemon.until("it was read again", |daemon| daemon.log().contains("was read again"));
}
