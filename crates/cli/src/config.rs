//! The config file: options that stand for those that are neither typed nor in the environment.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

use clap::{Command, CommandFactory as _};
use serde::Serialize;

use crate::{
    args::Args,
    exit::{Exit, Result, print, print_text},
    nearest::nearest,
    redact::redacted_option,
    table::Table,
    terminal,
};

/// The variable that names the file; empty, it says that there is none.
pub(crate) const VARIABLE: &str = "CHANGEFEED_CONFIG";

/// What the names of all variables begin with.
const PREFIX: &str = "CHANGEFEED_";

/// The file that is read if it is there and no other is named.
const DEFAULT: &str = "changefeed.toml";

/// What a variable holds that must not be shown.
const SECRET: &str = "CHANGEFEED_KEY";

/// Flags that confirm one command: a file must not confirm all of them.
const TYPED_ONLY: [&str; 3] = ["force", "overwrite", "yes"];

/// Variables that the command sets for those it runs.
const SET_FOR_EXEC: [&str; 4] =
    ["CHANGEFEED_PROCESSOR", "CHANGEFEED_INSTANCE", "CHANGEFEED_LEASE", "CHANGEFEED_ATTEMPT"];

/// The options in a file, by their names without dashes.
#[derive(Debug, Default)]
pub(crate) struct Config {
    file: Option<PathBuf>,
    options: BTreeMap<String, String>,
}

impl Config {
    /// Reads the file that the environment names, or the usual one; none if the variable is empty.
    pub(crate) fn read() -> Result<Self> {
        let (file, must_be_there) = match env::var_os(VARIABLE) {
            Some(file) if file.is_empty() => return Ok(Self::default()),
            Some(file) => (PathBuf::from(file), true),
            None => (PathBuf::from(DEFAULT), false),
        };
        if !must_be_there && !file.exists() {
            return Ok(Self::default());
        }
        let shown = file.display();
        let text = fs::read_to_string(&file).map_err(|error| format!("read the config file {shown}: {error}"))?;
        let options = parse(&text).map_err(|problem| format!("the config file {shown}: {problem}"))?;
        let config = Self { file: Some(file), options };
        config.check().map_err(|problem| format!("the config file {}: {problem}", config.shown()))?;
        Ok(config)
    }

    /// The values in the file, by the names of their options.
    pub(crate) fn options(&self) -> &BTreeMap<String, String> {
        &self.options
    }

    /// Refuses what no sub-command has, and values that none understands.
    fn check(&self) -> std::result::Result<(), String> {
        let mut known = BTreeMap::new();
        collect(&Args::command(), &mut known);
        for (name, value) in &self.options {
            if name == "key" {
                // As an option it is a partition key; in a file it would be taken for the key of the account, and be shown.
                return Err(
                    "key cannot be set here: name a file with the key of the account, as key-file = \"FILE\"; \
                            pass --key for a partition key"
                        .to_owned(),
                );
            }
            match known.get(name) {
                None => {
                    let names: Vec<String> = known.keys().cloned().collect();
                    let meant = nearest(name, &names).map(|found| format!(" did you mean {found}?"));
                    let meant = meant.unwrap_or_else(|| " `changefeed help run` shows those there are".to_owned());
                    return Err(format!("there is no option {name}:{meant}"));
                }
                Some(false) if TYPED_ONLY.contains(&name.as_str()) => {
                    return Err(format!("{name} cannot be set here: pass --{name}"));
                }
                Some(false) if value != "true" && value != "false" => {
                    return Err(format!("{name} must be true or false"));
                }
                Some(false) => {}
                Some(true) => {}
            }
        }
        Ok(())
    }

    /// The name of the file.
    pub(crate) fn shown(&self) -> String {
        self.file.as_deref().unwrap_or(Path::new(DEFAULT)).display().to_string()
    }
}

/// The options of a command and of those below it, and whether they take a value.
fn collect(command: &Command, known: &mut BTreeMap<String, bool>) {
    for arg in command.get_arguments() {
        if let Some(long) = arg.get_long() {
            known.insert(long.to_owned(), arg.get_action().takes_values());
        }
    }
    command.get_subcommands().for_each(|sub| collect(sub, known));
}

fn parse(text: &str) -> std::result::Result<BTreeMap<String, String>, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        match before {
            Some(before) => format!("line {}: {}", before.matches('\n').count() + 1, error.message()),
            None => error.message().to_owned(),
        }
    })?;
    let option = |(name, value): (String, toml::Value)| {
        let value = match value {
            toml::Value::String(text) => text,
            toml::Value::Integer(number) => number.to_string(),
            toml::Value::Float(number) => number.to_string(),
            toml::Value::Boolean(value) => value.to_string(),
            toml::Value::Table(_) => {
                return Err(format!(
                    "[{name}]: tables are not supported: write options at the top, as `max-items = 5`; each counts for \
                     every sub-command that has it"
                ));
            }
            _ => return Err(format!("{name} must be a text, a number, true or false")),
        };
        Ok((name.replace('_', "-"), value))
    };
    table.into_iter().map(option).collect()
}

/// One value of an option, and where it is set.
#[derive(Debug, Serialize)]
struct Setting {
    option: String,
    value: String,
    from: String,
    /// Whether the value counts where the option is not typed.
    effective: bool,
    /// What is set instead, if the value does not count for that reason.
    overridden_by: Option<String>,
}

impl Setting {
    fn new(option: &str, value: String, from: &str) -> Self {
        Self { option: option.to_owned(), value, from: from.to_owned(), effective: true, overridden_by: None }
    }

    fn overridden_by(mut self, other: Option<&str>) -> Self {
        self.effective &= other.is_none();
        self.overridden_by = other.map(str::to_owned);
        self
    }

    /// Where it is set, and why it does not count.
    fn place(&self) -> String {
        match (&self.overridden_by, self.effective) {
            (Some(other), _) => format!("{}, overridden by {other}", self.from),
            (None, true) => self.from.clone(),
            (None, false) => format!("{}, which no option is read from", self.from),
        }
    }
}

/// Everything that is set, by option; the value that counts comes first.
fn settings(config: &Config, variables: &BTreeMap<String, String>) -> Vec<Setting> {
    let mut read = BTreeMap::from([("config".to_owned(), VARIABLE.to_owned()), ("key".to_owned(), SECRET.to_owned())]);
    variables_of(&Args::command(), &mut read);
    let of_option = |option: &str| read.get(option).filter(|name| variables.contains_key(*name)).map(String::as_str);
    let in_file = config.shown();
    let key_file = of_option("key-file").or_else(|| config.options.contains_key("key-file").then_some(&*in_file));
    let by_file = config.options.iter().map(|(option, value)| {
        Setting::new(option, redacted_option(option, value), &in_file).overridden_by(of_option(option))
    });
    let by_variable = variables.iter().map(|(name, value)| {
        let option = name.trim_start_matches(PREFIX).to_lowercase().replace('_', "-");
        if name == SECRET {
            // A file with keys counts before the key itself, wherever it is named.
            return Setting::new(&option, "(hidden)".to_owned(), name).overridden_by(key_file);
        }
        Setting {
            effective: of_option(&option).is_some(),
            ..Setting::new(&option, redacted_option(&option, value), name)
        }
    });
    let mut found: Vec<Setting> = by_file.chain(by_variable).collect();
    found.sort_by(|a, b| (&a.option, !a.effective).cmp(&(&b.option, !b.effective)));
    found
}

/// The variables that options of a command and of those below it are read from, by option.
fn variables_of(command: &Command, read: &mut BTreeMap<String, String>) {
    for arg in command.get_arguments() {
        if let (Some(long), Some(name)) = (arg.get_long(), arg.get_env().and_then(std::ffi::OsStr::to_str)) {
            read.insert(long.to_owned(), name.to_owned());
        }
    }
    command.get_subcommands().for_each(|sub| variables_of(sub, read));
}

/// A sentence about each variable whose name is probably mistyped.
pub(crate) fn mistyped_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut read = BTreeMap::new();
    variables_of(&Args::command(), &mut read);
    let known = read.into_values().chain([VARIABLE, SECRET].into_iter().chain(SET_FOR_EXEC).map(str::to_owned));
    // The prefix, which all of them have, must not make names alike.
    let known: Vec<String> = known.filter_map(|name| name.strip_prefix(PREFIX).map(str::to_owned)).collect();
    let sentence = |name: String| {
        let ours = name.strip_prefix(PREFIX).filter(|rest| !known.iter().any(|known| known == rest))?;
        Some(format!("no option is read from {name}: did you mean {PREFIX}{}?", nearest(ours, &known)?))
    };
    names.filter_map(sentence).collect()
}

/// `changefeed config show`: what is set, and where. Secrets are not shown.
pub(crate) fn show(config: &Config, as_json: bool) -> Result<Exit> {
    let variables = env::vars().filter(|(name, _)| name.starts_with(PREFIX)).collect();
    let found = settings(config, &variables);
    if as_json {
        print(&format!("{}\n", serde_json::to_string(&found)?))?;
    } else if found.is_empty() {
        print_text(&format!(
            "nothing is set: write options into {DEFAULT}, or set variables such as CHANGEFEED_STORE\n"
        ))?;
    } else {
        let mut table = Table::new(["option", "value", "from"]);
        for setting in found {
            let place = setting.place();
            table.row([setting.option, setting.value, place]);
        }
        print_text(&table.text(terminal::columns()))?;
    }
    Ok(Exit::Good)
}

#[cfg(test)]
impl Config {
    pub(crate) fn of(options: &[(&str, &str)]) -> Self {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Self { file: None, options: options.collect() }
    }

    pub(crate) fn with_every_option() -> Self {
        let mut known = BTreeMap::new();
        collect(&Args::command(), &mut known);
        known.remove("key");
        known.retain(|name, _| !TYPED_ONLY.contains(&name.as_str()));
        let value = |takes_value| if takes_value { "1" } else { "true" }.to_owned();
        let options = known.into_iter().map(|(name, takes_value)| (name, value(takes_value)));
        Self { file: None, options: options.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_may_be_in_the_file() {
        Config::with_every_option().check().unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |text: &str| {
            let config = Config { file: None, options: parse(text)? };
            config.check()
        };
        assert_eq!(refused("store = './data'\nmax_items = 5"), Ok(()));
        assert_eq!(refused("stor = './data'"), Err("there is no option stor: did you mean store?".to_owned()));
        assert!(refused("x = 1").unwrap_err().ends_with("x: `changefeed help run` shows those there are"));
        assert!(refused("key = 'c2VjcmV0'").unwrap_err().contains("as key-file = \"FILE\""));
        assert_eq!(refused("once = true\njson = false"), Ok(()));
        assert_eq!(refused("json = 'yes'"), Err("json must be true or false".to_owned()));
        assert_eq!(refused("yes = true"), Err("yes cannot be set here: pass --yes".to_owned()));
        assert!(refused("store = ['a']").unwrap_err().contains("must be a text, a number, true or false"));
        assert!(refused("[run]\nmax-items = 5").unwrap_err().starts_with("[run]: tables are not supported"));
        assert!(refused("max-items = 5\nstore").unwrap_err().starts_with("line 2: "));
    }

    #[test]
    fn a_mistyped_variable_is_recognised_and_others_are_left_alone() {
        let names =
            ["CHANGEFEED_STOER", "CHANGEFEED_STORE", "CHANGEFEED_LEASE", "CHANGEFEED_KEY", "CHANGEFEED_OTHER", "PATH"];
        let found = mistyped_variables(names.into_iter().map(str::to_owned));
        assert_eq!(found, ["no option is read from CHANGEFEED_STOER: did you mean CHANGEFEED_STORE?"]);
    }
}
