//! Nasdaq TotalView-ITCH 5.0 from a BinaryFILE: each message behind a two-byte length, plain or
//! compressed with gzip.
//!
//! ```text
//! file or memory ─► (gunzip) ─► window, frames by length prefix ─► ItchDecoder ─► EventSink
//! ```
//!
//! ITCH tells the time since midnight in New York and no date: the date comes from the options or
//! from the file's name. Without one, times are as if the day were 1 January 1970 in UTC, so a
//! subscriber sees 09:30 as 34,200 s after the Unix epoch.

mod decode;
mod directory;
mod error;
mod format;
mod input;
mod message;
mod session_date;
mod window;

use std::path::Path;
use std::sync::Arc;

use jiff::civil::Date;
use tapecast_wire::Instrument;

use self::input::{Input, Origin};
use self::message::is_order_flow;
pub(crate) use self::message::known_types;
use self::window::{FrameError, Window};
use super::{EventSink, Progress, Source, SourceStats};
use crate::feed::StopFlag;

pub use decode::{EventEnd, ItchDecoder};
pub use error::ItchError;
pub use message::MessageError;
pub use session_date::{date_in_file_name, midnight_unix_ns};

/// Unpacked bytes searched for the directory when a source is opened. A full day's directory, with
/// everything that stands before its first order, is about 7 MB.
const DIRECTORY_BYTES_MAX: u64 = 64 << 20;

/// Messages decoded in one call of [`Source::advance`] at most; an event that is longer is ended
/// there, so that the caller stays responsive whatever the input.
const MESSAGES_PER_ADVANCE_MAX: usize = 1 << 16;

/// How to read an ITCH input.
#[derive(Clone, Debug, Default)]
pub struct ItchOptions {
    /// The day of the recording. If `None`, the file's name is asked ([`date_in_file_name`]).
    pub date: Option<Date>,
    /// When a venue event is over.
    pub event_end: EventEnd,
    /// Only these symbols get instruments and books; all if empty.
    pub symbols: Vec<String>,
    /// An input that ends inside a message, or inside its gzip data, just ends there; see
    /// [`Source::truncated_at`].
    pub allow_truncated: bool,
    /// Ends the wait for a pipe's writer.
    pub stop: StopFlag,
}

/// An ITCH file, or bytes in memory, as a source. Its counts are those of the current pass.
#[derive(Debug)]
pub struct ItchSource {
    origin: Origin,
    window: Window<Input>,
    decoder: ItchDecoder,
    midnight_unix_ns: u64,
    allow_truncated: bool,
    truncated_at: Option<u64>,
}

impl ItchSource {
    /// Opens a file. Its format is told by its first bytes, never by its name.
    ///
    /// # Errors
    /// When it cannot be read, is empty or of another format; when a symbol that was asked for is
    /// not in its directory; when the date is outside what Unix nanoseconds hold.
    pub fn open(path: impl AsRef<Path>, options: ItchOptions) -> Result<Self, ItchError> {
        let path = path.as_ref();
        let name = path.file_name().and_then(|name| name.to_str());
        let date = options.date.or_else(|| name.and_then(date_in_file_name));
        let origin = Origin::Path(path.to_owned(), options.stop.clone());
        Self::new(origin, date, options)
    }

    /// Reads bytes in memory, as a file would hold them.
    ///
    /// # Errors
    /// As [`ItchSource::open`].
    pub fn from_bytes(
        bytes: impl Into<Arc<[u8]>>,
        options: ItchOptions,
    ) -> Result<Self, ItchError> {
        let date = options.date;
        Self::new(Origin::Memory(bytes.into()), date, options)
    }

    fn new(origin: Origin, date: Option<Date>, options: ItchOptions) -> Result<Self, ItchError> {
        let midnight_unix_ns = match date {
            None => 0,
            Some(date) => midnight_unix_ns(date).ok_or(ItchError::Date { date })?,
        };
        let window = origin.open()?;
        let mut decoder = ItchDecoder::new(midnight_unix_ns, options.event_end, &options.symbols);
        if origin.is_repeatable() {
            let listed = load_directory(&origin, &mut decoder)?;
            check_symbols(&origin, &options.symbols, &decoder, listed)?;
        }
        let allow_truncated = options.allow_truncated;
        let truncated_at = None;
        Ok(Self { origin, window, decoder, midnight_unix_ns, allow_truncated, truncated_at })
    }

    /// Messages about locate codes that nothing in the input has listed.
    pub const fn unlisted(&self) -> u64 {
        self.decoder.unlisted()
    }

    /// The window has to read on. Where that may take long, what was read up to here is told.
    #[cold]
    fn tell_pause<S: EventSink>(&self, sink: &mut S) {
        if self.window.input().pauses() {
            sink.on_pause(|| self.stats());
        }
    }

    /// An error of the window, or the end where a cut is allowed.
    fn stop(&mut self, error: FrameError) -> Result<Progress, ItchError> {
        let gzip = self.window.input().is_gzip();
        match self.origin.damage(error, gzip, self.decoder.messages()) {
            ItchError::Truncated { offset, .. } | ItchError::TruncatedGzip { offset, .. }
                if self.allow_truncated =>
            {
                self.truncated_at = Some(offset);
                Ok(Progress::End)
            }
            error => Err(error),
        }
    }
}

impl Source for ItchSource {
    type Error = ItchError;

    fn instruments(&self) -> &[Instrument] {
        self.decoder.instruments()
    }

    fn advance<S: EventSink>(&mut self, sink: &mut S) -> Result<Progress, ItchError> {
        for _ in 0..MESSAGES_PER_ADVANCE_MAX {
            let message = match self.window.at_hand() {
                Some(message) => message,
                None => {
                    self.tell_pause(sink);
                    match self.window.peek() {
                        Ok(Some(message)) => message,
                        Ok(None) => {
                            self.decoder.end_event(sink);
                            return Ok(Progress::End);
                        }
                        Err(error) => {
                            self.decoder.end_event(sink);
                            return self.stop(error);
                        }
                    }
                }
            };
            if self.decoder.ends_event(message) {
                break;
            }
            if let Err(error) = self.decoder.decode_on(message, sink) {
                self.decoder.end_event(sink);
                let (offset, messages) = (self.window.offset(), self.decoder.messages());
                let input = self.origin.name();
                return Err(ItchError::Message { input, offset, messages, error });
            }
            let bytes = message.len();
            self.window.consume(bytes);
            if self.decoder.event_end() == EventEnd::Message {
                break;
            }
        }
        self.decoder.end_event(sink);
        Ok(Progress::Event { feed_time_ns: self.decoder.time_unix_ns() })
    }

    fn stats(&self) -> SourceStats {
        SourceStats {
            bytes_read: self.window.input().bytes_read(),
            bytes_total: self.window.input().bytes_total(),
            ..self.decoder.stats()
        }
    }

    fn message_types(&self) -> Vec<String> {
        known_types()
    }

    fn truncated_at(&self) -> Option<u64> {
        self.truncated_at
    }

    fn rewind(&mut self) -> Result<(), ItchError> {
        if !self.origin.is_repeatable() {
            return Err(ItchError::NotRepeatable { input: self.origin.name() });
        }
        self.window = self.origin.open()?;
        self.decoder.begin_session(self.midnight_unix_ns);
        self.truncated_at = None;
        Ok(())
    }
}

/// Reads ahead to the first order and learns every instrument listed before it. Returns how many
/// symbols are listed, wanted or not. Damage is left to be reported when it is reached in turn.
fn load_directory(origin: &Origin, decoder: &mut ItchDecoder) -> Result<usize, ItchError> {
    let mut window = origin.open()?;
    let mut listed = 0;
    while window.offset() < DIRECTORY_BYTES_MAX {
        let Ok(Some(message)) = window.peek() else { break };
        if is_order_flow(message[0]) {
            break;
        }
        listed += usize::from(message[0] == b'R');
        decoder.preload(message);
        let bytes = message.len();
        window.consume(bytes);
    }
    Ok(listed)
}

/// Every symbol asked for must be in the directory, if the input has one.
fn check_symbols(
    origin: &Origin,
    symbols: &[String],
    decoder: &ItchDecoder,
    listed: usize,
) -> Result<(), ItchError> {
    let known = |symbol: &str| decoder.instruments().iter().any(|there| there.symbol == symbol);
    let missing: Vec<&str> =
        symbols.iter().map(String::as_str).filter(|symbol| !known(symbol)).collect();
    if listed == 0 || missing.is_empty() {
        return Ok(());
    }
    Err(ItchError::NotListed { input: origin.name(), listed, missing: missing.join(", ") })
}
