//! One publisher or two, to the commands the same.

use std::time::Duration;

use serde::Serialize;
use tapecast_subscriber::{
    AbSide, AbSideFigures, AbSubscriber, AbSummary, Epoch, FeedState, InstrumentAccount, PollError,
    SessionId, Snapshot, State, Statistics, Subscriber, Summary, WaitError, Wakeup,
};

use super::paint::Paint;

/// A subscription to one publisher, or to two of the same feed.
#[derive(Debug)]
pub(crate) enum Subscription {
    One(Box<Subscriber>),
    Ab(Box<AbSubscriber>),
}

/// The same expression with whichever subscription it is.
macro_rules! with {
    ($any:expr, $subscriber:ident => $value:expr) => {
        match $any {
            Subscription::One($subscriber) => $value,
            Subscription::Ab($subscriber) => $value,
        }
    };
}

impl Subscription {
    pub(crate) fn poll<F: FnMut(&Snapshot<'_>)>(
        &mut self,
        on_snapshot: F,
    ) -> Result<usize, PollError> {
        with!(self, subscriber => subscriber.poll(on_snapshot))
    }

    pub(crate) fn wait(&mut self, timeout: Duration) -> Result<Wakeup, WaitError> {
        with!(self, subscriber => subscriber.wait(timeout))
    }

    pub(crate) fn is_drained(&self) -> bool {
        with!(self, subscriber => subscriber.is_drained())
    }

    pub(crate) fn source_ended(&self) -> bool {
        with!(self, subscriber => subscriber.source_ended())
    }

    pub(crate) fn state(&self) -> &State {
        with!(self, subscriber => subscriber.state())
    }

    /// How the one publisher's feed is. `None` for two: each side tells its own.
    pub(crate) fn feed(&self) -> Option<FeedState> {
        match self {
            Self::One(subscriber) => Some(subscriber.feed()),
            Self::Ab(_) => None,
        }
    }

    pub(crate) fn statistics(&self) -> Statistics {
        with!(self, subscriber => subscriber.statistics())
    }

    pub(crate) fn accounts(&self) -> Vec<InstrumentAccount> {
        with!(self, subscriber => subscriber.accounts())
    }

    /// Epoch and session; side A's where there are two.
    pub(crate) fn session(&self) -> (Epoch, SessionId) {
        let subscriber = match self {
            Self::One(subscriber) => subscriber,
            Self::Ab(subscriber) => subscriber.side(AbSide::A),
        };
        (subscriber.epoch(), subscriber.session_id())
    }

    /// What each side has contributed, where there are two.
    pub(crate) fn sides(&self) -> Option<[AbSideFigures; 2]> {
        match self {
            Self::One(_) => None,
            Self::Ab(subscriber) => Some(AbSide::BOTH.map(|side| subscriber.side_figures(side))),
        }
    }

    /// Snapshots that nothing accounts for, on any side.
    pub(crate) fn lost(&self) -> u64 {
        match self {
            Self::One(subscriber) => subscriber.statistics().lost,
            Self::Ab(subscriber) => {
                AbSide::BOTH.map(|side| subscriber.side(side).statistics().lost).iter().sum()
            }
        }
    }

    /// Says what happened since the last call.
    pub(crate) fn tell_events(&mut self, paint: Paint) {
        match self {
            Self::One(subscriber) => {
                subscriber.events().for_each(|event| super::tell(paint, &event));
            }
            Self::Ab(subscriber) => subscriber
                .events()
                .for_each(|(side, event)| super::tell(paint, &format!("side {side}: {event}"))),
        }
    }

    pub(crate) fn account(&mut self) -> Account {
        match self {
            Self::One(subscriber) => Account::One(Box::new(subscriber.summary())),
            Self::Ab(subscriber) => Account::Ab(Box::new(subscriber.summary())),
        }
    }
}

/// The final account.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Account {
    One(Box<Summary>),
    Ab(Box<AbSummary>),
}

impl Account {
    /// What the application got.
    pub(crate) fn summary(&self) -> &Summary {
        match self {
            Self::One(summary) => summary,
            Self::Ab(summary) => &summary.merged,
        }
    }

    /// What each side has contributed, where there are two.
    pub(crate) fn sides(&self) -> &[AbSideFigures] {
        match self {
            Self::One(_) => &[],
            Self::Ab(summary) => &summary.sides,
        }
    }
}
