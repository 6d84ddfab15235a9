//! Congestion control of RoCE v2 (DCQCN): where switches mark, what a marked queue pair does, and
//! where many of them settle.

mod after_train;
mod fixed_point;
mod queue;
mod reaction;
mod stability;
mod switch;

pub use after_train::{AfterTrain, Lateness, Recovery};
pub use fixed_point::{FixedPoint, FluidModel};
pub use queue::{Backlog, Incast};
pub use reaction::ReactionPoint;
pub use stability::Outcome;
pub use switch::{MarkingCurve, SharedBuffer, marking_curves};
