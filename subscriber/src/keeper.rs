//! The thread that keeps a subscription attached.
//!
//! It sleeps on the session's connection (the lifeline) and costs nothing while all is well. When
//! the publisher goes, it posts that at once, attaches again with backoff and posts the new
//! session.
//! So the polling thread learns everything from one flag, and never connects, waits or enters the
//! kernel on its own account.

use core::convert::Infallible;
use core::time::Duration;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread;
use std::time::Instant;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tapecast_control::client::{ClientLifeline, LifelineStatus};
use tapecast_fabric::ClockReport;
use tapecast_fabric::shm::RegionLife;
use tapecast_wire::attach::Farewell;

use crate::attachment::Attachment;
use crate::backoff::{Backoff, Jitter, Reconnect};
use crate::builder::SubscriberBuilder;
use crate::clock::{Pings, SharedClock};
use crate::error::ConnectError;
use crate::mailbox::{Mail, Mailbox};
use crate::state::{EndReason, StaleCause};
use crate::target::Target;

/// Pause before attaching again to a publisher that has just sent this session away, or has nothing
/// more to say: at least this long.
const RELUCTANT_PAUSE: Duration = Duration::from_millis(500);
/// How long stopping waits for the thread to detach.
const STOP_PATIENCE: Duration = Duration::from_millis(250);
/// A TLS handshake, and the C library's look-up of a name, need more than the keeper itself. Only
/// what is used becomes memory.
const STACK_BYTES: usize = 1024 * 1024;

/// The polling thread's end: learns what happened, and tells the keeper when to stop.
#[derive(Debug)]
pub(crate) struct Keeper {
    mailbox: Arc<Mailbox>,
    /// Readable when there is mail: for those that sleep.
    news: Arc<OwnedFd>,
    /// Rung to make the keeper look at `orders`.
    bell: Arc<OwnedFd>,
    orders: Sender<Order>,
    clock: Arc<SharedClock>,
    /// Disconnected when the thread has ended.
    alive: Receiver<Infallible>,
}

/// What the polling thread wants.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    /// Ask for these symbols from the next session on; for all when there is none.
    Choose(Vec<String>),
    /// Give the session of this generation up and attach again. When it has been replaced already,
    /// nothing is to be done.
    Renew(u64),
    /// Detach and stop.
    Stop,
}

impl Keeper {
    /// Starts to keep the first session, of generation 0, that was attached with `choices` and is
    /// one of `life`; with no session, starts to attach.
    pub(crate) fn start(
        choices: SubscriberBuilder,
        lifeline: Option<ClientLifeline>,
        life: Option<RegionLife>,
    ) -> Result<Self, ConnectError> {
        let descriptor = || {
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map(Arc::new)
                .map_err(|error| resources("make an event descriptor", error.into()))
        };
        let (news, bell) = (descriptor()?, descriptor()?);
        let mailbox = Arc::new(Mailbox::default());
        let (orders, received) = channel();
        let (thread_life, alive) = channel();
        let clock = Arc::new(SharedClock::default());
        let pings = Pings::new(matches!(choices.target, Target::Remote(_)));
        let watch = Watch {
            choices,
            mailbox: Arc::clone(&mailbox),
            news: Arc::clone(&news),
            bell: Arc::clone(&bell),
            orders: received,
            jitter: Jitter::new(),
            clock: Arc::clone(&clock),
            pings,
            generation: 0,
            life,
            _thread_life: thread_life,
        };
        thread::Builder::new()
            .name("tapecast-keeper".into())
            .stack_size(STACK_BYTES)
            .spawn(move || watch.run(lifeline))
            .map_err(|error| resources("start the keeper thread", error))?;
        Ok(Self { mailbox, news, bell, orders, clock, alive })
    }

    /// How the clocks of the two hosts relate, as far as is known.
    pub(crate) fn clock(&self) -> ClockReport {
        self.clock.load()
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Readable when there is mail.
    pub(crate) fn news(&self) -> &OwnedFd {
        &self.news
    }

    /// Forgets that there was mail, so that `news` is readable again only when more comes.
    pub(crate) fn quiet(&self) {
        silence(&self.news);
    }

    /// Makes `news` readable, so that a sleeper looks again.
    pub(crate) fn nudge(&self) {
        ring(&self.news);
    }

    /// Gives the session of this generation up and attaches again, unless that is done already.
    pub(crate) fn renew(&self, generation: u64) {
        self.order(Order::Renew(generation));
    }

    /// Asks for these symbols from the next session on; for all when there is none.
    pub(crate) fn choose(&self, symbols: &[String]) {
        self.order(Order::Choose(symbols.to_vec()));
    }

    /// Detaches in good order and ends the thread. Does not wait for one that is in the middle of a
    /// handshake: that one ends by itself.
    pub(crate) fn stop(&self) {
        self.order(Order::Stop);
        // Nothing is ever sent: this ends when the thread does.
        let _ = self.alive.recv_timeout(STOP_PATIENCE);
    }

    fn order(&self, order: Order) {
        // A keeper that is gone needs no orders.
        if self.orders.send(order).is_ok() {
            ring(&self.bell);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

/// How a watch over one session ended.
enum Outcome {
    Lost(StaleCause, String),
    Renew,
    Stop,
}

/// The keeper's end.
struct Watch {
    choices: SubscriberBuilder,
    mailbox: Arc<Mailbox>,
    news: Arc<OwnedFd>,
    bell: Arc<OwnedFd>,
    orders: Receiver<Order>,
    jitter: Jitter,
    clock: Arc<SharedClock>,
    pings: Pings,
    /// Of the session that is watched.
    generation: u64,
    /// Of the session that was attached last, where that is in shared memory.
    life: Option<RegionLife>,
    /// Dropped with the rest when the thread ends.
    _thread_life: Sender<Infallible>,
}

impl Watch {
    fn run(mut self, lifeline: Option<ClientLifeline>) {
        let Some(mut lifeline) = lifeline.or_else(|| self.attach_again(false)) else { return };
        loop {
            let outcome = self.watch(&mut lifeline);
            if !matches!(outcome, Outcome::Lost(..)) {
                lifeline.detach();
            }
            let reluctant = match outcome {
                Outcome::Stop => return,
                Outcome::Renew => true,
                Outcome::Lost(cause, why) => {
                    let ended = self.end_reason(cause, &why);
                    let finished = ended.is_some();
                    self.post(|mail| {
                        mail.lost = Some((cause, why));
                        mail.ended = ended;
                        // A session that was never picked up is gone with its publisher.
                        mail.attached.take()
                    });
                    if finished {
                        return;
                    }
                    matches!(cause, StaleCause::Evicted | StaleCause::EndOfSource)
                }
            };
            self.pings.restart();
            match self.attach_again(reluctant) {
                Some(fresh) => lifeline = fresh,
                None => return,
            }
        }
    }

    /// Sleeps until the session ends or an order comes.
    fn watch(&mut self, lifeline: &mut ClientLifeline) -> Outcome {
        loop {
            match lifeline.status() {
                LifelineStatus::Alive => {}
                LifelineStatus::Farewell(farewell, why) => {
                    return Outcome::Lost(cause_of(farewell), why);
                }
                LifelineStatus::Gone => return Outcome::Lost(StaleCause::Crashed, String::new()),
            }
            if let Some(estimate) = lifeline.clock() {
                self.clock.show(&estimate);
            }
            if self.pings.is_due(Instant::now()) {
                lifeline.ping();
            }
            let nap = self.pings.until_due(Instant::now());
            let nap = nap.and_then(|nap| Timespec::try_from(nap).ok());
            let mut awaited =
                [PollFd::new(&*lifeline, PollFlags::IN), PollFd::new(&*self.bell, PollFlags::IN)];
            // An interrupted or refused poll is followed by another look at both.
            let _ = poll(&mut awaited, nap.as_ref());
            silence(&self.bell);
            if let Some(outcome) = self.ordered() {
                return outcome;
            }
        }
    }

    /// What the orders that have come make of the present session.
    fn ordered(&mut self) -> Option<Outcome> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return Some(Outcome::Stop),
                Ok(Order::Choose(symbols)) => self.choices.symbols = symbols,
                Ok(Order::Renew(given_up)) if given_up == self.generation => {
                    return Some(Outcome::Renew);
                }
                // Of a session whose end this side heard of first.
                Ok(Order::Renew(_)) => {}
                Err(TryRecvError::Empty) => return None,
            }
        }
    }

    /// Why a loss is the end, when it is.
    fn end_reason(&self, cause: StaleCause, why: &str) -> Option<EndReason> {
        if self.choices.reconnect != Reconnect::Never {
            return None;
        }
        Some(match cause {
            StaleCause::EndOfSource => EndReason::EndOfSource,
            StaleCause::Closing => EndReason::Closing(why.to_owned()),
            StaleCause::Evicted => EndReason::Evicted(why.to_owned()),
            StaleCause::Absent
            | StaleCause::Crashed
            | StaleCause::Silent
            | StaleCause::Unusable => EndReason::Crashed,
        })
    }

    /// Tries until a session is attached. `None`: told to stop, or it is pointless.
    fn attach_again(&mut self, reluctant: bool) -> Option<ClientLifeline> {
        // A subscription that began without a publisher tries on whatever it does after a loss.
        let backoff = match self.choices.reconnect {
            Reconnect::Backoff(backoff) => backoff,
            Reconnect::Never if self.generation == 0 => Backoff::default(),
            Reconnect::Never => return None,
        };
        let mut told = String::new();
        for attempt in 0_u32.. {
            if self.pause(backoff, attempt, reluctant) {
                return None;
            }
            match Attachment::open(&self.choices, self.generation + 1, self.life) {
                Ok((attachment, lifeline)) => {
                    self.generation += 1;
                    self.life = attachment.endpoint.life();
                    let fresh = Some((Box::new(attachment), attempt.saturating_add(1)));
                    self.post(|mail| {
                        mail.failure = None;
                        core::mem::replace(&mut mail.attached, fresh)
                    });
                    return Some(lifeline);
                }
                Err(error) if error.may_pass() => {
                    let text = error.to_string();
                    if text != told {
                        told.clone_from(&text);
                        self.post(|mail| mail.failure = Some(text));
                    }
                }
                Err(error) => {
                    let ended = EndReason::Refused(error.to_string());
                    self.post(|mail| mail.ended = Some(ended));
                    return None;
                }
            }
        }
        None
    }

    /// Sleeps before an attempt. Returns whether an order to stop came meanwhile.
    fn pause(&mut self, backoff: Backoff, attempt: u32, reluctant: bool) -> bool {
        let mut pause = backoff.pause(attempt, self.jitter.next());
        if reluctant {
            pause = pause.max(RELUCTANT_PAUSE);
        }
        let ends = Instant::now() + pause;
        loop {
            match self.orders.try_recv() {
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return true,
                Ok(Order::Choose(symbols)) => {
                    self.choices.symbols = symbols;
                    continue;
                }
                // Attaching again is what it is about already.
                Ok(Order::Renew(_)) | Err(TryRecvError::Empty) => {}
            }
            let rest = ends.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return false;
            }
            let mut awaited = [PollFd::new(&*self.bell, PollFlags::IN)];
            let _ = poll(&mut awaited, Timespec::try_from(rest).ok().as_ref());
            silence(&self.bell);
        }
    }

    fn post<T>(&self, change: impl FnOnce(&mut Mail) -> T) {
        self.mailbox.post(change);
        ring(&self.news);
    }
}

const fn cause_of(farewell: Farewell) -> StaleCause {
    match farewell {
        Farewell::Evicted => StaleCause::Evicted,
        Farewell::EndOfSource => StaleCause::EndOfSource,
        // A farewell that a later release invents is an orderly one.
        _ => StaleCause::Closing,
    }
}

/// Makes an event descriptor readable.
fn ring(descriptor: &impl AsFd) {
    // It fails only when it is readable already.
    let _ = rustix::io::write(descriptor, &1_u64.to_ne_bytes());
}

/// Makes an event descriptor unreadable.
fn silence(descriptor: &impl AsFd) {
    // It fails only when it is not readable anyway.
    let _ = rustix::io::read(descriptor, &mut [0_u8; 8]);
}

const fn resources(action: &'static str, source: io::Error) -> ConnectError {
    ConnectError::Resources { action, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keeper's end that watches `generation`, and the end that gives it orders.
    fn watch(generation: u64) -> (Watch, Sender<Order>) {
        let descriptor = || Arc::new(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let (orders, received) = channel();
        let watch = Watch {
            choices: SubscriberBuilder::new(),
            mailbox: Arc::default(),
            news: descriptor(),
            bell: descriptor(),
            orders: received,
            jitter: Jitter::new(),
            clock: Arc::default(),
            pings: Pings::new(false),
            generation,
            life: None,
            _thread_life: channel().0,
        };
        (watch, orders)
    }

    #[test]
    fn a_session_is_given_up_only_by_an_order_that_means_it() {
        let (mut watch, orders) = watch(3);
        assert!(watch.ordered().is_none());
        orders.send(Order::Renew(2)).unwrap();
        assert!(watch.ordered().is_none(), "session 2 has been replaced already");
        orders.send(Order::Renew(3)).unwrap();
        assert!(matches!(watch.ordered(), Some(Outcome::Renew)));
    }

    #[test]
    fn an_order_to_stop_is_not_overlooked_behind_one_that_came_too_late() {
        let (mut watch, orders) = watch(3);
        orders.send(Order::Renew(2)).unwrap();
        orders.send(Order::Stop).unwrap();
        assert!(matches!(watch.ordered(), Some(Outcome::Stop)));
        drop(orders);
        assert!(matches!(watch.ordered(), Some(Outcome::Stop)), "nobody is left to keep it for");
    }
}
