//! The wanted state, as data: `configs/dcqcn/`, built in, or a file of the operator's own.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;

use super::finding::Status;
use super::knobs::{self, Bound, Knob};

/// The profiles that are built in: name, text.
pub const BUILT_IN: [(&str, &str); 3] = [
    ("default", include_str!("../../../configs/dcqcn/default.toml")),
    ("lossy", include_str!("../../../configs/dcqcn/lossy.toml")),
    ("pfc", include_str!("../../../configs/dcqcn/pfc.toml")),
];

/// A profile may extend one that extends one, and so on; more is a circle.
const EXTENDS_MAX: usize = 8;

/// The state that is wanted.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    pub(crate) traffic: Traffic,
    pub(crate) link: Link,
    pub(crate) pfc: Pfc,
    budget: Budget,
    mlx5: BTreeMap<String, Wish>,
    bnxt_re: BTreeMap<String, Wish>,
}

/// How the data and the notifications are marked.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Traffic {
    pub(crate) dscp: u8,
    pub(crate) ecn: u8,
    pub(crate) priority: u8,
    pub(crate) cnp_dscp: u8,
    pub(crate) cnp_priority: u8,
}

impl Traffic {
    /// The byte in the IP header.
    pub(crate) const fn class(self) -> u8 {
        self.dscp << 2 | self.ecn
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) mtu: Wish,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pfc {
    pub(crate) lossless: Lossless,
}

/// Which priorities may be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Lossless {
    None,
    AtMostOne,
    One,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Budget {
    wire_bytes: u32,
    delay_us: u32,
}

impl Budget {
    /// The lowest rate that keeps within the budget, in Mb/s, up to the next hundred.
    fn rate_mbps(self) -> u64 {
        (u64::from(self.wire_bytes) * 8).div_ceil(u64::from(self.delay_us)).next_multiple_of(100)
    }
}

/// What is wished of a value.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wish {
    is: Option<Amount>,
    at_least: Option<Amount>,
    from: Option<u64>,
    to: Option<u64>,
    set: Option<u64>,
    per_gbps: Option<u64>,
    #[serde(default)]
    otherwise: Otherwise,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "write a whole number from 0 on, or \"budget\"")]
enum Amount {
    Number(u64),
    Named(String),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Otherwise {
    #[default]
    Warn,
    Fail,
}

/// A wish with its figures for one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// What is written when it is not so.
    pub(crate) set: u64,
    /// What it is when it is not so.
    pub(crate) otherwise: Status,
}

impl Wanted {
    pub(crate) const fn is(value: u64, otherwise: Status) -> Self {
        Self { from: value, to: value, set: value, otherwise }
    }

    pub(crate) const fn accepts(&self, value: u64) -> bool {
        self.from <= value && value <= self.to
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.from, self.to) {
            (from, to) if from == to => write!(f, "{from}"),
            (from, u64::MAX) => write!(f, "at least {from}"),
            (from, to) => write!(f, "{from} to {to}"),
        }
    }
}

impl Wish {
    /// The figures; none when they depend on the link's rate and that is not known.
    fn wanted(&self, budget: Budget, line_mbps: Option<u64>) -> Result<Option<Wanted>> {
        let amount = |amount: &Amount| match amount {
            Amount::Number(number) => Ok(*number),
            Amount::Named(name) if name == "budget" => Ok(budget.rate_mbps()),
            Amount::Named(name) => bail!("{name:?} is neither a number nor \"budget\""),
        };
        let (from, to) = match (&self.is, &self.at_least, self.from, self.to) {
            (Some(is), None, None, None) => (amount(is)?, amount(is)?),
            (None, Some(least), None, None) => (amount(least)?, u64::MAX),
            (None, None, Some(from), Some(to)) if from <= to => (from, to),
            _ => bail!("write {{ is = N }}, {{ at_least = N }} or {{ from = N, to = N }}"),
        };
        let set = self.set.unwrap_or(from);
        if set < from || set > to {
            bail!("set = {set} is not among the values that are wanted");
        }
        let otherwise = match self.otherwise {
            Otherwise::Warn => Status::Warn,
            Otherwise::Fail => Status::Fail,
        };
        let wanted = Wanted { from, to, set, otherwise };
        match (self.per_gbps, line_mbps) {
            (None, _) => Ok(Some(wanted)),
            (Some(0), _) => bail!("per_gbps = 0 is no rate"),
            (Some(_), None) => Ok(None),
            (Some(gbps), Some(line)) => Ok(Some(scaled(&wanted, line, gbps))),
        }
    }
}

fn scaled(wanted: &Wanted, line_mbps: u64, gbps: u64) -> Wanted {
    let scale = |value: u64| match value {
        u64::MAX => u64::MAX,
        value => (value.saturating_mul(line_mbps) / (gbps.saturating_mul(1000))).max(1),
    };
    let Wanted { from, to, set, otherwise } = *wanted;
    Wanted { from: scale(from), to: scale(to), set: scale(set), otherwise }
}

impl Profile {
    /// Finds a profile: one that is built in, or a file.
    ///
    /// # Errors
    /// When there is none, or what it wishes cannot be.
    pub fn find(name_or_file: &str) -> Result<Self> {
        Self::from_table(gather(name_or_file, Path::new(""), EXTENDS_MAX)?)
            .with_context(|| format!("the profile {name_or_file}"))
    }

    fn from_table(table: toml::Table) -> Result<Self> {
        let profile: Self = serde_path_to_error::deserialize(table).map_err(|error| {
            let place = error.path().to_string();
            let said = error.into_inner().to_string();
            // The lines that follow repeat the place.
            let first = said.trim().lines().next().unwrap_or_default();
            anyhow!("{}", sentence(&place, first))
        })?;
        profile.check()?;
        Ok(profile)
    }

    /// Every wish must be one that the hardware can grant.
    fn check(&self) -> Result<()> {
        let Traffic { dscp, ecn, priority, cnp_dscp, cnp_priority } = self.traffic;
        let ranges = [
            ("dscp", dscp, 63),
            ("priority", priority, 7),
            ("cnp_dscp", cnp_dscp, 63),
            ("cnp_priority", cnp_priority, 7),
        ];
        if let Some((name, value, top)) = ranges.into_iter().find(|(_, value, top)| value > top) {
            bail!("traffic.{name} = {value}: it goes from 0 to {top}");
        }
        // Notifications that queue behind the data come when it is too late.
        for (name, value, data) in
            [("cnp_dscp", cnp_dscp, dscp), ("cnp_priority", cnp_priority, priority)]
        {
            if value == data {
                bail!("traffic.{name} = {value}: it is the data's; notifications need another");
            }
        }
        if !matches!(ecn, 1 | 2) {
            bail!("traffic.ecn = {ecn}: it is 1 or 2, else no switch marks a packet");
        }
        if self.budget.delay_us == 0 {
            bail!("budget.delay_us = 0: nothing takes no time");
        }
        self.check_link_mtu()?;
        check_knobs("mlx5", &self.mlx5, &knobs::MLX5, self.budget)?;
        check_knobs("bnxt_re", &self.bnxt_re, &knobs::BNXT_RE, self.budget)
    }

    fn check_link_mtu(&self) -> Result<()> {
        let wanted = self.link.mtu.wanted(self.budget, None).context("link.mtu")?;
        let set = wanted.ok_or_else(|| anyhow!("link.mtu: it does not grow with the rate"))?.set;
        if (1280..=9978).contains(&set) {
            return Ok(());
        }
        bail!("link.mtu = {set}: NICs take 1280 to 9978")
    }

    /// The lowest rate that keeps a snapshot within the budget, in Mb/s.
    #[must_use]
    pub fn budget_rate_mbps(&self) -> u64 {
        self.budget.rate_mbps()
    }

    /// MTU of the interface.
    pub(crate) fn mtu(&self) -> Wanted {
        let wanted = self.link.mtu.wanted(self.budget, None).ok().flatten();
        wanted.unwrap_or_else(|| Wanted::is(4200, Status::Warn))
    }

    /// What is wanted of a knob on a link of this rate; none when that depends on a rate that is
    /// not known.
    pub(crate) fn knob(&self, knob: &Knob, line_mbps: Option<u64>) -> Option<Wanted> {
        let wish = self.mlx5.get(knob.name).or_else(|| self.bnxt_re.get(knob.name))?;
        wish.wanted(self.budget, line_mbps).ok()?
    }
}

/// What is wrong with a file, in words for whoever wrote it. The place of the whole file is a dot.
fn sentence(place: &str, said: &str) -> String {
    let place = if place == "." { "" } else { place };
    let missing = said.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
    match (missing, place) {
        (Some(name), "") => {
            format!("{name} is missing; say it, or start with extends = \"default\"")
        }
        (Some(name), _) => {
            format!("{place}.{name} is missing; say it, or start with extends = \"default\"")
        }
        (None, "") => said.to_owned(),
        (None, _) => format!("{place}: {said}"),
    }
}

/// Every knob has a wish, every wish a knob, and each is within the hardware's range.
fn check_knobs(
    table: &str,
    wishes: &BTreeMap<String, Wish>,
    knobs: &[Knob],
    budget: Budget,
) -> Result<()> {
    for (name, wish) in wishes {
        let place = || format!("{table}.{name}");
        let known = knobs.iter().find(|knob| knob.name == name);
        let knob = known.ok_or_else(|| anyhow!("{}: there is no such setting", place()))?;
        let Some(wanted) = wish.wanted(budget, None).with_context(place)? else { continue };
        let top = match knob.range.1 {
            Bound::Number(top) => top,
            // Held against the link's rate when that is known.
            Bound::Line(_) => u64::from(u32::MAX),
        };
        if wanted.set < knob.range.0 || wanted.set > top {
            bail!("{} = {}: it goes from {} to {top}", place(), wanted.set, knob.range.0);
        }
    }
    match knobs.iter().find(|knob| !wishes.contains_key(knob.name)) {
        Some(knob) => bail!("{table}.{} is missing; start with extends = \"default\"", knob.name),
        None => Ok(()),
    }
}

/// The text of a profile with everything that it extends. A file that one extends is looked for
/// beside it, wherever the program was started.
fn gather(name_or_file: &str, beside: &Path, depth: usize) -> Result<toml::Table> {
    if depth == 0 {
        bail!("{name_or_file} extends itself, or one of more than {EXTENDS_MAX} in a row");
    }
    let file = beside.join(name_or_file);
    let text = text_of(name_or_file, &file)?;
    let parsed: Result<toml::Table, toml::de::Error> = text.parse();
    let mut table = parsed
        .map_err(|error| anyhow!("the profile {name_or_file} is not TOML: {}", error.message()))?;
    let Some(base) = table.remove("extends") else { return Ok(table) };
    let base = base.as_str().context("extends: write the name of a profile")?.to_owned();
    let folder = file.parent().unwrap_or(beside);
    let mut whole = gather(&base, folder, depth - 1)?;
    merge(&mut whole, table);
    Ok(whole)
}

/// Longest file that is read as a profile.
const PROFILE_BYTES: u64 = 1024 * 1024;

fn text_of(name_or_file: &str, file: &Path) -> Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(name, _)| *name == name_or_file) {
        return Ok((*text).to_owned());
    }
    let names = "default, lossy and pfc are built in; else give a file";
    let found = std::fs::metadata(file);
    let found = found.with_context(|| format!("no profile {name_or_file:?}: {names}"))?;
    if !found.is_file() || found.len() > PROFILE_BYTES {
        bail!("{name_or_file} is no file of at most 1 MiB: {names}");
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {name_or_file}"))
}

/// Tables are joined; a wish or a value takes the place of the one before.
fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(base)), toml::Value::Table(over)) if is_section(&key) => {
                merge(base, over);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn is_section(key: &str) -> bool {
    ["traffic", "link", "pfc", "budget", "mlx5", "bnxt_re"].contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Result<Profile> {
        let mut table = gather("default", Path::new(""), EXTENDS_MAX).unwrap();
        merge(&mut table, text.parse().unwrap());
        Profile::from_table(table)
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", own(text).unwrap_err())
    }

    #[test]
    fn every_profile_that_is_built_in_is_whole() {
        for (name, _) in BUILT_IN {
            assert_eq!(Profile::find(name).unwrap().name, name);
        }
    }

    #[test]
    fn the_lowest_rate_follows_from_the_budget() {
        let profile = Profile::find("default").unwrap();
        assert_eq!(profile.budget_rate_mbps(), 1700);
        assert_eq!(
            own("budget = { wire_bytes = 4198, delay_us = 10 }").unwrap().budget_rate_mbps(),
            3400
        );
    }

    #[test]
    fn steps_of_the_rate_grow_with_the_link() {
        let profile = Profile::find("default").unwrap();
        let knob = knobs::MLX5.iter().find(|knob| knob.name == "rpg_ai_rate").unwrap();
        let at = |line| profile.knob(knob, line).map(|wanted| wanted.set);
        assert_eq!([at(Some(25_000)), at(Some(100_000)), at(None)], [Some(5), Some(20), None]);
        assert_eq!(at(Some(1)), Some(1), "never less than the hardware takes");
    }

    #[test]
    fn the_traffic_class_is_dscp_and_ecn() {
        assert_eq!(Profile::find("lossy").unwrap().traffic.class(), 106);
    }

    #[test]
    fn a_wish_that_the_hardware_cannot_grant_is_refused_with_its_name() {
        for (text, words) in [
            ("mlx5 = { rpg_gd = { is = 12 } }", ["mlx5.rpg_gd", "from 10 to 11"]),
            ("mlx5 = { rpg_gd = { is = 11, set = 10 } }", ["mlx5.rpg_gd", "set = 10"]),
            ("mlx5 = { rpg_threshold = { is = 0 } }", ["mlx5.rpg_threshold", "from 1 to 31"]),
            ("mlx5 = { rpg_thresold = { is = 1 } }", ["mlx5.rpg_thresold", "no such setting"]),
            ("mlx5 = { rpg_gd = {} }", ["mlx5.rpg_gd", "at_least"]),
            ("mlx5 = { rpg_gd = { is = \"low\" } }", ["mlx5.rpg_gd", "budget"]),
            ("traffic = { dscp = 64 }", ["traffic.dscp", "0 to 63"]),
            ("traffic = { ecn = 0 }", ["traffic.ecn", "1 or 2"]),
            ("traffic = { colour = 1 }", ["traffic", "colour"]),
            ("mlx5 = { rpg_gd = { is = -1 } }", ["mlx5.rpg_gd", "whole number from 0 on"]),
            ("mlx5 = { rpg_gd = { is = 1.5 } }", ["mlx5.rpg_gd.is", "or \"budget\""]),
            ("traffic = { cnp_dscp = 26 }", ["traffic.cnp_dscp = 26", "the data's"]),
            ("traffic = { cnp_priority = 3 }", ["traffic.cnp_priority = 3", "need another"]),
            ("pfc = { lossless = \"two\" }", ["pfc.lossless", "two"]),
            ("budget = { wire_bytes = 1, delay_us = 0 }", ["budget.delay_us", "no time"]),
            ("link = { mtu = { is = 64 } }", ["link.mtu", "1280"]),
        ] {
            let said = refusal(text);
            assert!(words.iter().all(|word| said.contains(word)), "{text}: {said}");
        }
    }

    #[test]
    fn what_a_file_lacks_is_told_in_a_sentence() {
        let of = |text: &str| Profile::from_table(text.parse().unwrap()).unwrap_err().to_string();
        let said = of("name = \"own\"");
        assert_eq!(said, "about is missing; say it, or start with extends = \"default\"");
        let said = of("name = \"own\"\nabout = \"\"\ntraffic = { ecn = 2 }");
        assert_eq!(said, "traffic.dscp is missing; say it, or start with extends = \"default\"");
    }

    #[test]
    fn a_profile_extends_the_file_beside_it_and_a_circle_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        file("site/base.toml", "extends = \"../all.toml\"\nbudget = { delay_us = 10 }\n");
        file("all.toml", "extends = \"lossy\"\nabout = \"everywhere\"\n");
        let own = file("site/own.toml", "extends = \"base.toml\"\nname = \"own\"\n");
        let profile = Profile::find(&own).unwrap();
        assert_eq!((profile.name.as_str(), profile.about.as_str()), ("own", "everywhere"));
        assert_eq!((profile.budget_rate_mbps(), profile.pfc.lossless), (3400, Lossless::None));
        let round = file("site/round.toml", "extends = \"round.toml\"\n");
        let said = format!("{:#}", Profile::find(&round).unwrap_err());
        assert!(said.contains("extends itself"), "{said}");
    }

    #[test]
    fn a_profile_that_is_not_there_is_told_with_those_that_are() {
        let said = format!("{:#}", Profile::find("lossles").unwrap_err());
        assert!(said.contains("lossles") && said.contains("lossy"), "{said}");
    }
}
