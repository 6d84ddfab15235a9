//! What the daemon tells a service manager: here a socket that the test listens at.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

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
    assert_eq!(manager.next(), "READY=1\n");
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
