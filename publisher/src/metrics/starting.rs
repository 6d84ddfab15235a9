//! What is told before there are figures: that the publisher starts.

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Encoder, Registry, TextEncoder};

use super::Identity;
use super::collector::build;
use tapecast_telemetry::families::{Families, Named};

/// A publisher that starts: its source may wait for its input for hours.
#[derive(Debug)]
pub(super) struct Starting(Registry);

impl Starting {
    pub(super) fn new(identity: &Identity) -> Result<Self, prometheus::Error> {
        let labels = [("channel".to_owned(), identity.name.clone())];
        let registry = Registry::new_custom(None, Some(labels.into()))?;
        registry.register(Box::new(Life(identity.clone())))?;
        Ok(Self(registry))
    }

    pub(super) fn scrape(&self) -> Result<Vec<u8>, String> {
        let mut text = Vec::new();
        let encoded = TextEncoder::new().encode(&self.0.gather(), &mut text);
        encoded.map(|()| text).map_err(|error| error.to_string())
    }
}

#[derive(Debug)]
struct Life(Identity);

impl Collector for Life {
    fn desc(&self) -> Vec<&Desc> {
        Vec::new()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut out = Families::default();
        build(&mut out, &self.0);
        out.gauge(READY, 0.0);
        out.into_inner()
    }
}

/// Told while starting, and for the rest of its life.
pub(super) const READY: Named = Named(
    "tapecast_ready",
    "Whether the source was let go and is heard, and the sender goes round.",
);
