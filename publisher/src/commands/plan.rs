//! `plan`: prints what the model says, and draws it.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter};

use super::print;
use crate::cli::PlanArgs;
use crate::plan::{Inputs, Plan, draw};

/// Digits that count in a number of the JSON output. A model has no more.
const DIGITS: i32 = 6;

/// Exit status where what is asked for contradicts itself: wrong usage, as a value out of range is.
const WRONG_USAGE: u8 = 2;

/// Prints the plan, and draws it where that is asked for.
///
/// # Errors
/// When the plot cannot be written.
pub fn plan(args: &PlanArgs) -> Result<ExitCode> {
    let inputs = args.inputs();
    if let Err(error) = check(&inputs) {
        eprintln!("tapecast-publisher: {error}");
        return Ok(ExitCode::from(WRONG_USAGE));
    }
    if let Some(path) = &args.plot {
        let svg = draw(&inputs.demand.scenario)?;
        write_plot(path, &svg, args.force)
            .with_context(|| format!("cannot write the plot {} (--plot)", path.display()))?;
    }
    let plan = Plan::of(&inputs);
    if args.json {
        print(&format_args!("{}\n", json(&plan)?))?;
    } else {
        print(&plan)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(inputs: &Inputs) -> Result<()> {
    let (behind, all) = (inputs.demand.behind_port, inputs.demand.scenario.subscribers);
    ensure!(
        behind <= all,
        "{behind} subscribers cannot be behind one port when there are {all}: lower --behind-port \
         or raise --subscribers"
    );
    ensure!(
        inputs.buffer.pause_bytes() > 0.0,
        "the headroom of {} ports with 8 priorities is more than the switch's buffer of {} MB: \
         raise --switch-buffer-mb, or lower --switch-ports or --headroom-kb",
        inputs.buffer.ports,
        inputs.buffer.buffer_bytes / 1e6
    );
    Ok(())
}

/// Creates the file; replaces one that is there only when told to.
fn write_plot(path: &Path, svg: &str, overwrite: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    if overwrite {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let mut file = options.open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            anyhow::anyhow!("the file exists; choose another name or say --force")
        }
        _ => error.into(),
    })?;
    Ok(file.write_all(svg.as_bytes())?)
}

/// Writes compact JSON in which a number has no more digits than a model.
struct SixDigits;

impl Formatter for SixDigits {
    fn write_f64<W: Write + ?Sized>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        CompactFormatter.write_f64(writer, six_digits(value))
    }
}

fn json(plan: &Plan) -> Result<String> {
    let mut text = Vec::new();
    plan.serialize(&mut Serializer::with_formatter(&mut text, SixDigits))?;
    Ok(String::from_utf8(text)?)
}

fn six_digits(value: f64) -> f64 {
    if value == 0.0 {
        return value;
    }
    let places = DIGITS - 1 - value.abs().log10().floor() as i32;
    format!("{value:.*}", places.max(0) as usize).parse().unwrap_or(value)
}
