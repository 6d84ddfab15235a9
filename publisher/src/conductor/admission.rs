//! From a request to a place with the sender, or to a refusal with a reason.

use tapecast_control::Pending;
use tapecast_fabric::AttachError;
use tapecast_fabric::shm::{SessionDescriptors, ShmSession};
use tapecast_wire::attach::{AttachRequest, Policy, Refusal};
use tapecast_wire::{InstrumentId, SessionId};
use tracing::info;

use super::roster::Member;
use super::{Conductor, session};
use crate::sender::Command;

/// A request whose session is on its way to the sender.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) pending: Pending,
    pub(super) descriptors: SessionDescriptors,
    pub(super) instruments: Vec<InstrumentId>,
    pub(super) member: Member,
}

/// A refusal and the sentence that explains it.
type Refused = (Refusal, String);

impl Conductor {
    /// Checks a request and, when it may be granted, asks the sender for a place.
    pub(super) fn admit(&mut self, pending: Pending) {
        match self.prepare(pending.request()) {
            Ok((instruments, session, descriptors)) => {
                self.tickets_issued += 1;
                let number = self.tickets_issued;
                let member = Member::new(&pending, session.monitor());
                self.tickets.push(Ticket { number, pending, descriptors, instruments, member });
                let command = Command::Attach { ticket: number, session };
                if self.port.submit(command).is_err() {
                    let busy = "the publisher is busy with other requests: attach again";
                    self.refuse_ticket(number, (Refusal::Resources, busy.to_owned()));
                }
                self.sender.ring();
            }
            Err(refused) => refuse(pending, refused),
        }
    }

    pub(super) fn on_attached(
        &mut self,
        number: u64,
        result: Result<SessionId, AttachError<ShmSession>>,
    ) {
        match result {
            Ok(id) => {
                if let Some(ticket) = self.take_ticket(number) {
                    self.open_session(id, ticket);
                }
            }
            Err(error) => {
                let refusal = match error {
                    AttachError::Full(_) => Refusal::Full,
                    AttachError::LosslessNotAllowed(_) => Refusal::Policy,
                    AttachError::Closing(_) => Refusal::Closing,
                    _ => Refusal::Resources,
                };
                self.refuse_ticket(number, (refusal, error.to_string()));
            }
        }
    }

    /// Refuses every request that the sender has not answered.
    pub(super) fn refuse_all_tickets(&mut self, reason: &str) {
        for ticket in std::mem::take(&mut self.tickets) {
            refuse(ticket.pending, (Refusal::Closing, reason.to_owned()));
        }
    }

    fn prepare(
        &self,
        request: &AttachRequest,
    ) -> Result<(Vec<InstrumentId>, ShmSession, SessionDescriptors), Refused> {
        let sessions = self.roster.count() + self.tickets.len();
        if sessions >= self.settings.sessions_max {
            let max = self.settings.sessions_max;
            let text = format!("all {max} sessions are taken: detach a subscriber first");
            return Err((Refusal::Full, text));
        }
        if request.policy == Policy::Lossless && !self.settings.lossless {
            let text = "lossless sessions are not allowed here: set access.lossless (--lossless) \
                        for the publisher, or attach with the conflating policy";
            return Err((Refusal::Policy, text.to_owned()));
        }
        let instruments = self
            .directory
            .resolve(&request.symbols, request.allow_unknown)
            .map_err(|unknown| (Refusal::UnknownSymbol, unknown.to_string()))?;
        let (session, descriptors) = self
            .host
            .prepare(request.policy)
            .map_err(|error| (Refusal::Resources, error.to_string()))?;
        Ok((instruments, session, descriptors))
    }

    fn refuse_ticket(&mut self, number: u64, refused: Refused) {
        if let Some(ticket) = self.take_ticket(number) {
            refuse(ticket.pending, refused);
        }
    }

    fn take_ticket(&mut self, number: u64) -> Option<Ticket> {
        let index = self.tickets.iter().position(|ticket| ticket.number == number)?;
        Some(self.tickets.swap_remove(index))
    }
}

/// Refuses without making the conductor wait.
fn refuse(pending: Pending, (refusal, text): Refused) {
    let (peer, name) = (pending.peer(), pending.request().name.clone());
    info!(name, peer = %peer, ?refusal, "refused: {text}");
    tokio::spawn(session::refuse(pending, refusal, text));
}
