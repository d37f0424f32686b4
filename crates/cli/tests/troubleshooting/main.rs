//! The worked examples of docs/troubleshooting.md, run as they stand there: real processes, the command alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod document;
mod expected;
mod session;

#[path = "../serve/process.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod process;

use self::{
    document::Document,
    session::{Rights, Session},
};

/// The examples, by their headings, and what they need.
const EXAMPLES: [(&str, Rights); 6] = [
    ("A delegate that fails", Rights::Usual),
    ("A call that hangs", Rights::Usual),
    ("A paused lease", Rights::Usual),
    ("A dead host", Rights::Usual),
    ("A poison item", Rights::Usual),
    ("A full disk", Rights::Mount),
];

#[track_caller]
fn run(heading: &str) {
    let document = Document::read();
    let (_, rights) = EXAMPLES.iter().find(|(known, _)| *known == heading).unwrap();
    let mut session = Session::start(*rights);
    let steps = document.examples.get(heading).unwrap_or_else(|| panic!("the document has no section {heading}"));
    assert!(steps.len() >= 6, "{heading} has only {} commands", steps.len());
    for step in document.prelude.iter().chain(steps) {
        session.run(step);
    }
}

#[test]
fn every_example_of_the_document_is_run_by_a_test() {
    let document = Document::read();
    let mut tested: Vec<&str> = EXAMPLES.iter().map(|(heading, _)| *heading).collect();
    tested.sort_unstable();
    assert_eq!(document.examples.keys().map(String::as_str).collect::<Vec<_>>(), tested);
    assert_eq!(document.prelude.len(), 1);
}

#[test]
fn a_delegate_that_fails_is_found_and_fixed() {
    run("A delegate that fails");
}

#[test]
fn a_call_that_hangs_is_found_and_fixed() {
    run("A call that hangs");
}

#[test]
fn a_paused_lease_is_found_and_fixed() {
    run("A paused lease");
}

#[test]
fn a_dead_host_is_found_and_fixed() {
    run("A dead host");
}

#[test]
fn a_poison_item_is_found_and_fixed() {
    run("A poison item");
}

#[test]
fn a_full_disk_is_found_and_fixed() {
    run("A full disk");
}
