//! Subscribers that are killed or stopped: the others miss nothing, and nothing stays behind.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::device::{Before, device, resources};
use super::programs::wait_until;
use super::stage::{Stage, assert_complete, assert_pool_whole, session};

const SUBSCRIBERS: usize = 64;
/// Enough snapshots that the harm comes while they are published.
const DAY: [&str; 6] =
    ["--seed", "7", "--instruments", "20", "--set", "source.synthetic.length=6000 messages"];

/// Waits until the day has begun, which it does when all are attached: until then a session gets
/// the directory and no more.
fn await_stream(before: &Before, subscribers: usize) {
    let wanted = 20 * subscribers as u64;
    wait_until("the day to begin", || before.grown("rdma_recvs") >= wanted);
}

/// Plays a day to 64 subscriber processes and kills `killed` of them in the middle of it.
fn kill(killed: usize) {
    let Some(device) = device() else { return };
    let before = Before::of(&device);
    let mut stage = Stage::new();
    let count = SUBSCRIBERS.to_string();
    let mut arguments = vec!["--wait-for", &count, "--exit-at-end", "--steady-rate", "500"];
    arguments.extend(["--burst-rate", "500"]);
    arguments.extend(DAY);
    stage.publish(&arguments);
    let name = |number: usize| format!("s{number}");
    let readers: Vec<_> =
        (0..SUBSCRIBERS).map(|number| stage.subscribe(&name(number), &[])).collect();
    await_stream(&before, SUBSCRIBERS);
    for reader in &readers[..killed] {
        stage.processes.signal(*reader, Signal::KILL);
    }
    for reader in &readers[killed..] {
        stage.succeed(*reader);
    }
    if killed == SUBSCRIBERS {
        // Nobody is left to be waited for.
        wait_until("the dead to be noticed", || resources()["qp"] == 0);
    }
    let report = stage.report();
    for number in killed..SUBSCRIBERS {
        assert_complete(&stage.summary(&name(number)), &report);
        assert_eq!(session(&report, &name(number))["faults"], 0);
    }
    assert_pool_whole(&report);
    assert_eq!(before.grown("send_rnr_err") + before.grown("rcvd_rnr_err"), 0);
    wait_until("every queue pair to be gone", || resources()["qp"] == 0);
}

#[test]
fn when_one_of_64_subscribers_is_killed_the_others_miss_nothing() {
    kill(1);
}

#[test]
fn when_half_of_64_subscribers_are_killed_the_others_miss_nothing() {
    kill(32);
}

#[test]
fn when_all_subscribers_are_killed_the_publisher_goes_on_and_its_pool_is_whole() {
    kill(SUBSCRIBERS);
}

#[test]
fn a_subscriber_that_is_stopped_for_5_s_costs_the_others_nothing_and_catches_up_when_it_goes_on() {
    let Some(device) = device() else { return };
    let before = Before::of(&device);
    let mut stage = Stage::new();
    let mut arguments = vec!["--wait-for", "8", "--exit-at-end", "--steady-rate", "1000"];
    arguments.extend(["--burst-rate", "1000", "--set", "access.stall_max_s=2"]);
    arguments.extend(DAY);
    stage.publish(&arguments);
    let name = |number: usize| format!("s{number}");
    let readers: Vec<_> = (0..8).map(|number| stage.subscribe(&name(number), &[])).collect();
    await_stream(&before, 8);
    stage.processes.signal(readers[0], Signal::STOP);
    let stopped_at = Instant::now();
    // The others see the whole day while it is stopped: nobody waits for it.
    for reader in &readers[1..] {
        stage.succeed(*reader);
    }
    // A day of 6000 messages, 1000 a second, has not passed sooner.
    assert!(stopped_at.elapsed() >= Duration::from_secs(5), "{:?}", stopped_at.elapsed());
    stage.processes.signal(readers[0], Signal::CONT);
    stage.succeed(readers[0]);
    let report = stage.report();
    for number in 1..8 {
        assert_complete(&stage.summary(&name(number)), &report);
    }
    let stopped = stage.summary(&name(0));
    assert_eq!((&stopped["balanced"], &stopped["statistics"]["lost"]), (&true.into(), &0.into()));
    assert_pool_whole(&report);
    before.assert_health();
}

/// Clients that say nothing, that send garbage, and one that sends a gigabyte: as many as a host
/// can have at a time. Returned so that they stay connected.
fn hostile_clients(address: &str) -> Vec<TcpStream> {
    let connect = || TcpStream::connect(address).expect("a connection");
    let mut clients: Vec<_> = (0..20).map(|_| connect()).collect();
    for client in &mut clients[10..] {
        // It may be closed while this is written.
        let _ = client.write_all(&[0xA5; 4096]);
    }
    let mut greedy = connect();
    let chunk = vec![0xFF; 1 << 20];
    for _ in 0..1024 {
        if greedy.write_all(&chunk).is_err() {
            break;
        }
    }
    let _ = greedy.shutdown(Shutdown::Write);
    // Whatever is said to it, it is not let in: the connection ends.
    let mut answer = Vec::new();
    let _ = greedy.read_to_end(&mut answer);
    assert!(answer.len() < 4096, "{} bytes for one that sends garbage", answer.len());
    clients
}

#[test]
fn clients_that_are_silent_or_send_garbage_or_a_gigabyte_keep_nobody_out() {
    let Some(device) = device() else { return };
    let before = Before::of(&device);
    let mut stage = Stage::new();
    let mut arguments = vec!["--wait-for", "4", "--exit-at-end", "--steady-rate", "1000"];
    arguments.extend(["--burst-rate", "1000"]);
    arguments.extend(DAY);
    stage.publish(&arguments);
    stage.await_publisher();
    let _connected = hostile_clients(&stage.address);
    let name = |number: usize| format!("s{number}");
    let readers: Vec<_> = (0..4).map(|number| stage.subscribe(&name(number), &[])).collect();
    for reader in readers {
        stage.succeed(reader);
    }
    let report = stage.report();
    for number in 0..4 {
        assert_complete(&stage.summary(&name(number)), &report);
    }
    assert_pool_whole(&report);
    before.assert_health();
}
