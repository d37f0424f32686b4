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
    assert_eq!(idle.status.code(), Some(1), "no host owns it");
    assert_eq!(
        text(&idle.stdout),
        "lease 0: no host owns it, nothing waits: start a host, or see why those that run do not take it\n"
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
    let handled = "\nbehind the checkpoint of its lease: handled, unless it became a dead letter, which --dead-letters DB/NAME \
                   tells\nlease ";
    assert!(at(3).contains(handled), "{}", at(3));
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
    let plain = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let letters = ["--dead-letters", "shop/rejected"];
    let output = crate::process::run(&[&["where", "mailer", id, "--key", "k0"], &plain[..], &letters[..]].concat());
    let said = text(&output.stdout);
    assert!(said.contains("\nnot handled: it is a dead letter\n"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_change_has_the_same_id_in_tail_and_run() {
    let shop = Shop::in_folder();
    shop.load(4);
    let id_of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["change_id"].to_string();
    let ids = |said: String| said.lines().map(id_of).collect::<std::collections::BTreeSet<_>>();
    let delivered = shop.says(&["run"], &["--print", "--json", "--once", "--from", "beginning", "--log", "off"]);
    let store = shop.store();
    let tail = ["tail", "--store", &store, "--container", "shop/orders", "--from", "beginning", "--json", "--once"];
    let (delivered, read) = (ids(delivered), ids(text(&crate::process::run(&tail).stdout)));
    assert_eq!((delivered.len(), &delivered), (4, &read));
}

#[test]
fn a_condition_that_cannot_be_read_is_told_with_its_own_column() {
    let shop = Shop::in_folder();
    shop.load(1);
    let store = shop.store();
    let tail = ["tail", "--store", &store, "--container", "shop/orders", "--once", "--where", "number > 5"];
    let output = crate::process::run(&tail);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("line 1, column 1: "), "{}", text(&output.stderr));
}

#[test]
fn explain_knows_at_once_that_a_host_in_the_same_folder_was_killed() {
    let shop = Shop::in_folder();
    shop.load(4);
    let options = ["--exec", "cat > handled", "--log", "off", "--from", "beginning"];
    let mut host = shop.command(&["run"], &options).spawn().unwrap();
    // Not before the host has the folder: it would be refused otherwise.
    eventually("a socket", || shop.folder.path().join("data/.admin.sock").exists());
    eventually("the host has caught up", || text(&shop.run(&["explain"], &[]).stdout).contains("caught up"));
    host.kill().unwrap();
    host.wait().unwrap();
    let output = shop.run(&["explain"], &[]);
    let said = text(&output.stdout);
    assert!(said.contains("has ended without releasing it"), "{said}");
    assert_eq!(output.status.code(), Some(1));
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
