//! The command line.

mod admin;
mod backup;
mod data;
mod demo;
mod leases;
mod metrics;
mod moment;
mod run;
mod serve;
mod store;
mod tools;
mod top;

use clap::{Parser, Subcommand};

pub(crate) use self::{
    admin::{FaultArgs, MergeArgs, RangesArgs, SplitArgs, ThrottleArgs, VerifyArgs},
    backup::{BackupArgs, RestoreArgs},
    data::{LoadArgs, TailArgs},
    demo::{DemoArgs, DemoHostArgs},
    leases::{ExportArgs, ImportArgs, LeasesArgs, LeasesCommand, ReleaseArgs},
    metrics::MetricsArgs,
    moment::Moment,
    run::{DelegateArgs, OptionArgs, RunArgs},
    serve::ServeArgs,
    store::{ContainerName, ProcessorArgs, StoreArgs},
    tools::{DeadLettersArgs, DeadLettersCommand, ExplainArgs, LagArgs, LettersArgs, PauseArgs, SeekArgs, WhereArgs},
    top::TopArgs,
};

const EXIT_CODES: &str = "\
Options may stand in a file, as `store = \"./data\"`: changefeed.toml in this folder, or the one that
CHANGEFEED_CONFIG names. Those that name a store or a container may be variables, too.
Exit codes: 0 all is well, 1 done but something is not well, 2 error, 130 ended by Ctrl-C.";

/// Change feed processor: every change of a container reaches your code, at least once, in order, on as many hosts as
/// you start
#[derive(Debug, Parser)]
#[command(name = "changefeed", version, arg_required_else_help = true, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    #[command(hide = true)]
    DemoHost(DemoHostArgs),
    /// Kills the commands of a `run --exec` that was killed itself
    #[command(hide = true)]
    ExecGuard,
    Serve(ServeArgs),
    Run(Box<RunArgs>),
    Tail(TailArgs),
    Load(LoadArgs),
    Lag(LagArgs),
    Top(TopArgs),
    Explain(ExplainArgs),
    Leases(LeasesArgs),
    Seek(SeekArgs),
    Pause(PauseArgs),
    /// Lets work go on that was paused
    Resume(PauseArgs),
    DeadLetters(DeadLettersArgs),
    Where(WhereArgs),
    Ranges(RangesArgs),
    Split(SplitArgs),
    Merge(MergeArgs),
    Throttle(ThrottleArgs),
    Fault(FaultArgs),
    Verify(VerifyArgs),
    Backup(BackupArgs),
    Restore(RestoreArgs),
    /// Shows which options are set by the config file and the environment
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Prints a script that completes this command's arguments in your shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Writes man pages, one for each sub-command; prints that of the whole command without --dir
    Man {
        /// The folder, which is made if need be
        #[arg(long, value_name = "DIR")]
        dir: Option<std::path::PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows what is set, and where; secrets are hidden
    Show {
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
}
