//! One poll's pass over the ring.

use tapecast_core::account::{Account, Jump, Verdict};
use tapecast_ring::{BroadcastReader, GatedReader, ReadError, RecordBuffer, RegionReader};
use tapecast_wire::attach::Policy;
use tapecast_wire::limits::PAGE_BYTES;
use tapecast_wire::{Epoch, InstrumentId, Nanos, Position, Sequence, Snapshot};

use super::OpenError;
use super::rests::Rests;
use super::session::Gate;
use crate::delivery::mark_received;
use crate::{Delivery, PollError};

/// Records that one poll passes over, beside those that it delivers, when they are not wanted.
pub(super) const SKIPS_PER_POLL: usize = 4096;

/// Wanted records in a row after which the next one is taken without asking first.
const TRUSTED_RUN: u32 = 16;

/// How records leave the ring.
#[derive(Debug)]
pub(super) enum Ring {
    /// The writer waits for nobody: each record is copied, then found whole.
    Broadcast(BroadcastReader),
    /// The writer waits for this session: records are lent in place.
    Gated(Gated),
    /// The writer waits for this session, but the one after it will not: records are copied.
    Copied(BroadcastReader),
}

/// A reader that lends, and what checks it.
#[derive(Debug)]
pub(super) struct Gated {
    reader: GatedReader,
    /// Looks afterwards whether the writer stayed away from what was lent.
    guard: BroadcastReader,
    /// For the few records that this end has to mark.
    scratch: Box<Scratch>,
}

/// Room for a copy of one record, aligned so that it can be parsed.
#[derive(Debug)]
#[repr(C, align(64))]
struct Scratch {
    bytes: [u8; PAGE_BYTES],
}

impl Ring {
    /// A reader from `at` on. Looks at the tail, so that what was committed before is in the
    /// latest table from now on.
    pub(super) fn open(
        region: &RegionReader,
        at: Position,
        policy: Policy,
        gate: Gate,
    ) -> Result<Self, OpenError> {
        let reader = region.broadcast_at(at)?;
        let tail = reader.tail();
        if tail < at {
            return Err(OpenError::Start { at, tail });
        }
        if policy != Policy::Lossless {
            return Ok(Self::Broadcast(reader));
        }
        match gate {
            Gate::Open => return Err(OpenError::NotGated),
            Gate::Copies => return Ok(Self::Copied(reader)),
            Gate::Lends => {}
        }
        let guard = region.broadcast_at(at)?;
        // SAFETY: the cell says, in a word that only the publisher writes, that the writer is
        // gated by this cell's consumed position, which the sender set to `at` itself and which
        // this endpoint announces with Release after the batch that used the bytes. The writer
        // looks at it with Acquire and never writes beyond the least position plus the capacity.
        // No other process takes the region over, or the gate would say so. The publisher is
        // trusted to keep to this; that it did is checked after each batch.
        let reader = unsafe { GatedReader::new(reader) };
        let scratch = Box::new(Scratch { bytes: [0; PAGE_BYTES] });
        Ok(Self::Gated(Gated { reader, guard, scratch }))
    }

    /// Bytes between what was read and the tail now.
    #[inline]
    pub(super) fn lag_bytes(&self) -> u64 {
        match self {
            Self::Broadcast(reader) | Self::Copied(reader) => reader.lag_bytes(),
            Self::Gated(gated) => gated.reader.lag_bytes(),
        }
    }

    /// When the oldest record that was not read was published.
    pub(super) fn unread_since(&self) -> Option<Nanos> {
        match self {
            Self::Broadcast(reader) | Self::Copied(reader) => reader.unread_since(),
            Self::Gated(gated) => gated.reader.unread_since(),
        }
    }

    /// Channel sequence of the newest record in the ring.
    pub(super) fn channel_sequence(&self) -> Sequence {
        match self {
            Self::Broadcast(reader) | Self::Copied(reader) => reader.channel_sequence(),
            Self::Gated(gated) => gated.reader.channel_sequence(),
        }
    }

    /// Up to where the ring was read.
    #[inline]
    pub(super) const fn position(&self) -> Position {
        match self {
            Self::Broadcast(reader) | Self::Copied(reader) => reader.position(),
            Self::Gated(gated) => gated.reader.position(),
        }
    }
}

/// Why a batch ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The writer was faster: recover from the latest table.
    Lapped,
    /// The record here is of another life of the publisher.
    Foreign(Position),
    /// The session is of no further use.
    Failed(PollError),
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Lapped { .. } => Self::Lapped,
            ReadError::Corrupt { position } => Self::Failed(PollError::Corrupt { position }),
        }
    }
}

impl From<PollError> for Stop {
    fn from(error: PollError) -> Self {
        Self::Failed(error)
    }
}

/// How far a session has come in its ring, beyond the position.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// Channel sequence of the newest record read.
    pub(super) sequence: Sequence,
    /// Wanted records in a row, up to now. Where most are wanted it is quickest to copy each one
    /// and ask the account then; where most are not, to look at each one's head first.
    wanted_run: u32,
}

impl Progress {
    pub(super) const fn new(sequence: Sequence) -> Self {
        Self { sequence, wanted_run: 0 }
    }

    #[inline]
    const fn count(&mut self, wanted: bool) {
        self.wanted_run = if wanted { self.wanted_run.saturating_add(1) } else { 0 };
    }
}

/// One poll's pass over the ring.
pub(super) struct Batch<'a> {
    pub(super) account: &'a mut Account,
    /// Life whose records are delivered.
    pub(super) epoch: Epoch,
    pub(super) buffer: &'a mut RecordBuffer,
    pub(super) progress: &'a mut Progress,
    /// Where there is a least time between two snapshots. Only where records are copied.
    pub(super) rests: Option<&'a mut Rests>,
    pub(super) limit: usize,
    pub(super) delivered: usize,
}

impl Batch<'_> {
    /// Delivers from `ring`.
    #[inline]
    pub(super) fn read<F: FnMut(Delivery<'_>)>(
        &mut self,
        ring: &mut Ring,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        match ring {
            Ring::Broadcast(reader) => self.copy(reader, deliver),
            Ring::Copied(reader) => {
                // Nothing rests where nothing may be left out.
                self.rests = None;
                self.copy(reader, deliver)
            }
            Ring::Gated(gated) => self.lend(gated, deliver),
        }
    }

    /// Records are copied and found whole before they are delivered.
    fn copy<F: FnMut(Delivery<'_>)>(
        &mut self,
        reader: &mut BroadcastReader,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let mut left = self.limit.saturating_add(SKIPS_PER_POLL);
        while self.delivered < self.limit && left > 0 {
            left -= 1;
            if self.progress.wanted_run < TRUSTED_RUN {
                let Some(head) = reader.peek()? else { break };
                if head.epoch != self.epoch {
                    return Err(Stop::Foreign(reader.position()));
                }
                let is_news =
                    self.account.would_deliver(head.instrument_id, head.instrument_sequence);
                if !is_news || self.puts_off(head.instrument_id) {
                    check_known(self.account, head.instrument_id, reader.position())?;
                    reader.skip();
                    self.progress.sequence = head.channel_sequence;
                    self.progress.count(false);
                    continue;
                }
                if let Some(rests) = &mut self.rests {
                    rests.rest(head.instrument_id);
                }
            }
            let at = reader.position();
            let Some(record) = reader.next(self.buffer)? else { break };
            if record.epoch() != self.epoch {
                return Err(Stop::Foreign(at));
            }
            self.progress.sequence = record.channel_sequence();
            let bytes = record.into_bytes_mut();
            let handed = hand_over(self.account, bytes, Why::Next, at, deliver)?;
            // Where instruments rest, each record is looked at first.
            self.progress.count(handed && self.rests.is_none());
            self.delivered += usize::from(handed);
        }
        Ok(())
    }

    fn puts_off(&mut self, instrument: InstrumentId) -> bool {
        self.rests.as_mut().is_some_and(|rests| rests.put_off(instrument))
    }

    /// Records are delivered where they lie.
    fn lend<F: FnMut(Delivery<'_>)>(
        &mut self,
        gated: &mut Gated,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let Gated { reader, guard, scratch } = gated;
        let began = reader.position();
        let ended = self.lend_all(reader, scratch, deliver);
        if self.delivered > 0 {
            guard.seek(began);
            guard.peek().map_err(|_| PollError::Evicted { position: began })?;
        }
        match ended {
            Err(Stop::Lapped) => Err(PollError::Evicted { position: began }.into()),
            other => other,
        }
    }

    fn lend_all<F: FnMut(Delivery<'_>)>(
        &mut self,
        reader: &mut GatedReader,
        scratch: &mut Scratch,
        deliver: &mut F,
    ) -> Result<(), Stop> {
        let mut left = self.limit.saturating_add(SKIPS_PER_POLL);
        while self.delivered < self.limit && left > 0 {
            left -= 1;
            let at = reader.position();
            let Some(lent) = reader.lend()? else { break };
            let snapshot = parse(lent, at)?;
            if snapshot.epoch() != self.epoch {
                return Err(Stop::Foreign(at));
            }
            self.progress.sequence = snapshot.channel_sequence();
            let (id, sequence) = (snapshot.instrument_id(), snapshot.instrument_sequence());
            match self.account.on_record(id, sequence, Jump::Unexplained) {
                Verdict::Deliver { initial: false, conflated: 0, .. } => {
                    deliver(Delivery::new(snapshot, 0));
                }
                Verdict::Deliver { initial, conflated, .. } => {
                    let copy = &mut scratch.bytes[..lent.len()];
                    copy.copy_from_slice(lent);
                    mark_received(copy, initial, conflated);
                    deliver(Delivery::new(parse(copy, at)?, conflated));
                }
                Verdict::Unwanted | Verdict::Stale => continue,
                Verdict::Unknown => return Err(unknown(self.account, id, at).into()),
            }
            self.delivered += 1;
        }
        Ok(())
    }
}

/// Why a record is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is the next one in the ring.
    Next,
    /// It is the newest of its instrument, in place of older ones.
    Newest,
    /// It was asked for.
    Asked,
}

#[inline]
fn parse(bytes: &[u8], position: Position) -> Result<Snapshot<'_>, PollError> {
    Snapshot::parse(bytes).map_err(|source| PollError::Malformed { position, source })
}

/// A record that is not wanted may be one of an instrument that no directory entry can describe.
#[inline]
fn check_known(
    account: &Account,
    instrument: InstrumentId,
    position: Position,
) -> Result<(), PollError> {
    if instrument.index() < account.capacity() {
        return Ok(());
    }
    Err(unknown(account, instrument, position))
}

#[cold]
const fn unknown(account: &Account, instrument: InstrumentId, position: Position) -> PollError {
    PollError::UnknownInstrument { position, instrument, capacity: account.capacity() }
}

/// Delivers this end's own copy of a record when the account says so, marked with what only this
/// end knows. Returns whether it did.
#[inline]
pub(super) fn hand_over<F: FnMut(Delivery<'_>)>(
    account: &mut Account,
    record: &mut [u8],
    why: Why,
    position: Position,
    deliver: &mut F,
) -> Result<bool, PollError> {
    let snapshot = parse(record, position)?;
    let (id, sequence) = (snapshot.instrument_id(), snapshot.instrument_sequence());
    let verdict = match why {
        Why::Next => account.on_record(id, sequence, Jump::Unexplained),
        Why::Newest => account.on_record(id, sequence, Jump::Conflated),
        Why::Asked => account.on_answer(id, sequence, Jump::Conflated),
    };
    match verdict {
        Verdict::Deliver { initial: false, conflated: 0, .. } => {
            deliver(Delivery::new(snapshot, 0));
        }
        Verdict::Deliver { initial, conflated, .. } => {
            mark_received(record, initial, conflated);
            deliver(Delivery::new(parse(record, position)?, conflated));
        }
        Verdict::Unwanted | Verdict::Stale => return Ok(false),
        Verdict::Unknown => return Err(unknown(account, id, position)),
    }
    Ok(true)
}
