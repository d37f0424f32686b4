//! The arguments of `top`.

use std::time::Duration;

use clap::Args as Arguments;

use super::{moment::positive_duration, store::ProcessorArgs};

/// Shows leases, owners, lag and errors of a processor in the terminal, as they change
///
/// CHANGES is the lag: how many changes are waiting. HANDLED/S is how many writes the checkpoint has passed in a second,
/// over the last ten seconds: a transaction counts once, and so does each version of an item, delivered or overwritten
/// before it was read. LAG/S is how much the lag has grown.
///
/// Keys: q ends, s sorts by another column, r turns the order round, p holds the picture, / filters by text, Esc ends the
/// filter.
#[derive(Clone, Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed top mailer --once --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// How often to look; with --once, how long to measure
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = positive_duration)]
    pub(crate) interval: Duration,

    /// Prints one picture and ends; needs no terminal
    #[arg(long)]
    pub(crate) once: bool,

    /// Prints what is shown as JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,
}
