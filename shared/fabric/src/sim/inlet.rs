//! The subscriber's side of the simulated network.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tapecast_ring::cell::{CELL_WORDS, CellError};
use tapecast_ring::remote::TailError;
use tapecast_ring::{CellWriter, Words, WordsMut};

use super::link::{Link, SimFaults};
use super::mail::copy_cell;
use super::{SimEndpoint, SimTicket};
use crate::WaitStrategy;
use crate::rings::{Inlet, News, Terms};

/// The session was not attached when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session is not attached: attach it first, then open the ticket ({0})")]
pub struct OpenError(#[from] CellError);

/// Takes what arrives in one simulated session.
#[derive(Debug)]
pub struct SimInlet {
    link: Arc<Link>,
    /// The subscriber's own copy of its cell, which is pushed in parts.
    shadow: WordsMut,
    control: Words,
    /// Immediates taken out of the receive queue.
    taken: u64,
}

impl SimEndpoint {
    /// Opens the session that the ticket came with, after it was attached.
    ///
    /// # Errors
    /// [`OpenError`] when it was not.
    pub fn open(ticket: SimTicket) -> Result<Self, OpenError> {
        let SimTicket { link, reader, policy, instruments } = ticket;
        // Before the attach there is nothing to copy.
        CellWriter::open(link.cell.clone())?;
        let shadow = WordsMut::heap(CELL_WORDS);
        copy_cell(&link.cell, &shadow);
        let cell = CellWriter::open(shadow.clone())?;
        let (session_id, epoch) = (cell.session_id(), cell.epoch());
        let terms = Terms { session_id, epoch, policy, instruments, wait: WaitStrategy::Yield };
        let inlet = SimInlet { control: link.control.reader(), link, shadow, taken: 0 };
        Ok(Self::new(inlet, reader, cell, terms))
    }

    /// Switches for what can go wrong with this session.
    #[must_use]
    pub fn faults(&self) -> SimFaults {
        SimFaults::new(Arc::clone(&self.inlet.link))
    }
}

impl Inlet for SimInlet {
    fn take(
        &mut self,
        mut announce: impl FnMut(u32) -> Result<(), TailError>,
    ) -> Result<(), TailError> {
        let arrived = self.link.receives.arrived();
        while self.taken < arrived {
            announce(self.link.receives.immediate(self.taken))?;
            self.taken += 1;
        }
        self.link.receives.post(self.receives());
        Ok(())
    }

    fn has_arrived(&self) -> bool {
        self.link.receives.arrived() > self.taken
    }

    fn is_broken(&self) -> bool {
        self.link.is_broken()
    }

    fn is_stopped(&self) -> bool {
        let switches = &self.link.switches;
        switches.paused.load(Ordering::Relaxed) || switches.killed.load(Ordering::Relaxed)
    }

    fn receives(&self) -> u64 {
        self.taken + self.depth()
    }

    fn depth(&self) -> u64 {
        self.link.receives.depth()
    }

    fn control(&self) -> &Words {
        &self.control
    }

    fn push(&mut self, news: News) {
        let delay = self.link.switches.credit_delay.load(Ordering::Relaxed);
        self.link.mail.send(news, &self.shadow, &self.link.cell, delay);
    }

    fn sleep(&mut self, timeout: Duration) -> io::Result<()> {
        // The publisher is in this process, so letting its thread run is the way to wait for it.
        let started = Instant::now();
        while !self.has_arrived() && !self.is_broken() && started.elapsed() < timeout {
            std::thread::yield_now();
        }
        Ok(())
    }
}
