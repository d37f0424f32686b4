//! The command as users run it: output, exit codes, what it leaves behind.

use std::{
    env, fs,
    path::PathBuf,
    process::{self, Command, Output},
};

fn changefeed(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_changefeed")).args(args).output().expect("run the command")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A path of this test alone, with nothing there.
fn new_path(name: &str) -> PathBuf {
    env::temp_dir().join(format!("changefeed-cli-test-{name}-{}", process::id()))
}

#[test]
fn the_demo_loses_nothing_and_says_so_in_json() {
    let temporary = new_path("json");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_changefeed"));
    let output = command.args(["demo", "--json", "--seconds", "8"]).env("TMPDIR", &temporary).output().unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{stdout}{stderr}");
    assert_eq!(stdout.lines().count(), 1, "stdout is the object and nothing else: {stdout}");
    let ledger: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let number = |name: &str| ledger[name].as_u64().unwrap_or_else(|| panic!("{name} in {ledger}"));
    assert_eq!(number("lost"), 0, "{stderr}");
    assert_eq!(number("dead_letters"), 1, "{stderr}");
    assert_eq!(number("written"), number("delivered") + number("dead_letters"));
    assert!(number("written") > 1000, "{ledger}");
    assert!(number("duplicates") < number("written") / 10, "{ledger}");
    assert!(ledger["seconds"].as_f64().unwrap() < 40.0, "{ledger}");
    for phrase in ["ada died without warning", "takes over range", "splits range 2 into", "puts poison-1 into"] {
        assert!(stderr.contains(phrase), "{phrase:?} is not in {stderr}");
    }
    assert!(!stderr.contains('\x1b'), "no escapes where nobody draws");
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0, "the temporary store is removed");
    fs::remove_dir(&temporary).unwrap();
}

#[test]
fn a_folder_that_is_in_use_is_refused_with_the_next_command() {
    let folder = new_path("keep");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("thesis.txt"), "precious").unwrap();
    let output = changefeed(&["demo", "--keep", folder.to_str().unwrap()]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr.contains("is not empty; try: changefeed demo --keep"), "{stderr}");
    assert_eq!(fs::read_to_string(folder.join("thesis.txt")).unwrap(), "precious");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn help_goes_to_stdout_and_tells_what_the_ledger_counts() {
    let output = changefeed(&["demo", "--help"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    for phrase in ["--json", "--seconds", "--seed", "--keep", "dead letters", "Exit codes"] {
        assert!(stdout.contains(phrase), "{phrase:?} is not in {stdout}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_exit_code_2_and_an_empty_stdout() {
    for (args, phrase) in [
        (&["demo", "--speed", "9"][..], "--speed"),
        (&["demo", "--seconds", "0"], "0 is not in 1..=3600"),
        (&["demonstrate"], "unrecognized subcommand"),
        (&[], "Usage: changefeed <COMMAND>"),
    ] {
        let output = changefeed(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr.contains(phrase), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}
