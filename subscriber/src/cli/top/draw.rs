//! How the screen of `top` looks.

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{
    Block, Borders, Cell, Paragraph, Row as TableRow, Sparkline, Table, TableState,
};
use tapecast_subscriber::{BookLevel, HumanNanos, LatencyFigures, Snapshot, TradingStatus};

use super::board::{Board, Order, Row};
use crate::cli::figures::{bytes, elapsed, grouped};
use crate::cli::line::{decimals, time_of_day};

/// Narrowest screen on which the depth of the selected book stands beside the table.
const BESIDE_MIN: u16 = 124;
/// Narrowest screen that has room for the curve of rates.
const CURVE_MIN: u16 = 104;
/// Columns of the depth.
const DEPTH_COLUMNS: u16 = 52;
/// Lines of the depth when it stands below the table.
const DEPTH_LINES: u16 = 12;
/// A book that has not changed for so long is shown dim.
const QUIET: Duration = Duration::from_secs(5);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, board: &Board) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(5), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    draw_head(frame, head, board);
    let [books, depth] = if body.width >= BESIDE_MIN {
        Layout::horizontal([Constraint::Min(40), Constraint::Length(DEPTH_COLUMNS)]).areas(body)
    } else {
        Layout::vertical([Constraint::Min(4), Constraint::Length(DEPTH_LINES)]).areas(body)
    };
    draw_books(frame, books, board);
    draw_depth(frame, depth, board);
    draw_foot(frame, foot, board);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let color = match (board.state.is_live, board.state.is_feed_silent) {
        (true, false) => Color::Green,
        (true, true) => Color::Yellow,
        (false, _) => Color::Red,
    };
    let title = Line::from(vec![
        " tapecast ".bold(),
        Span::styled(format!("● {} ", board.state.text), Style::new().fg(color).bold()),
    ]);
    let facts = format!(
        " {} · session {} · {} ",
        board.publisher,
        board.session,
        elapsed(board.started.elapsed())
    );
    let block = Block::new()
        .borders(Borders::TOP)
        .title(title)
        .title(Line::from(facts).alignment(Alignment::Right));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if inner.width < CURVE_MIN {
        return frame.render_widget(Paragraph::new(figures(board)), inner);
    }
    let [text, curve] =
        Layout::horizontal([Constraint::Min(60), Constraint::Length(inner.width / 4)]).areas(inner);
    frame.render_widget(Paragraph::new(figures(board)), text);
    draw_curve(frame, curve, board);
}

/// The rate over the last minutes, newest on the right.
fn draw_curve(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let [caption, curve] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
    let columns = usize::from(curve.width);
    let rates = board.history.iter().skip(board.history.len().saturating_sub(columns));
    let peak = grouped(rates.clone().copied().max().unwrap_or(0));
    let text = Line::from(format!("peak {peak}/s in {columns} s")).dim();
    frame.render_widget(Paragraph::new(text.alignment(Alignment::Right)), caption);
    let empty = std::iter::repeat_n(None, columns.saturating_sub(rates.len()));
    let sparkline = Sparkline::default()
        .data(empty.chain(rates.map(|rate| Some(*rate))))
        .style(Style::new().fg(Color::Cyan));
    frame.render_widget(sparkline, curve);
}

fn figures(board: &Board) -> Vec<Line<'static>> {
    let totals = &board.totals;
    let Some(interval) = &board.interval else {
        return vec![Line::from("measuring …".dim())];
    };
    let notable = |text: String, count: u64, color| {
        if count > 0 { Span::styled(text, Style::new().fg(color).bold()) } else { Span::from(text) }
    };
    let rate = grouped(interval.delivered_per_second.round() as u64);
    let conflating = interval.conflated_per_second.round() as u64;
    let conflation = format!("conflated {} ({}/s)", grouped(totals.conflated), grouped(conflating));
    let gaps = format!("feed gaps {}", grouped(totals.feed_gaps));
    let rest = format!(
        "  laps {}  reconnects {}  lag {}",
        grouped(totals.laps),
        grouped(totals.reconnects),
        bytes(totals.lag_bytes)
    );
    vec![
        Line::from(vec![
            format!("{rate} snapshots/s").bold(),
            Span::from(format!("  delivered {}  ", grouped(totals.delivered))),
            notable(conflation, conflating, Color::Yellow),
            Span::from("  "),
            notable(format!("lost {}", grouped(totals.lost)), totals.lost, Color::Red),
        ]),
        Line::from(vec![notable(gaps, interval.feed_gaps, Color::Yellow), Span::from(rest)]),
        latency_line("last second", &interval.latency, interval.jitter_ns),
        latency_line("since start", &totals.latency, totals.jitter.p99_minus_p50_ns),
    ]
}

fn latency_line(name: &str, latency: &LatencyFigures, jitter_ns: u64) -> Line<'static> {
    if latency.count == 0 {
        return Line::from(format!("latency {name}  nothing received")).dim();
    }
    Line::from(vec![
        Span::from(format!("latency {name}")).dim(),
        Span::from(format!("  p50 {:<8}", HumanNanos(latency.p50_ns))).bold(),
        Span::from(format!(
            "  p99 {:<8}  p99.9 {:<8}  max {:<8}  jitter {}",
            HumanNanos(latency.p99_ns),
            HumanNanos(latency.p99_9_ns),
            HumanNanos(latency.max_ns),
            HumanNanos(jitter_ns)
        )),
    ])
}

fn draw_books(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let heads = ["SYMBOL", "BID SIZE", "BID", "ASK", "ASK SIZE", "SPREAD", "LAST", "/S", "STATUS"];
    let header = TableRow::new(heads.iter().enumerate().map(|(column, head)| {
        let alignment = if (1..8).contains(&column) { Alignment::Right } else { Alignment::Left };
        Cell::new(Line::from(*head).alignment(alignment))
    }))
    .style(Style::new().bold());
    // Only what fits is made, so that ten thousand books cost as little as thirty.
    let height = usize::from(area.height.saturating_sub(2)).max(1);
    let first = board.selected.saturating_sub(height.saturating_sub(1) / 2);
    let first = first.min(board.visible.len().saturating_sub(height));
    let shown = board.visible.iter().skip(first).take(height);
    let rows = shown.filter_map(|index| board.row(*index)).map(|row| book_row(row, board));
    let widths = [
        Constraint::Min(8),
        Constraint::Length(9),
        Constraint::Length(11),
        Constraint::Length(11),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Length(11),
        Constraint::Length(7),
        Constraint::Length(10),
    ];
    let title = format!(" {} of {} books ", position(board), grouped(board.visible.len() as u64));
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::new().borders(Borders::TOP).title(title));
    let mut state = TableState::new().with_selected(board.selected.checked_sub(first));
    frame.render_stateful_widget(table, area, &mut state);
}

fn position(board: &Board) -> String {
    grouped((board.selected + 1).min(board.visible.len()) as u64)
}

fn book_row(row: &Row, board: &Board) -> TableRow<'static> {
    let view = row.book.view();
    let decimals = decimals(&view);
    let price = |level: Option<BookLevel>, color| {
        let text = level.map_or_else(|| "-".into(), |level| format!("{:.decimals$}", level.price));
        right(text).fg(color)
    };
    let size = |level: Option<BookLevel>| {
        right(level.map_or_else(|| "-".into(), |level| level.quantity.to_string()))
    };
    let (bid, ask) = (view.best_bid(), view.best_ask());
    let spread = view.spread().map_or_else(|| "-".into(), |gap| format!("{gap:.decimals$}"));
    let last = view.last_trade().map_or_else(|| "-".into(), |t| format!("{:.decimals$}", t.price));
    let rate = if row.per_second == 0 { "·".into() } else { grouped(row.per_second) };
    let line = TableRow::new([
        Line::from(view.symbol().to_owned()).bold(),
        size(bid),
        price(bid, Color::Green),
        price(ask, Color::Red),
        size(ask),
        right(spread),
        right(last),
        right(rate),
        status(&view),
    ]);
    if !board.state.is_live || row.updated.elapsed() > QUIET {
        line.style(Style::new().add_modifier(Modifier::DIM))
    } else {
        line
    }
}

fn right(text: String) -> Line<'static> {
    Line::from(text).alignment(Alignment::Right)
}

/// Status, or the flag that matters more.
fn status(view: &Snapshot<'_>) -> Line<'static> {
    if view.is_suspect() {
        return Line::from("SUSPECT").style(Style::new().fg(Color::Red).bold());
    }
    let status = view.trading_status();
    let style = match status {
        TradingStatus::Trading | TradingStatus::Unknown => Style::new(),
        _ => Style::new().fg(Color::Yellow),
    };
    Line::from(status.name()).style(style)
}

fn draw_depth(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let block = Block::new().borders(Borders::TOP | Borders::LEFT);
    let Some(row) = board.selected_row() else {
        frame.render_widget(block.title(" no book yet "), area);
        return;
    };
    let view = row.book.view();
    let instrument = view.instrument();
    let title = format!(" {} {} ", instrument.symbol, instrument.venue);
    let block = block.title(title.bold());
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let mut lines = vec![facts(&view)];
    let depth = usize::from(inner.height.saturating_sub(1));
    let column = usize::from(inner.width.saturating_sub(1)) / 2;
    lines.extend((0..depth.min(view.bids().len().max(view.asks().len()))).map(|level| {
        let mut spans = side_spans(&view, level, column, true);
        spans.push(Span::from("│").dim());
        spans.extend(side_spans(&view, level, column, false));
        Line::from(spans)
    }));
    frame.render_widget(Paragraph::new(lines), inner);
}

fn facts(view: &Snapshot<'_>) -> Line<'static> {
    let latency = view.latency_ns().map_or_else(|| "-".into(), |ns| HumanNanos(ns).to_string());
    let flags: Vec<_> = view.flags().names().collect();
    let text = format!(
        "{} UTC  #{}  latency {latency}  {}",
        time_of_day(view.ts_event().get()),
        grouped(view.instrument_sequence().get()),
        flags.join(" ")
    );
    Line::from(text).dim()
}

/// One level of one side: size and price, on a bar as long as its share of the largest size.
fn side_spans(view: &Snapshot<'_>, level: usize, width: usize, bids: bool) -> Vec<Span<'static>> {
    let (side, color) = if bids { (view.bids(), Color::Green) } else { (view.asks(), Color::Red) };
    let Some(BookLevel { price, quantity, .. }) = side.get(level) else {
        return vec![Span::from(" ".repeat(width))];
    };
    let decimals = decimals(view);
    let size_columns = width.saturating_sub(13);
    let text = if bids {
        format!("{quantity:>size_columns$} {price:>11.decimals$} ")
    } else {
        format!(" {price:<11.decimals$} {:<size_columns$}", quantity.to_string())
    };
    let largest = view.bids().iter().chain(view.asks()).map(|l| l.quantity.units()).max();
    let share = quantity.units() as f64 / largest.unwrap_or(1).max(1) as f64;
    let bar = ((share * width as f64).round() as usize).clamp(1, width.max(1));
    // Every character is one column, so characters can be counted.
    let characters: Vec<char> = text.chars().take(width).collect();
    let text_of = |part: &[char]| part.iter().collect::<String>();
    let plain = Style::new().fg(color);
    let filled = Style::new().fg(Color::White).bg(if bids { BID_BAR } else { ASK_BAR });
    if bids {
        let (rest, bar) = characters.split_at(characters.len().saturating_sub(bar));
        vec![Span::styled(text_of(rest), plain), Span::styled(text_of(bar), filled)]
    } else {
        let (bar, rest) = characters.split_at(bar.min(characters.len()));
        vec![Span::styled(text_of(bar), filled), Span::styled(text_of(rest), plain)]
    }
}

/// Dark green and dark red of the 256-colour palette, which every terminal of today has.
const BID_BAR: Color = Color::Indexed(22);
const ASK_BAR: Color = Color::Indexed(52);

fn draw_foot(frame: &mut Frame<'_>, area: Rect, board: &Board) {
    let order = match board.order {
        Order::Symbol => "by rate",
        Order::Rate => "by symbol",
    };
    let keys = format!(" q quit  ↑↓ select  s sort {order}  p {}", pause_word(board));
    let mut spans = vec![Span::from(keys).dim()];
    if let Some(notice) = &board.notice {
        spans.push(Span::styled(format!("   {notice}"), Style::new().fg(Color::Yellow)));
    }
    frame.render_widget(Paragraph::new(Line::from(spans)), area);
}

const fn pause_word(board: &Board) -> &'static str {
    if board.paused { "go on (PAUSED)" } else { "pause" }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use tapecast_subscriber::{
        Epoch, FeedState, Flags, Instrument, InstrumentId, Nanos, Sequence, State, Statistics,
    };
    use tapecast_wire::{Level, Snapshot as Record, SnapshotFields, encode_snapshot};

    use super::*;
    use crate::cli::interval::Interval;
    use crate::cli::top::Key;
    use crate::cli::top::board::Standing;

    const CENT: i64 = 10_000_000;

    /// Eight-byte aligned memory for one record.
    #[repr(align(8))]
    struct Aligned([u8; 4096]);

    fn show(board: &mut Board, id: u32, symbol: &str, bid: i64, flags: Flags) {
        let fields = SnapshotFields {
            instrument_id: InstrumentId(id),
            flags,
            trading_status: TradingStatus::Trading,
            epoch: Epoch(1),
            channel_sequence: Sequence(1),
            instrument_sequence: Sequence(1_234),
            feed_sequence: 1,
            ts_event: 1_709_303_400_000_000_000,
            ts_recv: 1,
            last_trade_price: bid,
            last_trade_quantity: 1,
        };
        let mut memory = Aligned([0; 4096]);
        let bids = [Level::new(bid, 300, 1), Level::new(bid - CENT, 600, 1)];
        let asks = [Level::new(bid + CENT, 150, 1)];
        encode_snapshot(&mut memory.0, &fields, &bids, &asks).unwrap();
        let plain = Instrument::new(InstrumentId(id), symbol, "XTST");
        let instrument = Arc::new(Instrument { tick_size: CENT, ..plain });
        let record = Record::parse(&memory.0).unwrap();
        board.on_snapshot(&Snapshot::new(record, &instrument, Some(Nanos(5_000))));
    }

    fn board() -> Board {
        let mut board = Board::new("/run/tapecast/publisher.sock", Epoch(1));
        show(&mut board, 0, "MSFT", 41_000 * CENT, Flags::NONE);
        show(&mut board, 1, "AAPL", 18_995 * CENT, Flags::SUSPECT);
        board.put_in_order();
        board
    }

    fn screen(board: &Board, columns: u16, rows: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
        terminal.draw(|frame| draw(frame, board)).unwrap();
        let cells = terminal.backend().buffer();
        (0..rows)
            .map(|row| (0..columns).map(|column| cells[(column, row)].symbol()).collect::<String>())
            .map(|line: String| line.trim_end().to_owned())
            .collect()
    }

    #[test]
    fn books_stand_in_aligned_columns_by_symbol() {
        let lines = screen(&board(), 130, 14);
        assert!(lines[0].starts_with(" tapecast ● live ───"), "{lines:#?}");
        assert!(lines[0].contains("/run/tapecast/publisher.sock · session 0"), "{lines:#?}");
        let header = lines.iter().position(|line| line.starts_with("SYMBOL")).unwrap();
        let books = &lines[header..header + 3];
        let column = |line: &str, word: &str| {
            line.find(word).map(|at| line[..at].chars().count() + word.chars().count())
        };
        assert!(books[1].starts_with("AAPL") && books[2].starts_with("MSFT"), "{lines:#?}");
        assert!(books[1].contains("SUSPECT"), "{lines:#?}");
        for (head, value) in [("BID SIZE", "300"), ("BID  ", "189.95  "), ("SPREAD", "0.01")] {
            assert_eq!(column(&books[0], head), column(&books[1], value), "{lines:#?}");
        }
    }

    #[test]
    fn a_silent_feed_is_said_behind_the_state() {
        let mut board = board();
        let since = Nanos(1_709_303_400_000_000_000);
        board.state = Standing::of(&State::Live, FeedState::Silent { since });
        let lines = screen(&board, 130, 14);
        let expected = " tapecast ● live, feed silent since 14:30:00 UTC ───";
        assert!(lines[0].starts_with(expected), "{lines:#?}");
    }

    #[test]
    fn the_depth_of_the_selected_book_stands_beside_the_table() {
        let mut board = board();
        assert!(!board.on_keys(vec![Key::Down, Key::Down]));
        let lines = screen(&board, 130, 14);
        assert!(lines.iter().any(|line| line.contains("MSFT XTST")), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("14:30:00.000000 UTC  #1,234")),
            "{lines:#?}"
        );
        let best = lines.iter().find(|line| line.contains("410.00 │ 410.01")).unwrap();
        assert!(best.contains("300") && best.contains("150"), "{lines:#?}");
    }

    #[test]
    fn no_size_of_the_screen_makes_it_panic() {
        let mut board = board();
        let interval = Interval {
            seconds: 1.0,
            delivered_per_second: 2.0,
            conflated_per_second: 1.0,
            lost: 0,
            feed_gaps: 1,
            laps: 0,
            latency: LatencyFigures { count: 2, ..Default::default() },
            jitter_ns: 0,
        };
        board.on_interval(interval, Statistics::default(), Duration::from_secs(1));
        board.on_notice("attached again".to_owned());
        for columns in [1, 2, 20, 79, 103, 104, 124, 500] {
            for rows in [1, 2, 5, 8, 24, 100] {
                screen(&board, columns, rows);
            }
        }
        screen(&Board::new("", Epoch(1)), 80, 24);
    }

    #[test]
    fn sorting_by_rate_keeps_the_chosen_book_chosen() {
        let mut board = board();
        show(&mut board, 0, "MSFT", 41_001 * CENT, Flags::NONE);
        assert_eq!(board.selected_row().unwrap().book.view().symbol(), "AAPL");
        let interval = Interval {
            seconds: 1.0,
            delivered_per_second: 3.0,
            conflated_per_second: 0.0,
            lost: 0,
            feed_gaps: 0,
            laps: 0,
            latency: LatencyFigures::default(),
            jitter_ns: 0,
        };
        board.on_interval(interval, Statistics::default(), Duration::from_secs(1));
        board.on_keys(vec![Key::Sort]);
        board.put_in_order();
        let lines = screen(&board, 130, 14);
        let header = lines.iter().position(|line| line.starts_with("SYMBOL")).unwrap();
        assert!(lines[header + 1].starts_with("MSFT"), "{lines:#?}");
        assert_eq!(board.selected_row().unwrap().book.view().symbol(), "AAPL");
    }

    #[test]
    fn another_epoch_begins_with_an_empty_screen() {
        let mut board = board();
        assert_eq!(board.visible.len(), 2);
        board.on_epoch(Epoch(2));
        assert!(board.selected_row().is_none() && board.visible.is_empty());
    }
}
