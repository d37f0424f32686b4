//! The command line.

use std::{ops::Range, path::PathBuf};

use changefeed_sim::{planted::Planted, scenario::Behaviour};
use clap::Parser;

/// Runs the change feed processor on simulated hosts, stores and networks, and reports seeds that break a rule.
///
/// Exit code 0: no rule was broken; 1: a rule was broken, or a planted bug was not found; 2: bad arguments.
#[derive(Clone, Debug, Parser)]
#[command(name = "changefeed-sim", arg_required_else_help = true)]
pub(crate) struct Args {
    /// Runs these seeds, for example 0..1000.
    #[arg(long, value_parser = seeds)]
    pub(crate) seeds: Option<Range<u64>>,

    /// Runs one seed and prints its scenario.
    #[arg(long)]
    pub(crate) seed: Option<u64>,

    /// Runs a scenario from a JSON file, as --seed prints it.
    #[arg(long)]
    pub(crate) scenario: Option<PathBuf>,

    /// Prints the trace of the run.
    #[arg(long)]
    pub(crate) trace: bool,

    /// Looks for the smallest scenario that breaks the same rule.
    #[arg(long)]
    pub(crate) shrink: bool,

    /// Plants a bug in each run, for example OwnerNameFence.
    #[arg(long, value_parser = planted)]
    pub(crate) mutant: Option<Planted>,

    /// Runs new seeds for this many minutes, from the one given with --seed or from 1,000,000 on.
    #[arg(long)]
    pub(crate) minutes: Option<u64>,

    /// Plants each known bug and runs seeds until it is found.
    #[arg(long)]
    pub(crate) mutants: bool,

    /// Seeds per planted bug before it counts as not found.
    #[arg(long, default_value_t = 1000)]
    pub(crate) budget: u64,

    /// Number of threads.
    #[arg(long, default_value_t = 2)]
    pub(crate) threads: usize,

    /// Runs a fleet of processor hosts, for example 100,1000 for 100 hosts and 1,000 leases, and prints what it takes to
    /// balance leases at the start, with one more host, with twice and with half as many.
    #[arg(long, value_name = "HOSTS,LEASES", value_parser = fleet, conflicts_with_all = ["seeds", "mutants", "minutes"])]
    pub(crate) fleet: Option<(usize, usize)>,

    /// With --fleet: also writes the report to this file, as JSON.
    #[arg(long, value_name = "FILE", requires = "fleet")]
    pub(crate) json: Option<PathBuf>,

    /// Switches on exactly these behaviours instead of those that the seed draws, for example Typed,Seeks; or none.
    #[arg(long, hide = true, value_delimiter = ',', value_parser = behaviour)]
    pub(crate) behaviours: Option<Vec<Option<Behaviour>>>,
}

/// A planted bug by its name.
fn planted(text: &str) -> Result<Planted, String> {
    let known = || Planted::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Planted::by_name(text).ok_or_else(|| format!("expected one of {}", known()))
}

/// A behaviour by its name; `none` is no behaviour.
fn behaviour(text: &str) -> Result<Option<Behaviour>, String> {
    match Behaviour::by_name(text) {
        None if text != "none" => {
            let known: Vec<String> = Behaviour::ALL.iter().map(|(behaviour, _)| format!("{behaviour:?}")).collect();
            Err(format!("expected none or some of {}", known.join(",")))
        }
        found => Ok(found),
    }
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let parse = || {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    };
    parse().filter(|range| !range.is_empty()).ok_or_else(|| "expected two numbers such as 0..1000".to_owned())
}

/// Hosts and leases, both at least one.
fn fleet(text: &str) -> Result<(usize, usize), String> {
    let parse = || {
        let (hosts, leases) = text.split_once(',')?;
        Some((hosts.parse().ok()?, leases.parse().ok()?))
    };
    parse()
        .filter(|(hosts, leases)| *hosts > 0 && *leases > 0)
        .ok_or_else(|| "expected two numbers such as 100,1000".to_owned())
}
