//! The subscriber's side: its ring, its receives, and the cell that it writes from afar.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapecast_ring::cell::{
    CELL_BYTES, COUNTER_WORDS, CREDIT_WORDS, HEARTBEAT_WORDS, LATENCY_WORDS, REQUEST_COUNT_WORDS,
    REQUEST_ID_WORDS, TIMING_WORDS,
};
use tapecast_ring::remote::TailError;
use tapecast_ring::{CellReader, CellWriter, RemoteReader, Words, WordsMut};
use tapecast_wire::limits::WORD_BYTES;
use tapecast_wire::rdma::{CONTROL_BLOCK_BYTES, RdmaAnswer, RdmaOffer, RemoteMemory, RetryBudget};
use tapecast_wire::{Epoch, Position, SessionId};

use super::VerbsEndpoint;
use super::completion::{Completion, CompletionChannel, CompletionQueue, Status};
use super::config::EndpointConfig;
use super::device::{Port, ProtectionDomain};
use super::error::VerbsError;
use super::memlock;
use super::memory::{Access, MemoryRegion};
use super::queue_pair::{Depths, QueuePair, random_packet_sequence};
use super::receives::ReceiveChain;
use super::route::RouteConfig;
use super::send_queue::{INLINE_BYTES, SendQueue};
use crate::WaitStrategy;
use crate::rings::{CONTROL_WORDS, Inlet, News, RingEndpoint, Terms};

/// Work requests that one [`Inlet::push`] posts at most.
const PUSH_MAX: usize = 7;
/// Depth of the queue that the cell is written through.
const SEND_DEPTH: u32 = 32;
const SIGNAL_EVERY: u32 = 16;
/// Completions taken at once.
const POLL_BATCH: usize = 64;
/// Completions beside those of the receives that are posted: what a broken queue pair flushes is
/// among those.
const COMPLETION_SPARE: u32 = 16;

/// A subscriber's end that has its memory and its queue pair, and is not connected.
#[derive(Debug)]
pub struct Offered {
    inlet: VerbsInlet,
    port: Port,
    packet_sequence: u32,
    config: EndpointConfig,
}

/// A subscriber's end that is ready to receive.
#[derive(Debug)]
pub struct Connected {
    inlet: VerbsInlet,
    config: EndpointConfig,
    instruments: usize,
}

impl Offered {
    /// Opens the device, takes and registers memory, and posts all receives.
    ///
    /// # Errors
    /// [`VerbsError`], whose text says what to check.
    pub fn open(config: &EndpointConfig) -> Result<Self, VerbsError> {
        config.check()?;
        let port = Port::open(&config.device)?;
        memlock::check([config.ring_bytes + CONTROL_BLOCK_BYTES, CELL_BYTES as u64])?;
        let inlet = VerbsInlet::new(&port, config)?;
        inlet.queue_pair.to_init(&port, Access::RemoteWrite)?;
        let mut offered =
            Self { inlet, port, packet_sequence: random_packet_sequence(), config: config.clone() };
        // Before the peer can send anything.
        offered.inlet.post_receives(config.receive_depth as usize).map_err(|source| {
            VerbsError::Call {
                call: "ibv_post_recv",
                values: format!("{} receives", config.receive_depth),
                source,
                remedy: "lower receive_depth",
            }
        })?;
        Ok(offered)
    }

    /// What the publisher has to know.
    #[must_use]
    pub fn offer(&self) -> RdmaOffer {
        let memory = &self.inlet.memory;
        let at = |offset| RemoteMemory { address: memory.address() + offset, key: memory.rkey() };
        RdmaOffer {
            peer: self.inlet.queue_pair.address(&self.port, self.packet_sequence),
            ring: at(0),
            ring_bytes: self.config.ring_bytes,
            control: at(self.config.ring_bytes),
            receive_depth: self.config.receive_depth,
        }
    }

    /// Connects to the publisher's queue pair: from now on it may write.
    ///
    /// # Errors
    /// [`VerbsError`], also for an answer that cannot be.
    pub fn connect(mut self, answer: &RdmaAnswer) -> Result<Connected, VerbsError> {
        answer.check().map_err(VerbsError::Peer)?;
        let queue_pair = &self.inlet.queue_pair;
        let RetryBudget { timeout, retry_count } = answer.retries;
        let route = RouteConfig { timeout, retry_count, ..self.config.route };
        queue_pair.to_rtr(&answer.peer, &route, &self.port)?;
        queue_pair.to_rts(self.packet_sequence, &route)?;
        self.inlet.remote_cell = answer.cell;
        let instruments = answer.instruments as usize;
        Ok(Connected { inlet: self.inlet, config: self.config, instruments })
    }
}

impl Connected {
    /// Begins to read, as the session that the publisher has accepted.
    ///
    /// # Errors
    /// [`VerbsError`] when the ring or the cell cannot be used, which is a defect.
    pub fn start(self, session_id: SessionId, epoch: Epoch) -> Result<VerbsEndpoint, VerbsError> {
        let Self { inlet, config, instruments } = self;
        let words = inlet.memory.words();
        let ring_words = config.ring_bytes as usize / WORD_BYTES;
        let ring = words.part(0, ring_words).map(|ring| ring.reader());
        let reader = ring.and_then(|ring| RemoteReader::new(ring).ok());
        let cell = inlet.cell.words();
        let named = CellReader::create(&cell, session_id, epoch, Position(0));
        let writer = named.and_then(|_| CellWriter::open(cell));
        let (Some(reader), Ok(writer)) = (reader, writer) else {
            return Err(VerbsError::Ring { bytes: config.ring_bytes });
        };
        let EndpointConfig { policy, wait, .. } = config;
        let terms = Terms { session_id, epoch, policy, instruments, wait };
        Ok(RingEndpoint::new(inlet, reader, writer, terms))
    }
}

/// Completions that were polled and not yet looked at.
#[derive(Debug)]
struct Arrivals {
    batch: [Completion; POLL_BATCH],
    next: usize,
    count: usize,
    /// Nothing arrives any more.
    broken: bool,
}

impl Arrivals {
    /// The next immediate, if one has arrived.
    fn next(&mut self, queue: &CompletionQueue) -> Option<u32> {
        while self.look(queue) {
            let Completion { status, immediate, .. } = self.batch[self.next];
            self.next += 1;
            match (status, immediate) {
                (Status::Success, Some(immediate)) => return Some(immediate),
                // A publisher sends nothing without an immediate; what it means nobody knows.
                _ => self.broken = true,
            }
        }
        None
    }

    /// Whether there is something to look at.
    fn look(&mut self, queue: &CompletionQueue) -> bool {
        if self.next == self.count {
            self.next = 0;
            self.count = queue.poll(&mut self.batch).unwrap_or_else(|_| {
                self.broken = true;
                0
            });
        }
        self.next < self.count
    }
}

/// Takes what arrives in one RDMA session.
///
/// Fields are dropped in order: the queue pair first, so that the device writes nothing any more
/// when the memory goes.
#[derive(Debug)]
pub struct VerbsInlet {
    queue_pair: QueuePair,
    receive_queue: CompletionQueue,
    channel: CompletionChannel,
    send_completions: CompletionQueue,
    send_queue: SendQueue,
    receive_chain: ReceiveChain,
    /// Ring, then control block.
    memory: MemoryRegion,
    control: Words,
    /// This end's copy of the cell.
    cell: MemoryRegion,
    cell_words: WordsMut,
    remote_cell: RemoteMemory,
    arrivals: RefCell<Arrivals>,
    depth: u64,
    receives: u64,
    /// News that found no room in the send queue.
    unsent: News,
    wait: WaitStrategy,
}

impl VerbsInlet {
    fn new(port: &Port, config: &EndpointConfig) -> Result<Self, VerbsError> {
        let domain = ProtectionDomain::new(&port.context)?;
        let channel = CompletionChannel::new(&port.context)?;
        let depth = config.receive_depth;
        let receive_queue =
            CompletionQueue::new(&port.context, depth + COMPLETION_SPARE, Some(&channel))?;
        let send_completions =
            CompletionQueue::new(&port.context, SEND_DEPTH + COMPLETION_SPARE, None)?;
        let depths = Depths {
            send: SEND_DEPTH,
            receive: depth,
            send_sge: 1,
            inline_bytes: INLINE_BYTES as u32,
        };
        let queue_pair = QueuePair::create(&domain, &send_completions, &receive_queue, depths)?;
        let bytes = (config.ring_bytes + CONTROL_BLOCK_BYTES) as usize;
        let memory =
            MemoryRegion::allocate(&domain, bytes, config.huge_pages, Access::RemoteWrite)?;
        let cell = MemoryRegion::allocate(&domain, CELL_BYTES, false, Access::LocalRead)?;
        let first_control_word = config.ring_bytes as usize / WORD_BYTES;
        let control = memory.words().part(first_control_word, CONTROL_WORDS);
        let control = control.ok_or(VerbsError::Ring { bytes: config.ring_bytes })?.reader();
        Ok(Self {
            queue_pair,
            receive_queue,
            channel,
            send_completions,
            send_queue: SendQueue::new(SEND_DEPTH, 1, SIGNAL_EVERY),
            receive_chain: ReceiveChain::new(depth as usize, 0),
            memory,
            control,
            cell_words: cell.words(),
            cell,
            remote_cell: RemoteMemory { address: 0, key: 0 },
            arrivals: RefCell::new(Arrivals {
                batch: [Completion::EMPTY; POLL_BATCH],
                next: 0,
                count: 0,
                broken: false,
            }),
            depth: u64::from(depth),
            receives: 0,
            unsent: News::default(),
            wait: config.wait,
        })
    }

    /// Stops this end's queue pair, and tells nobody.
    #[cfg(test)]
    pub(super) fn fall_silent(&self) {
        self.queue_pair.to_error().unwrap();
    }

    fn post_receives(&mut self, count: usize) -> io::Result<()> {
        self.receive_chain.post(&self.queue_pair, count).map_err(io::Error::other)?;
        self.receives += count as u64;
        Ok(())
    }

    fn reap_sends(&mut self) {
        let mut batch = [Completion::EMPTY; SEND_DEPTH as usize];
        let found = self.send_completions.poll(&mut batch).unwrap_or(0);
        for completion in &batch[..found] {
            self.send_queue.retire(completion.wr_id as u32);
            if completion.status != Status::Success {
                self.arrivals.get_mut().broken = true;
            }
        }
    }

    /// Stages a write of some words of the cell.
    fn stage_words(&mut self, words: core::ops::Range<usize>) {
        let offset = words.start * WORD_BYTES;
        let address = self.remote_cell.address + offset as u64;
        let to = RemoteMemory { address, key: self.remote_cell.key };
        let bytes = words.len() * WORD_BYTES;
        if bytes > INLINE_BYTES {
            self.send_queue.stage_write(to, None);
            self.send_queue.push(&self.cell, offset, bytes);
            return;
        }
        let mut copy = [0; INLINE_BYTES];
        for (to, word) in copy.as_chunks_mut().0.iter_mut().zip(words) {
            *to = self.cell_words.load(word).unwrap_or(0).to_le_bytes();
        }
        self.send_queue.stage_inline(to, &copy[..bytes]);
    }

    /// Lets the next wait on the descriptor end when something arrives. Returns false when
    /// something has arrived already: poll now.
    fn arm(&mut self) -> io::Result<bool> {
        while self.channel.take_event()? {}
        self.receive_queue.request_notify().map_err(io::Error::other)?;
        Ok(!self.has_arrived())
    }
}

impl Inlet for VerbsInlet {
    fn take(
        &mut self,
        mut announce: impl FnMut(u32) -> Result<(), TailError>,
    ) -> Result<(), TailError> {
        let mut taken = 0;
        let arrivals = self.arrivals.get_mut();
        while taken < self.depth as usize
            && let Some(units) = arrivals.next(&self.receive_queue)
        {
            announce(units)?;
            taken += 1;
        }
        if taken > 0 && self.post_receives(taken).is_err() {
            self.arrivals.get_mut().broken = true;
        }
        if !self.unsent.is_empty() {
            self.push(News::default());
        }
        Ok(())
    }

    fn has_arrived(&self) -> bool {
        let mut arrivals = self.arrivals.borrow_mut();
        // What is broken says so by itself.
        !arrivals.broken && arrivals.look(&self.receive_queue)
    }

    fn is_broken(&self) -> bool {
        self.arrivals.borrow().broken
    }

    fn receives(&self) -> u64 {
        self.receives
    }

    fn depth(&self) -> u64 {
        self.depth
    }

    fn control(&self) -> &Words {
        &self.control
    }

    fn push(&mut self, news: News) {
        self.reap_sends();
        let news = self.unsent.with(news);
        if self.send_queue.room() < PUSH_MAX {
            // The publisher does not answer; a later push says everything that this one would.
            self.unsent = news;
            return;
        }
        self.unsent = News::default();
        if news.requests {
            self.stage_words(REQUEST_ID_WORDS);
            self.stage_words(REQUEST_COUNT_WORDS);
        }
        if news.counters {
            self.stage_words(COUNTER_WORDS);
        }
        if news.figures {
            self.stage_words(LATENCY_WORDS);
            self.stage_words(HEARTBEAT_WORDS);
        }
        if news.timing {
            self.stage_words(TIMING_WORDS);
        }
        if news.credit {
            self.stage_words(CREDIT_WORDS);
        }
        if self.send_queue.post(&self.queue_pair).is_err() {
            self.send_queue.drop_staged(|_| {});
            self.arrivals.get_mut().broken = true;
        }
    }

    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        if matches!(self.wait, WaitStrategy::Spin | WaitStrategy::Yield) {
            let started = Instant::now();
            while !self.has_arrived() && !self.is_broken() && started.elapsed() < timeout {
                match self.wait {
                    WaitStrategy::Spin => std::hint::spin_loop(),
                    _ => std::thread::yield_now(),
                }
            }
            return Ok(());
        }
        if !self.arm()? || self.is_broken() {
            return Ok(());
        }
        let mut descriptors = [PollFd::new(&self.channel, PollFlags::IN)];
        match poll(&mut descriptors, Timespec::try_from(timeout).ok().as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsFd for VerbsEndpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inlet.channel.as_fd()
    }
}

impl VerbsEndpoint {
    /// Writes to the publisher that it has not acknowledged yet.
    pub fn outstanding(&mut self) -> usize {
        self.inlet.reap_sends();
        self.inlet.send_queue.outstanding()
    }

    /// Makes the descriptor readable when something arrives from now on. Returns false when a poll
    /// would find something already: then do not wait.
    pub fn arm(&mut self) -> bool {
        self.push_news();
        // A channel that fails is broken, which a poll tells.
        self.inlet.arm().unwrap_or(false) && !self.inlet.is_broken()
    }

    /// Takes [`Self::arm`] back: what has made the descriptor readable is forgotten.
    pub fn disarm(&mut self) {
        while self.inlet.channel.take_event().unwrap_or(false) {}
    }
}
