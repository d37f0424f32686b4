//! `changefeed`: the command line of the change feed processor.
//!
//! Results go to stdout, everything else to stderr. Exit codes: see [`exit::Exit`].

mod admin;
mod args;
mod backup;
mod change_line;
mod clock;
mod command_line;
mod config;
mod connection_string;
mod control;
#[cfg(feature = "cosmos")]
mod cosmos;
mod count;
mod dead_letters;
mod demo;
mod exit;
mod explain;
mod inspect;
mod keys;
mod leases;
mod load;
mod log;
mod man;
mod metrics;
mod nearest;
mod outage;
mod processor_stores;
mod progress;
mod redact;
mod restore;
mod run;
mod serve;
mod store;
mod store_health;
mod table;
mod tail;
mod terminal;
mod top;
mod whole_file;

use std::{ffi::OsString, process::ExitCode};

use clap::CommandFactory as _;

use self::{
    args::{Args, Command, ConfigCommand},
    config::Config,
    control::Wanted,
    exit::{Exit, Result, print, report, warn, with_causes},
};

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let (config, problem) = match Config::read() {
        Ok(config) => (config, None),
        Err(error) => (Config::default(), Some(error)),
    };
    let command = match (command_line::parse(&config, &typed), problem) {
        (Ok(args), None) => args.command,
        // What takes nothing from the file that matters works, however it is.
        (Ok(args), Some(error)) if works_without_config(&args.command) => {
            if !is_child(&args.command) {
                warn(&with_causes(&*error));
            }
            args.command
        }
        (Err(error), Some(_)) if is_help(&error) => error.exit(),
        (_, Some(error)) => return report(&*error).into(),
        // Arguments that make no sense, and requests for help, are shown as they should be.
        (Err(error), None) => error.exit(),
    };
    if !is_child(&command) {
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        config::mistyped_variables(names).iter().for_each(|problem| warn(problem));
    }
    if !has_own_log(&command) {
        log::of_command();
    }
    match work(command, &config) {
        Ok(exit) => exit.into(),
        Err(error) => report(&*error).into(),
    }
}

/// Whether this process was started by another one of this program.
fn is_child(command: &Command) -> bool {
    matches!(command, Command::DemoHost(_) | Command::ExecGuard)
}

/// Whether a command decides itself what goes to stderr.
fn has_own_log(command: &Command) -> bool {
    is_child(command) || matches!(command, Command::Serve(_) | Command::Run(_) | Command::Demo(_))
}

/// Whether a config file that cannot be read is no reason to refuse a command: those explain, or need no store.
fn works_without_config(command: &Command) -> bool {
    is_child(command) || matches!(command, Command::Demo(_) | Command::Completions { .. } | Command::Man { .. })
}

/// Whether the arguments ask for help or for the version.
fn is_help(error: &clap::Error) -> bool {
    let missing = clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    !error.use_stderr() || error.kind() == missing
}

fn work(command: Command, config: &Config) -> Result<Exit> {
    match command {
        Command::Demo(args) => demo::run(&args),
        Command::DemoHost(args) => demo::host::run(&args),
        Command::ExecGuard => run::exec_guard::run(),
        Command::Serve(args) => serve::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Tail(args) => tail::tail(&args),
        Command::Load(args) => load::load(&args),
        Command::Lag(args) => inspect::lag(&args),
        Command::Top(args) => top::top(&args),
        Command::Explain(args) => explain::explain(&args),
        Command::Leases(args) => inspect::leases(&args),
        Command::Seek(args) => control::seek(&args),
        Command::Pause(args) => control::pause(&args, Wanted::Paused),
        Command::Resume(args) => control::pause(&args, Wanted::Resumed),
        Command::DeadLetters(args) => dead_letters::dead_letters(&args),
        Command::Where(args) => inspect::where_is(&args),
        Command::Ranges(args) => admin::ranges(&args),
        Command::Split(args) => admin::split(&args),
        Command::Merge(args) => admin::merge(&args),
        Command::Throttle(args) => admin::throttle(&args),
        Command::Fault(args) => admin::fault(&args),
        Command::Verify(args) => admin::verify(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => restore::restore(&args),
        Command::Config { command: ConfigCommand::Show { json } } => config::show(config, json),
        Command::Completions { shell } => completions(shell),
        Command::Man { dir } => man::man(dir.as_deref()),
    }
}

fn completions(shell: clap_complete::Shell) -> Result<Exit> {
    let whole = Args::command();
    // The scripts offer hidden sub-commands, too, which only this program itself calls.
    let offered = whole.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut command = clap::Command::new("changefeed")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(offered)
        .args(whole.get_arguments().cloned());
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "changefeed", &mut script);
    print(&String::from_utf8(script)?)?;
    Ok(Exit::Good)
}
