//! How both sides begin.

use core::time::Duration;
use std::thread;
use std::time::Instant;

use tapecast_control::client::AttachError;

use crate::builder::SubscriberBuilder;
use crate::error::ConnectError;
use crate::subscriber::Subscriber;

/// Pause between attempts while neither publisher is there.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Attaches to both, or to one while the other is absent.
pub(super) fn connect(choices: [SubscriberBuilder; 2]) -> Result<[Subscriber; 2], ConnectError> {
    let patience = choices[0].wait_for_publisher;
    let started = Instant::now();
    loop {
        let [a, b] = choices.each_ref().map(attempt);
        match (a?, b?) {
            (Ok(a), Ok(b)) => return Ok([a, b]),
            (Ok(a), Err(_)) => return Ok([a, absent(&choices[1])?]),
            (Err(_), Ok(b)) => return Ok([absent(&choices[0])?, b]),
            (Err(source), Err(_)) if started.elapsed() >= patience => {
                return Err(if patience.is_zero() {
                    ConnectError::Attach(source)
                } else {
                    ConnectError::NoPublisher { waited: patience, source }
                });
            }
            (Err(_), Err(_)) => thread::sleep(RETRY_PAUSE),
        }
    }
}

/// The inner error: nobody is there yet.
fn attempt(choices: &SubscriberBuilder) -> Result<Result<Subscriber, AttachError>, ConnectError> {
    match choices.clone().wait_for_publisher(Duration::ZERO).connect() {
        Ok(subscriber) => Ok(Ok(subscriber)),
        Err(ConnectError::Attach(error)) if error.is_transient() => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

fn absent(choices: &SubscriberBuilder) -> Result<Subscriber, ConnectError> {
    Subscriber::absent(choices.clone())
}
