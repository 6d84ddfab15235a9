//! The fluid model of DCQCN itself, integrated step by step, beside what is said of it in closed
//! form.

use tapecast_publisher::plan::dcqcn::{FluidModel, MarkingCurve, Outcome, marking_curves};

/// A step, in seconds.
const STEP_S: f64 = 1e-6;
/// The authors' parameters: least time between notifications, between updates of alpha and between
/// raises in seconds; packets between raises; raises before the target is raised; weight.
const CNP_S: f64 = 50e-6;
const ALPHA_S: f64 = 55e-6;
const TIMER_S: f64 = 55e-6;
const COUNTER: f64 = 10_000.0;
const FAST: f64 = 5.0;
const GAIN: f64 = 1.0 / 256.0;

/// Equal transfers through one port, in packets of 1000 bytes and seconds.
struct Flows {
    number: f64,
    port: f64,
    additive: f64,
    curve: MarkingCurve,
    rate: f64,
    target: f64,
    alpha: f64,
    queue: f64,
}

/// Raises for each packet by a trigger that comes each so many packets, and those of the target.
fn raises(marked: f64, packets: f64) -> (f64, f64) {
    let ln = (-marked).ln_1p();
    if marked <= 0.0 {
        return (1.0 / packets, 1.0 / packets);
    }
    let raise = marked / (-packets * ln).exp_m1();
    (raise, raise * (FAST * packets * ln).exp())
}

impl Flows {
    fn new(number: u32, additive_mbps: f64, kmax_kb: f64) -> Self {
        let port = 40e9 / 8e3;
        Self {
            number: f64::from(number),
            port,
            additive: additive_mbps * 1e6 / 8e3,
            curve: MarkingCurve { kmax_bytes: kmax_kb * 1e3, ..marking_curves(40.0)[0] },
            rate: port,
            target: port,
            alpha: 1.0,
            queue: 0.0,
        }
    }

    /// One step, at which queue and rate of a loop ago come back as marks.
    fn step(&mut self, (late_queue, late_rate): (f64, f64)) {
        let marked = self.curve.marked(late_queue * 1e3).unwrap();
        let ln = (-marked).ln_1p();
        let cut = -(CNP_S * late_rate * ln).exp_m1();
        let (by_counter, by_timer) = (raises(marked, COUNTER), raises(marked, TIMER_S * late_rate));
        let gap = self.target - self.rate;
        let alpha = GAIN / ALPHA_S * (-(ALPHA_S * late_rate * ln).exp_m1() - self.alpha);
        let target = self.additive * late_rate * (by_counter.1 + by_timer.1) - gap * cut / CNP_S;
        let rate = gap / 2.0 * late_rate * (by_counter.0 + by_timer.0)
            - self.rate * self.alpha * cut / (2.0 * CNP_S);
        self.queue = (self.queue + (self.number * self.rate - self.port) * STEP_S).max(0.0);
        self.alpha += alpha * STEP_S;
        self.target = (self.target + target * STEP_S).min(self.port);
        self.rate = (self.rate + rate * STEP_S).clamp(1.0, self.port);
    }

    /// Smallest and largest queue of the last quarter of a time, in KB.
    fn queue_kb(mut self, loop_us: usize, seconds: f64) -> (f64, f64) {
        let mut past = vec![(self.queue, self.rate); loop_us];
        let steps = (seconds / STEP_S) as usize;
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for step in 0..steps {
            let late = std::mem::replace(&mut past[step % loop_us], (self.queue, self.rate));
            self.step(late);
            if step > steps * 3 / 4 {
                least = least.min(self.queue);
                most = most.max(self.queue);
            }
        }
        (least, most)
    }
}

#[test]
fn the_model_comes_to_rest_at_the_fixed_point() {
    for (number, queue_kb) in [(2, 20.15), (4, 41.81), (8, 93.77), (10, 122.62)] {
        let (least, most) = Flows::new(number, 40.0, 200.0).queue_kb(4, 0.2);
        assert!((least - queue_kb).abs() < 0.03 && (most - queue_kb).abs() < 0.03, "{number}");
        let point = FluidModel::paper(40.0).fixed_point(number);
        let closed_kb = marking_curves(40.0)[0].queue_at(point.marked).unwrap() / 1e3;
        assert!((least - closed_kb).abs() < 0.03, "{number} flows: {least} {closed_kb}");
    }
}

#[test]
fn with_a_loop_of_85_us_ten_transfers_empty_the_queue_and_fill_it_again() {
    let (least, most) = Flows::new(10, 40.0, 200.0).queue_kb(85, 0.2);
    assert!(least == 0.0 && (233.0..236.0).contains(&most), "{least} to {most}");
    let (least, most) = Flows::new(2, 40.0, 200.0).queue_kb(85, 0.1);
    assert!(least > 18.5 && most < 21.8, "two swing little: {least} to {most}");
}

#[test]
fn where_the_phase_margin_decides_the_model_does_what_it_says() {
    let mut decided = Vec::new();
    for (number, additive_mbps, kmax_kb, loop_us) in [
        (2, 40.0, 200.0, 4),
        (2, 40.0, 200.0, 100),
        (10, 40.0, 200.0, 85),
        (10, 40.0, 200.0, 120),
        (2, 10.0, 200.0, 100),
        (10, 10.0, 1000.0, 100),
    ] {
        let model = FluidModel { additive_mbps, ..FluidModel::paper(40.0) };
        let curve = MarkingCurve { kmax_bytes: kmax_kb * 1e3, ..marking_curves(40.0)[0] };
        let margin = model.phase_margin(number, &curve, f64::from(loop_us) / 1e6).unwrap();
        let (least, most) =
            Flows::new(number, additive_mbps, kmax_kb).queue_kb(loop_us as usize, 0.3);
        let swings = most - least > 0.1 * most;
        let outcome = Outcome::of(margin);
        let what = format!("{number} flows, {loop_us} us: {margin}°, {least} to {most} KB");
        assert_eq!(outcome, if swings { Outcome::Oscillates } else { Outcome::Settles }, "{what}");
        decided.push(outcome);
    }
    assert!(decided.contains(&Outcome::Settles) && decided.contains(&Outcome::Oscillates));
}
