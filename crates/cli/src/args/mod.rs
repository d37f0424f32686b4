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
    tools::{
        AlsoLettersArgs, DeadLettersArgs, DeadLettersCommand, ExplainArgs, LagArgs, LettersArgs, LettersPlaceArgs,
        PauseArgs, SeekArgs, WhereArgs,
    },
    top::TopArgs,
};

const EXIT_CODES: &str = "\
Options may be set in a file, as `store = \"./data\"`: changefeed.toml in this folder, or the one that CHANGEFEED_CONFIG \
names; empty, the variable says that there is none. Options that name a store or a container may be variables, too.

Exit codes: 0 all is well, 1 done but something is not well, 2 error, 130 ended by a signal.";

/// Change feed processor: your code receives the changed items of a container, at least once, in order per partition
/// key, on as many hosts as you start
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
    #[command(after_help = "\
Example:
  changefeed resume mailer --store ./data \\
    --container shop/orders --leases shop/leases")]
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
    #[command(after_help = "\
Example:
  changefeed completions bash > changefeed.bash")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Writes man pages, one for each sub-command; prints that of the whole command without --dir
    #[command(after_help = "\
Example:
  changefeed man --dir ./man")]
    Man {
        /// The folder, which is made if need be
        #[arg(long, value_name = "DIR")]
        dir: Option<std::path::PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Shows what is set, and where; secrets are hidden
    ///
    /// An option on the command line counts before its variable, and that before the file. A value that does not count is
    /// shown as overridden.
    #[command(after_help = "\
Example:
  changefeed config show")]
    Show {
        /// Prints JSON
        #[arg(long)]
        json: bool,
    },
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use clap::{CommandFactory as _, error::ErrorKind};

    use super::*;

    /// All commands that do something, with the words that call them.
    fn leaves(command: &clap::Command, words: &[String]) -> Vec<(Vec<String>, clap::Command)> {
        let below: Vec<&clap::Command> = command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
        if below.is_empty() {
            return vec![(words.to_vec(), command.clone())];
        }
        let with = |sub: &clap::Command| [words, &[sub.get_name().to_owned()]].concat();
        below.into_iter().flat_map(|sub| leaves(sub, &with(sub))).collect()
    }

    #[test]
    fn every_option_that_is_mistyped_is_recognised() {
        let mut tried = 0;
        for (words, command) in leaves(&Args::command(), &[]) {
            for long in command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(clap::Arg::get_long) {
                let last = long.chars().last().unwrap();
                let typed = [&["changefeed".to_owned()], &words[..], &[format!("--{long}{last}")]].concat();
                let error = Args::command().try_get_matches_from(&typed).unwrap_err();
                let said = error.to_string();
                assert_eq!(error.kind(), ErrorKind::UnknownArgument, "{typed:?}: {said}");
                assert!(said.contains(&format!("similar argument exists: '--{long}'")), "{typed:?}: {said}");
                tried += 1;
            }
        }
        assert!(tried > 200, "{tried}");
    }

    #[test]
    fn every_sub_command_that_is_mistyped_is_recognised() {
        for (words, _) in leaves(&Args::command(), &[]).iter().filter(|(_, command)| !command.is_hide_set()) {
            let (name, before) = words.split_last().unwrap();
            let typed = [&["changefeed".to_owned()], before, &[format!("{name}x")]].concat();
            let error = Args::command().try_get_matches_from(&typed).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSubcommand, "{typed:?}: {error}");
            assert!(error.to_string().contains(&format!("'{name}'")), "{typed:?}: {error}");
        }
    }

    #[test]
    fn every_sub_command_prints_json_if_asked_except_those_that_print_something_else() {
        let without: Vec<String> = leaves(&Args::command(), &[])
            .into_iter()
            .filter(|(_, command)| !command.is_hide_set())
            .filter(|(_, command)| !command.get_arguments().any(|arg| arg.get_long() == Some("json")))
            .map(|(words, _)| words.join(" "))
            .collect();
        // One line of JSON when it is ready; a script; pages.
        assert_eq!(without, ["serve", "completions", "man"]);
    }

    /// The option and the sub-command of each row of the table of tests, with the test.
    fn rows(table: &str) -> Vec<((String, String), String)> {
        let mut rows = Vec::new();
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let [option, commands, test] = line.split(" | ").collect::<Vec<_>>().try_into().expect("three cells");
            rows.extend(commands.split(", ").map(|name| ((option.to_owned(), name.to_owned()), test.to_owned())));
        }
        rows
    }

    #[test]
    fn every_option_has_a_test_of_its_effect() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let rows = rows(&read("tests/options.txt"));
        let mut options = BTreeSet::new();
        for (words, command) in leaves(&Args::command(), &[]) {
            let longs = command.get_arguments().filter_map(clap::Arg::get_long);
            options.extend(longs.map(|long| (format!("--{long}"), words.join(" "))));
        }
        let tested: BTreeSet<_> = rows.iter().map(|(option, _)| option.clone()).collect();
        let missing: Vec<_> = options.difference(&tested).collect();
        assert!(missing.is_empty(), "add a test of their effect, and a line to tests/options.txt: {missing:?}");
        let stale: Vec<_> = tested.difference(&options).collect();
        assert!(stale.is_empty(), "tests/options.txt has options that there are not: {stale:?}");
        assert_eq!(rows.len(), tested.len(), "an option has two lines in tests/options.txt");
        for ((option, command), test) in rows {
            let (file, name) = test.split_once("::").expect("file::test");
            let (source, line) = (read(file), format!("fn {name}("));
            let (before, _) = source.split_once(&line).unwrap_or_else(|| panic!("{command} {option}: no test {test}"));
            let attribute = before.trim_end().trim_end_matches("async").trim_end().lines().last().unwrap_or_default();
            assert!(attribute.contains("test"), "{command} {option}: {test} is no test");
            // Unit tests may call what the option sets by another name.
            let is_named = file.starts_with("src/") || source.contains(&option);
            assert!(is_named, "{command} {option}: {file} does not mention it");
        }
    }
}
