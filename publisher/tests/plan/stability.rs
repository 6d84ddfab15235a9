//! Whether long transfers oscillate: the phase margins that the authors of DCQCN published.

use tapecast_publisher::plan::dcqcn::{FluidModel, MarkingCurve, Outcome, marking_curves};

/// The authors' margins were read off curves that a program drew, point by point.
const DEGREES: f64 = 0.05;

/// What they published as data of their figures: Gb/s, R_AI in Mb/s, Kmax in KB, delay of the loop
/// in microseconds; then flows and margin in degrees.
const PUBLISHED: &str = "
40 40 200    0     2:26.624  10:4.756    20:9.634    40:27.368  100:56.480
40 40 200    50    2:8.263   10:-6.584   20:-0.951   40:15.730  100:39.811
40 40 200    100   2:-10.099 10:-17.925  20:-11.536  40:4.093   100:23.142
40 10 200    100   2:19.902  10:4.246    20:-2.498   40:1.619   100:20.181
40 10 1000   100   2:44.183  10:43.849   20:19.235   40:27.171  100:31.946
100 40 200   0     2:23.919  10:12.363   20:2.989    40:-0.320  100:10.758
100 40 200   50    2:-16.686 100:-3.791
";

fn curve(kmax_kb: f64) -> MarkingCurve {
    MarkingCurve { kmax_bytes: kmax_kb * 1e3, ..marking_curves(40.0)[0] }
}

#[test]
fn phase_margins_are_those_that_the_authors_of_dcqcn_published() {
    let mut cells = 0;
    for line in PUBLISHED.trim().lines() {
        let mut columns = line.split_whitespace();
        let mut number = || columns.next().unwrap().parse::<f64>().unwrap();
        let (gbps, additive_mbps, kmax_kb, loop_us) = (number(), number(), number(), number());
        let model = FluidModel { additive_mbps, ..FluidModel::paper(gbps) };
        for column in columns {
            let (flows, published) = column.split_once(':').unwrap();
            let flows = flows.parse().unwrap();
            let margin = model.phase_margin(flows, &curve(kmax_kb), loop_us / 1e6).unwrap();
            let error = (margin - published.parse::<f64>().unwrap()).abs();
            assert!(error <= DEGREES, "{line}: {flows} flows have {margin}");
            cells += 1;
        }
    }
    assert_eq!(cells, 32);
}

#[test]
fn at_100g_and_a_loop_of_50_us_every_number_of_flows_oscillates() {
    for flows in (2..=100).step_by(2) {
        let margin = FluidModel::paper(100.0).phase_margin(flows, &curve(200.0), 50e-6).unwrap();
        assert!(margin < 0.0, "{flows}: {margin}");
    }
}

#[test]
fn a_longer_loop_and_a_steeper_curve_narrow_the_margin() {
    for flows in [2, 10, 40] {
        let at = |additive_mbps, kmax_kb, loop_us: f64| {
            let model = FluidModel { additive_mbps, ..FluidModel::paper(40.0) };
            model.phase_margin(flows, &curve(kmax_kb), loop_us / 1e6).unwrap()
        };
        assert!(at(40.0, 200.0, 60.0) < at(40.0, 200.0, 20.0), "{flows}");
        assert!(at(10.0, 200.0, 100.0) < at(10.0, 1000.0, 100.0), "{flows}");
    }
}

#[test]
fn a_curve_that_is_not_told_has_no_margin_and_neither_have_more_marks_than_packets() {
    let untold = MarkingCurve { pmax: None, ..curve(200.0) };
    assert_eq!(FluidModel::paper(40.0).phase_margin(2, &untold, 4e-6), None);
    assert_eq!(FluidModel::paper(1.0).phase_margin(64_000, &curve(200.0), 4e-6), None);
}

#[test]
fn a_margin_within_10_degrees_of_zero_decides_nothing() {
    for (margin_deg, outcome) in [
        (26.6, Outcome::Settles),
        (10.0, Outcome::Settles),
        (9.9, Outcome::NearEdge),
        (-9.9, Outcome::NearEdge),
        (-10.0, Outcome::Oscillates),
    ] {
        assert_eq!(Outcome::of(margin_deg), outcome, "{margin_deg}");
    }
}
