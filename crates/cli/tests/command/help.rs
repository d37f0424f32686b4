//! The help: every example in it works when pasted.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{
    dead_letters::letters,
    process::{Server, command, eventually, run, text},
    shop::Shop,
};

/// The id of a dead letter in an example, which is another one in each store.
const SOME_LETTER: &str = "mailer.00000000000000000017.0123456789abcdef";

/// All sub-commands, as the help lists them.
pub(crate) fn commands(words: &[String]) -> Vec<Vec<String>> {
    let help = run(&words.iter().map(String::as_str).chain(["-h"]).collect::<Vec<_>>());
    let help = text(&help.stdout);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // Lines that go on with a description are indented further.
    let names = listed.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    let below: Vec<Vec<String>> =
        names.filter(|name| *name != "help").flat_map(|name| commands(&[words, &[name.to_owned()]].concat())).collect();
    if below.is_empty() { vec![words.to_vec()] } else { below }
}

/// The examples in a help text: lines that begin with the command's name, with those that continue them.
fn examples(help: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut continues = false;
    for line in help.lines().map(str::trim) {
        if continues {
            if let Some(last) = found.last_mut() {
                last.push(' ');
                last.push_str(line.trim_end_matches('\\'));
            }
        } else if line.starts_with("changefeed ") {
            found.push(line.trim_end_matches('\\').to_owned());
        }
        continues = line.ends_with('\\');
    }
    found
}

#[test]
fn every_example_works_when_pasted() {
    let shop = Shop::in_folder();
    shop.load(1);
    let orders = ["--container", "shop/orders", "--count", "20", "--prefix", "o"];
    let loaded = run(&[&["load", "--store", &shop.store()], &orders[..]].concat());
    assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
    let prepared =
        ["--exec", "! grep -q '\"number\":3,'", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    shop.says(&["run"], &[&prepared[..], &["--once", "--from", "beginning", "--log", "off"]].concat());
    let listed = letters(&shop, &["list", "--json"]);
    let letter: Value = serde_json::from_str(listed.lines().next().unwrap()).unwrap();
    let server = Server::start(&["--store", &shop.folder.join("served"), "--allow-faults"]);
    let endpoint = server.endpoint();
    let loaded = run(&["load", "--store", &endpoint, "--container", "shop/orders", "--count", "5"]);
    assert_eq!(loaded.status.code(), Some(0), "{}", text(&loaded.stderr));
    let commands = commands(&[]);
    assert!(commands.len() >= 31, "{commands:?}");
    for command in &commands {
        let help = run(&command.iter().map(String::as_str).chain(["--help"]).collect::<Vec<_>>());
        let examples = examples(&text(&help.stdout));
        let name = format!("changefeed {}", command.join(" "));
        assert!(examples.iter().any(|example| example.starts_with(&name)), "{name} has no example");
        for example in examples {
            let example = example
                .replace("http://localhost:8081", endpoint.trim_end_matches('/'))
                .replace("127.0.0.1:8081", "127.0.0.1:0")
                .replace(SOME_LETTER, letter["id"].as_str().unwrap());
            try_out(&example, &shop);
        }
    }
}

/// Runs an example in a shell. One that goes on is asked to stop after a while and must end in good order.
fn try_out(example: &str, shop: &Shop) {
    let program = env!("CARGO_BIN_EXE_changefeed");
    let line = example.replacen("changefeed", &format!("exec {program}"), 1);
    let log = std::fs::File::create(shop.folder.path().join("help.log")).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .current_dir(shop.folder.path())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let goes_on = !example.contains("--once")
        && ["run ", "tail ", "serve "].iter().any(|name| example.contains(&format!("changefeed {name}")));
    if goes_on {
        eventually("a sign of life", || !shop.lines("help.log").is_empty() || example.contains("tail "));
        let sent = Command::new("kill").args(["-s", "TERM", &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
    let mut ended = None;
    eventually(example, || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    // 1 says that what was looked at is not well, 130 that a signal ended it; `tail` may be ended before it listens.
    let code = ended.unwrap().code();
    let is_fine = matches!(code, Some(0 | 1 | 130)) || code.is_none() && example.contains("tail ");
    assert!(is_fine, "{example}: {code:?}: {:?}", shop.lines("help.log"));
}

#[test]
fn completions_are_made_for_each_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        let script = text(&output.stdout);
        assert!(script.contains("dead-letters") && script.contains("acquire-interval"), "{shell}");
        assert!(!script.contains("exec-guard") && !script.contains("demo-host"), "{shell}: only what people call");
    }
}

/// The help of a sub-command, or of the whole command, on a terminal of so many columns.
fn help_at(columns: usize, words: &[String], option: &str) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).chain([option]).collect();
    text(&command(&words).env("COLUMNS", columns.to_string()).output().unwrap().stdout)
}

#[test]
fn help_fits_a_terminal() {
    for name in commands(&[]).into_iter().chain([Vec::new()]) {
        for option in ["-h", "--help"] {
            let help = help_at(80, &name, option);
            assert!(!help.is_empty());
            for line in help.lines() {
                // The usage is one line, whatever its length.
                assert!(line.chars().count() <= 80 || line.starts_with("Usage:"), "{name:?} {option}: {line}");
            }
        }
    }
}

#[test]
fn examples_and_lists_of_the_help_are_not_broken_by_a_terminal() {
    for name in commands(&[]) {
        let lines = |columns| {
            let help = help_at(columns, &name, "--help");
            let is_listed = |line: &&str| line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with([' ', '-']));
            help.lines().filter(is_listed).map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(!lines(80).is_empty(), "{name:?} has no example");
        assert_eq!(lines(80), lines(100), "{name:?}");
    }
}

#[test]
fn paragraphs_of_the_help_are_broken_where_a_terminal_ends_and_nowhere_else() {
    let mut checked = 0;
    for name in commands(&[]).into_iter().chain([Vec::new()]) {
        let help = help_at(80, &name, "--help");
        let lines: Vec<&str> = help.lines().collect();
        for pair in lines.windows(2) {
            let [line, next] = pair else { unreachable!() };
            // Lists and examples are indented, headings end with a colon, and a paragraph begins after an empty line.
            let is_prose = |line: &str| line.starts_with(|char: char| !char.is_whitespace());
            if !is_prose(line) || !is_prose(next) || line.ends_with(':') {
                continue;
            }
            let first = next.split(' ').next().unwrap();
            let fits = line.chars().count() + 1 + first.chars().count() <= 80;
            assert!(!fits, "{name:?}: {first:?} fits into the line before it: {line:?}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}
