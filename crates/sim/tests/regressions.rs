//! Scenarios that once broke a rule, kept as values: a seed draws another scenario whenever new faults are added.

use std::{fs, path::Path};

use changefeed_sim::{run::run, scenario::Scenario};

#[test]
fn scenarios_that_broke_a_promise_once_do_not_any_more() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut names: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("a file").path()).collect();
    names.sort();
    assert!(!names.is_empty());
    for path in names {
        let scenario: Scenario = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("a scenario");
        let violation = run(&scenario, None, false).violation;
        assert_eq!(violation, None, "{}", path.display());
    }
}
