//! The command itself, as one uses it in a terminal.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

#[test]
fn a_reader_that_has_seen_enough_does_not_change_the_verdict() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_changefeed-sim"));
    let mut running =
        command.args(["--seed", "1", "--trace"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "{\n", "the scenario comes first");
    // The reader is gone, with nearly all of the trace still to come.
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}: {}", ended.status, String::from_utf8_lossy(&ended.stderr));
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
}
