//! `seek`, `pause`, `resume`: while hosts run, and while none does.

use crate::{process::eventually, shop::Shop};

#[test]
fn a_dry_run_changes_nothing() {
    let shop = Shop::in_folder();
    shop.load(10);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let would = shop.says(&["seek"], &["--to", "beginning", "--dry-run"]);
    assert!(would.ends_with("\n4 leases would be moved; nothing was done\n"), "{would}");
    let row = would.lines().nth(1).unwrap();
    assert!(row.starts_with("    0  -      after lsn ") && row.ends_with(" after lsn 0"), "{would}");
    assert_eq!(shop.says(&["pause"], &["--dry-run"]), "4 leases would be paused: 0, 1, 2, 3\n");
    assert_eq!(shop.says(&["resume"], &["--dry-run"]), "nothing to do: no lease that is meant can be resumed\n");
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
}

#[test]
fn a_seek_to_the_beginning_delivers_everything_again() {
    let shop = Shop::served();
    shop.load(30);
    let host = shop.host("a", &["--print", "--json"]);
    eventually("all orders", || shop.lines("out").len() == 30);
    let moved = shop.says(&["seek"], &["--to", "beginning"]);
    assert!(moved.ends_with("\n4 leases moved; calls that run now may finish, and store nothing\n"), "{moved}");
    eventually("all orders again", || shop.lines("out").len() == 60);
    host.stop();
}

#[test]
fn a_paused_processor_rests_until_it_is_resumed() {
    let shop = Shop::served();
    shop.load(5);
    let host = shop.host("a", &["--print", "--json"]);
    eventually("all orders", || shop.lines("out").len() == 5);
    assert_eq!(shop.says(&["pause"], &[]), "4 leases paused: 0, 1, 2, 3\n");
    eventually("no owner", || {
        let leases = shop.json(&["leases", "list"], &[]);
        leases.as_array().unwrap().iter().all(|lease| lease["state"] == "paused" && lease["owner"].is_null())
    });
    shop.load(20);
    assert_eq!(shop.json(&["lag"], &[])["total"], 20);
    assert_eq!(shop.says(&["resume"], &["--lease", "1"]), "1 lease resumed: 1\n");
    assert_eq!(shop.says(&["resume"], &[]), "3 leases resumed: 0, 2, 3\n");
    eventually("the rest", || shop.lines("out").len() == 25);
    host.stop();
}

#[test]
fn one_lease_is_moved_and_paused_alone() {
    let shop = Shop::in_folder();
    shop.load(40);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    assert_eq!(shop.says(&["pause"], &["--lease", "2"]), "1 lease paused: 2\n");
    let states = shop.json(&["leases", "list"], &[]);
    let states: Vec<&str> = states.as_array().unwrap().iter().map(|lease| lease["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["free", "free", "paused", "free"]);
    shop.says(&["resume"], &["--lease", "2"]);
    let moved = shop.says(&["seek"], &["--to", "beginning", "--lease", "1"]);
    assert!(moved.contains("1 lease moved"), "{moved}");
    let lag = shop.json(&["lag"], &[]);
    let behind: Vec<bool> = lag["leases"].as_array().unwrap().iter().map(|lease| lease["changes"] != 0).collect();
    assert_eq!(behind, [false, true, false, false], "{lag}");
    // Forward again, past everything.
    shop.says(&["seek"], &["--to", "now"]);
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
}
