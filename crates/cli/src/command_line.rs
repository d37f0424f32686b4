//! The arguments of this process: what is typed counts before the environment, and that before the config file. Errors show no
//! secret, and name the place of a value that is not typed.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
};

use clap::{
    Arg, ArgMatches, Command, CommandFactory as _, Error, FromArgMatches as _,
    builder::{OsStr, StyledStr},
    error::{ContextKind, ContextValue, ErrorKind},
    parser::ValueSource,
};

use crate::{
    args::Args,
    config::Config,
    redact::{redacted, redacted_option},
};

/// The values of the config file, by the names of their options.
type Options = BTreeMap<String, String>;

/// The arguments of a process that was started with these words.
pub(crate) fn parse(config: &Config, typed: &[OsString]) -> Result<Args, Error> {
    let found = matches(config.options(), typed).map_err(|error| presentable(error, config, typed))?;
    Args::from_arg_matches(&found)
}

fn matches(options: &Options, typed: &[OsString]) -> Result<ArgMatches, Error> {
    let found = completed(options, typed)?;
    let overridden = overridden(options, &found);
    if overridden.is_empty() {
        return Ok(found);
    }
    let rest = options.iter().filter(|(name, _)| !overridden.contains(*name));
    completed(&rest.map(|(name, value)| (name.clone(), value.clone())).collect(), typed)
}

/// A command whose options have the values of the file as defaults.
fn apply(options: &Options, command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    let command =
        names.into_iter().fold(command, |command, name| command.mut_subcommand(name, |sub| apply(options, sub)));
    command.mut_args(|arg| match arg.get_long().and_then(|long| options.get(long)) {
        Some(value) if !arg.get_action().takes_values() && value != "true" => arg,
        Some(value) => {
            let is_secret = redacted_option(arg.get_long().unwrap_or_default(), value) != *value;
            arg.default_value(OsStr::from(value.clone())).hide_default_value(is_secret).required(false)
        }
        None => arg,
    })
}

/// Parses the words. A default does not count where an option requires another one, so values of the file that are required
/// in this way are added to the words.
fn completed(options: &Options, typed: &[OsString]) -> Result<ArgMatches, Error> {
    let mut words = typed.to_vec();
    let mut refused = match apply(options, Args::command()).try_get_matches_from(&words) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    let whole = Args::command();
    let (command, begin) = sub_command(&whole, typed);
    loop {
        let mut required = required(options, command, &refused);
        required.retain(|word| !words.contains(word));
        if required.is_empty() {
            return Err(refused);
        }
        words.splice(begin..begin, required);
        match apply(options, Args::command()).try_get_matches_from(&words) {
            Ok(found) => return Ok(found),
            // It conflicts with what is typed, so it does not count.
            Err(error) if error.kind() == ErrorKind::ArgumentConflict => return Err(refused),
            Err(error) => refused = error,
        }
    }
}

/// The sub-command that is typed, and where its arguments begin.
fn sub_command<'a>(whole: &'a Command, typed: &[OsString]) -> (&'a Command, usize) {
    let (mut command, mut begin) = (whole, 1.min(typed.len()));
    while let Some(sub) = typed.get(begin).and_then(|word| command.find_subcommand(word)) {
        (command, begin) = (sub, begin + 1);
    }
    (command, begin)
}

/// The options in the file that are missing, as they are typed.
fn required(options: &Options, command: &Command, error: &Error) -> Vec<OsString> {
    let (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return Vec::new();
    };
    let is_missing = |long: &str| missing.iter().any(|shown| names(shown, long));
    let word = |arg: &Arg| {
        let long = arg.get_long().filter(|long| is_missing(long))?;
        match options.get(long)?.as_str() {
            value if arg.get_action().takes_values() => Some(format!("--{long}={value}")),
            "true" => Some(format!("--{long}")),
            _ => None,
        }
    };
    command.get_arguments().filter_map(word).map(OsString::from).collect()
}

/// Whether an option is named in a part of an error, as in `--exec <COMMAND>` and `<--print|--check>`.
fn names(shown: &str, long: &str) -> bool {
    let mut words = shown.split(|char: char| !char.is_alphanumeric() && char != '-');
    words.any(|word| word.strip_prefix("--") == Some(long))
}

/// Options of the file that conflict with what is typed, which counts before them.
fn overridden(options: &Options, matches: &ArgMatches) -> BTreeSet<String> {
    let mut whole = apply(options, Args::command());
    whole.build();
    let (mut command, mut matches) = (&whole, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(sub) = command.find_subcommand(name) else { break };
        (command, matches) = (sub, below);
    }
    let is_typed = |arg: &Arg| {
        let id = arg.get_id().as_str();
        matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
    };
    let typed = command.get_arguments().filter(|arg| is_typed(arg));
    let conflicting = typed.flat_map(|arg| command.get_arg_conflicts_with(arg));
    let names = conflicting.filter(|arg| !is_typed(arg)).filter_map(Arg::get_long);
    names.filter(|name| options.contains_key(*name)).map(str::to_owned).collect()
}

/// The same error without secrets. An error about a value that is not typed names the variable or the file that has it.
fn presentable(mut error: Error, config: &Config, typed: &[OsString]) -> Error {
    if matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue)
        && let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg)
        && let Some(place) = place(arg, config, typed)
    {
        // The whole stands between quotes.
        let named = ContextValue::String(format!("{arg}' from '{place}"));
        error.insert(ContextKind::InvalidArg, named);
    }
    let safe: Vec<_> = error.context().filter_map(|(kind, value)| Some((kind, without_secrets(value)?))).collect();
    for (kind, value) in safe {
        error.insert(kind, value);
    }
    error
}

/// Where the value of an option is set, if it is not typed.
fn place(shown: &str, config: &Config, typed: &[OsString]) -> Option<String> {
    let whole = Args::command();
    let (command, begin) = sub_command(&whole, typed);
    let arg = command.get_arguments().find(|arg| arg.get_long().is_some_and(|long| names(shown, long)))?;
    let long = arg.get_long()?;
    let is_it = |word: &OsString| {
        let word = word.to_str().and_then(|word| word.strip_prefix("--"));
        word.is_some_and(|word| word.split('=').next() == Some(long))
    };
    if typed.get(begin..)?.iter().any(is_it) {
        return None;
    }
    let variable = arg.get_env().filter(|name| env::var_os(name).is_some());
    let variable = variable.map(|name| name.to_string_lossy().into_owned());
    variable.or_else(|| config.options().contains_key(long).then(|| config.shown()))
}

/// What may be shown of a part of an error; none if it has no secret.
fn without_secrets(value: &ContextValue) -> Option<ContextValue> {
    let all = |texts: &[String]| texts.iter().map(|text| redacted(text)).collect::<Vec<_>>();
    match value {
        ContextValue::String(text) => Some(ContextValue::String(redacted(text))),
        ContextValue::Strings(texts) => Some(ContextValue::Strings(all(texts))),
        ContextValue::StyledStrs(texts) => {
            let texts: Vec<String> = texts.iter().map(StyledStr::to_string).collect();
            let safe = all(&texts);
            (safe != texts).then(|| ContextValue::StyledStrs(safe.into_iter().map(StyledStr::from).collect()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of which each option takes one.
    const VALUES: [&str; 6] = ["a/b", "1s", "1", "127.0.0.1:1", "now", "info"];

    fn words(line: &[String]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    fn refused(line: &[String]) -> Option<Error> {
        Args::command().try_get_matches_from(words(line)).err()
    }

    /// An option as it is typed, with a value that it takes; the value for the file.
    fn option(line: &[String], arg: &Arg) -> (String, String) {
        let long = arg.get_long().unwrap();
        if !arg.get_action().takes_values() {
            return (format!("--{long}"), "true".to_owned());
        }
        let is_taken = |value: &&str| {
            let typed = [line, &[format!("--{long}={value}")]].concat();
            refused(&typed)
                .is_none_or(|error| !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue))
        };
        let value = VALUES.iter().find(|value| is_taken(value)).unwrap_or_else(|| panic!("no value for --{long}"));
        (format!("--{long}={value}"), (*value).to_owned())
    }

    /// All sub-commands without others below them, with the words that call them.
    fn leaves(command: &Command, words: &[String]) -> Vec<(Vec<String>, Command)> {
        let below: Vec<&Command> = command.get_subcommands().filter(|sub| sub.get_name() != "help").collect();
        if below.is_empty() {
            return vec![(words.to_vec(), command.clone())];
        }
        below.into_iter().flat_map(|sub| leaves(sub, &[words, &[sub.get_name().to_owned()]].concat())).collect()
    }

    #[test]
    fn what_an_option_requires_may_be_in_the_file() {
        let mut pairs = BTreeSet::new();
        for (name, command) in leaves(&Args::command(), &["changefeed".to_owned()]) {
            let mut line = name.clone();
            line.extend(command.get_positionals().filter(|arg| arg.is_required_set()).map(|_| "bash".to_owned()));
            for arg in command.get_opts().filter(|arg| arg.is_required_set()) {
                let (typed, _) = option(&line, arg);
                line.push(typed);
            }
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let (typed, _) = option(&line, arg);
                let typed = [&line[..], &[typed]].concat();
                let Some(error) = refused(&typed) else { continue };
                let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else { continue };
                if error.kind() != ErrorKind::MissingRequiredArgument {
                    continue;
                }
                let is_missing = |long: &str| missing.iter().any(|shown| names(shown, long));
                for other in command.get_arguments().filter(|other| other.get_long().is_some_and(is_missing)) {
                    let long = other.get_long().unwrap();
                    let (_, value) = option(&line, other);
                    let config = Config::of(&[(long, &value)]);
                    let parsed = parse(&config, &words(&typed));
                    assert!(parsed.is_ok(), "{typed:?} with {long} = {value}: {}", parsed.unwrap_err());
                    pairs.insert(format!("{}: --{} requires --{long}", name[1..].join(" "), arg.get_long().unwrap()));
                }
            }
        }
        for pair in [
            "run: --json requires --print",
            "run: --json requires --check",
            "run: --results requires --exec",
            "run: --dead-letter-after requires --dead-letters",
            "lag: --lease-key-file requires --lease-store",
            "top: --json requires --once",
        ] {
            assert!(pairs.contains(pair), "{pair} is not among {pairs:#?}");
        }
    }

    #[test]
    fn the_command_is_well_formed_with_every_option_in_the_file() {
        apply(Config::with_every_option().options(), Args::command()).debug_assert();
    }

    #[test]
    fn a_value_of_the_file_that_conflicts_with_what_is_typed_does_not_stand_for_what_is_missing() {
        let line = "changefeed run m --store memory --container a/b --leases a/l --exec x --json";
        let error =
            parse(&Config::of(&[("print", "true")]), &words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()));
        assert_eq!(error.unwrap_err().kind(), ErrorKind::MissingRequiredArgument);
    }
}
