//! Whom the daemon serves: admission, policies, and the account of what it published.

use std::sync::Barrier;

use tapecast_control::client::LifelineStatus;
use tapecast_fabric::{ChannelState, Delivery};
use tapecast_wire::attach::{AttachRequest, Farewell, Policy, Refusal};
use tapecast_wire::limits::MAX_SUBSCRIBERS;
use tapecast_wire::{Flags, InstrumentId};

use crate::life::counts;
use crate::support::{Bench, Subscriber, refused, request};

const ENDLESS: [&str; 4] = ["--instruments", "5", "--steady-rate", "2000"];

#[test]
fn a_lossless_subscriber_reads_every_snapshot_in_order_from_the_first() {
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 30_000);
    let report = bench.path("report.json");
    let mut daemon = bench.start([
        "--wait-for",
        "1",
        "--exit-at-end",
        "--lossless",
        "--pace",
        "max",
        "--ring-bytes",
        "65536",
        "--source",
        "itch",
        "--file",
        day.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    let lossless = request("one", Policy::Lossless, &[]);
    let mut subscriber = Subscriber::attach(&bench.socket(), &lossless).unwrap();
    let (mut next, mut per_instrument) = (1, vec![0; 5]);
    let (farewell, text) = subscriber.read_to_end(|snapshot| {
        assert_eq!(snapshot.channel_sequence().0, next);
        let count = &mut per_instrument[snapshot.instrument_id().index()];
        *count += 1;
        assert_eq!(snapshot.instrument_sequence().0, *count);
        assert!(snapshot.ts_publish().0 > 0 && snapshot.conflated() == 0);
        next += 1;
    });
    assert_eq!(farewell, Farewell::EndOfSource, "{text}");
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    let report = bench.report();
    assert_eq!(counts(&report), per_instrument);
    let listener = &report["listener"];
    assert_eq!((&listener["connections"], &listener["not_allowed"]), (&1.into(), &0.into()));
    let session = &report["sessions"][0];
    assert_eq!((&session["name"], &session["policy"]), (&"one".into(), &"lossless".into()));
    assert_eq!(session["delivered"], next - 1);
    assert_eq!((&session["conflated"], &session["lost"]), (&0.into(), &0.into()));
    assert_eq!(
        (&session["lag_bytes"], &session["channel_sequence"]),
        (&0.into(), &(next - 1).into())
    );
}

#[test]
fn conflating_subscribers_account_for_all_that_was_published() {
    const SUBSCRIBERS: usize = 8;
    let bench = Bench::new();
    let day = bench.generate("day.itch50", 60_000);
    let report = bench.path("report.json");
    let wait_for = (SUBSCRIBERS + 1).to_string();
    let mut daemon = bench.start([
        "--wait-for",
        &wait_for,
        "--exit-at-end",
        "--pace",
        "max",
        "--ring-bytes",
        "65536",
        "--source",
        "itch",
        "--file",
        day.to_str().unwrap(),
        "--report",
        report.to_str().unwrap(),
    ]);
    // The source starts for the last one, when the others have looked at an empty channel.
    let all_looked = Barrier::new(SUBSCRIBERS + 1);
    let accounts: Vec<Vec<(u64, u64)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..SUBSCRIBERS)
            .map(|index| {
                let (socket, all_looked) = (bench.socket(), &all_looked);
                scope.spawn(move || {
                    let conflate = request(&format!("s{index}"), Policy::Conflate, &[]);
                    let mut subscriber = Subscriber::attach(&socket, &conflate).unwrap();
                    assert_eq!(subscriber.receiver.poll(256, |_| {}), Ok(0));
                    all_looked.wait();
                    subscriber.read_to_end(|_| {});
                    let totals = |id| subscriber.receiver.instrument_totals(InstrumentId(id));
                    (0..5).map(|id| totals(id).map_or((0, 0), sums)).collect()
                })
            })
            .collect();
        all_looked.wait();
        let last = request("last", Policy::Conflate, &[]);
        Subscriber::attach(&bench.socket(), &last).unwrap().read_to_end(|_| {});
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(daemon.wait().code(), Some(0), "{}", daemon.log());
    let published = counts(&bench.report());
    for account in accounts {
        let known: Vec<u64> = account.iter().map(|(known, _)| *known).collect();
        assert_eq!(known, published, "published = delivered + conflated, on both ends");
        assert!(account.iter().all(|(_, lost)| *lost == 0));
    }
}

fn sums(totals: tapecast_core::account::InstrumentTotals) -> (u64, u64) {
    (totals.delivered + totals.conflated, totals.lost)
}

#[test]
fn a_subscriber_gets_the_instruments_that_it_asked_for_and_no_other() {
    let bench = Bench::new();
    let _daemon = bench.start(ENDLESS);
    let chosen = request("two", Policy::Conflate, &["TC0004", "TC0002"]);
    let mut subscriber = Subscriber::attach(&bench.socket(), &chosen).unwrap();
    let mut seen = [0_u32; 5];
    while seen[1] < 3 || seen[3] < 3 {
        let count = |snapshot: Delivery<'_>| {
            let id = snapshot.instrument_id();
            assert_eq!(seen[id.index()] == 0, snapshot.flags().contains(Flags::INITIAL_IMAGE));
            seen[id.index()] += 1;
        };
        subscriber.receiver.poll(16, count).unwrap();
    }
    assert_eq!([seen[0], seen[2], seen[4]], [0, 0, 0]);
    let symbol = |id| subscriber.receiver.instrument(InstrumentId(id)).unwrap().symbol;
    assert_eq!([symbol(1), symbol(3)], ["TC0002", "TC0004"]);
}

#[test]
fn the_sixty_fifth_subscriber_is_refused_until_one_leaves() {
    let bench = Bench::new();
    let mut daemon = bench.start(ENDLESS);
    let conflate = request("many", Policy::Conflate, &[]);
    let mut subscribers: Vec<Subscriber> = (0..MAX_SUBSCRIBERS)
        .map(|_| Subscriber::attach(&bench.socket(), &conflate).unwrap())
        .collect();
    let (refusal, reason) = refused(Subscriber::attach(&bench.socket(), &conflate));
    assert_eq!(refusal, Refusal::Full);
    assert!(reason.contains("all 64 sessions are taken"), "{reason}");
    subscribers.pop().unwrap().lifeline.detach();
    daemon.until("one has left", |daemon| daemon.log().contains(" detached "));
    let last = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    assert_eq!(last.receiver.state(), ChannelState::Running);
    // The line is written after the answer, which is all that a subscriber waits for.
    daemon.until("each has its line", |daemon| {
        daemon.log().matches(" attached ").count() > MAX_SUBSCRIBERS
    });
    let log = daemon.log();
    assert_eq!(log.matches(" attached ").count(), MAX_SUBSCRIBERS + 1, "one line for each");
    assert_eq!(log.matches(" detached ").count(), 1);
    let pid = format!("pid={}", std::process::id());
    assert!(log.lines().filter(|line| line.contains("tached ")).all(|line| line.contains(&pid)));
}

#[test]
fn fewer_sessions_can_be_configured() {
    let bench = Bench::new();
    let _daemon = bench.start(ENDLESS.iter().chain(&["--set", "access.sessions_max=1"]));
    let conflate = request("x", Policy::Conflate, &[]);
    let _first = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let (refusal, reason) = refused(Subscriber::attach(&bench.socket(), &conflate));
    assert_eq!(refusal, Refusal::Full);
    assert!(reason.contains("all 1 sessions"), "{reason}");
}

#[test]
fn an_unknown_symbol_is_refused_with_those_that_are_near_unless_it_may_come_later() {
    let bench = Bench::new();
    let _daemon = bench.start(ENDLESS);
    let unknown = request("x", Policy::Conflate, &["TC0001", "TC000Z"]);
    let (refusal, reason) = refused(Subscriber::attach(&bench.socket(), &unknown));
    assert_eq!(refusal, Refusal::UnknownSymbol);
    assert!(reason.contains("\"TC000Z\" (near: TC0001, "), "{reason}");
    let patient = AttachRequest { allow_unknown: true, ..unknown };
    Subscriber::attach(&bench.socket(), &patient).unwrap();
}

#[test]
fn lossless_is_refused_unless_it_is_configured() {
    let bench = Bench::new();
    let _daemon = bench.start(ENDLESS);
    let lossless = request("x", Policy::Lossless, &[]);
    let (refusal, reason) = refused(Subscriber::attach(&bench.socket(), &lossless));
    assert_eq!(refusal, Refusal::Policy);
    assert!(reason.contains("access.lossless"), "{reason}");
}

#[test]
fn a_lossless_subscriber_that_stops_all_others_is_evicted() {
    let bench = Bench::new();
    let mut daemon = bench.start([
        "--instruments",
        "5",
        "--pace",
        "max",
        "--lossless",
        "--ring-bytes",
        "65536",
        "--set",
        "access.stall_max_s=1",
    ]);
    let mut stuck =
        Subscriber::attach(&bench.socket(), &request("stuck", Policy::Lossless, &[])).unwrap();
    daemon.until("it is evicted", |daemon| daemon.log().contains("evicted: "));
    let told = loop {
        match stuck.lifeline.status() {
            LifelineStatus::Alive => std::thread::yield_now(),
            other => break other,
        }
    };
    assert!(matches!(told, LifelineStatus::Farewell(Farewell::Evicted, _)), "{told:?}");
    let conflate = request("other", Policy::Conflate, &[]);
    let mut other = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    let mut delivered = 0;
    while delivered < 1_000 {
        delivered += other.receiver.poll(256, |_| {}).unwrap();
    }
}

#[test]
fn subscribers_that_die_make_room_and_harm_nobody() {
    let bench = Bench::new();
    let mut daemon = bench.start(ENDLESS);
    let conflate = request("x", Policy::Conflate, &[]);
    let mut survivor = Subscriber::attach(&bench.socket(), &conflate).unwrap();
    for _ in 0..2 * MAX_SUBSCRIBERS {
        // Dropped without a word, as the kernel does for a process that is killed.
        drop(Subscriber::attach(&bench.socket(), &conflate).unwrap());
    }
    let all_gone = 2 * MAX_SUBSCRIBERS;
    daemon.until("all are gone", |daemon| daemon.log().matches(" detached ").count() == all_gone);
    let before = survivor.receiver.totals().delivered;
    while survivor.receiver.totals().delivered < before + 1_000 {
        survivor.receiver.poll(256, |_| {}).unwrap();
    }
}
