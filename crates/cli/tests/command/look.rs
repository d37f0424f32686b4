//! `lag`, `explain`, `leases`: exact texts, since people read them at night.

use changefeed::core::{Clock as _, SystemClock};

use crate::{
    process::{eventually, text},
    shop::Shop,
};

#[test]
fn lag_says_how_far_each_lease_is_behind() {
    let shop = Shop::served();
    shop.load(8);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let caught_up = "mailer has caught up\n\nLEASE  STATE  OWNER  CHANGES  BEHIND\n";
    let lines = "    0  free   -            0  -\n    1  free   -            0  -\n    2  free   -            0  -\n    \
                 3  free   -            0  -\n";
    assert_eq!(shop.says(&["lag"], &[]), format!("{caught_up}{lines}"));

    shop.load(100);
    let said = shop.says(&["lag"], &[]);
    assert!(said.starts_with("mailer is 100 changes behind; the oldest has waited for "), "{said}");
    let json = shop.json(&["lag"], &[]);
    assert_eq!(json["total"], 100);
    let sum: u64 = json["leases"].as_array().unwrap().iter().map(|lease| lease["changes"].as_u64().unwrap()).sum();
    assert_eq!(sum, 100);
    let host = shop.host("worker-1", &["--print"]);
    shop.catches_up();
    let listed = shop.says(&["leases", "list"], &[]);
    let (heading, rest) = listed.split_once('\n').unwrap();
    assert_eq!(heading, "LEASE  STATE  OWNER     CHANGES  BEHIND");
    assert_eq!(rest.lines().count(), 4);
    assert!(rest.lines().all(|line| line.ends_with("owned  worker-1        0  -")), "{rest}");
    host.stop();
}

#[test]
fn explain_names_the_cause_and_the_exit_code_says_whether_to_act() {
    let shop = Shop::served();
    shop.load(20);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let idle = shop.run(&["explain"], &["--lease", "0"]);
    assert_eq!(idle.status.code(), Some(1), "nobody owns it");
    assert_eq!(
        text(&idle.stdout),
        "lease 0: nobody owns it, nothing waits: start a host, or see why those that run do not take it\n"
    );

    let host = shop.host("worker-1", &["--exec", "exit 3"]);
    shop.load(50);
    eventually("a failing delegate being named", || {
        let said = text(&shop.run(&["explain"], &[]).stdout);
        said.contains("the command ended with exit status: 3")
    });
    host.stop();

    shop.says(&["pause"], &[]);
    let paused = shop.run(&["explain"], &["--lease", "2"]);
    assert_eq!(paused.status.code(), Some(1));
    let said = text(&paused.stdout);
    assert!(said.starts_with("lease 2: paused") && said.contains("resume it to go on"), "{said}");
}

#[test]
fn where_says_whether_an_item_was_handled() {
    let shop = Shop::in_folder();
    shop.load(20);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let ledger = shop.load(20);
    let place = ["--store", &shop.store(), "--container", "shop/orders", "--leases", "shop/leases"];
    let at = |line: usize| {
        let (id, lsn) = ledger.get(line).unwrap().split_once(' ').unwrap();
        let key = format!("k{}", id.rsplit('-').next().unwrap());
        let output = crate::process::run(&[&["where", "mailer", id, "--key", &key], &place[..]].concat());
        let said = text(&output.stdout);
        assert!(said.starts_with(&format!("item {id}: newest version at lsn {lsn}, written 20")), "{said}");
        said
    };
    assert!(at(3).contains("\nhandled: it is behind the checkpoint of its lease\nlease "), "{}", at(3));
    assert!(at(25).contains("\nwaiting: it is after the checkpoint, the next of its partition key\n"), "{}", at(25));
    let output = crate::process::run(&[&["where", "mailer", "none", "--key", "k1"], &place[..]].concat());
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_lease_is_shown_as_it_is_stored() {
    let shop = Shop::in_folder();
    shop.load(4);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let args = ["leases", "show", "mailer", "1", "--store", &shop.store(), "--container", "shop/orders"];
    let output = crate::process::run(&[&args[..], &["--leases", "shop/leases"]].concat());
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((document["LeaseToken"].as_str(), document["Owner"].is_null()), (Some("1"), true), "{document}");
}

#[test]
fn where_finds_the_dead_letter_of_an_item_if_it_may_look_there() {
    let shop = Shop::in_folder();
    let ledger = shop.load(1);
    let reject = ["--exec", "false", "--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    shop.says(&["run"], &[&reject[..], &["--once", "--from", "beginning"]].concat());
    let (id, _) = ledger[0].split_once(' ').unwrap();
    let store = shop.store();
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases", "--json"];
    let found = |more: &[&str]| {
        let output = crate::process::run(&[&["where", "mailer", id, "--key", "k0"], &place[..], more].concat());
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        found["dead_letters"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((found(&[]), found(&["--dead-letters", "shop/rejected"])), (0, 1));
}

#[test]
fn top_measures_for_as_long_as_the_interval_says() {
    let shop = Shop::in_folder();
    shop.load(4);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let begin = SystemClock.wall().as_millis();
    // Exit code 1: nobody owns the leases.
    assert_eq!(shop.run(&["top"], &["--once", "--interval", "1500ms"]).status.code(), Some(1));
    assert!(SystemClock.wall().as_millis() - begin >= 1500);
}
