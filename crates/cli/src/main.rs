//! `changefeed`: the command line of the change feed processor.
//!
//! Results go to stdout, everything else to stderr. Exit codes: see [`exit::Exit`].

mod admin;
mod args;
mod demo;
mod exit;
mod remote;
mod serve;
mod store;

use std::process::ExitCode;

use self::{
    args::{Args, Command},
    exit::report,
};

fn main() -> ExitCode {
    let outcome = match Args::from_command_line().command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Ranges(args) => admin::ranges(&args),
        Command::Split(args) => admin::split(&args),
        Command::Merge(args) => admin::merge(&args),
        Command::Throttle(args) => admin::throttle(&args),
        Command::Fault(args) => admin::fault(&args),
        Command::Verify(args) => admin::verify(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report(&*error).into(),
    }
}
