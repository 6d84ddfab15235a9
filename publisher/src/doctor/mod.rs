//! `doctor`: looks at host, NIC and RoCE, says what is not as it should be, and how to mend it.
//!
//! Everything is read from files below a root, and from programs that change nothing; so a tree
//! that was recorded elsewhere is judged like this machine. What cannot be read is *unknown*, with
//! the reason: never "off". A setting that this kernel is without is ok, as nothing can be wrong with
//! it; but only where the folder that would have its file is there.

mod apply;
mod clock;
mod counters;
mod cpu;
mod cpus;
mod dcqcn;
mod finding;
mod firmware;
mod host;
mod human;
mod kernel;
mod knobs;
mod lasting;
mod link;
mod memory;
mod pcie;
mod profile;
mod qos;
mod rdma;
mod root;
mod script;
mod tools;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use apply::{Outcome, Progress, perform};
pub use cpus::Cpus;
pub use finding::{Act, Finding, Section, Status, Step};
pub use host::{Device, Driver, Wishes};
pub use human::Human;
pub use lasting::Keep;
pub use profile::{BUILT_IN, Profile};
pub use root::Root;
pub use script::Script;

use host::Host;

/// Name of the form of the report; it changes when a field changes its meaning or goes.
pub const SCHEMA: &str = "tapecast-doctor/1";

/// Everything that was found. As JSON it is what `--json` prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Root that was read.
    pub sysroot: String,
    /// Name of the profile that it was held against.
    pub profile: String,
    /// The RDMA device, where there is one.
    pub device: Option<Device>,
    /// The network interface, where there is one.
    pub interface: Option<String>,
    /// CPUs that must not wait; empty when nobody has said which.
    pub hot_cpus: String,
    /// How many findings there are of each status.
    pub summary: Summary,
    /// In the order of [`Section`].
    pub findings: Vec<Finding>,
    /// Files that make the remedies last.
    #[serde(skip)]
    pub lasting: Vec<Keep>,
}

/// How many findings there are of each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// As wanted.
    pub ok: usize,
    /// Costs something.
    pub warn: usize,
    /// Breaks something.
    pub fail: usize,
    /// Cannot be known.
    pub unknown: usize,
}

impl Summary {
    fn of(findings: &[Finding]) -> Self {
        let count = |status| findings.iter().filter(|finding| finding.status == status).count();
        Self {
            ok: count(Status::Ok),
            warn: count(Status::Warn),
            fail: count(Status::Fail),
            unknown: count(Status::Unknown),
        }
    }
}

/// Looks at everything.
///
/// # Errors
/// When a device or interface is asked for that is not there, or several devices are.
pub fn examine(root: &Root, profile: &Profile, wishes: &Wishes) -> Result<Report> {
    let host = Host::find(root, profile, wishes)?;
    let areas = [
        cpu::check,
        kernel::check,
        memory::check,
        clock::check,
        pcie::check,
        link::check,
        rdma::check,
        qos::check,
        dcqcn::check,
        counters::check,
    ];
    let findings: Vec<Finding> = areas.iter().flat_map(|check| check(&host)).collect();
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        sysroot: root.path().display().to_string(),
        profile: profile.name.clone(),
        hot_cpus: host.hot.to_string(),
        summary: Summary::of(&findings),
        device: host.device,
        interface: host.interface,
        findings,
        lasting: Vec::new(),
    };
    let steps: Vec<&Step> = report.steps().into_iter().map(|(_, step)| step).collect();
    report.lasting = lasting::files(root, &steps);
    Ok(report)
}

impl Report {
    /// Whether something fails; with `strict` whether something is not as wanted or not known.
    #[must_use]
    pub const fn is_bad(&self, strict: bool) -> bool {
        let Summary { warn, fail, unknown, .. } = self.summary;
        fail > 0 || strict && (warn > 0 || unknown > 0)
    }

    /// The steps of all remedies in their order, each once: first what a program can do.
    #[must_use]
    pub fn steps(&self) -> Vec<(&Finding, &Step)> {
        let mut steps: Vec<(&Finding, &Step)> = Vec::new();
        let all = || self.findings.iter().flat_map(|f| f.fix.iter().map(move |step| (f, step)));
        let by_hand = |step: &Step| step.act == Act::ByHand;
        let ordered = all().filter(|(_, step)| !by_hand(step));
        for (finding, step) in ordered.chain(all().filter(|(_, step)| by_hand(step))) {
            if !steps.iter().any(|(_, known)| known.command == step.command) {
                steps.push((finding, step));
            }
        }
        steps
    }
}
