//! `tail`: snapshots as they arrive.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::Duration;

use tapecast_subscriber::{
    EndReason, Epoch, Flags, PollError, Snapshot, StaleCause, State, Wakeup,
};

use super::account::write_account;
use super::args::{ColorArg, EndArgs, TailArgs};
use super::failure::Failure;
use super::json::write_line;
use super::line::Lines;
use super::paint::Paint;
use super::record::Recording;
use super::stop::Stop;
use super::subscription::{Account, Subscription};

/// Longest wait before looking whether a signal has come.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// Lines between two headings on a terminal whose height is unknown.
const HEADING_EVERY: usize = 40;
const OUT_BYTES: usize = 64 * 1024;
/// Receive times kept for the comparison with other subscribers.
const SKEW_SAMPLES: usize = 8_192;

/// Why `tail` ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Count,
    SourceEnded,
    PublisherClosed,
    Signal,
    PipeClosed,
    Failed(EndReason),
}

impl Ending {
    fn text(&self) -> String {
        match self {
            Self::Count => "count reached".to_owned(),
            Self::SourceEnded => "the source has ended".to_owned(),
            Self::PublisherClosed => "the publisher closed".to_owned(),
            Self::Signal => "stopped by a signal".to_owned(),
            Self::PipeClosed => "the output was closed".to_owned(),
            Self::Failed(reason) => reason.to_string(),
        }
    }
}

/// Runs `tail` to its end.
pub(crate) fn tail(args: &TailArgs, stop: &Stop) -> Result<(), Failure> {
    // The file is made first: a path that cannot be written should not cost a whole run.
    let summary_file = args.summary_json.as_deref().map(create).transpose()?;
    let mut subscriber = args.second.connect(&args.session, |builder| {
        // One at a time, so that the account ends exactly at the count.
        let builder = if args.end.count.is_some() { builder.poll_limit(1) } else { builder };
        let samples = if args.summary_json.is_some() { SKEW_SAMPLES } else { 0 };
        builder.skew_samples(samples)
    })?;
    let stdout = io::stdout();
    let mut output = Output::new(args, BufWriter::with_capacity(OUT_BYTES, stdout.lock()));
    let ending = receive(&args.end, stop, &mut subscriber, &mut output)?;
    output.flush()?;
    let colored = (!args.json).then_some(args.end.color);
    finish(colored, &mut subscriber, &ending, summary_file)
}

/// Receives until something ends it.
pub(super) fn receive<W: Write>(
    args: &EndArgs,
    stop: &Stop,
    subscriber: &mut Subscription,
    output: &mut Output<W>,
) -> Result<Ending, Failure> {
    let paint = Paint::choose(args.color, &io::stderr());
    let mut rest = args.count.unwrap_or(u64::MAX);
    while rest > 0 {
        if stop.is_asked() {
            return Ok(Ending::Signal);
        }
        let polled = subscriber.poll(|snapshot| output.snapshot(snapshot));
        match output.check() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(Ending::PipeClosed);
            }
            other => other?,
        }
        subscriber.tell_events(paint);
        match polled {
            Ok(0) => {}
            Ok(count) => {
                rest = rest.saturating_sub(count as u64);
                continue;
            }
            Err(PollError::Ended(reason)) => return Ok(ending_of(reason)),
            Err(error) => {
                super::warn(paint, &error);
                continue;
            }
        }
        if args.until_end
            && subscriber.is_drained()
            && let Some(ending) = natural_end(subscriber, &output.finished)
        {
            return Ok(ending);
        }
        if subscriber.wait(Duration::ZERO)? == Wakeup::TimedOut {
            match output.flush() {
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Ok(Ending::PipeClosed);
                }
                other => other?,
            }
            subscriber.wait(STOP_CHECK)?;
        }
    }
    Ok(Ending::Count)
}

fn natural_end(subscriber: &Subscription, finished: &Finished) -> Option<Ending> {
    if subscriber.source_ended() || finished.is_all() {
        return Some(Ending::SourceEnded);
    }
    let closing = matches!(subscriber.state(), State::Stale { cause: StaleCause::Closing, .. });
    closing.then_some(Ending::PublisherClosed)
}

/// Which instruments the feed has ended. A publisher that stays after the end of its source says it
/// for each instrument.
#[derive(Debug, Default)]
struct Finished {
    /// Ids are the same over all epochs, as where two publishers are merged.
    ids_stay: bool,
    epoch: Epoch,
    /// Whether an instrument's last snapshot ended its session, by id; `None`: nothing received.
    ended: Vec<Option<bool>>,
    open: usize,
}

impl Finished {
    fn on_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        if snapshot.epoch() != self.epoch && !self.ids_stay {
            *self = Self { epoch: snapshot.epoch(), ..Self::default() };
        }
        let index = snapshot.instrument_id().index();
        if index >= self.ended.len() {
            self.ended.resize(index + 1, None);
        }
        let ended = snapshot.flags().contains(Flags::END_OF_SESSION);
        let before = self.ended[index].replace(ended);
        self.open -= usize::from(before == Some(false));
        self.open += usize::from(!ended);
    }

    fn is_all(&self) -> bool {
        !self.ended.is_empty() && self.open == 0
    }
}

fn ending_of(reason: EndReason) -> Ending {
    match reason {
        EndReason::EndOfSource => Ending::SourceEnded,
        EndReason::Closing(_) => Ending::PublisherClosed,
        other => Ending::Failed(other),
    }
}

/// Writes the account, on the error stream in this colour, and says whether all went well.
pub(super) fn finish(
    colored: Option<ColorArg>,
    subscriber: &mut Subscription,
    ending: &Ending,
    summary_file: Option<(File, &Path)>,
) -> Result<(), Failure> {
    let account = subscriber.account();
    if let Some((file, path)) = summary_file {
        write_summary(file, &account).map_err(|error| Failure::file("write", path, error))?;
    }
    if let Some(color) = colored.filter(|_| *ending != Ending::PipeClosed) {
        let paint = Paint::choose(color, &io::stderr());
        // Nobody to tell is no reason to fail.
        drop(write_account(&mut io::stderr().lock(), paint, &account, &ending.text()));
    }
    match (subscriber.lost(), ending) {
        (lost @ 1.., _) => Err(Failure::Lost(lost)),
        (_, Ending::Failed(reason)) => Err(Failure::Ended(reason.clone())),
        _ => Ok(()),
    }
}

pub(super) fn create(path: &Path) -> Result<(File, &Path), Failure> {
    let file = File::create(path).map_err(|error| Failure::file("create", path, error))?;
    Ok((file, path))
}

fn write_summary(file: File, account: &Account) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    serde_json::to_writer_pretty(&mut out, account)?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Where snapshots go, and what went wrong there.
pub(super) struct Output<W> {
    form: Form,
    levels: usize,
    out: W,
    finished: Finished,
    failed: Option<io::Error>,
}

enum Form {
    Quiet,
    Json,
    Lines(Lines),
    Journal(Box<Recording>),
}

impl<W: Write> Output<W> {
    fn new(args: &TailArgs, out: W) -> Self {
        let all = if args.json { usize::MAX } else { 1 };
        let levels = args.levels.map_or(all, usize::from);
        let form = if args.quiet {
            Form::Quiet
        } else if args.json {
            Form::Json
        } else {
            let stdout = io::stdout();
            let heading_every = if stdout.is_terminal() { screen_lines() } else { 0 };
            Form::Lines(Lines::new(Paint::choose(args.end.color, &stdout), levels, heading_every))
        };
        let finished = Finished { ids_stay: args.second.is_given(), ..Finished::default() };
        Self { form, levels, out, finished, failed: None }
    }

    /// An output to a journal.
    pub(super) fn journal(recording: Recording, out: W) -> Self {
        let form = Form::Journal(Box::new(recording));
        Self { form, levels: 0, out, finished: Finished::default(), failed: None }
    }

    /// The journal, if that is where it goes.
    pub(super) fn into_journal(self) -> Option<Recording> {
        match self.form {
            Form::Journal(recording) => Some(*recording),
            Form::Quiet | Form::Json | Form::Lines(_) => None,
        }
    }

    fn snapshot(&mut self, snapshot: &Snapshot<'_>) {
        self.finished.on_snapshot(snapshot);
        if self.failed.is_some() {
            return;
        }
        let written = match &mut self.form {
            Form::Quiet => Ok(()),
            Form::Json => write_line(&mut self.out, snapshot, self.levels),
            Form::Lines(lines) => lines.snapshot(&mut self.out, snapshot),
            // Its errors name the file and the remedy.
            Form::Journal(recording) => recording.snapshot(snapshot).map_err(io::Error::other),
        };
        self.failed = written.err();
    }

    fn check(&mut self) -> io::Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Lines that fit on the screen below a heading.
fn screen_lines() -> usize {
    crossterm::terminal::size()
        .map_or(HEADING_EVERY, |(_, rows)| usize::from(rows).saturating_sub(2).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_orderly_end_is_success_and_a_crash_is_not() {
        assert_eq!(ending_of(EndReason::EndOfSource), Ending::SourceEnded);
        assert_eq!(ending_of(EndReason::Closing("x".into())), Ending::PublisherClosed);
        assert_eq!(ending_of(EndReason::Crashed), Ending::Failed(EndReason::Crashed));
    }
}
