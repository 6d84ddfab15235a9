//! Congestion control of RoCE v2 (DCQCN): where switches mark, what a marked queue pair does, and
//! where many of them settle.

mod fixed_point;
mod queue;
mod reaction;
mod switch;

pub use fixed_point::{FixedPoint, FluidModel};
pub use queue::{Backlog, Incast};
pub use reaction::{AfterTrain, Lateness, ReactionPoint, Recovery};
pub use switch::{MarkingCurve, SharedBuffer, marking_curves};
