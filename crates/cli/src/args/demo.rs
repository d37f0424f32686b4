//! The arguments of `demo`.

use std::path::PathBuf;

use clap::Args as Arguments;

const DEMO_LEDGER: &str = "\
The ledger at the end counts changes, one for each version of each order:
  written       acknowledged by the store after they were on disk
  delivered     of these, handled by a host at least once
  duplicates    handled again: a host died before it had stored its progress
  dead letters  found in the dead-letter container
  lost          written, but neither delivered nor dead letters

An order is only updated after its last version was handled: the feed shows the newest version of an item, so faster \
updates would be merged, and counting them would prove nothing.

Example:
  changefeed demo --seconds 10

The events go to stderr, the ledger to stdout. Ends early on Ctrl-C, SIGTERM and SIGHUP. Exit codes: 0 nothing was lost, 1 \
something was, 2 error, 130 ended by a signal.";

/// Shows the whole idea in half a minute: hosts share the work, one dies, others join, a range splits, an item is
/// poison, and nothing is lost
///
/// Needs nothing installed: the store is a fresh folder behind a server process of its own, each host is a process, too,
/// and one of them gets SIGKILL. On a terminal it is one picture that changes, elsewhere lines.
#[derive(Debug, Arguments)]
#[command(after_long_help = DEMO_LEDGER, after_help = "See --help for what the ledger counts.")]
pub(crate) struct DemoArgs {
    /// Prints the ledger as one JSON object: written, delivered, duplicates, dead_letters, lost, seconds
    #[arg(long)]
    pub(crate) json: bool,

    /// About how long it takes; no less than 8, which the events themselves need
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,

    /// Chooses which orders are written; when things happen still varies from run to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Keeps the store in this folder, which must be new or empty [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// A host of the demo, which starts it
#[derive(Debug, Arguments)]
pub(crate) struct DemoHostArgs {
    /// Its name
    pub(crate) name: String,

    /// The endpoint of the server
    #[arg(long, value_name = "URL")]
    pub(crate) store: String,
}
