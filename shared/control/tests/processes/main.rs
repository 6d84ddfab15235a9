//! What needs processes of its own: death by SIGKILL, other users, a limit of descriptors.
//!
//! The processes are this test binary again, in one of the [`roles`](role_of_a_child_process).

#![expect(clippy::unwrap_used, reason = "a test may end where it is surprised")]

use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Resource, Rlimit, WaitOptions, getrlimit, setrlimit, waitpid};
use tapecast_control::client::{self, AttachError, LifelineStatus};
use tapecast_control::{Access, BindError, Ending, Listener, ListenerOptions};
use tapecast_wire::attach::{AttachRequest, Refusal};
use tokio::sync::mpsc;

use support::{Granting, LONG, Place, accepted, attach, place, runtime};

#[path = "../support/mod.rs"]
mod support;

const ROLE: &str = "TAPECAST_CONTROL_TEST_ROLE";
const SOCKET: &str = "TAPECAST_CONTROL_TEST_SOCKET";

/// A user and groups that nobody has.
const STRANGER_UID: u32 = 2_000_000_011;
const STRANGER_GID: u32 = 2_000_000_012;
const EXTRA_GID: u32 = 2_000_000_013;

/// Not a test when run as one: what a child process does.
#[test]
fn role_of_a_child_process() {
    let (Ok(role), Ok(socket)) = (std::env::var(ROLE), std::env::var(SOCKET)) else {
        return;
    };
    let socket = Path::new(&socket);
    match role.as_str() {
        "publisher" => publish(socket, None),
        "starved publisher" => publish(socket, Some(2)),
        "subscriber" => say(&match attach(socket) {
            Ok(granted) => format!("granted {}", granted.accepted.session_id),
            Err(error) => format!("{error:?}: {error}"),
        }),
        "starved subscriber" => {
            // One for the socket, so that one of three descriptors can be taken.
            allow_more_descriptors(2);
            say(&format!("{:?}", attach(socket).map(|_| ())));
        }
        "binder" => {
            let runtime = runtime();
            let _inside = runtime.enter();
            say(&match Listener::bind(ListenerOptions::new(socket, Access::own())) {
                Ok(_) => "bound".to_owned(),
                Err(error) => format!("{error:?}: {error}"),
            });
        }
        other => panic!("no such role: {other}"),
    }
}

fn say(text: &str) {
    println!("\nchild: {text}");
}

/// Grants every request and answers `stats`, until its input ends.
fn publish(socket: &Path, descriptors_left: Option<usize>) {
    let (sender, mut commands) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| {
            let _ = sender.send(line);
        });
    });
    runtime().block_on(async {
        let options = ListenerOptions {
            handshake_timeout: LONG,
            ..ListenerOptions::new(socket, Access::own())
        };
        let mut listener = Listener::bind(options).unwrap();
        if let Some(left) = descriptors_left {
            allow_more_descriptors(left);
        }
        say("listening");
        let mut lifelines = Vec::new();
        loop {
            tokio::select! {
                pending = listener.accept() => {
                    lifelines.extend(pending.accept(&accepted(), &[]).await);
                }
                command = commands.recv() => match command {
                    Some(_) => say(&format!("{}", listener.stats().accept_failures)),
                    None => return,
                }
            }
        }
    });
}

/// Lowers the limit so that exactly `left` more descriptors can be had.
fn allow_more_descriptors(left: usize) {
    // New descriptors take the lowest free numbers, so these fill all gaps before the last ones.
    let mut fill: Vec<_> = (0..64).map(|_| File::open("/dev/null").unwrap()).collect();
    let limit = fill[63].as_raw_fd() as u64 + 1;
    fill.truncate(64 - left);
    std::mem::forget(fill);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
}

/// A child in a role. Killed when dropped.
struct Role {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Role {
    fn start(role: &str, socket: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), role, socket)
    }

    /// As another user, with no groups but these.
    fn start_as(user: u32, group: u32, groups: &str, role: &str, socket: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={user}"), format!("--regid={group}")]);
        match groups {
            "" => command.arg("--clear-groups"),
            groups => command.arg(format!("--groups={groups}")),
        };
        command.arg(std::env::current_exe().unwrap());
        Self::spawn(command, role, socket)
    }

    fn spawn(mut command: Command, role: &str, socket: &Path) -> Self {
        command
            .args(["--exact", "role_of_a_child_process", "--nocapture"])
            .env(ROLE, role)
            .env(SOCKET, socket)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, stdin, lines }
    }

    /// What it says next.
    fn says(&mut self) -> String {
        self.lines
            .by_ref()
            .map(Result::unwrap)
            .find_map(|line| line.strip_prefix("child: ").map(str::to_owned))
            .expect("the child ended without a word")
    }

    fn asked(&mut self, command: &str) -> String {
        writeln!(self.stdin.as_mut().unwrap(), "{command}").unwrap();
        self.says()
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        assert_eq!(self.child.wait().unwrap().signal(), Some(9));
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_socket_of_a_killed_publisher_is_taken_over_and_its_sessions_end_at_once() {
    let place = place();
    for _ in 0..3 {
        let mut publisher = Role::start("publisher", &place.socket);
        assert_eq!(publisher.says(), "listening");
        let mut granted = place.attach().unwrap();
        assert_eq!(granted.publisher.local().unwrap().pid, Some(publisher.child.id()));
        assert_eq!(granted.lifeline.status(), LifelineStatus::Alive);

        publisher.kill();
        poll(&mut [PollFd::new(&granted.lifeline, PollFlags::IN)], None).unwrap();
        assert_eq!(granted.lifeline.status(), LifelineStatus::Gone);
        assert!(place.socket.exists(), "a killed publisher cannot clean up");
        assert!(matches!(place.attach(), Err(AttachError::NobodyListens { .. })));
    }
    let publisher = Granting::start(place.options());
    place.attach().unwrap();
    publisher.stop();
    assert_eq!(std::fs::read_dir(place.directory.path()).unwrap().count(), 0);
}

#[test]
fn a_second_publisher_is_told_the_process_of_the_first() {
    let place = place();
    let mut first = Role::start("publisher", &place.socket);
    assert_eq!(first.says(), "listening");
    let runtime = runtime();
    let _inside = runtime.enter();
    let error = Listener::bind(place.options()).unwrap_err();
    let holder = first.child.id();
    assert!(matches!(error, BindError::Held { pid: Some(pid), .. } if pid == holder), "{error}");
    assert!(error.to_string().contains(&format!("(pid {holder})")), "{error}");
    place.attach().unwrap();
}

#[test]
fn a_stopped_publisher_still_has_its_socket() {
    let place = place();
    let mut first = Role::start("publisher", &place.socket);
    assert_eq!(first.says(), "listening");
    let pid = rustix::process::Pid::from_child(&first.child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
    let runtime = runtime();
    let _inside = runtime.enter();
    assert!(matches!(Listener::bind(place.options()), Err(BindError::Held { .. })));
    let timeout = Duration::from_millis(20);
    let error = client::attach(&place.socket, &AttachRequest::default(), timeout).unwrap_err();
    assert!(matches!(error, AttachError::TimedOut { .. }), "{error}");
}

#[test]
fn without_descriptors_silent_connections_go_first_and_subscribers_still_come_in() {
    let place = place();
    let mut publisher = Role::start("starved publisher", &place.socket);
    assert_eq!(publisher.says(), "listening");
    let silent: Vec<_> = (0..6).map(|_| place.connect()).collect();
    let granted = place.attach().unwrap();
    let failures: u64 = publisher.asked("stats").parse().unwrap();
    assert!(failures > 0);
    drop((silent, granted));
    place.attach().unwrap();
}

#[test]
fn without_any_descriptor_the_publisher_rests_and_recovers() {
    let place = place();
    let mut publisher = Role::start("starved publisher", &place.socket);
    assert_eq!(publisher.says(), "listening");
    let started = Instant::now();
    let sessions = [place.attach().unwrap(), place.attach().unwrap()];
    let timeout = Duration::from_millis(300);
    let error = client::attach(&place.socket, &AttachRequest::default(), timeout).unwrap_err();
    assert!(matches!(error, AttachError::TimedOut { .. }), "{error}");
    let failures = (0..)
        .map(|_| publisher.asked("stats").parse::<u128>().unwrap())
        .find(|failures| *failures > 0)
        .unwrap();
    // It cannot have failed more often than it has rested: no spin, however long this took.
    let rests = started.elapsed().as_millis() / 100;
    assert!(failures <= rests + 1, "{failures} failures in {rests} rests");
    for session in sessions {
        assert_eq!({ session }.lifeline.status(), LifelineStatus::Alive);
    }
}

#[test]
fn a_subscriber_without_room_for_its_descriptors_is_told_so() {
    let place = place();
    runtime().block_on(async {
        let mut listener = Listener::bind(place.options()).unwrap();
        let mut subscriber = Role::start("starved subscriber", &place.socket);
        let pending = listener.accept().await;
        let file = File::open("/dev/null").unwrap();
        let mut lifeline = pending.accept(&accepted(), &[file.as_fd(); 3]).await.unwrap();
        let said = subscriber.says();
        assert!(said.starts_with("Err(Descriptors"), "{said}");
        assert_eq!(lifeline.closed().await, Ending::Gone);
    });
}

/// Whether other users can be tried here.
fn can_change_user() -> bool {
    let can = rustix::process::geteuid().is_root()
        && Command::new("setpriv").arg("--version").output().is_ok_and(|run| run.status.success());
    if !can {
        eprintln!("SKIPPED: needs root and setpriv (util-linux) to try other users");
    }
    can
}

/// A place that everybody may look into.
fn open_place() -> Place {
    let place = place();
    std::fs::set_permissions(place.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    place
}

fn stranger(groups: &str, place: &Place) -> String {
    Role::start_as(STRANGER_UID, STRANGER_GID, groups, "subscriber", &place.socket).says()
}

fn admitting(place: &Place, uids: &[u32], gids: &[u32]) -> ListenerOptions {
    let texts = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>();
    let access = Access::resolve(&texts(uids), &texts(gids)).unwrap();
    // 0666, so that it is the credentials that decide.
    ListenerOptions { access, mode: Some(0o666), ..place.options() }
}

#[test]
fn another_user_is_admitted_by_number_by_group_and_by_supplementary_group() {
    if !can_change_user() {
        return;
    }
    for (uids, gids, groups) in [
        (&[STRANGER_UID][..], &[][..], ""),
        (&[], &[STRANGER_GID], ""),
        (&[], &[EXTRA_GID], "2000000013"),
        (&[], &[EXTRA_GID], "1,2000000013,2"),
    ] {
        let place = open_place();
        let _publisher = Granting::start(admitting(&place, uids, gids));
        assert_eq!(stranger(groups, &place), "granted 7", "{uids:?} {gids:?} {groups}");
    }
}

#[test]
fn another_user_is_not_allowed_without_user_or_group() {
    if !can_change_user() {
        return;
    }
    for (uids, gids, groups) in [
        (&[][..], &[][..], ""),
        (&[STRANGER_GID], &[], ""),
        (&[], &[EXTRA_GID], ""),
        (&[], &[EXTRA_GID], "1,2"),
        (&[], &[0], "1"),
    ] {
        let place = open_place();
        let publisher = Granting::start(admitting(&place, uids, gids));
        let said = stranger(groups, &place);
        assert!(said.contains(&format!("refusal: {:?}", Refusal::NotAllowed)), "{said}");
        assert!(said.contains(&format!("uid {STRANGER_UID}, gid {STRANGER_GID}")), "{said}");
        let stats = publisher.stop();
        assert_eq!((stats.not_allowed, stats.requests), (1, 0));
    }
}

#[test]
fn access_can_be_changed_while_listening() {
    if !can_change_user() {
        return;
    }
    let place = open_place();
    runtime().block_on(async {
        let mut listener = Listener::bind(admitting(&place, &[], &[])).unwrap();
        let socket = place.socket.clone();
        let ask = || {
            let socket = socket.clone();
            tokio::task::spawn_blocking(move || {
                Role::start_as(STRANGER_UID, STRANGER_GID, "", "subscriber", &socket).says()
            })
        };
        assert!(ask().await.unwrap().contains("NotAllowed"));
        listener.set_access(Access::resolve(&[STRANGER_UID.to_string()], &[]).unwrap()).unwrap();
        let asked = ask();
        let pending = listener.accept().await;
        let peer = pending.peer().local().unwrap();
        assert_eq!((peer.uid, peer.gid), (STRANGER_UID, STRANGER_GID));
        let lifeline = pending.accept(&accepted(), &[]).await.unwrap();
        assert_eq!(asked.await.unwrap(), "granted 7");
        drop(lifeline);
    });
}

#[test]
fn a_socket_whose_mode_shuts_a_user_out_says_which_user() {
    if !can_change_user() {
        return;
    }
    let place = open_place();
    let _publisher = Granting::start(place.options());
    let said = stranger("", &place);
    assert!(said.starts_with("PermissionDenied"), "{said}");
    assert!(said.contains(&format!("uid {STRANGER_UID} may not use the socket")), "{said}");
}

#[test]
fn a_directory_that_a_publisher_may_not_write_says_which_user() {
    if !can_change_user() {
        return;
    }
    let place = open_place();
    let binder = |place: &Place| {
        Role::start_as(STRANGER_UID, STRANGER_GID, "", "binder", &place.socket).says()
    };
    let said = binder(&place);
    assert!(said.starts_with("PermissionDenied"), "{said}");
    assert!(said.contains(&format!("uid {STRANGER_UID} may not open")), "{said}");
    // In its own directory it may.
    chown(place.directory.path(), Some(STRANGER_UID), None).unwrap();
    assert_eq!(binder(&place), "bound");
}

#[test]
fn another_user_can_neither_hold_nor_read_the_lock() {
    if !can_change_user() {
        return;
    }
    let place = open_place();
    std::fs::set_permissions(place.directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let _publisher = Granting::start(place.options());
    let binder = Role::start_as(STRANGER_UID, STRANGER_GID, "", "binder", &place.socket).says();
    assert!(binder.starts_with("PermissionDenied"), "{binder}");
    assert!(binder.contains("p.sock.lock"), "{binder}");
}
