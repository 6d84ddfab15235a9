//! `record`: what is delivered, into a journal file.

use std::io;

use tapecast_journal::{Identity, JournalError, Options, Origin, Place, Sync, Writer};
use tapecast_subscriber::{Instrument, Nanos, Snapshot, Subscriber};

use super::args::RecordArgs;
use super::failure::Failure;
use super::stop::Stop;
use super::subscription::Subscription;
use super::tail::{Output, create, finish, receive};

/// Runs `record` to its end.
pub(crate) fn record(args: &RecordArgs, stop: &Stop) -> Result<(), Failure> {
    survive_file_limit()?;
    let summary_file = args.summary_json.as_deref().map(create).transpose()?;
    let mut builder = args.session.builder()?;
    if args.end.count.is_some() {
        // One at a time, so that the account ends exactly at the count.
        builder = builder.poll_limit(1);
    }
    let subscriber = builder.connect()?;
    let recording = Recording::create(args, &subscriber)?;
    let mut subscriber = Subscription::One(Box::new(subscriber));
    let mut output = Output::journal(recording, io::sink());
    let received = receive(&args.end, stop, &mut subscriber, &mut output);
    // Whatever ended it, what was delivered is in the file.
    if let Some(recording) = output.into_journal() {
        recording.close()?;
    }
    finish(Some(args.end.color), &mut subscriber, &received?, summary_file)
}

/// A write beyond the process's limit on file sizes is an error, and not the process's end.
fn survive_file_limit() -> io::Result<()> {
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, seen).map(drop)
}

/// A journal of what is delivered.
#[derive(Debug)]
pub(super) struct Recording {
    writer: Writer,
    /// Directory entries in the file, by id.
    known: Vec<Option<Instrument>>,
    last: Nanos,
}

impl Recording {
    fn create(args: &RecordArgs, subscriber: &Subscriber) -> Result<Self, JournalError> {
        let place = Place::File { path: args.file.clone(), replace: args.force };
        // How deep the publisher's snapshots may be, a subscriber is not told.
        let identity =
            Identity { epoch: subscriber.epoch(), origin: Origin::Subscriber, levels: 0 };
        let options = Options { place, identity, sync: Sync::Close };
        let entries: Vec<_> = subscriber.instruments().map(Instrument::to_wire).collect();
        let known = subscriber.instruments().cloned().map(Some).collect();
        let now = unix_now();
        Ok(Self { writer: Writer::create(options, &entries, now)?, known, last: now })
    }

    /// Writes one snapshot, and before it what it is of where the file does not say so yet: a new
    /// instrument, or another epoch with other ids.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot<'_>) -> Result<(), JournalError> {
        let delivered = snapshot.ts_delivered().unwrap_or(self.last);
        self.last = delivered;
        let index = snapshot.instrument_id().index();
        if index >= self.known.len() {
            self.known.resize(index + 1, None);
        }
        let given = snapshot.instrument();
        if self.known[index].as_ref() != Some(given) {
            self.known[index] = Some(given.clone());
            self.writer.append_instrument(&given.to_wire(), delivered)?;
        }
        self.writer.inspect()?;
        self.writer.append_snapshot(snapshot.record().as_bytes(), delivered)
    }

    fn close(self) -> Result<(), JournalError> {
        self.writer.close(self.last).map(drop)
    }
}

fn unix_now() -> Nanos {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    // A clock before 1970 reads as 1970: the time is only shown.
    Nanos(since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)))
}
