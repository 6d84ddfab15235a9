//! The part of the publisher's report that is checked.

use serde::Deserialize;

use crate::demo::PublishedInstrument;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct LifeReport {
    pub(super) source: SourcePart,
    pub(super) totals: TotalsPart,
    pub(super) instruments: Vec<PublishedInstrument>,
    pub(super) sessions: Vec<SessionPart>,
    pub(super) pool: PoolPart,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SourcePart {
    pub(super) outcome: String,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct TotalsPart {
    pub(super) published: u64,
    pub(super) discarded: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SessionPart {
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) delivered: u64,
    pub(super) lost: u64,
    pub(super) faults: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct PoolPart {
    pub(super) pages: u64,
    pub(super) free_pages: u64,
}
