//! The arguments of `leases`.

use std::{path::PathBuf, time::Duration};

use clap::{Args as Arguments, Subcommand};

use super::{moment::duration, store::ProcessorArgs};

/// Lists leases, shows one, frees, exports or imports them
#[derive(Debug, Arguments)]
pub(crate) struct LeasesArgs {
    #[command(subcommand)]
    pub(crate) command: LeasesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LeasesCommand {
    /// One line for each lease: owner, state, how far behind
    ///
    /// Exit code 1 if a lease document cannot be read: its state is `broken`.
    #[command(after_help = "\
Example:
  changefeed leases list mailer --store ./data \\
    --container shop/orders --leases shop/leases")]
    List {
        #[command(flatten)]
        processor: ProcessorArgs,

        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
    /// The document of a lease, as it is stored
    #[command(after_help = "\
Example:
  changefeed leases show mailer 0 --store ./data \\
    --container shop/orders --leases shop/leases")]
    Show {
        #[command(flatten)]
        processor: ProcessorArgs,

        /// The lease, as `changefeed leases list` shows it
        #[arg(value_name = "TOKEN")]
        lease: String,

        /// Prints it on one line
        #[arg(long)]
        json: bool,
    },
    Release(ReleaseArgs),
    Export(ExportArgs),
    Import(ImportArgs),
}

/// Frees leases of dead owners, and asks living ones to give theirs up after their batch
///
/// An owner counts as dead if it wrote nothing for longer than it promised, by the clock of the lease store. While living
/// owners are waited for their leases are paused. Ctrl-C and SIGTERM resume them, and the exit code is 130; a second one, at
/// least a second later, ends the command at once. Exit code 1 if an owner keeps a lease.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed leases release mailer --dry-run --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// Only this lease, as `changefeed leases list` shows it [default: all]
    #[arg(long, value_name = "TOKEN")]
    pub(crate) lease: Option<String>,

    /// Takes leases from living owners at once; what they did since their last checkpoint is delivered again
    #[arg(long)]
    pub(crate) force: bool,

    /// How long living owners may take to finish their batch
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) wait: Duration,

    /// Shows what would be done, and does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Writes all documents of a processor into one file of JSON, to keep or to move them
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed leases export mailer --to leases.json --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// The file, replaced if it is there [default: stdout]
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,

    /// Prints what was written to the file as JSON; stdout gets JSON in any case
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes the documents of an export those of a processor; its hosts must be stopped
///
/// Leases that the file does not have are deleted, the others stand where they stood when they were exported. All are
/// free afterwards. Documents that cannot be read are replaced as well.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed leases import mailer --from leases.json --dry-run --store ./data \\
    --container shop/orders --leases shop/leases")]
pub(crate) struct ImportArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// The file that `changefeed leases export` wrote
    #[arg(long = "from", value_name = "FILE")]
    pub(crate) file: PathBuf,

    /// Accepts positions of another store or container: right for a restored copy of it, otherwise changes are skipped
    #[arg(long)]
    pub(crate) other_store: bool,

    /// Imports while hosts are alive, too; what they did since their last checkpoint may be delivered again
    #[arg(long)]
    pub(crate) force: bool,

    /// Shows what would be done, and does nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
