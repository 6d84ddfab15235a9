//! From a request to a place with the sender, or to a refusal with a reason.

use serde::Serialize;
use tapecast_control::{AnswerError, Peer, Pending};
use tapecast_core::Interest;
use tapecast_fabric::shm::SessionDescriptors;
use tapecast_fabric::{AttachError, Handover, Host, HostError, Prepared, Wish};
use tapecast_wire::attach::{AttachRequest, Policy, Refusal};
use tapecast_wire::{InstrumentId, Nanos, SessionId};
use tracing::info;

use super::roster::Member;
use super::{Conductor, session};
use crate::sender::Command;

/// Sessions of one client that may be connecting at once, and are not ready yet.
const CONNECTING_MAX: usize = 32;

/// A request whose session is on its way to the sender.
pub(super) struct Ticket<H: Host> {
    number: u64,
    stage: Stage<H::Session>,
    grant: Grant<H>,
}

/// What a ticket waits for.
enum Stage<S> {
    /// The subscriber, to be ready to receive. A task has the request; the session waits here, so
    /// that it is dropped on the conductor's thread.
    Connecting(S),
    /// The sender, to give it a place.
    Attaching(Box<Pending>),
}

/// What a subscriber is given once it has its place.
pub(super) struct Grant<H: Host> {
    /// Where the fabric hands over memory.
    pub(super) descriptors: Option<SessionDescriptors>,
    /// Of the symbols that it asked for.
    pub(super) instruments: Vec<InstrumentId>,
    pub(super) member: Member<H::Monitor>,
}

/// Requests that were not granted, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Refusals {
    /// The client is not entitled to what it asked for.
    pub not_entitled: u64,
    /// The client was told where to connect to, and went away or was not ready in time.
    pub not_connected: u64,
    /// Everything else: no place, unknown symbols, policy, fabric, resources, closing.
    pub others: u64,
}

/// A refusal and the sentence that explains it.
type Refused = (Refusal, String);
/// What the host has made ready.
type Made<H> = Prepared<<H as Host>::Session, <H as Host>::Monitor>;

impl<H: Host> Ticket<H> {
    /// Whether the sender owes an answer.
    pub(super) const fn is_owed(&self) -> bool {
        matches!(self.stage, Stage::Attaching(_))
    }
}

impl<H: Host> Conductor<H> {
    /// Checks a request and, when it may be granted, asks the subscriber to connect or the sender
    /// for a place, as the fabric wants it.
    pub(super) fn admit(&mut self, pending: Pending) {
        let (instruments, made) = match self.prepare(&pending.peer(), pending.request()) {
            Ok(granted) => granted,
            Err(refused) => return self.refuse(pending, refused),
        };
        self.tickets_issued += 1;
        let number = self.tickets_issued;
        let Prepared { session, monitor, handover } = made;
        let member = Member::new(&pending, monitor, self.settings.lag.hard);
        match handover {
            Handover::Descriptors(descriptors) => {
                let grant = Grant { descriptors: Some(descriptors), instruments, member };
                self.command_attach(number, session, Box::new(pending), grant);
            }
            Handover::Connect(answer) => {
                let grant = Grant { descriptors: None, instruments, member };
                self.tickets.push(Ticket { number, stage: Stage::Connecting(session), grant });
                let events = self.to_events.clone();
                tokio::spawn(session::connect(number, pending, answer, events));
            }
        }
    }

    /// The subscriber is ready to be written to: the sender is asked for a place. Or it is not, and
    /// its session is dropped.
    pub(super) fn on_connected(&mut self, number: u64, result: Result<Box<Pending>, AnswerError>) {
        match (self.take_ticket(number), result) {
            (Some(Ticket { stage: Stage::Connecting(session), grant, .. }), Ok(pending)) => {
                self.command_attach(number, session, pending, grant);
            }
            (Some(Ticket { grant, .. }), Err(error)) => {
                self.refusals.not_connected += 1;
                let Member { name, peer, .. } = grant.member;
                info!(name, peer = %peer, "not attached: {error}");
            }
            // Its ticket was taken back when the publisher began to close.
            (_, Ok(pending)) => {
                self.refuse(*pending, (Refusal::Closing, CLOSING.to_owned()));
            }
            (None, Err(_)) => {}
        }
    }

    pub(super) fn on_attached(
        &mut self,
        number: u64,
        result: Result<SessionId, AttachError<H::Session>>,
    ) {
        match result {
            Ok(id) => {
                if let Some((pending, grant)) = self.take_attaching(number) {
                    self.open_session(id, *pending, grant);
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

    /// Refuses every request that the sender has not answered. One that is just being connected
    /// has its session dropped, and is refused when its subscriber says that it is ready.
    pub(super) fn refuse_all_tickets(&mut self) {
        for ticket in std::mem::take(&mut self.tickets) {
            if let Stage::Attaching(pending) = ticket.stage {
                self.refuse(*pending, (Refusal::Closing, CLOSING.to_owned()));
            }
        }
    }

    fn command_attach(
        &mut self,
        number: u64,
        session: H::Session,
        pending: Box<Pending>,
        grant: Grant<H>,
    ) {
        self.tickets.push(Ticket { number, stage: Stage::Attaching(pending), grant });
        if self.port.submit(Command::Attach { ticket: number, session }).is_err() {
            let busy = "the publisher is busy with other requests: attach again";
            self.refuse_ticket(number, (Refusal::Resources, busy.to_owned()));
        }
        self.sender.ring();
    }

    fn prepare(
        &self,
        peer: &Peer,
        request: &AttachRequest,
    ) -> Result<(Vec<InstrumentId>, Made<H>), Refused> {
        self.check_place(request)?;
        let of_client = self.roster.count_of(peer) + self.tickets_of(peer);
        self.entitlements
            .check(peer, request, of_client)
            .map_err(|error| (Refusal::NotEntitled, error.to_string()))?;
        let instruments = self
            .directory
            .resolve(&request.symbols, request.allow_unknown)
            .map_err(|unknown| (Refusal::UnknownSymbol, unknown.to_string()))?;
        let interest = match request.symbols.is_empty() {
            true => Interest::All,
            false => Interest::Only(instruments.clone()),
        };
        self.check_connecting(peer)?;
        let offer = request.rdma.as_ref();
        // Where entitlements are given, what was granted is all that it may ever have; later
        // requests do not come by here.
        let limited = !self.entitlements.is_empty() && !request.symbols.is_empty();
        let symbols = limited.then_some(&*request.symbols);
        let AttachRequest { policy, min_interval, .. } = *request;
        let wish = Wish { policy, interest: &interest, symbols, min_interval, offer };
        let made = self.host.prepare_session(&wish).map_err(|error| match error {
            HostError::Unsuitable(text) => (Refusal::Fabric, text),
            other => (Refusal::Resources, other.to_string()),
        })?;
        Ok((instruments, made))
    }

    /// Whether there is a place at all, for a session of this policy.
    fn check_place(&self, request: &AttachRequest) -> Result<(), Refused> {
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
        if request.policy != Policy::Conflate && request.min_interval > Nanos(0) {
            let text = "a least interval leaves snapshots out, which only the policy conflate \
                        allows: ask for one of the two";
            return Err((Refusal::Policy, text.to_owned()));
        }
        Ok(())
    }

    /// A client that asks again and again, and never says that it is ready, shall not take the
    /// places of others.
    fn check_connecting(&self, peer: &Peer) -> Result<(), Refused> {
        let connecting = |ticket: &&Ticket<H>| {
            matches!(ticket.stage, Stage::Connecting(_))
                && ticket.grant.member.peer.same_client(peer)
        };
        if self.tickets.iter().filter(connecting).count() < CONNECTING_MAX {
            return Ok(());
        }
        let text = format!(
            "{CONNECTING_MAX} sessions of this client are being connected, as many as may be at \
             once: attach again when they are ready or have been given up"
        );
        Err((Refusal::Full, text))
    }

    fn tickets_of(&self, peer: &Peer) -> usize {
        let same = |ticket: &&Ticket<H>| ticket.grant.member.peer.same_client(peer);
        self.tickets.iter().filter(same).count()
    }

    fn refuse_ticket(&mut self, number: u64, refused: Refused) {
        if let Some((pending, _)) = self.take_attaching(number) {
            self.refuse(*pending, refused);
        }
    }

    fn take_attaching(&mut self, number: u64) -> Option<(Box<Pending>, Grant<H>)> {
        match self.take_ticket(number)? {
            Ticket { stage: Stage::Attaching(pending), grant, .. } => Some((pending, grant)),
            Ticket { stage: Stage::Connecting(_), .. } => None,
        }
    }

    fn take_ticket(&mut self, number: u64) -> Option<Ticket<H>> {
        let index = self.tickets.iter().position(|ticket| ticket.number == number)?;
        Some(self.tickets.swap_remove(index))
    }

    /// Refuses without making the conductor wait.
    fn refuse(&mut self, pending: Pending, (refusal, text): Refused) {
        match refusal {
            Refusal::NotEntitled => self.refusals.not_entitled += 1,
            _ => self.refusals.others += 1,
        }
        let (peer, name) = (pending.peer(), pending.request().name.clone());
        info!(name, peer = %peer, ?refusal, "refused: {text}");
        tokio::spawn(session::refuse(pending, refusal, text));
    }
}

const CLOSING: &str = "the publisher is closing";
