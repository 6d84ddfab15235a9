//! Who is connected to the metrics endpoint, and who goes when there are too many.
//!
//! hyper does not say whether a connection is idle. So its stream and the bodies of its answers are
//! watched: an answer is over when hyper has let go of its body and what it wrote is flushed.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

/// Connections at once. Beyond that one is cut off, so that nobody who opens many, and is slow on
/// all of them, keeps others from asking.
pub(super) const CONNECTIONS_MAX: usize = 32;
/// An answer that is not taken for so long is not waited for: a scrape has been given up by then.
const STUCK_AFTER: Duration = Duration::from_secs(10);

/// The connections that are open.
#[derive(Debug, Default)]
pub(super) struct Connections(Vec<Open>);

#[derive(Debug)]
struct Open {
    task: AbortHandle,
    activity: Activity,
}

impl Connections {
    /// Whether there is room for one more. Where there is not, the one that has been idle for
    /// longest is cut off; if none is idle, the one whose answer is stuck for longest.
    pub(super) fn make_room(&mut self, now: Instant) -> bool {
        self.0.retain(|open| !open.task.is_finished());
        if self.0.len() < CONNECTIONS_MAX {
            return true;
        }
        let standing = |(index, open): (usize, &Open)| Some((open.activity.spare(now)?, index));
        let Some((_, index)) = self.0.iter().enumerate().filter_map(standing).min() else {
            return false;
        };
        self.0.swap_remove(index).task.abort();
        true
    }

    /// There is one more.
    pub(super) fn add(&mut self, task: AbortHandle, activity: Activity) {
        self.0.push(Open { task, activity });
    }
}

/// What a connection does. Clones are the same.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<Doing>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// It waits for a request.
    Idle,
    /// An answer is put together, or handed to hyper piece by piece.
    Answering,
    /// hyper has all of it.
    Flushing,
}

#[derive(Clone, Copy, Debug)]
struct Doing {
    phase: Phase,
    since: Instant,
}

impl Activity {
    /// Of a connection that has just been made.
    pub(super) fn new(now: Instant) -> Self {
        Self(Arc::new(Mutex::new(Doing { phase: Phase::Idle, since: now })))
    }

    /// A request has come.
    pub(super) fn on_request(&self, now: Instant) {
        self.set(Doing { phase: Phase::Answering, since: now });
    }

    fn on_body_taken(&self) {
        let Doing { since, .. } = self.get();
        self.set(Doing { phase: Phase::Flushing, since });
    }

    fn on_flushed(&self, now: Instant) {
        if self.get().phase == Phase::Flushing {
            self.set(Doing { phase: Phase::Idle, since: now });
        }
    }

    /// How it compares with others that can go, least first; `None` when it cannot.
    fn spare(&self, now: Instant) -> Option<(Phase, Instant)> {
        let Doing { phase, since } = self.get();
        let is_stuck = now.saturating_duration_since(since) >= STUCK_AFTER;
        match phase {
            Phase::Idle => Some((Phase::Idle, since)),
            Phase::Answering | Phase::Flushing => is_stuck.then_some((Phase::Answering, since)),
        }
    }

    fn get(&self) -> Doing {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, doing: Doing) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = doing;
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    body: Full<Bytes>,
    activity: Activity,
}

impl Answer {
    pub(super) const fn new(body: Full<Bytes>, activity: Activity) -> Self {
        Self { body, activity }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.activity.on_body_taken();
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A stream that notes when what was written to it is flushed.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Activity,
}

impl<S> Watched<S> {
    pub(super) const fn new(stream: S, activity: Activity) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes only when it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.activity.on_flushed(Instant::now());
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// As many connections as there may be, each idle since a second after the one before.
    struct Full32 {
        connections: Connections,
        activities: Vec<Activity>,
        begin: Instant,
    }

    impl Full32 {
        fn new() -> Self {
            let (mut connections, begin) = (Connections::default(), Instant::now());
            let activities: Vec<_> =
                (0..CONNECTIONS_MAX as u32).map(|n| Activity::new(begin + SECOND * n)).collect();
            for activity in &activities {
                assert!(connections.make_room(begin));
                let task = tokio::spawn(std::future::pending::<()>());
                connections.add(task.abort_handle(), activity.clone());
            }
            Self { connections, activities, begin }
        }

        /// Makes room at a time; says which were cut off.
        fn cut(&mut self, at: Instant) -> Option<Vec<usize>> {
            let had_room = self.connections.make_room(at);
            let stays = |activity: &Activity| {
                self.connections.0.iter().any(|open| Arc::ptr_eq(&open.activity.0, &activity.0))
            };
            let all = 0..self.activities.len();
            had_room.then(|| all.filter(|index| !stays(&self.activities[*index])).collect())
        }
    }

    #[tokio::test]
    async fn the_longest_idle_goes_first_and_not_the_oldest() {
        let mut full = Full32::new();
        let soon = full.begin + SECOND * 60;
        full.activities[0].on_request(soon);
        full.activities[0].on_body_taken();
        full.activities[0].on_flushed(soon);
        assert_eq!(full.cut(soon), Some(vec![1]));
    }

    #[tokio::test]
    async fn an_answer_that_is_under_way_is_not_cut_off() {
        let mut full = Full32::new();
        let soon = full.begin + SECOND * 60;
        full.activities[0].on_request(soon);
        full.activities[1].on_request(soon);
        full.activities[1].on_body_taken();
        // Nothing of the first was written by then: what is flushed is the one before.
        full.activities[0].on_flushed(soon);
        assert_eq!(full.cut(soon), Some(vec![2]));
    }

    #[tokio::test]
    async fn where_all_are_answered_there_is_no_room_until_one_is_stuck() {
        let mut full = Full32::new();
        for (activity, n) in full.activities.iter().zip(0..) {
            activity.on_request(full.begin + SECOND * (40 - n));
        }
        let youngest = full.begin + SECOND * 9;
        assert_eq!(full.cut(youngest + STUCK_AFTER - SECOND), None);
        assert_eq!(full.cut(youngest + STUCK_AFTER), Some(vec![31]), "its request is the oldest");
    }

    #[tokio::test]
    async fn who_has_left_makes_room() {
        let mut full = Full32::new();
        let gone = full.connections.0.remove(5);
        gone.task.abort();
        full.connections.0.push(gone);
        while !full.connections.0[CONNECTIONS_MAX - 1].task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert_eq!(full.cut(full.begin), Some(vec![5]), "nobody else");
    }
}
