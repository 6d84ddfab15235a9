//! What the subscribers say in their cells. None of it is trusted.

use tapecast_core::Session;
use tapecast_core::planted::{Planted, is_planted};
use tapecast_core::session::Eviction;
use tapecast_ring::cell::{CELL_REQUESTS, Request};
use tapecast_wire::limits::RECORD_ALIGN_BYTES;
use tapecast_wire::{Nanos, SessionId};

use super::{Network, RingFabric};

impl<N: Network> RingFabric<N> {
    /// What the subscribers say in their cells, and what they ask for.
    pub(super) fn read_cells(&mut self, now: Nanos) -> usize {
        let mut news = 0;
        for index in 0..self.sides.len() {
            let id = SessionId(index as u32);
            if self.fan_out.is_served(id) {
                news += self.read_cell(id, now) + self.take_requests(id);
                self.show(id);
            }
        }
        news
    }

    fn read_cell(&mut self, id: SessionId, now: Nanos) -> usize {
        let Some(side) = &self.sides[id.index()] else { return 0 };
        let Some(cell) = &side.cell else { return 0 };
        // The fan-out judges the claims.
        let Some((consumed, receives)) = cell.claims() else { return 0 };
        let beat = cell.heartbeat().0;
        match self.fan_out.on_credit(id, consumed, receives) {
            Ok(more) => {
                if self.fan_out.on_beat(id, beat, now)
                    && let Some(reason) = self.fan_out.session(id).and_then(Session::eviction)
                {
                    self.evict(id, reason);
                }
                usize::from(more)
            }
            Err(liar) => {
                side.watched.count_fault();
                self.evict(id, Eviction::Liar(liar));
                1
            }
        }
    }

    fn take_requests(&mut self, id: SessionId) -> usize {
        let Some(side) = &mut self.sides[id.index()] else { return 0 };
        let Some(cell) = &side.cell else { return 0 };
        let Some(made) = cell.requests() else { return 0 };
        // More than can be open, or fewer than were taken: nobody can say which are meant.
        if made.wrapping_sub(side.requests) > CELL_REQUESTS {
            if made != side.absurd {
                side.absurd = made;
                side.watched.count_fault();
            }
            return 0;
        }
        let several = made.wrapping_sub(side.requests) > 1;
        let passed_over = u64::from(several && is_planted(Planted::RequestPassedOver));
        side.requests += passed_over;
        let mut news = 0;
        for nth in side.requests..made {
            let request = cell.request(nth);
            let is_joining = self.fan_out.session(id).is_some_and(Session::is_joining);
            if is_joining && matches!(request, Some(Request::Drop(_))) {
                // It has been told how many images come, so they come first.
                break;
            }
            side.requests = nth + 1;
            news += 1;
            match request {
                Some(Request::Drop(instrument)) => {
                    self.fan_out.unwatch(id, instrument);
                }
                Some(Request::Image(instrument))
                    if side.may_watch(self.directory.get(instrument)) =>
                {
                    self.fan_out.watch(id, instrument);
                }
                _ => side.watched.count_fault(),
            }
        }
        news
    }

    /// Shows others how far a session is. What waits for credit counts as one record at least.
    pub(super) fn show(&self, id: SessionId) {
        let Some(side) = &self.sides[id.index()] else { return };
        let Some(session) = self.fan_out.session(id) else { return };
        let least = if self.fan_out.has_backlog(id) { RECORD_ALIGN_BYTES as u64 } else { 0 };
        let window = session.window();
        let lag_bytes = window.lag_bytes().max(least);
        side.watched.show(window.consumed(), lag_bytes, session.credit_stalls());
        side.watched.show_send_queue(side.send_queue());
    }
}
