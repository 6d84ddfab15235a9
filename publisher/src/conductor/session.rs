//! One subscriber's session on the control plane: hands it its memory, then waits for the end.

use tapecast_control::{AnswerError, Ending, Pending};
use tapecast_fabric::shm::SessionDescriptors;
use tapecast_wire::SessionId;
use tapecast_wire::attach::{Accepted, Farewell, Refusal};
use tapecast_wire::rdma::RdmaAnswer;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

/// What sessions tell the conductor.
#[derive(Debug)]
pub(super) enum SessionEvent {
    /// The subscriber is ready to be written to, or never will be.
    Connected {
        /// Number of its request.
        ticket: u64,
        /// The request, to be answered.
        result: Result<Box<Pending>, AnswerError>,
    },
    /// The subscriber has its memory.
    Accepted {
        /// The session.
        id: SessionId,
    },
    /// The session is over.
    Ended {
        /// The session.
        id: SessionId,
        /// Why, for people.
        reason: String,
    },
}

/// The conductor's order to end a session.
#[derive(Debug)]
pub(super) struct Goodbye {
    /// What the subscriber is told.
    pub(super) farewell: Farewell,
    /// And in words.
    pub(super) text: String,
}

/// Tells a subscriber where to connect to, and waits until it is ready or its time is over.
pub(super) async fn connect(
    ticket: u64,
    pending: Pending,
    answer: RdmaAnswer,
    events: mpsc::UnboundedSender<SessionEvent>,
) {
    let result = pending.connect(&answer).await.map(Box::new);
    // The conductor can only be gone when the process ends.
    drop(events.send(SessionEvent::Connected { ticket, result }));
}

/// Serves one session to its end. Descriptors are handed over where the fabric has any.
pub(super) async fn serve(
    pending: Pending,
    accepted: Accepted,
    descriptors: Option<SessionDescriptors>,
    farewell: oneshot::Receiver<Goodbye>,
    events: mpsc::UnboundedSender<SessionEvent>,
) {
    let id = accepted.session_id;
    // The conductor can only be gone when the process ends.
    let tell = |event| drop(events.send(event));
    let granted = {
        let fds = descriptors.as_ref().map(SessionDescriptors::as_fds);
        pending.accept(&accepted, fds.as_ref().map_or(&[], |fds| &fds[..])).await
    };
    drop(descriptors);
    let reason = match granted {
        Err(error) => error.to_string(),
        Ok(mut lifeline) => {
            tell(SessionEvent::Accepted { id });
            let goodbye = tokio::select! {
                ending = lifeline.closed() => Err(ending),
                Ok(goodbye) = farewell => Ok(goodbye),
            };
            match goodbye {
                Err(ending) => words(ending).to_owned(),
                Ok(Goodbye { farewell, text }) => {
                    lifeline.farewell(farewell, &text);
                    text
                }
            }
        }
    };
    tell(SessionEvent::Ended { id, reason });
}

/// Refuses a request, as far as the peer listens.
pub(super) async fn refuse(pending: Pending, refusal: Refusal, text: String) {
    if let Err(error) = pending.refuse(refusal, &text).await {
        debug!("a refusal was not heard: {error}");
    }
}

const fn words(ending: Ending) -> &'static str {
    match ending {
        Ending::Detached => "it left in good order",
        Ending::Gone => "it is gone without a word",
        Ending::Misbehaved => "it sent what a subscriber must not send",
    }
}
