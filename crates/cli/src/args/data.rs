//! The arguments of `load` and `tail`, which write and read items.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::{
    moment::Moment,
    store::{ContainerName, StoreArgs},
};

const LOAD_EXAMPLE: &str = "\
Examples:
  changefeed load --store ./data --create --container shop/orders --count 1000
  changefeed load --store ./data --create --container shop/audit --count 10 \\
    --retention 10";

/// Writes items, to try things out, with a given count, rate and size
///
/// Creates the container if need be. Ids are a prefix and a number, partition keys are k0, k1 and so on.
#[derive(Debug, Arguments)]
#[command(after_help = LOAD_EXAMPLE)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", help_heading = "Store", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// Makes the store folder if it is missing
    #[arg(long, help_heading = "Store")]
    pub(crate) create: bool,

    /// How many items; without it until Ctrl-C
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// Items a second [default: as fast as they are acknowledged]
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) rate: Option<f64>,

    /// Bytes of each item, about
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    pub(crate) size: usize,

    /// How many different partition keys
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) keys: u64,

    /// How many writes are under way at once
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) concurrency: u16,

    /// What ids begin with; items that are there under the same ids are overwritten [default: something new]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prefix: Option<String>,

    /// Partition key path of a container that is made
    #[arg(long, value_name = "PATH", default_value = "/customer")]
    pub(crate) partition_key: String,

    /// How many ranges a container that is made begins with
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) ranges: u16,

    /// How long a container that is made keeps all versions and deletes, for `tail` and `run` with --all-versions; 0: not at
    /// all
    #[arg(long, value_name = "MINUTES", default_value_t = 0)]
    pub(crate) retention: u32,

    /// Appends `id LSN` to this file after each acknowledged write
    #[arg(long, value_name = "FILE")]
    pub(crate) ledger: Option<PathBuf>,

    /// Prints what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const TAIL_EXAMPLE: &str = "\
Examples:
  changefeed tail --store ./data \\
    --container shop/orders --from beginning --once
  changefeed tail --store http://localhost:8081 \\
    --container shop/orders --where 'c.total > 100'";

/// Prints the changes of a container as they come; needs no leases and writes nothing
///
/// A server that is restarted or throttles is waited for, unless --once is given.
#[derive(Debug, Arguments)]
#[command(after_help = TAIL_EXAMPLE)]
pub(crate) struct TailArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", help_heading = "Store", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// Where to begin: `beginning`, `now`, a time such as 2026-01-31T12:00:00Z, or '10m ago'
    #[arg(long, value_name = "WHEN", default_value = "now")]
    pub(crate) from: Moment,

    /// Ends when it has caught up, instead of waiting for more
    #[arg(long)]
    pub(crate) once: bool,

    /// Only this partition key: a text, or a JSON array such as '["ada", 7]'
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// Only this range, as `changefeed ranges` shows it
    #[arg(long, value_name = "ID", conflicts_with = "key")]
    pub(crate) range: Option<String>,

    /// All versions and deletes, instead of the newest version of each item; the container must keep them, as one does that
    /// `load --retention` makes
    #[arg(long)]
    pub(crate) all_versions: bool,

    /// Only items for which this is true: a condition in the SQL of Cosmos DB on the item c, such as 'c.total > 100'
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) condition: Option<String>,

    /// Keeps the position in this file, and goes on from there the next time; --from then says where the first time begins
    #[arg(long, value_name = "FILE")]
    pub(crate) bookmark: Option<PathBuf>,

    /// Ends after so many changes
    #[arg(long, value_name = "N")]
    pub(crate) max: Option<u64>,

    /// Prints each change as one line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("pass a number above zero".to_owned()),
    }
}
