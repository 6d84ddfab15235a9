//! What `top` shows.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tapecast_subscriber::{
    EndReason, Epoch, FeedState, OwnedSnapshot, Snapshot, State, Statistics, Subscriber,
};

use super::Key;
use crate::cli::interval::{Interval, Meter};

/// Time between two updates of rates and latency.
const TICK: Duration = Duration::from_secs(1);
/// Rates kept for the curve.
const HISTORY: usize = 120;
/// Rows that a page key moves by.
const PAGE: usize = 10;

/// Everything on the screen.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) publisher: String,
    pub(super) session: u32,
    pub(super) started: Instant,
    pub(super) state: Standing,
    pub(super) notice: Option<String>,
    pub(super) interval: Option<Interval>,
    pub(super) totals: Statistics,
    pub(super) history: VecDeque<u64>,
    pub(super) order: Order,
    pub(super) paused: bool,
    /// Index into `visible`.
    pub(super) selected: usize,
    /// Rows in the order of the screen.
    pub(super) visible: Vec<usize>,
    rows: Vec<Option<Row>>,
    epoch: Epoch,
    meter: Meter,
    ticked: Instant,
    /// Rows have come or moved since they were put in order.
    disordered: bool,
}

/// State of the subscription in the words of the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) text: String,
    pub(super) is_live: bool,
    /// The publisher is told nothing.
    pub(super) is_feed_silent: bool,
}

/// One instrument.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) book: OwnedSnapshot,
    pub(super) updated: Instant,
    pub(super) per_second: u64,
    count: u64,
}

/// Order of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Symbol,
    Rate,
}

impl Board {
    pub(super) fn new(publisher: &str, epoch: Epoch) -> Self {
        let now = Instant::now();
        Self {
            publisher: publisher.to_owned(),
            session: 0,
            started: now,
            state: Standing::of(&State::Live, FeedState::Live),
            notice: None,
            interval: None,
            totals: Statistics::default(),
            history: VecDeque::with_capacity(HISTORY),
            order: Order::Symbol,
            paused: false,
            selected: 0,
            visible: Vec::new(),
            rows: Vec::new(),
            epoch,
            meter: Meter::new(),
            ticked: now,
            disordered: false,
        }
    }

    pub(super) fn on_snapshot(&mut self, snapshot: &Snapshot<'_>) {
        self.meter.on_snapshot(snapshot);
        self.on_epoch(snapshot.epoch());
        if self.paused {
            return;
        }
        let index = snapshot.instrument_id().index();
        if index >= self.rows.len() {
            self.rows.resize_with(index + 1, || None);
        }
        let (book, updated) = (snapshot.to_owned(), Instant::now());
        match &mut self.rows[index] {
            Some(row) => {
                row.book = book;
                row.updated = updated;
                row.count += 1;
            }
            empty => {
                *empty = Some(Row { book, updated, per_second: 0, count: 1 });
                self.disordered = true;
            }
        }
    }

    /// Ids mean other instruments in another epoch.
    pub(super) fn on_epoch(&mut self, epoch: Epoch) {
        if epoch != self.epoch {
            self.rows.clear();
            self.visible.clear();
            self.epoch = epoch;
        }
    }

    /// After what was there has been received.
    pub(super) fn on_turn(&mut self, subscriber: &mut Subscriber) {
        if let Some(event) = subscriber.events().last() {
            self.notice = Some(event.to_string());
        }
        self.state = Standing::of(subscriber.state(), subscriber.feed());
        self.session = subscriber.session_id().get();
        if self.ticked.elapsed() >= TICK {
            self.tick(subscriber);
        }
        self.put_in_order();
    }

    /// Arranges the rows if any came or moved.
    pub(super) fn put_in_order(&mut self) {
        if std::mem::take(&mut self.disordered) {
            self.arrange();
        }
    }

    fn tick(&mut self, subscriber: &Subscriber) {
        let now = Instant::now();
        let time = now - self.ticked;
        self.ticked = now;
        let totals = subscriber.statistics();
        let interval = self.meter.tick(&totals);
        self.on_interval(interval, totals, time);
    }

    pub(super) fn on_interval(&mut self, interval: Interval, totals: Statistics, time: Duration) {
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(interval.delivered_per_second.round() as u64);
        (self.interval, self.totals) = (Some(interval), totals);
        for row in self.rows.iter_mut().flatten() {
            row.per_second = (row.count as f64 / time.as_secs_f64()).round() as u64;
            row.count = 0;
        }
        self.disordered |= self.order == Order::Rate;
    }

    pub(super) fn on_notice(&mut self, notice: String) {
        self.notice = Some(notice);
    }

    pub(super) fn on_end(&mut self, reason: &EndReason) {
        self.state =
            Standing { text: format!("ended: {reason}"), is_live: false, is_feed_silent: false };
    }

    /// Returns whether to leave.
    pub(super) fn on_keys(&mut self, keys: Vec<Key>) -> bool {
        let last = self.visible.len().saturating_sub(1);
        for key in keys {
            match key {
                Key::Quit => return true,
                Key::Up => self.selected = self.selected.saturating_sub(1),
                Key::Down => self.selected = (self.selected + 1).min(last),
                Key::PageUp => self.selected = self.selected.saturating_sub(PAGE),
                Key::PageDown => self.selected = (self.selected + PAGE).min(last),
                Key::First => self.selected = 0,
                Key::Last => self.selected = last,
                Key::Pause => self.paused = !self.paused,
                Key::Sort => {
                    self.order = match self.order {
                        Order::Symbol => Order::Rate,
                        Order::Rate => Order::Symbol,
                    };
                    self.disordered = true;
                }
            }
        }
        false
    }

    pub(super) fn row(&self, index: usize) -> Option<&Row> {
        self.rows.get(index)?.as_ref()
    }

    pub(super) fn selected_row(&self) -> Option<&Row> {
        self.row(*self.visible.get(self.selected)?)
    }

    /// Puts the rows in order and keeps the selected instrument selected.
    fn arrange(&mut self) {
        let chosen = self.visible.get(self.selected).copied();
        let mut order: Vec<_> = (0..self.rows.len()).filter(|i| self.rows[*i].is_some()).collect();
        let symbol = |index: usize| self.row(index).map(|row| row.book.view().symbol());
        order.sort_by(|a, b| symbol(*a).cmp(&symbol(*b)));
        if self.order == Order::Rate {
            order.sort_by_key(|i| std::cmp::Reverse(self.row(*i).map_or(0, |row| row.per_second)));
        }
        self.selected = chosen.and_then(|id| order.iter().position(|i| *i == id)).unwrap_or(0);
        self.visible = order;
    }
}

impl Standing {
    pub(super) fn of(state: &State, feed: FeedState) -> Self {
        let is_feed_silent = feed.is_silent();
        let text = match is_feed_silent {
            true => format!("{state}, feed {feed}"),
            false => state.to_string(),
        };
        Self { text, is_live: *state == State::Live, is_feed_silent }
    }
}
