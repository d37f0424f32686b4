//! The arguments of what looks into a processor and repairs it: `lag`, `explain`, `seek`, `pause`, `resume`,
//! `dead-letters`, `where`.

use clap::{Args as Arguments, Subcommand};

use super::{
    data::positive,
    moment::Moment,
    store::{ContainerName, ProcessorArgs, StoreArgs},
};

/// A dead-letter container that is looked into as well. Hosts store its name nowhere.
#[derive(Debug, Arguments)]
pub(crate) struct AlsoLettersArgs {
    /// The dead-letter container, to look there too
    #[arg(
        long,
        value_name = "DB/NAME",
        env = "CHANGEFEED_DEAD_LETTERS",
        help_heading = "Store",
        hide_env_values = true
    )]
    pub(crate) dead_letters: Option<ContainerName>,
}

/// Shows how far a processor is behind, lease by lease
///
/// Exit code 1 if a lease document cannot be read, or a store reports a problem. With --dead-letters, or the variable CHANGEFEED_DEAD_LETTERS, it also says
/// how many dead letters the processor has there.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed lag mailer --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct LagArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    #[command(flatten)]
    pub(crate) letters: AlsoLettersArgs,

    /// Prints JSON: total, behind_seconds, leases, broken, dead_letters, store_problems
    #[arg(long)]
    pub(crate) json: bool,
}

/// Says for each lease what it is doing, and why nothing happens if nothing does
///
/// Exit code 1 if a lease needs attention: if its changes wait and no host owns it, if its owner is silent or fails, if a
/// delegate call runs for longer than --slow-after of its host, if it is paused, or if its document is missing or cannot be
/// read; the line `next:` names the command that helps. A store that reports a problem needs attention, too. A lease that has
/// caught up needs no owner: after `run --once` the
/// exit code is 0. With --dead-letters, or the variable CHANGEFEED_DEAD_LETTERS, it also says how many dead letters there are,
/// which need attention, too.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed explain mailer --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// Only this lease, as `changefeed leases list` shows it
    #[arg(long, value_name = "TOKEN")]
    pub(crate) lease: Option<String>,

    #[command(flatten)]
    pub(crate) letters: AlsoLettersArgs,

    /// Prints JSON: an array with an object for each lease; store_problems and dead_letters are the same in all of them
    #[arg(long)]
    pub(crate) json: bool,
}

/// Moves a processor to another position, back or forward; hosts may be running
///
/// Leases are taken from their owners at once. A call that runs at that moment may finish while the next owner already
/// delivers from the new position; it stores nothing. To wait for running calls instead: `changefeed pause`, then seek when
/// `changefeed leases list` shows no owner, then `changefeed resume`.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed seek mailer --to '1h ago' --dry-run --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct SeekArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// Where to: `beginning`, `now`, a time such as 2026-01-31T12:00:00Z, or '10m ago'
    #[arg(long, value_name = "WHEN")]
    pub(crate) to: Moment,

    /// Only this lease, as `changefeed leases list` shows it [default: all]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) lease: Option<String>,

    /// Shows what would be done, and does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Pauses leases; running batches finish first
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed pause mailer --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// Only this lease, as `changefeed leases list` shows it [default: all]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) lease: Option<String>,

    /// Shows what would be done, and does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lists, shows, redrives or deletes dead letters
#[derive(Debug, Arguments)]
pub(crate) struct DeadLettersArgs {
    #[command(subcommand)]
    pub(crate) command: DeadLettersCommand,
}

/// Where dead letters are.
#[derive(Debug, Arguments)]
pub(crate) struct LettersPlaceArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The dead-letter container, as database/container
    #[arg(
        long,
        value_name = "DB/NAME",
        env = "CHANGEFEED_DEAD_LETTERS",
        help_heading = "Store",
        hide_env_values = true
    )]
    pub(crate) dead_letters: ContainerName,
}

/// Which dead letters.
#[derive(Debug, Arguments)]
pub(crate) struct LettersArgs {
    #[command(flatten)]
    pub(crate) place: LettersPlaceArgs,

    /// Only those of this processor
    #[arg(long, value_name = "NAME")]
    pub(crate) processor: Option<String>,

    /// Only those whose last error contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,

    /// Only those of the item with this id
    #[arg(long, value_name = "ID")]
    pub(crate) item: Option<String>,

    /// Only those of this partition key: a text, or a JSON array such as '["ada", 7]'
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DeadLettersCommand {
    /// Lists dead letters, grouped by error and partition key
    #[command(after_help = "\
Example:
  changefeed dead-letters list --store ./data --dead-letters shop/rejected")]
    List {
        #[command(flatten)]
        letters: LettersArgs,

        /// Prints JSON, a line for each
        #[arg(long)]
        json: bool,
    },
    /// Shows one dead letter whole, as JSON
    #[command(after_help = "\
Example:
  changefeed dead-letters show mailer.00000000000000000017.0123456789abcdef \\
    --store ./data --dead-letters shop/rejected")]
    Show {
        #[command(flatten)]
        place: LettersPlaceArgs,

        /// Its id, as `changefeed dead-letters list` shows it
        #[arg(value_name = "ID")]
        id: String,

        /// Prints it on one line
        #[arg(long)]
        json: bool,
    },
    /// Writes the items of dead letters into the monitored container again, so that they are delivered again
    #[command(after_help = "\
Example:
  changefeed dead-letters redrive --rate 10 --dry-run --store ./data \\
    --dead-letters shop/rejected --container shop/orders")]
    Redrive {
        #[command(flatten)]
        letters: LettersArgs,

        /// The monitored container, as database/container
        #[arg(
            long,
            value_name = "DB/NAME",
            env = "CHANGEFEED_CONTAINER",
            help_heading = "Store",
            hide_env_values = true
        )]
        container: ContainerName,

        /// So many a second at most
        #[arg(long, value_name = "N", value_parser = positive)]
        rate: Option<f64>,

        /// Also items that have changed since, whose newer version is then lost
        #[arg(long)]
        overwrite: bool,

        /// Shows what would be done, and does nothing
        #[arg(long)]
        dry_run: bool,

        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// Deletes dead letters for good
    #[command(after_help = "\
Example:
  changefeed dead-letters purge --before '7d ago' --store ./data \\
    --dead-letters shop/rejected")]
    Purge {
        #[command(flatten)]
        letters: LettersArgs,

        /// Only those that failed before this: a time such as 2026-01-31T12:00:00Z, or '7d ago'
        #[arg(long, value_name = "WHEN")]
        before: Option<Moment>,

        /// Really deletes them; without it shows what would be deleted
        #[arg(long)]
        yes: bool,

        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
}

/// Says of one item where it stands: its lease, and whether that has passed its newest version
///
/// Without --key the item is searched by its id, among at most 100,000 items whose ids begin with it; if several partition keys
/// have it, they are listed. Exit code 1 if there is no such item, or if it is a dead letter.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed where mailer o-17 --store ./data \\
    --container shop/orders --leases shop/leases
  changefeed where mailer o-17 --key k17 --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct WhereArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// The item's id
    #[arg(value_name = "ITEM")]
    pub(crate) item: String,

    /// The item's partition key: a text, or a JSON array such as '["ada", 7]' [default: the item is searched by its id]
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    #[command(flatten)]
    pub(crate) letters: AlsoLettersArgs,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
