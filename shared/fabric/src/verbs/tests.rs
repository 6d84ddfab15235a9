//! On a real device, or Soft-RoCE. Without one these tests say so and do nothing.

use std::io::{self, Write};
use std::sync::Once;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_wire::rdma::RemoteMemory;

use super::completion::{Completion, CompletionChannel, CompletionQueue, Status};
use super::device::{Port, ProtectionDomain, address_of};
use super::error::VerbsError;
use super::events::AsyncEvents;
use super::memory::{Access, MemoryRegion};
use super::queue_pair::{Depths, QueuePair, State, check_sessions, random_packet_sequence};
use super::receives::ReceiveChain;
use super::route::{DeviceChoice, RouteConfig};
use super::send_queue::SendQueue;
use crate::pool::{Pool, PoolConfig};

const RECEIVE: u64 = 1 << 40;
const RING_BYTES: usize = 1 << 16;

pub(super) fn port() -> Option<Port> {
    match Port::open(&DeviceChoice::default()) {
        Ok(port) => Some(port),
        Err(error @ VerbsError::NoDevice { .. }) => {
            let required = std::env::var_os("TAPECAST_TEST_NEEDS_DEVICE").is_some();
            assert!(!required, "this machine was to have an RDMA device: {error}");
            // Straight to the stream, so that it is seen although the tests pass.
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                let _unseen = writeln!(io::stderr(), "SKIPPED: no verbs device ({error})");
            });
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Two queue pairs of one process, connected to each other.
struct Pair {
    port: Port,
    domain: ProtectionDomain,
    ring: MemoryRegion,
    sender: QueuePair,
    receiver: QueuePair,
    sent: CompletionQueue,
    received: CompletionQueue,
    channel: CompletionChannel,
}

impl Pair {
    fn connect(port: Port) -> Self {
        let domain = ProtectionDomain::new(&port.context).unwrap();
        let ring = MemoryRegion::allocate(&domain, RING_BYTES, false, Access::RemoteWrite).unwrap();
        let channel = CompletionChannel::new(&port.context).unwrap();
        let sent = CompletionQueue::new(&port.context, 64, None).unwrap();
        let received = CompletionQueue::new(&port.context, 64, Some(&channel)).unwrap();
        let depths = Depths { send: 16, receive: 0, send_sge: 2, inline_bytes: 8 };
        let sender = QueuePair::create(&domain, &sent, &sent, depths).unwrap();
        let depths = Depths { send: 1, receive: 16, send_sge: 1, inline_bytes: 0 };
        let receiver = QueuePair::create(&domain, &received, &received, depths).unwrap();
        sender.to_init(&port, Access::LocalRead).unwrap();
        receiver.to_init(&port, Access::RemoteWrite).unwrap();
        ReceiveChain::new(3, RECEIVE).post(&receiver, 8).unwrap();
        let route = RouteConfig { timeout: 18, ..RouteConfig::default() };
        let (first, second) = (random_packet_sequence(), random_packet_sequence());
        sender.to_rtr(&receiver.address(&port, second), &route, &port).unwrap();
        receiver.to_rtr(&sender.address(&port, first), &route, &port).unwrap();
        sender.to_rts(first, &route).unwrap();
        receiver.to_rts(second, &route).unwrap();
        Self { port, domain, ring, sender, receiver, sent, received, channel }
    }

    fn remote(&self, offset: u64) -> RemoteMemory {
        RemoteMemory { address: self.ring.address() + offset, key: self.ring.rkey() }
    }
}

/// Polls until there are `count` completions. The generous limit is only for a device that hangs.
fn wait(queue: &CompletionQueue, count: usize) -> Vec<Completion> {
    let (mut found, start) = (Vec::new(), Instant::now());
    while found.len() < count {
        let mut batch = [Completion::EMPTY; 4];
        let taken = queue.poll(&mut batch).unwrap();
        found.extend_from_slice(&batch[..taken]);
        assert!(start.elapsed() < Duration::from_secs(60), "only {found:?}");
    }
    found
}

#[test]
fn writes_arrive_in_order_with_their_bytes_and_numbers() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    let source = MemoryRegion::allocate(&pair.domain, 4096, false, Access::LocalRead).unwrap();
    for word in 0..512 {
        source.words().store(word, word as u64 + 1);
    }
    let mut queue = SendQueue::new(8, 2, 8);
    queue.set_tag(7);
    queue.stage_write(pair.remote(0), Some(1));
    queue.push(&source, 0, 60);
    queue.push(&source, 1024, 64);
    queue.set_immediate(0xA1B2_C3D4);
    queue.stage_inline(pair.remote(8192), &0x55_u64.to_ne_bytes());
    queue.stage_write(pair.remote(0), Some(7));
    assert_eq!(queue.post(&pair.sender), Ok(()));
    let counts = queue.counts();
    assert_eq!((counts.work_requests, counts.doorbells, counts.bytes), (3, 1, 136));

    let sent = wait(&pair.sent, 1);
    assert_eq!((sent[0].wr_id, sent[0].status), (7 << 32 | 2, Status::Success));
    assert_eq!((queue.retire(2), queue.outstanding()), (Some(3), 0));
    let received = wait(&pair.received, 2);
    let numbers: Vec<_> = received.iter().map(|completion| completion.immediate).collect();
    assert_eq!(numbers, [Some(0xA1B2_C3D4), Some(7)]);
    let number = pair.receiver.number();
    assert!(received.iter().all(|c| c.wr_id == RECEIVE && c.queue_pair == number));
    let ring = pair.ring.words();
    let words: Vec<_> = [0, 7, 8, 15, 16, 1024].map(|word| ring.load(word).unwrap()).into();
    assert_eq!(words, [1, 8, 129, 136, 0, 0x55]);
    assert_eq!(AsyncEvents::new(&pair.port.context).next().unwrap(), None);
}

#[test]
fn a_pool_is_sent_from_and_keeps_its_pages_from_others() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    let pool = Pool::new(PoolConfig::default()).unwrap();
    let region = MemoryRegion::register_pool(&pair.domain, &pool).unwrap();
    assert_eq!((region.len(), region.words().len()), (pool.extent().1, 0));
    drop(pool);
    let mut queue = SendQueue::new(1, 1, 1);
    queue.stage_write(pair.remote(0), None);
    queue.push(&region, region.len() - 64, 64);
    assert_eq!(queue.post(&pair.sender), Ok(()));
    assert_eq!(wait(&pair.sent, 1)[0].status, Status::Success);
}

#[test]
fn a_wrong_key_fails_the_write_flushes_what_follows_and_changes_no_byte() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    let mut wrong = pair.remote(0);
    wrong.key = wrong.key.wrapping_add(0x0100_0000);
    let mut queue = SendQueue::new(2, 1, 2);
    queue.stage_inline(wrong, &[0xFF; 8]);
    queue.stage_inline(pair.remote(0), &[0xFF; 8]);
    assert_eq!(queue.post(&pair.sender), Ok(()));
    let sent = wait(&pair.sent, 2);
    let seen: Vec<_> =
        sent.iter().map(|completion| (completion.wr_id, completion.status)).collect();
    assert_eq!(seen, [(0, Status::RemoteAccess), (1, Status::Flushed)]);
    assert_eq!(pair.ring.words().load(0), Some(0));
    assert_eq!(pair.sender.query_state().unwrap(), State::Err);
}

#[test]
fn a_queue_pair_that_another_thread_stops_flushes_its_receives_and_what_is_posted_later() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    std::thread::scope(|scope| {
        scope.spawn(|| pair.receiver.to_error().unwrap());
        scope.spawn(|| pair.sender.to_error().unwrap());
    });
    assert!(wait(&pair.received, 8).iter().all(|completion| completion.status == Status::Flushed));
    let mut queue = SendQueue::new(1, 1, 1);
    queue.stage_inline(pair.remote(0), &[1; 8]);
    assert_eq!(queue.post(&pair.sender), Ok(()));
    let flushed = wait(&pair.sent, 1)[0];
    assert_eq!((flushed.wr_id, flushed.status), (0, Status::Flushed));
    assert_eq!(pair.sender.state(), State::Err);
}

#[test]
fn an_armed_queue_wakes_the_channel_once() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    let channel = pair.channel.clone();
    pair.received.request_notify().unwrap();
    assert!(!channel.take_event().unwrap());
    let mut queue = SendQueue::new(1, 1, 1);
    queue.stage_write(pair.remote(0), Some(1));
    queue.post(&pair.sender).unwrap();
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&channel, PollFlags::IN)], Some(&limit)).unwrap();
    assert_eq!(ready, 1);
    assert!(channel.take_event().unwrap());
    assert!(!channel.take_event().unwrap());
    assert_eq!(wait(&pair.received, 1)[0].immediate, Some(1));
}

#[test]
fn steps_out_of_order_and_more_than_the_device_has_are_refused_in_words() {
    let Some(port) = port() else { return };
    let pair = Pair::connect(port);
    let error = pair.sender.to_init(&pair.port, Access::LocalRead).unwrap_err();
    assert!(error.to_string().contains("RTS"), "{error}");
    let limits = *pair.port.context.limits();
    let depths = Depths { send: limits.max_qp_wr + 1, receive: 0, send_sge: 1, inline_bytes: 0 };
    let error = QueuePair::create(&pair.domain, &pair.sent, &pair.sent, depths).unwrap_err();
    assert!(matches!(error, VerbsError::Limit { attribute: "max_qp_wr", .. }), "{error}");
    let error = CompletionQueue::new(&pair.port.context, limits.max_cqe + 1, None).unwrap_err();
    assert!(matches!(error, VerbsError::Limit { attribute: "max_cqe", .. }), "{error}");
    let sessions = limits.max_qp as usize;
    assert!(check_sessions(&pair.domain, sessions).is_ok());
    let error = check_sessions(&pair.domain, sessions + 1).unwrap_err();
    assert!(matches!(error, VerbsError::Limit { attribute: "max_qp", .. }), "{error}");
    let depths = Depths { send: 1, receive: 0, send_sge: 1, inline_bytes: 0 };
    let fresh = QueuePair::create(&pair.domain, &pair.sent, &pair.sent, depths).unwrap();
    let mut queue = SendQueue::new(1, 1, 1);
    queue.stage_write(pair.remote(0), None);
    assert!(queue.post(&fresh).is_err(), "it is connected to nothing");
    assert_eq!(queue.drop_staged(|_| {}), 1, "nothing was posted");
}

#[test]
fn a_device_is_found_by_name_and_by_address_and_what_is_absent_is_said() {
    let Some(port) = port() else { return };
    let address = address_of(port.gid);
    let by_address = DeviceChoice { address: Some(address), ..DeviceChoice::default() };
    assert_eq!(Port::open(&by_address).unwrap().gid, port.gid);
    let device = Some(port.context.name().to_owned());
    let by_name = DeviceChoice { device, ..DeviceChoice::default() };
    assert_eq!(Port::open(&by_name).unwrap().gid_index, port.gid_index);

    let absent = DeviceChoice { device: Some("none7".into()), ..DeviceChoice::default() };
    let error = Port::open(&absent).unwrap_err().to_string();
    assert!(error.contains("none7") && error.contains(port.context.name()), "{error}");
    let absent = DeviceChoice { address: Some([192, 0, 2, 9].into()), ..DeviceChoice::default() };
    let error = Port::open(&absent).unwrap_err().to_string();
    assert!(error.contains("192.0.2.9") && error.contains(&address.to_string()), "{error}");
    let absent = DeviceChoice { port: Some(200), ..by_name };
    assert!(matches!(Port::open(&absent), Err(VerbsError::PortAbsent { port: 200, .. })));
}
