//! The arguments of `ranges`, `split`, `merge`, `throttle`, `fault` and `verify`.

use clap::Args as Arguments;

use super::store::{ContainerName, StoreArgs};

/// Lists the ranges of a container
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed ranges --store ./data --container shop/orders")]
pub(crate) struct RangesArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Splits a range in two; readers and writers go on
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed split --range 0 --store ./data --container shop/orders")]
pub(crate) struct SplitArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// The range, as `changefeed ranges` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) range: String,

    /// Where to cut, an effective partition key in hexadecimal [default: the middle]
    #[arg(long, value_name = "EPK")]
    pub(crate) at: Option<String>,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Merges two adjacent ranges; readers and writers go on
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed merge --ranges 1,2 --store ./data --container shop/orders")]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_CONTAINER", hide_env_values = true)]
    pub(crate) container: ContainerName,

    /// The two ranges, as `changefeed ranges` shows them
    #[arg(long, value_name = "ID,ID", value_delimiter = ',', required = true)]
    pub(crate) ranges: Vec<String>,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lets a server answer requests for items with 429 for a while
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed throttle --seconds 10 --store http://localhost:8081")]
pub(crate) struct ThrottleArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Only this container, as database/container [default: all]
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: Option<ContainerName>,

    /// For how long; 0 ends it
    #[arg(long, value_name = "N", value_parser = not_negative, allow_negative_numbers = true)]
    pub(crate) seconds: f64,

    /// The retry-after value sent to clients, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) retry_after_ms: u64,

    /// Prints what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Injects an error into server responses, for tests of clients; it must have been started with --allow-faults
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed fault --status 503 --count 3 --store http://localhost:8081")]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The status to answer with, 400 to 599
    #[arg(long, value_name = "N", required_unless_present = "clear")]
    pub(crate) status: Option<u16>,

    /// The substatus to answer with
    #[arg(long, value_name = "N")]
    pub(crate) substatus: Option<u32>,

    /// How many requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) count: u32,

    /// Only requests of this method
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Only requests whose path contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) path_contains: Option<String>,

    /// Carries the request out before it gives the wrong answer
    #[arg(long)]
    pub(crate) after: bool,

    /// Ends all faults and throttling instead
    #[arg(long, conflicts_with = "status")]
    pub(crate) clear: bool,

    /// Prints what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads everything in a store and compares items with the feed
///
/// Exit code 1 if the store is damaged; with --json, `{"damage": ...}` says how.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed verify --store ./data")]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("pass a number of seconds, or 0".to_owned()),
    }
}
