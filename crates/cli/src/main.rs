//! `changefeed`: the command line of the change feed processor.
//!
//! Results go to stdout, everything else to stderr. Exit codes: see [`exit::Exit`].

mod args;
mod demo;
mod exit;

use std::process::ExitCode;

use self::{
    args::{Args, Command},
    exit::report,
};

fn main() -> ExitCode {
    let outcome = match Args::from_command_line().command {
        Command::Demo(args) => demo::run(&args),
    };
    match outcome {
        Ok(exit) => exit.into(),
        Err(error) => report(&*error).into(),
    }
}
