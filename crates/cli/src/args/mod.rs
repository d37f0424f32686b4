//! The command line.

mod admin;
mod data;
mod demo;
mod moment;
mod run;
mod serve;
mod store;
mod tools;

use clap::{Parser, Subcommand};

pub(crate) use self::{
    admin::{FaultArgs, MergeArgs, RangesArgs, SplitArgs, ThrottleArgs, VerifyArgs},
    data::{LoadArgs, TailArgs},
    demo::DemoArgs,
    moment::Moment,
    run::{DelegateArgs, OptionArgs, RunArgs},
    serve::ServeArgs,
    store::{ContainerName, ProcessorArgs, StoreArgs},
    tools::{
        DeadLettersArgs, DeadLettersCommand, ExplainArgs, LagArgs, LeasesArgs, LeasesCommand, LettersArgs, PauseArgs,
        SeekArgs, WhereArgs,
    },
};

const EXIT_CODES: &str = "\
Every option that names a store or a container may be set by an environment variable instead.
Exit codes: 0 all is well, 1 done but something is not well, 2 error, 130 ended by Ctrl-C.";

/// Change feed processor: every change of a container reaches your code, at least once, in order, on as many hosts as
/// you start
#[derive(Debug, Parser)]
#[command(name = "changefeed", version, arg_required_else_help = true, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The arguments of this process; ends it with exit code 2 if they make no sense.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Run(Box<RunArgs>),
    Tail(TailArgs),
    Load(LoadArgs),
    Lag(LagArgs),
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
    /// Prints a script that completes this command's arguments in your shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}
