//! Completions: what became of work requests, and how to sleep until some do.

use std::ffi::CStr;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::io::Errno;

use super::device::Context;
use super::error::VerbsError;
use super::ffi;

/// What became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// It is done: for a write, its last byte is in the peer's memory.
    Success,
    /// It was not done, because the queue pair had failed or was stopped before.
    Flushed,
    /// The peer's memory is not what the key and address say, or may not be written.
    RemoteAccess,
    /// The peer did not answer as often as was tried.
    RetryExceeded,
    /// The peer was not ready to receive as often as was tried.
    RnrRetryExceeded,
    /// Another error, by the number of `enum ibv_wc_status`.
    Other(u32),
}

impl Status {
    const fn from_code(code: u32) -> Self {
        match code {
            ffi::ibv_wc_status::IBV_WC_SUCCESS => Self::Success,
            ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Self::Flushed,
            ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            ffi::ibv_wc_status::IBV_WC_RETRY_EXC_ERR => Self::RetryExceeded,
            ffi::ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR => Self::RnrRetryExceeded,
            code => Self::Other(code),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Flushed => "not done, the queue pair had stopped",
            Self::RemoteAccess => "the peer refused access to its memory",
            Self::RetryExceeded => "the peer did not answer",
            Self::RnrRetryExceeded => "the peer had no receive posted",
            Self::Other(code) => return write!(f, "{} (status {code})", status_text(*code)),
        })
    }
}

fn status_text(code: u32) -> &'static str {
    // SAFETY: the function takes any number.
    let text = unsafe { ffi::ibv_wc_status_str(code) };
    if text.is_null() {
        return "unknown";
    }
    // SAFETY: the library gives a constant string that ends in a zero.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("unknown")
}

/// One completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    /// The number that the work request was given.
    pub(super) wr_id: u64,
    /// What became of it.
    pub(super) status: Status,
    /// Number of its queue pair.
    pub(super) queue_pair: u32,
    /// The number that came with a peer's write. Only of a receive that succeeded.
    pub(super) immediate: Option<u32>,
    /// The device's own code of an error, for its maker; 0 on success.
    pub(super) vendor_error: u32,
}

impl Completion {
    /// What an array to poll into is filled with at first.
    pub(super) const EMPTY: Self =
        Self { wr_id: 0, status: Status::Success, queue_pair: 0, immediate: None, vendor_error: 0 };

    /// Of a failed one, all but these fields are undefined.
    fn from_raw(raw: &ffi::ibv_wc) -> Self {
        let status = Status::from_code(raw.status);
        let with_immediate = raw.wc_flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        let immediate = (status == Status::Success && with_immediate).then(|| {
            // SAFETY: either field of the union is a plain number.
            let number = unsafe { raw.imm_data_invalidated_rkey_union.imm_data };
            u32::from_be(number)
        });
        let vendor_error = if status == Status::Success { 0 } else { raw.vendor_err };
        Self { wr_id: raw.wr_id, status, queue_pair: raw.qp_num, immediate, vendor_error }
    }
}

/// A descriptor that becomes readable when a completion queue that was armed has a completion.
/// Clones refer to the same one.
#[derive(Clone, Debug)]
pub(super) struct CompletionChannel(Arc<Channel>);

#[derive(Debug)]
struct Channel {
    raw: NonNull<ffi::ibv_comp_channel>,
    _context: Context,
}

// SAFETY: the library locks what its functions change, so that any thread may call them.
unsafe impl Send for Channel {}
// SAFETY: as for `Send`, also at the same time.
unsafe impl Sync for Channel {}

impl CompletionChannel {
    /// Makes one whose descriptor does not block.
    ///
    /// # Errors
    /// [`VerbsError::Call`], mostly for want of descriptors.
    pub(super) fn new(context: &Context) -> Result<Self, VerbsError> {
        let (call, remedy) = ("ibv_create_comp_channel", "check the limit on open files");
        let values = || context.name().to_owned();
        // SAFETY: the device is open as long as `context` lives.
        let raw = unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::last(call, values(), remedy))?;
        let channel = Self(Arc::new(Channel { raw, _context: context.clone() }));
        rustix::io::ioctl_fionbio(&channel, true).map_err(|errno| {
            VerbsError::code("ioctl(FIONBIO)", values(), errno.raw_os_error(), remedy)
        })?;
        Ok(channel)
    }

    /// Takes one event, if there is one, and acknowledges it. The queue that it came from must be
    /// armed again for another one.
    ///
    /// # Errors
    /// Any but "try again", of the system.
    pub(super) fn take_event(&self) -> io::Result<bool> {
        let mut queue = ptr::null_mut();
        let mut queue_context = ptr::null_mut();
        let raw = self.0.raw.as_ptr();
        loop {
            // SAFETY: the channel is valid and the results go to variables of ours.
            let code =
                unsafe { ffi::ibv_get_cq_event(raw, &raw mut queue, &raw mut queue_context) };
            if code == 0 {
                // SAFETY: the event is of this queue, which cannot go before it is acknowledged.
                unsafe { ffi::ibv_ack_cq_events(queue, 1) };
                return Ok(true);
            }
            let error = io::Error::last_os_error();
            match error.kind() {
                io::ErrorKind::WouldBlock => return Ok(false),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            }
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is valid, and its descriptor never changes.
        let descriptor = unsafe { (*self.0.raw.as_ptr()).fd };
        // SAFETY: the channel keeps the descriptor open as long as it lives itself.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: queues that use the channel hold a clone of it, so none is left.
        let code = unsafe { ffi::ibv_destroy_comp_channel(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_destroy_comp_channel");
    }
}

/// Where completions arrive. Clones refer to the same one.
#[derive(Clone, Debug)]
pub(super) struct CompletionQueue(Arc<Queue>);

#[derive(Debug)]
struct Queue {
    raw: NonNull<ffi::ibv_cq>,
    // Kept for as long as the queue, which uses it.
    _channel: Option<CompletionChannel>,
    _context: Context,
}

// SAFETY: the library locks what its functions change, so that any thread may call them.
unsafe impl Send for Queue {}
// SAFETY: as for `Send`, also at the same time.
unsafe impl Sync for Queue {}

/// A completion queue is broken: what it had is lost, and its queue pairs cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{call} failed ({errno}): the completion queue is lost; restart, and see whether \
     completion_depth is too small for what is posted"
)]
pub(super) struct CompletionQueueError {
    /// The function.
    pub(super) call: &'static str,
    /// What it said.
    pub(super) errno: Errno,
}

impl CompletionQueue {
    /// Makes one that holds at least `depth` completions, with a channel when it is to be armed.
    /// More than `depth` work requests that can complete must never be posted: count with this
    /// number, the device may hold more but need not.
    ///
    /// # Errors
    /// [`VerbsError::Limit`] or [`VerbsError::Call`].
    pub(super) fn new(
        context: &Context,
        depth: u32,
        channel: Option<&CompletionChannel>,
    ) -> Result<Self, VerbsError> {
        let limit = u64::from(context.limits().max_cqe);
        let asked = u64::from(depth);
        if asked > limit {
            let (what, attribute) = ("completions of one queue", "max_cqe");
            let remedy = "lower completion_depth or receive_depth";
            return Err(VerbsError::Limit { what, attribute, asked, limit, remedy });
        }
        let entries = i32::try_from(depth).unwrap_or(i32::MAX);
        let events = channel.map_or(ptr::null_mut(), |channel| channel.0.raw.as_ptr());
        // SAFETY: the device is open, and the channel, if any, lives as long as the queue.
        let raw =
            unsafe { ffi::ibv_create_cq(context.as_ptr(), entries, ptr::null_mut(), events, 0) };
        let Some(raw) = NonNull::new(raw) else {
            let queues = context.limits().max_cq;
            let values = format!("{}, {depth} completions, max_cq {queues}", context.name());
            let remedy = "are so many queues in use (`rdma resource`), and is `ulimit -l` too low?";
            return Err(VerbsError::last("ibv_create_cq", values, remedy));
        };
        let queue = Queue { raw, _channel: channel.cloned(), _context: context.clone() };
        Ok(Self(Arc::new(queue)))
    }

    /// Takes up to `N` completions, oldest first, and says how many.
    ///
    /// # Errors
    /// [`CompletionQueueError`]: the queue is lost.
    pub(super) fn poll<const N: usize>(
        &self,
        into: &mut [Completion; N],
    ) -> Result<usize, CompletionQueueError> {
        let mut raw = [const { MaybeUninit::<ffi::ibv_wc>::uninit() }; N];
        let room = i32::try_from(N).unwrap_or(i32::MAX);
        // SAFETY: the queue is valid and the array has room for `N` completions.
        let found = unsafe { ffi::ibv_poll_cq(self.as_ptr(), room, raw.as_mut_ptr().cast()) };
        let found = usize::try_from(found).map_err(|_| CompletionQueueError {
            call: "ibv_poll_cq",
            errno: Errno::from_raw_os_error(found.saturating_abs()),
        })?;
        for (completion, raw) in into.iter_mut().zip(&raw).take(found) {
            // SAFETY: the library filled the first `found` entries.
            *completion = Completion::from_raw(unsafe { raw.assume_init_ref() });
        }
        Ok(found.min(N))
    }

    /// Asks for one event in the channel at the next completion. Poll once more afterwards: a
    /// completion that came before raises none.
    ///
    /// # Errors
    /// [`CompletionQueueError`]: the queue is lost.
    pub(super) fn request_notify(&self) -> Result<(), CompletionQueueError> {
        // SAFETY: the queue is valid as long as this value lives.
        let code = unsafe { ffi::ibv_req_notify_cq(self.as_ptr(), 0) };
        if code == 0 {
            return Ok(());
        }
        let errno = Errno::from_raw_os_error(code.saturating_abs());
        Err(CompletionQueueError { call: "ibv_req_notify_cq", errno })
    }

    /// For calls of the verbs library. Not null, and valid as long as a clone of this lives.
    pub(super) fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.0.raw.as_ptr()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold clones of their queues, so none uses this one any more, and
        // every event was acknowledged when it was taken.
        let code = unsafe { ffi::ibv_destroy_cq(self.raw.as_ptr()) };
        debug_assert_eq!(code, 0, "ibv_destroy_cq");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(status: u32) -> ffi::ibv_wc {
        // SAFETY: the struct is plain numbers, for which zero is a value.
        let mut raw: ffi::ibv_wc = unsafe { std::mem::zeroed() };
        (raw.wr_id, raw.qp_num, raw.vendor_err) = (7, 21, 99);
        raw.wc_flags = ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0;
        raw.imm_data_invalidated_rkey_union.imm_data = 0x0102_0304_u32.to_be();
        raw.status = status;
        raw
    }

    #[test]
    fn an_immediate_number_arrives_in_host_order() {
        let completion = Completion::from_raw(&raw(0));
        assert_eq!(completion.immediate, Some(0x0102_0304));
        assert_eq!((completion.wr_id, completion.queue_pair), (7, 21));
        assert_eq!((completion.status, completion.vendor_error), (Status::Success, 0));
    }

    #[test]
    fn of_a_failed_completion_only_what_is_defined_is_shown() {
        let completion = Completion::from_raw(&raw(10));
        let status = Status::RemoteAccess;
        let expected =
            Completion { wr_id: 7, status, queue_pair: 21, immediate: None, vendor_error: 99 };
        assert_eq!(completion, expected);
    }

    #[test]
    fn each_status_has_a_text_of_its_own() {
        let codes = [0, 4, 5, 10, 12, 13];
        let texts: std::collections::HashSet<_> =
            codes.iter().map(|code| Status::from_code(*code).to_string()).collect();
        assert_eq!(texts.len(), codes.len());
        assert!(Status::Other(4).to_string().contains("protection"), "{}", Status::Other(4));
    }
}
