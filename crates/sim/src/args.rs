//! The command line.

use std::{ops::Range, path::PathBuf};

use clap::Parser;

/// Runs the change feed processor in a simulated world, and says which seeds broke a promise.
///
/// Exit code 0: everything held; 1: a promise was broken, or a planted bug was not found; 2: bad arguments.
#[derive(Clone, Debug, Parser)]
#[command(name = "changefeed-sim", arg_required_else_help = true)]
pub(crate) struct Args {
    /// Runs these seeds, for example 0..1000.
    #[arg(long, value_parser = seeds)]
    pub(crate) seeds: Option<Range<u64>>,

    /// Runs one seed and shows its scenario.
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Runs a scenario from a JSON file, as --seed prints it.
    #[arg(long)]
    pub(crate) scenario: Option<PathBuf>,

    /// Shows the trace of the one run.
    #[arg(long)]
    pub(crate) trace: bool,

    /// Looks for the smallest scenario that breaks the same promise.
    #[arg(long)]
    pub(crate) shrink: bool,

    /// Plants a bug in the one run, for example OwnerNameFence.
    #[arg(long)]
    pub(crate) mutant: Option<String>,

    /// Runs new seeds for this many minutes, from the one given with --seed or from 1,000,000 on.
    #[arg(long)]
    pub(crate) minutes: Option<u64>,

    /// Plants each known bug and runs seeds until it is found.
    #[arg(long)]
    pub(crate) mutants: bool,

    /// Seeds per planted bug before it counts as not found.
    #[arg(long, default_value_t = 600)]
    pub(crate) budget: u64,

    /// Seeds at a time.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parse = || {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    };
    parse().filter(|range| !range.is_empty()).ok_or_else(|| "expected two numbers such as 0..1000".to_owned())
}
