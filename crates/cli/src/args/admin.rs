//! The arguments of `ranges`, `split`, `merge`, `throttle`, `fault` and `verify`.

use clap::Args as Arguments;

use super::store::{ContainerName, StoreArgs};

/// Lists the ranges of a container
#[derive(Debug, Arguments)]
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

/// Makes one range of two neighbours; readers and writers go on
#[derive(Debug, Arguments)]
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
pub(crate) struct ThrottleArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Only this container, as database/container [default: all]
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: Option<ContainerName>,

    /// For how long; 0 ends it
    #[arg(long, value_name = "N")]
    pub(crate) seconds: f64,

    /// The retry-after value sent to clients, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) retry_after_ms: u64,
}

/// Lets a server give a wrong answer, for tests of clients; it must have been started with --allow-faults
#[derive(Debug, Arguments)]
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
}

/// Reads everything in a store and compares items with the feed
#[derive(Debug, Arguments)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
