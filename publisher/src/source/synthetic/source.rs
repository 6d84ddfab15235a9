//! The exchange as a source: its bytes go through the same decoder as a file's.

use tapecast_wire::Instrument;

use super::config::{SyntheticConfig, SyntheticError};
use super::exchange::Exchange;
use crate::source::itch::{EventEnd, ItchDecoder, known_types, midnight_unix_ns};
use crate::source::{EventSink, Progress, Source, SourceStats};

/// A simulated exchange, generated as it is read. Its counts are those of the current pass.
#[derive(Debug)]
pub struct SyntheticSource {
    config: SyntheticConfig,
    exchange: Exchange,
    decoder: ItchDecoder,
    midnight_unix_ns: u64,
    /// Messages of one event, each with its length prefix.
    event: Vec<u8>,
    bytes: u64,
}

impl SyntheticSource {
    /// An exchange before its first message. Only these symbols are delivered; all if empty.
    ///
    /// # Errors
    /// [`SyntheticError`] when the configuration cannot be or a symbol is not listed.
    pub fn new(config: SyntheticConfig, symbols: &[String]) -> Result<Self, SyntheticError> {
        let exchange = Exchange::new(&config)?;
        check_symbols(&config, symbols)?;
        let date = config.date;
        let midnight = midnight_unix_ns(date).ok_or(SyntheticError::Date { date })?;
        let mut decoder = ItchDecoder::new(midnight, EventEnd::Timestamp, symbols);
        for message in Frames(&exchange.directory()) {
            decoder.preload(message);
        }
        let event = Vec::new();
        Ok(Self { config, exchange, decoder, midnight_unix_ns: midnight, event, bytes: 0 })
    }

    /// Orders in the exchange's own books, whichever symbols are delivered.
    #[must_use]
    pub const fn live_orders(&self) -> usize {
        self.exchange.live_orders()
    }
}

impl Source for SyntheticSource {
    type Error = SyntheticError;

    fn instruments(&self) -> &[Instrument] {
        self.decoder.instruments()
    }

    fn advance<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, SyntheticError> {
        self.event.clear();
        if !self.exchange.step(&mut self.event) {
            return Ok(Progress::End);
        }
        self.bytes += self.event.len() as u64;
        for message in Frames(&self.event) {
            self.decoder.decode(message, sink)?;
        }
        // Each event has a timestamp of its own, so nothing more of this one can come.
        self.decoder.end_event(sink);
        Ok(Progress::Event { feed_time_ns: self.decoder.time_unix_ns() })
    }

    fn stats(&self) -> SourceStats {
        SourceStats { bytes_read: self.bytes, ..self.decoder.stats() }
    }

    fn message_types(&self) -> Vec<String> {
        known_types()
    }

    fn rewind(&mut self) -> Result<(), SyntheticError> {
        self.exchange = Exchange::new(&self.config)?;
        self.decoder.begin_session(self.midnight_unix_ns);
        self.bytes = 0;
        Ok(())
    }
}

fn check_symbols(config: &SyntheticConfig, symbols: &[String]) -> Result<(), SyntheticError> {
    let listed =
        |symbol: &String| (0..config.instruments).any(|rank| config.symbol(rank) == *symbol);
    match symbols.iter().find(|symbol| !listed(symbol)) {
        None => Ok(()),
        Some(symbol) => Err(SyntheticError::UnknownSymbol {
            symbol: symbol.clone(),
            first: config.symbol(0),
            last: config.symbol(config.instruments - 1),
        }),
    }
}

/// Messages out of length-prefixed bytes that are complete because we wrote them.
struct Frames<'a>(&'a [u8]);

impl<'a> Iterator for Frames<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (prefix, rest) = self.0.split_first_chunk::<2>()?;
        let (message, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*prefix)))?;
        self.0 = rest;
        Some(message)
    }
}
