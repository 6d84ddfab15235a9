//! How the conductor talks to the sender: each command has exactly one outcome.
//!
//! Neither side ever blocks, and neither makes a system call: both ends only try, and the sender
//! takes no command while it could not answer.

use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use tapecast_fabric::AttachError;
use tapecast_wire::SessionId;
use tapecast_wire::attach::Farewell;

/// Commands under way at most.
const COMMANDS_QUEUED_MAX: usize = 128;

/// What the conductor asks of the sender. `S` is the fabric's prepared session.
#[derive(Debug)]
pub enum Command<S> {
    /// Give a session its place.
    Attach {
        /// Comes back in the outcome.
        ticket: u64,
        /// What the conductor prepared.
        session: S,
    },
    /// Take a session out.
    Detach {
        /// The session.
        id: SessionId,
    },
    /// End the channel: what is still queued is dropped.
    Close {
        /// What subscribers are told.
        farewell: Farewell,
    },
}

/// What became of a command.
#[derive(Debug)]
pub enum Outcome<S> {
    /// Of [`Command::Attach`].
    Attached {
        /// As in the command.
        ticket: u64,
        /// The place, or the session back.
        result: Result<SessionId, AttachError<S>>,
    },
    /// Of [`Command::Detach`].
    Detached {
        /// The session.
        id: SessionId,
        /// The session, to be dropped where that may take time. `None` when there was none.
        session: Option<S>,
    },
    /// Of [`Command::Close`]. Nothing is on its way to a subscriber any more, or it was given long
    /// enough, and the sender has ended.
    Closed,
}

/// The conductor's end.
#[derive(Debug)]
pub struct CommandPort<S> {
    commands: Sender<Command<S>>,
    outcomes: Receiver<Outcome<S>>,
}

/// The sender's end.
#[derive(Debug)]
pub struct SenderPort<S> {
    commands: Receiver<Command<S>>,
    outcomes: Sender<Outcome<S>>,
}

/// Both ends of one connection.
#[must_use]
pub fn command_ports<S>() -> (CommandPort<S>, SenderPort<S>) {
    let (command_in, command_out) = bounded(COMMANDS_QUEUED_MAX);
    let (outcome_in, outcome_out) = bounded(COMMANDS_QUEUED_MAX);
    (
        CommandPort { commands: command_in, outcomes: outcome_out },
        SenderPort { commands: command_out, outcomes: outcome_in },
    )
}

impl<S> CommandPort<S> {
    /// Queues a command; ring the sender afterwards.
    ///
    /// # Errors
    /// Hands the command back when too many are under way or the sender has ended.
    pub fn submit(&self, command: Command<S>) -> Result<(), Command<S>> {
        self.commands.try_send(command).map_err(TrySendError::into_inner)
    }

    /// The next outcome, if there is one.
    #[must_use]
    pub fn poll(&self) -> Option<Outcome<S>> {
        self.outcomes.try_recv().ok()
    }
}

impl<S> SenderPort<S> {
    /// The next command, provided that its outcome could be told.
    pub(super) fn next_command(&self) -> Option<Command<S>> {
        if self.commands.is_empty() || self.outcomes.is_full() {
            return None;
        }
        self.commands.try_recv().ok()
    }

    /// Whether the conductor is gone, and every command with it.
    pub(super) fn is_abandoned(&self) -> bool {
        matches!(self.commands.try_recv(), Err(TryRecvError::Disconnected))
    }

    /// Tells an outcome. There is room: [`SenderPort::next_command`] made sure.
    pub(super) fn answer(&self, outcome: Outcome<S>) {
        // It can only fail when the conductor is gone, and then nobody is left to tell.
        let _told = self.outcomes.try_send(outcome);
    }
}
