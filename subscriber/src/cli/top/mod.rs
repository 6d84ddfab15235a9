//! `top`: books, their rates and their latency, live in the terminal.

mod board;
mod draw;

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::DefaultTerminal;
use tapecast_subscriber::{EndReason, PollError, Subscriber};

use super::args::TopArgs;
use super::failure::Failure;
use super::stop::Stop;
use board::Board;

/// Polls between two looks at the clock, so that a flood of snapshots cannot stop the drawing.
const POLLS_PER_TURN: usize = 64;
/// Longest wait before looking for a key.
const KEY_CHECK: Duration = Duration::from_millis(50);

/// Runs `top` to its end.
pub(crate) fn top(args: &TopArgs, stop: &Stop) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    // Connects before it takes the screen, so that an error is read where errors are.
    let builder = args.session.builder()?;
    let publisher = builder.target().to_string();
    let mut subscriber = builder.connect()?;
    let mut board = Board::new(&publisher, subscriber.epoch());
    // Also gives the screen back when this process panics.
    let mut terminal = ratatui::try_init()?;
    let frame = Duration::from_secs(1) / u32::from(args.rate);
    let ran = run(&mut terminal, &mut subscriber, &mut board, frame, stop);
    ratatui::restore();
    ran?;
    match subscriber.statistics().lost {
        0 => Ok(()),
        lost => Err(Failure::Lost(lost)),
    }
}

fn run(
    terminal: &mut DefaultTerminal,
    subscriber: &mut Subscriber,
    board: &mut Board,
    frame: Duration,
    stop: &Stop,
) -> Result<(), Failure> {
    let mut due = Instant::now();
    while !stop.is_asked() {
        let ended = receive(subscriber, board);
        board.on_turn(subscriber);
        if board.on_keys(pressed()?) {
            return Ok(());
        }
        let now = Instant::now();
        if now >= due {
            terminal.draw(|screen| draw::draw(screen, board))?;
            due = now + frame;
        }
        if let Some(reason) = ended {
            // What was last seen stays on the screen until it is left.
            board.on_end(&reason);
            std::thread::sleep(frame.min(KEY_CHECK));
        } else if subscriber.is_drained() {
            let rest = due.saturating_duration_since(Instant::now());
            subscriber.wait(rest.min(KEY_CHECK))?;
        }
    }
    Ok(())
}

/// Takes what is there, within bounds. Returns why it has ended, when it has.
fn receive(subscriber: &mut Subscriber, board: &mut Board) -> Option<EndReason> {
    for _ in 0..POLLS_PER_TURN {
        match subscriber.poll(|snapshot| board.on_snapshot(snapshot)) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(PollError::Ended(reason)) => return Some(reason),
            Err(error) => board.on_notice(error.to_string()),
        }
    }
    None
}

/// Keys pressed since the last look.
fn pressed() -> io::Result<Vec<Key>> {
    let mut keys = Vec::new();
    while crossterm::event::poll(Duration::ZERO)? {
        if let Event::Key(event) = crossterm::event::read()?
            && event.kind != KeyEventKind::Release
        {
            keys.extend(Key::of(event));
        }
    }
    Ok(keys)
}

/// What a key means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Sort,
    Pause,
}

impl Key {
    fn of(event: KeyEvent) -> Option<Self> {
        Some(match event.code {
            KeyCode::Char('c') if event.modifiers.contains(KeyModifiers::CONTROL) => Self::Quit,
            KeyCode::Char('q') | KeyCode::Esc => Self::Quit,
            KeyCode::Up | KeyCode::Char('k') => Self::Up,
            KeyCode::Down | KeyCode::Char('j') => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Home | KeyCode::Char('g') => Self::First,
            KeyCode::End | KeyCode::Char('G') => Self::Last,
            KeyCode::Char('s') => Self::Sort,
            KeyCode::Char('p' | ' ') => Self::Pause,
            _ => return None,
        })
    }
}
