//! Whether long transfers stay where they settle (the linearised model of the DCQCN authors).
//!
//! About its fixed point the fluid model is replaced by its tangent, as its authors do in the
//! appendix of "ECN or Delay" (CoNEXT 2016): to first order in the mark probability, which is taken
//! from their approximation, and with alpha following the marks packet by packet. A change of the
//! rate comes back by way of queue, marks, target and alpha after the delay of the loop. At the
//! frequency at which it comes back as large as it was, the phase margin is what is left until it
//! comes back as its own cause: below zero it grows, and rates and queue oscillate.
//!
//! The authors' tangent errs by some degrees, mostly to the safe side: at 40 Gb/s it gives ten
//! transfers -7° with a loop of 50 µs, and the model itself, when it is integrated, settles there
//! and oscillates with 85 µs. So what is near zero is called near the edge.
//! A margin is about small changes: transfers that all start at line rate may never come to rest at
//! a queue just below Kmax.

use serde::Serialize;

use super::fixed_point::{Events, FluidModel};
use super::switch::MarkingCurve;

/// Margins that are nearer to zero decide nothing, in degrees.
const EDGE_DEG: f64 = 10.0;
/// Frequencies between which gains fall from far above one to far below, in radians per second.
const LOWEST: f64 = 1e-3;
const HIGHEST: f64 = 1e12;

/// What becomes of long transfers where they settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Rates and queue stay.
    Settles,
    /// Small changes decide it.
    NearEdge,
    /// Rates and queue swing.
    Oscillates,
}

impl Outcome {
    /// Of a phase margin, in degrees.
    #[must_use]
    pub const fn of(margin_deg: f64) -> Self {
        if margin_deg >= EDGE_DEG {
            Self::Settles
        } else if margin_deg > -EDGE_DEG {
            Self::NearEdge
        } else {
            Self::Oscillates
        }
    }
}

#[derive(Clone, Copy)]
struct Complex {
    re: f64,
    im: f64,
}

impl Complex {
    fn over(self, other: Self) -> Self {
        let square = other.re.hypot(other.im).powi(2);
        let re = self.re * other.re + self.im * other.im;
        let im = self.im * other.re - self.re * other.im;
        Self { re: re / square, im: im / square }
    }

    fn plus(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }

    fn times(self, factor: f64) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }
}

/// What a small change of one thing does to the speed at which another changes; rates are in
/// packets per second, and what is late has gone round the loop.
struct Tangent {
    /// Marks by the queue, which all transfers fill alike.
    marks_by_queue: f64,
    /// Speed at which alpha follows the marks.
    alpha_follows: f64,
    /// Speed at which the target follows the rate.
    target_follows: f64,
    rate_by_marks: f64,
    rate_by_alpha: f64,
    rate_by_target: f64,
    rate_by_rate: f64,
    rate_by_late_rate: f64,
    target_by_marks: f64,
    target_by_rate: f64,
    target_by_late_rate: f64,
}

impl Tangent {
    fn of(model: &FluidModel, flows: u32, marks_by_queue: f64) -> Option<Self> {
        let marked = model.approximation(flows);
        if marked >= 1.0 {
            return None;
        }
        let rate = model.port_packets() / f64::from(flows.max(1));
        let Events { cut, raise_target, alpha, .. } = model.events(marked, rate);
        let step = model.additive_packets();
        let gap = rate * raise_target * model.cnp_interval_s * step / cut;
        // Raises by byte counter and timer for each packet, and what marks take from them.
        let raises = model.packet_bytes / model.byte_counter + 1.0 / (model.timer_s * rate);
        let spoiled = 0.5 + raises / 4.0;
        let steps_spoiled = (1.0 + 2.0 * model.fast_recovery + raises / 2.0) * step;
        let falls = marked * rate * alpha / 2.0;
        Some(Self {
            marks_by_queue: marks_by_queue * f64::from(flows),
            alpha_follows: model.gain * rate,
            target_follows: marked * rate,
            rate_by_marks: -rate * (rate * alpha / 2.0 + spoiled * gap),
            rate_by_alpha: -marked * rate * rate / 2.0,
            rate_by_target: rate * (raises / 2.0 - spoiled * marked),
            rate_by_rate: -falls + gap * (raises / 2.0 - spoiled * marked),
            rate_by_late_rate: -falls - rate * (raises / 2.0 - spoiled * marked),
            target_by_marks: -rate * (gap + steps_spoiled),
            target_by_rate: marked * rate + raises * step,
            target_by_late_rate: raises * step - marked * (gap + steps_spoiled),
        })
    }

    /// What a change of the rate comes back as, before the delay of the loop.
    fn comes_back(&self, frequency: f64) -> Complex {
        let real = |re| Complex { re, im: 0.0 };
        let speed = |re| Complex { re, im: frequency };
        let marks = real(self.marks_by_queue).over(speed(0.0));
        let alpha = real(self.alpha_follows).over(speed(self.alpha_follows));
        let target = real(self.rate_by_target).over(speed(self.target_follows));
        let by_marks = real(self.rate_by_marks).plus(alpha.times(self.rate_by_alpha));
        let late = product(by_marks, marks).plus(real(self.rate_by_late_rate)).plus(product(
            target,
            marks.times(self.target_by_marks).plus(real(self.target_by_late_rate)),
        ));
        let own = speed(-self.rate_by_rate).plus(target.times(-self.target_by_rate));
        late.over(own)
    }

    /// The frequency at which a change comes back as large as it was, in radians per second.
    fn crossover(&self) -> f64 {
        let (mut low, mut high) = (LOWEST, HIGHEST);
        for _ in 0..120 {
            let middle = (low * high).sqrt();
            let Complex { re, im } = self.comes_back(middle);
            if re.hypot(im) > 1.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn product(a: Complex, b: Complex) -> Complex {
    Complex { re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }
}

impl FluidModel {
    /// Phase margin of so many equal transfers, in degrees from -180 to 180, with this marking
    /// curve and a loop that takes so long. `None` where no such curve is known, or the model's
    /// approximation finds no mark probability. It supposes a curve that goes on above its end, so
    /// it says nothing of a queue that hangs about Kmax.
    #[must_use]
    pub fn phase_margin(&self, flows: u32, curve: &MarkingCurve, loop_s: f64) -> Option<f64> {
        let packets = (curve.kmax_bytes - curve.kmin_bytes) / self.packet_bytes;
        let tangent = Tangent::of(self, flows, curve.pmax? / packets)?;
        let frequency = tangent.crossover();
        let Complex { re, im } = tangent.comes_back(frequency);
        // A change that comes back unturned is its own cause: the margin is the angle from there.
        let degrees = im.atan2(re).to_degrees() - (frequency * loop_s).to_degrees();
        Some((degrees + 180.0).rem_euclid(360.0) - 180.0)
    }
}
