//! The arguments of `backup` and `restore`.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::store::StoreArgs;

/// Copies a store as it is at one moment into a new folder, checked byte by byte; writers go on
///
/// Works on a folder, on a program that has the folder open and offers its admin endpoint, and on a server. The folder
/// gets its name when the backup is complete: one that was interrupted is called NAME.partial and replaced by the next.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed backup --store ./data --to ./backup")]
pub(crate) struct BackupArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The folder of the backup, which must not be there or be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) to: PathBuf,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes a store of a backup, under a new identity
///
/// Every file is compared with the checksums of the backup. Processors whose leases are in the backup go on where they
/// were when it was made. Leases and bookmarks kept elsewhere notice the new identity and are refused, since they may be
/// ahead of it: see `changefeed seek` and `changefeed leases import --other-store`.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed restore --from ./backup --store ./restored")]
pub(crate) struct RestoreArgs {
    /// The folder of the backup
    #[arg(long = "from", value_name = "DIR")]
    pub(crate) backup: PathBuf,

    /// The folder of the new store, which must not be there or be empty
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}
