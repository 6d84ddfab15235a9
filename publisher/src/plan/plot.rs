//! A picture of the model: latency against payload, for several numbers of lanes.

use plotters::coord::Shift;
use plotters::coord::combinators::{BindKeyPoints, LogCoord, WithKeyPoints};
use plotters::prelude::*;
use tapecast_wire::limits::PAGE_BYTES;

use super::fan_out::{Arrivals, Scenario};
use super::figures::{Gbps, Time, counted};
use super::target;

/// The picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("the plot could not be drawn ({0}); please report this")]
pub struct PlotError(String);

/// Width and height, in pixels.
const SIZE: (u32, u32) = (1160, 680);
/// Room above the curves for the title, in pixels.
const TITLE_ROOM: i32 = 78;
/// Room beside them for their names.
const NAMES_ROOM: i32 = 190;
/// From one name to the next.
const NAME_HEIGHT: i32 = 24;
/// Lanes that have a curve besides those asked for.
const LANES: [u32; 4] = [1, 2, 4, 8];
/// Smallest payload shown unless a smaller one is asked for, in bytes.
const LEAST_BYTES: u32 = 64;
/// The headline is drawn unless it makes the axis so many times longer.
const FAR: f64 = 10.0;
/// Points of a curve, of which the last subscriber's has a dot at each so-manieth.
const POINTS: u32 = 96;
const DOT_EVERY: usize = 6;
/// Marks of the axis of latency before it is multiplied by powers of ten.
const MARKS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
/// Colours that people who see few of them can tell apart.
const COLOURS: [RGBColor; 5] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 60, 160),
];
const PALE: RGBColor = RGBColor(205, 205, 205);
const INK: RGBColor = RGBColor(60, 60, 60);

type Axis = WithKeyPoints<LogCoord<f64>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, Axis>>;

/// Draws the fan-out's latencies as an SVG document.
///
/// # Errors
/// [`PlotError`], which is a defect.
pub fn draw(scenario: &Scenario) -> Result<String, PlotError> {
    let mut svg = String::new();
    draw_into(&mut svg, scenario).map_err(|error| PlotError(error.to_string()))?;
    Ok(svg)
}

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn draw_into(svg: &mut String, scenario: &Scenario) -> Outcome {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    write_title(&root, scenario)?;
    let lanes = lanes_shown(scenario);
    let area = root.margin(TITLE_ROOM, 8, 8, NAMES_ROOM);
    let mut chart = chart(&area, scenario, &lanes)?;
    draw_target(&mut chart, scenario)?;
    // Curves that run together are drawn on top of one another, the thinner above the thicker.
    let free = ("posting free".to_owned(), scenario.floor(), (PALE, 11));
    let of_lanes =
        lanes.iter().zip(COLOURS).zip([8, 6, 5, 3, 2]).map(|((lanes, colour), width)| {
            let mark = if *lanes == scenario.lanes { " (asked for)" } else { "" };
            let name = format!("{}{mark}", counted(*lanes, "lane"));
            (name, Scenario { lanes: *lanes, ..*scenario }, (colour, width))
        });
    for (index, (name, scenario, style)) in (0..).zip([free].into_iter().chain(of_lanes)) {
        draw_curves(&mut chart, &scenario, &style)?;
        let at = (SIZE.0 as i32 - NAMES_ROOM + 16, TITLE_ROOM + 16 + index * NAME_HEIGHT);
        write_name(&root, name, at, &style)?;
    }
    root.present()?;
    Ok(())
}

/// The name of a curve, after a piece of it.
fn write_name(
    root: &Area<'_>,
    name: String,
    (x, y): (i32, i32),
    (colour, width): &(RGBColor, u32),
) -> Outcome {
    root.draw(&PathElement::new([(x, y), (x + 22, y)], colour.stroke_width(*width)))?;
    root.draw(&Text::new(name, (x + 30, y - 7), ("sans-serif", 15).into_font().color(&INK)))?;
    Ok(())
}

/// The smallest payload of the picture, in bytes.
fn least_bytes(scenario: &Scenario) -> u32 {
    scenario.payload_bytes.clamp(1, LEAST_BYTES)
}

fn lanes_shown(scenario: &Scenario) -> Vec<u32> {
    let fit = |lanes: &u32| *lanes <= scenario.subscribers;
    let mut lanes: Vec<u32> = LANES.into_iter().filter(fit).chain([scenario.lanes]).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes
}

fn write_title(root: &Area<'_>, scenario: &Scenario) -> Outcome {
    let title = "tapecast plan (model, nothing was measured): latency after publishing";
    root.draw(&Text::new(title, (24, 14), ("sans-serif", 22).into_font().color(&INK)))?;
    let setting = format!(
        "{} at {}, path MTU {}, {} a work request. Thick: mean of all subscribers. Thin, dotted: \
         the last one.",
        counted(scenario.subscribers, "subscriber"),
        Gbps(scenario.line_gbps),
        scenario.path_mtu.bytes(),
        Time(scenario.post_ns)
    );
    root.draw(&Text::new(setting, (24, 46), ("sans-serif", 15).into_font().color(&INK)))?;
    Ok(())
}

fn chart<'a, 'b>(area: &'a Area<'b>, scenario: &Scenario, lanes: &[u32]) -> Outcome<Chart<'a, 'b>> {
    let (payload_min, payload_max) = (f64::from(least_bytes(scenario)), PAGE_BYTES as f64);
    let (low_us, high_us) = latencies_us(scenario, lanes);
    let payload_marks = (0..=12).map(|bits| f64::from(1 << bits));
    let payload_marks = payload_marks.filter(|bytes| *bytes >= payload_min).collect();
    let mut chart =
        ChartBuilder::on(area).x_label_area_size(52).y_label_area_size(70).build_cartesian_2d(
            (payload_min..payload_max).log_scale().with_key_points(payload_marks),
            (low_us..high_us).log_scale().with_key_points(marks_us(low_us, high_us)),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(PALE.mix(0.6))
        .axis_style(INK)
        .label_style(("sans-serif", 15).into_font().color(&INK))
        .axis_desc_style(("sans-serif", 17).into_font().color(&INK))
        .x_desc("payload of a snapshot, bytes")
        .y_desc("latency after publishing, µs (model)")
        .x_label_formatter(&|bytes| format!("{bytes:.0}"))
        .y_label_formatter(&|us| format!("{us}"))
        .draw()?;
    Ok(chart)
}

/// Smallest and largest latency of all curves, in microseconds.
fn curves_us(scenario: &Scenario, lanes: &[u32]) -> (f64, f64) {
    let at = |payload_bytes, lanes| Scenario { payload_bytes, lanes, ..*scenario }.arrivals();
    let most = lanes.iter().copied().max().unwrap_or(1);
    let least_bytes = least_bytes(scenario);
    let floor = Scenario { payload_bytes: least_bytes, ..scenario.floor() }.arrivals();
    let least_ns = at(least_bytes, most).mean_ns.min(floor.mean_ns);
    (least_ns / 1e3, at(PAGE_BYTES as u32, 1).last_ns / 1e3)
}

/// What the axis of latency shows: the curves, and the headline where it is not far from them.
fn latencies_us(scenario: &Scenario, lanes: &[u32]) -> (f64, f64) {
    let (least_us, largest_us) = curves_us(scenario, lanes);
    let mean_us = target::MEAN_NS / 1e3;
    let (low_us, high_us) = if (least_us / FAR..largest_us * FAR).contains(&mean_us) {
        (least_us.min(mean_us), largest_us.max(mean_us))
    } else {
        (least_us, largest_us)
    };
    (low_us * 0.8, high_us * 1.25)
}

fn marks_us(low_us: f64, high_us: f64) -> Vec<f64> {
    let decades = (-1..6).map(|power| 10_f64.powi(power));
    let marks = decades.flat_map(|decade| MARKS.map(|mark| (mark * decade * 1e3).round() / 1e3));
    marks.filter(|mark| (low_us..high_us).contains(mark)).collect()
}

/// The headline's mean, and the payload that was asked for.
fn draw_target(chart: &mut Chart<'_, '_>, scenario: &Scenario) -> Outcome {
    let least_bytes = f64::from(least_bytes(scenario));
    draw_headline(chart, least_bytes)?;
    let payload = f64::from(scenario.payload_bytes);
    let range = chart.plotting_area().get_y_range();
    let line = [(payload, range.start), (payload, range.end)];
    chart.draw_series(DashedLineSeries::new(line, 2, 4, INK.stroke_width(1)))?;
    let text = format!("{} B asked for", scenario.payload_bytes);
    // Near the right edge it stands before the line.
    let at = if payload > 2600.0 { payload / 1.65 } else { payload };
    label(chart, text, (at, range.start))
}

/// The headline's mean, or where it would be.
fn draw_headline(chart: &mut Chart<'_, '_>, least_bytes: f64) -> Outcome {
    let mean_us = target::MEAN_NS / 1e3;
    let text = format!("headline mean {}", Time(target::MEAN_NS));
    let range = chart.plotting_area().get_y_range();
    let at = |share: f64| least_bytes * (PAGE_BYTES as f64 / least_bytes).powf(share);
    // Words stand above their point: a twenty-fifth of the axis is a line of them.
    let line_of_words = (range.end / range.start).powf(0.04);
    if mean_us < range.start {
        let place = (at(0.66), range.start * line_of_words);
        return label(chart, format!("{text}: below this picture"), place);
    }
    if mean_us > range.end {
        let place = (at(0.66), range.end / line_of_words);
        return label(chart, format!("{text}: above this picture"), place);
    }
    let line = [least_bytes, PAGE_BYTES as f64].map(|bytes| (bytes, mean_us));
    chart.draw_series(DashedLineSeries::new(line, 6, 5, INK.stroke_width(1)))?;
    label(chart, text, (at(0.84), mean_us))
}

/// Writes small words just above a point.
fn label(chart: &mut Chart<'_, '_>, text: String, at: (f64, f64)) -> Outcome {
    let style = ("sans-serif", 13).into_font().color(&INK);
    chart.draw_series([EmptyElement::at(at) + Text::new(text, (5, -17), style)])?;
    Ok(())
}

/// Two curves: the mean, thick, and the last subscriber's, thin and dotted.
fn draw_curves(
    chart: &mut Chart<'_, '_>,
    scenario: &Scenario,
    (colour, width): &(RGBColor, u32),
) -> Outcome {
    let least_bytes = least_bytes(scenario);
    let points = |of: fn(Arrivals) -> f64| {
        let scenario = *scenario;
        (0..=POINTS).map(move |point| payload_at(point, least_bytes)).map(move |payload_bytes| {
            let arrivals = Scenario { payload_bytes, ..scenario }.arrivals();
            (f64::from(payload_bytes), of(arrivals) / 1e3)
        })
    };
    let (colour, width) = (*colour, *width);
    let mean = LineSeries::new(points(|arrivals| arrivals.mean_ns), colour.stroke_width(width));
    chart.draw_series(mean)?;
    let last = points(|arrivals| arrivals.last_ns);
    chart.draw_series(LineSeries::new(last.clone(), colour.stroke_width(1)))?;
    let dots = last.step_by(DOT_EVERY).map(|point| Circle::new(point, 2, colour.filled()));
    chart.draw_series(dots)?;
    Ok(())
}

/// Payload at a point of a curve, in bytes: the points are as far apart on the logarithmic axis.
fn payload_at(point: u32, least_bytes: u32) -> u32 {
    let whole = (PAGE_BYTES as f64 / f64::from(least_bytes)).ln();
    let along = f64::from(point) / f64::from(POINTS);
    (f64::from(least_bytes) * (whole * along).exp()).round() as u32
}
