//! Asynchronous events: what a device says that no completion says.
//!
//! Not every driver reports failed queue pairs here, so nothing may depend on that.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;

use super::device::Context;
use super::ffi::{self, event_type};

/// Something happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A completion queue overflowed or failed: completions are lost.
    CompletionQueueError,
    /// A queue pair failed; its number.
    QueuePairFatal(u32),
    /// A port went down: nothing is sent or received until it is up again.
    PortDown,
    /// A port came up.
    PortUp,
    /// The device failed: everything made on it is of no more use.
    DeviceFatal,
    /// Another event, by the number of `enum ibv_event_type`.
    Other(u32),
}

impl Event {
    /// Whether nothing can go on after it.
    pub(super) const fn is_fatal(self) -> bool {
        matches!(self, Self::CompletionQueueError | Self::DeviceFatal)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletionQueueError => f.write_str(
                "the completion queue is lost: no session can go on, restart the publisher",
            ),
            Self::QueuePairFatal(number) => write!(f, "queue pair {number} has failed"),
            Self::PortDown => f.write_str("the port is down: check cable and switch"),
            Self::PortUp => f.write_str("the port is up"),
            Self::DeviceFatal => {
                f.write_str("the device has failed: restart the publisher when it is back")
            }
            Self::Other(number) => write!(f, "event {number} of enum ibv_event_type"),
        }
    }
}

/// The asynchronous events of a device. Readable when there is one. One reader sees each event
/// once.
#[derive(Clone, Debug)]
pub(super) struct AsyncEvents {
    context: Context,
}

impl AsyncEvents {
    /// Those of a device.
    pub(super) fn new(context: &Context) -> Self {
        Self { context: context.clone() }
    }

    /// Takes the next event, if there is one, and acknowledges it. Does not block.
    ///
    /// # Errors
    /// Any but "try again", of the system: there will be no more events.
    pub(super) fn next(&self) -> io::Result<Option<Event>> {
        let any = ffi::AsyncEventElement { any: ptr::null_mut() };
        let mut raw = ffi::AsyncEvent { element: any, event_type: 0 };
        loop {
            // SAFETY: the device is open and the event is ours to fill.
            let code = unsafe { ffi::ibv_get_async_event(self.context.as_ptr(), &raw mut raw) };
            if code == 0 {
                break;
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(None),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
        let event = describe(&raw);
        // SAFETY: the library gave the event just now, and it is acknowledged once.
        unsafe { ffi::ibv_ack_async_event(&raw mut raw) };
        Ok(Some(event))
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.context.async_fd()
    }
}

/// Must come before the event is acknowledged, which allows its queue pair to be destroyed.
fn describe(raw: &ffi::AsyncEvent) -> Event {
    match raw.event_type {
        event_type::CQ_ERR => Event::CompletionQueueError,
        event_type::QP_FATAL | event_type::QP_REQ_ERR | event_type::QP_ACCESS_ERR => {
            // SAFETY: events of these types are about a queue pair.
            let queue_pair = unsafe { raw.element.queue_pair };
            // SAFETY: it cannot be destroyed before the event is acknowledged.
            Event::QueuePairFatal(unsafe { (*queue_pair).qp_num })
        }
        event_type::PORT_ERR => Event::PortDown,
        event_type::PORT_ACTIVE => Event::PortUp,
        event_type::DEVICE_FATAL => Event::DeviceFatal,
        other => Event::Other(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_about_no_queue_pair_are_told_by_their_number() {
        let cases = [
            (0, Event::CompletionQueueError),
            (8, Event::DeviceFatal),
            (9, Event::PortUp),
            (10, Event::PortDown),
            (4, Event::Other(4)),
            (1000, Event::Other(1000)),
        ];
        for (event_type, event) in cases {
            let element = ffi::AsyncEventElement { any: ptr::null_mut() };
            assert_eq!(describe(&ffi::AsyncEvent { element, event_type }), event);
        }
    }
}
