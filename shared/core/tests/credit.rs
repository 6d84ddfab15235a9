//! The credit window: boundary pairs, lies, and a model that counts everything from scratch.

#![expect(clippy::unwrap_used, reason = "a failed expectation is what a test is for")]

use proptest::prelude::*;
use tapecast_core::credit::{
    CreditWindow, Exhausted, Liar, Padding, Placement, WindowSize, WindowSizeError,
};
use tapecast_wire::Position;

const RING: u64 = WindowSize::MIN_RING_BYTES;

fn window(receives: u32, sends: u32, gather: u32) -> CreditWindow {
    CreditWindow::new(WindowSize::new(RING, receives, sends, gather).unwrap())
}

fn send(window: &mut CreditWindow, bytes: usize) -> Result<Placement, Exhausted> {
    let placement = window.place(bytes)?;
    window.take(&placement);
    window.assert_invariants();
    Ok(placement)
}

/// Sends, completes and consumes everything up to `position`, in records of one unit.
fn advance_to(window: &mut CreditWindow, position: u64) {
    let mut receives = u64::from(window.size().receive_depth());
    while window.sent().0 < position {
        send(window, 64).unwrap();
        window.on_retired(1);
        receives += 1;
        let tail = window.flush();
        window.on_credit(tail, receives).unwrap();
    }
}

#[test]
fn sizes_are_checked_at_their_limits() {
    assert!(WindowSize::new(RING, 1, 2, 1).is_ok());
    let half = RING / 2;
    assert_eq!(WindowSize::new(half, 1, 2, 1), Err(WindowSizeError::Ring { ring_bytes: half }));
    assert!(matches!(WindowSize::new(RING + 64, 1, 2, 1), Err(WindowSizeError::Ring { .. })));
    assert_eq!(WindowSize::new(RING, 0, 2, 1), Err(WindowSizeError::Receives));
    assert_eq!(WindowSize::new(RING, 1, 1, 1), Err(WindowSizeError::Sends { send_depth: 1 }));
    assert_eq!(WindowSize::new(RING, 1, 2, 0), Err(WindowSizeError::Gather));
}

#[test]
fn the_last_free_byte_can_be_sent_and_the_next_cannot() {
    let mut window = window(16, 16, 16);
    send(&mut window, 4096).unwrap();
    send(&mut window, 4096 - 64).unwrap();
    send(&mut window, 64).unwrap();
    assert_eq!(window.lag_bytes(), RING);
    assert_eq!(window.place(8), Err(Exhausted::Bytes));
    window.flush();
    assert_eq!(window.on_credit(Position(64), 16), Ok(true));
    send(&mut window, 64).unwrap();
    assert_eq!(window.place(8), Err(Exhausted::Bytes));
}

#[test]
fn the_last_receive_can_be_used_and_the_next_cannot() {
    let mut window = window(2, 16, 1);
    send(&mut window, 64).unwrap();
    send(&mut window, 64).unwrap();
    assert_eq!(window.place(64), Err(Exhausted::Receives));
    window.flush();
    assert_eq!(window.on_credit(Position(0), 3), Ok(true));
    send(&mut window, 64).unwrap();
    assert_eq!(window.place(64), Err(Exhausted::Receives));
}

#[test]
fn the_last_place_in_the_send_queue_can_be_used_and_the_next_cannot() {
    let mut window = window(16, 2, 1);
    send(&mut window, 64).unwrap();
    assert!(window.take_send());
    assert!(!window.take_send());
    assert_eq!(window.place(64), Err(Exhausted::Sends));
    window.on_retired(1);
    send(&mut window, 64).unwrap();
    assert_eq!(window.place(64), Err(Exhausted::Sends));
}

#[test]
fn records_share_a_work_request_up_to_the_gather_limit_and_until_the_flush() {
    let mut window = window(16, 16, 2);
    let opens: Vec<_> = (0..3).map(|_| send(&mut window, 64).unwrap().opens).collect();
    assert_eq!(opens, [true, false, true]);
    window.flush();
    assert!(send(&mut window, 64).unwrap().opens);
}

#[test]
fn a_record_that_ends_at_the_rings_end_needs_no_padding_and_one_byte_more_does() {
    let mut window = window(4, 4, 4);
    advance_to(&mut window, RING - 128);
    assert_eq!(window.place(128).unwrap().padding, None);
    let placement = send(&mut window, 129).unwrap();
    let padding = Padding { position: Position(RING - 128), bytes: 128 };
    assert_eq!(placement.padding, Some(padding));
    assert_eq!((placement.position, placement.end()), (Position(RING), Position(RING + 192)));
    assert!(placement.opens);
    assert_eq!(window.outstanding(), 2);
}

#[test]
fn a_work_request_never_spans_the_rings_end() {
    let mut window = window(4, 4, 4);
    advance_to(&mut window, RING - 64);
    assert!(send(&mut window, 64).unwrap().opens);
    let wrapped = send(&mut window, 64).unwrap();
    assert!(wrapped.opens && wrapped.padding.is_none());
}

#[test]
fn an_idle_window_takes_the_largest_record_wherever_it_stands() {
    for position in (0..=RING).step_by(64) {
        let mut window = window(1, 2, 1);
        advance_to(&mut window, position);
        assert!(window.place(4096).is_ok(), "at {position}");
    }
}

#[test]
fn consuming_all_that_was_flushed_is_believed_and_one_unit_more_is_a_lie() {
    let mut window = window(4, 4, 4);
    send(&mut window, 64).unwrap();
    let tail = window.flush();
    send(&mut window, 64).unwrap();
    let said = Position(tail.0 + 64);
    let lie = Liar::ConsumedAhead { sent: tail, said };
    assert_eq!(window.on_credit(said, 4), Err(lie));
    assert_eq!(window.on_credit(tail, 4), Ok(true));
    assert_eq!(window.on_credit(tail, 4), Ok(false));
}

#[test]
fn progress_that_is_taken_back_is_a_lie() {
    let mut window = window(4, 4, 1);
    send(&mut window, 64).unwrap();
    send(&mut window, 64).unwrap();
    window.flush();
    window.on_credit(Position(128), 5).unwrap();
    let (was, said) = (Position(128), Position(64));
    assert_eq!(window.on_credit(said, 5), Err(Liar::ConsumedBackwards { was, said }));
    assert_eq!(
        window.on_credit(Position(128), 4),
        Err(Liar::ReceivesBackwards { was: 5, said: 4 })
    );
    window.assert_invariants();
}

#[test]
fn posting_what_the_receive_queue_holds_is_believed_and_one_more_is_a_lie() {
    let mut window = window(4, 4, 1);
    send(&mut window, 64).unwrap();
    window.flush();
    let lie = Liar::ReceivesAhead { limit: 5, said: 6 };
    assert_eq!(window.on_credit(Position(64), 6), Err(lie));
    assert_eq!(window.on_credit(Position(64), 5), Ok(true));
}

#[test]
fn consuming_half_a_unit_is_a_lie_and_a_lie_gives_no_credit() {
    let mut window = window(4, 4, 4);
    send(&mut window, 128).unwrap();
    window.flush();
    let said = Position(32);
    assert_eq!(window.on_credit(said, 4), Err(Liar::ConsumedUnaligned { said }));
    assert_eq!(window.consumed(), Position(0));
}

#[test]
#[should_panic(expected = "2 retired, 1 outstanding")]
fn retiring_what_was_never_begun_is_our_own_bug() {
    let mut window = window(4, 4, 4);
    send(&mut window, 64).unwrap();
    window.on_retired(2);
}

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    SendBeside,
    Flush,
    Retire,
    Consume,
    Post,
    Claim { consumed: i64, receives: i64 },
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..=4096_usize).prop_map(Op::Send),
        8 => (1..=300_usize).prop_map(Op::Send),
        1 => Just(Op::SendBeside),
        3 => Just(Op::Flush),
        6 => Just(Op::Retire),
        6 => Just(Op::Consume),
        4 => Just(Op::Post),
        1 => (-128..256_i64, -2..3_i64)
            .prop_map(|(consumed, receives)| Op::Claim { consumed, receives }),
    ]
}

/// Every piece of ring ever written, every receive ever posted: counted again for each question.
#[derive(Debug, Default)]
struct Model {
    /// Start and end of each piece, padding included, in order; the first `consumed` of them are
    /// free again, the first `flushed` of them were handed over.
    pieces: Vec<(u64, u64)>,
    consumed: usize,
    flushed: usize,
    immediates: u64,
    immediates_flushed: u64,
    posted: u64,
    outstanding: u32,
    gathered: u32,
}

impl Model {
    fn sent(&self) -> u64 {
        self.pieces.last().map_or(0, |piece| piece.1)
    }

    fn end_of(&self, count: usize) -> u64 {
        if count == 0 { 0 } else { self.pieces[count - 1].1 }
    }

    /// Where a record may lie: no ring byte of it, or of its padding, is in use.
    fn expect(&self, size: WindowSize, record_bytes: usize) -> Result<(u64, u64, bool), Exhausted> {
        let bytes = record_bytes.div_ceil(64) as u64 * 64;
        let mut start = self.sent();
        let into_ring = start % size.ring_bytes();
        let padded = into_ring + bytes > size.ring_bytes();
        if padded {
            start += size.ring_bytes() - into_ring;
        }
        let joins = self.gathered > 0
            && self.gathered < size.gather()
            && !padded
            && !start.is_multiple_of(size.ring_bytes());
        if start + bytes > self.end_of(self.consumed) + size.ring_bytes() {
            return Err(Exhausted::Bytes);
        }
        if !joins && self.immediates == self.posted {
            return Err(Exhausted::Receives);
        }
        let requests = u32::from(padded) + u32::from(!joins);
        if self.outstanding + requests > size.send_depth() {
            return Err(Exhausted::Sends);
        }
        Ok((start, start + bytes, !joins))
    }

    fn take(&mut self, start: u64, end: u64, opens: bool) {
        if start > self.sent() {
            self.pieces.push((self.sent(), start));
            self.outstanding += 1;
        }
        self.pieces.push((start, end));
        self.outstanding += u32::from(opens);
        self.immediates += u64::from(opens);
        self.gathered = if opens { 1 } else { self.gathered + 1 };
    }

    fn is_true(&self, size: WindowSize, consumed: u64, receives: u64) -> bool {
        consumed >= self.end_of(self.consumed)
            && consumed <= self.end_of(self.flushed)
            && consumed.is_multiple_of(64)
            && receives >= self.posted
            && receives <= self.immediates_flushed + u64::from(size.receive_depth())
    }

    fn apply(&mut self, op: &Op, window: &mut CreditWindow) {
        let size = window.size();
        match *op {
            Op::Send(bytes) => {
                let expected = self.expect(size, bytes);
                let placed = window.place(bytes);
                let facts = placed.map(|p| (p.position.0, p.end().0, p.opens));
                assert_eq!(facts, expected);
                if let Ok(placement) = placed {
                    window.take(&placement);
                    self.take(facts.unwrap().0, facts.unwrap().1, facts.unwrap().2);
                }
            }
            Op::SendBeside => {
                let has_place = self.outstanding < size.send_depth();
                assert_eq!(window.take_send(), has_place);
                self.outstanding += u32::from(has_place);
            }
            Op::Flush => {
                assert_eq!(window.flush().0, self.sent());
                self.flushed = self.pieces.len();
                self.immediates_flushed = self.immediates;
                self.gathered = 0;
            }
            Op::Retire if self.outstanding > 0 => {
                window.on_retired(1);
                self.outstanding -= 1;
            }
            Op::Consume if self.consumed < self.flushed => {
                self.consumed += 1;
                let consumed = Position(self.end_of(self.consumed));
                assert_eq!(window.on_credit(consumed, self.posted), Ok(true));
            }
            Op::Post if self.is_true(size, self.end_of(self.consumed), self.posted + 1) => {
                self.posted += 1;
                let consumed = Position(self.end_of(self.consumed));
                assert_eq!(window.on_credit(consumed, self.posted), Ok(true));
            }
            Op::Claim { consumed, receives } => self.claim(window, consumed, receives),
            Op::Retire | Op::Consume | Op::Post => {}
        }
    }

    /// Claims something beside the truth; only what cannot be true must be refused, and what might
    /// be true is claimed on a copy, so that the model need not follow it.
    fn claim(&self, window: &CreditWindow, consumed: i64, receives: i64) {
        let consumed = self.end_of(self.consumed).saturating_add_signed(consumed);
        let receives = self.posted.saturating_add_signed(receives);
        let mut copy = window.clone();
        let believed = copy.on_credit(Position(consumed), receives).is_ok();
        assert_eq!(believed, self.is_true(window.size(), consumed, receives));
        copy.assert_invariants();
    }
}

proptest! {
    #[test]
    fn the_window_agrees_with_a_recount_of_every_piece_and_every_receive(
        receives in 1..5_u32,
        sends in 2..6_u32,
        gather in 1..4_u32,
        ops in prop::collection::vec(any_op(), 1..300),
    ) {
        let mut window = window(receives, sends, gather);
        let mut model = Model { posted: u64::from(receives), ..Model::default() };
        for op in &ops {
            model.apply(op, &mut window);
            window.assert_invariants();
        }
    }
}
