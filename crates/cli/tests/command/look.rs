//! `lag`, `explain`, `leases`: exact texts, since people read them at night.

use changefeed::core::{Clock as _, SystemClock};

use serde_json::Value;

use crate::{
    process::{Folder, Server, eventually, text},
    shop::{Shop, assert_good},
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
    let idle = shop.says(&["explain"], &["--lease", "0"]);
    assert_eq!(idle, "lease 0: caught up; no host owns it: the next host takes it\n");

    shop.load(50);
    let unowned = shop.run(&["explain"], &[]);
    assert_eq!(unowned.status.code(), Some(1), "changes wait for a host");
    let said = text(&unowned.stdout);
    let advice = "changes behind: start a host, or see why those that run do not take it";
    let (next, leases) = said.trim_end().rsplit_once('\n').map(|(leases, next)| (next, leases)).unwrap();
    assert!(leases.lines().all(|line| line.contains("no host owns it") && line.ends_with(advice)), "{said}");
    assert_eq!(next, "next: if no other host runs, start one: `changefeed run mailer ...`");
    let host = shop.host("worker-1", &["--exec", "exit 3"]);
    eventually("a failing delegate being named", || {
        let said = text(&shop.run(&["explain"], &[]).stdout);
        said.contains("the command ended with exit status: 3")
    });
    let failing = text(&shop.run(&["explain"], &["--lease", "0"]).stdout);
    let next = "next: fix the cause, or pass --dead-letters DB/NAME to `changefeed run mailer` to set the item aside\n";
    assert!(failing.ends_with(next), "{failing}");
    let sentence = [" changes behind, the first is ", " at lsn ", "; the delegate on worker-1 fails, retry "];
    assert!(sentence.iter().all(|part| failing.contains(part)), "{failing}");
    host.stop();

    shop.says(&["pause"], &[]);
    let paused = shop.run(&["explain"], &["--lease", "2"]);
    assert_eq!(paused.status.code(), Some(1));
    let said = text(&paused.stdout);
    let end = " changes behind: resume it to go on\nnext: `changefeed resume mailer --lease 2`\n";
    assert!(said.starts_with("lease 2: paused, ") && said.ends_with(end), "{said}");
    let all = text(&shop.run(&["explain"], &[]).stdout);
    assert!(all.ends_with(" resume it to go on\nnext: `changefeed resume mailer`\n"), "{all}");
}

#[test]
fn a_command_that_hangs_needs_attention_and_what_explain_says_gives_its_lease_to_another_host() {
    let shop = Shop::served();
    shop.load(1);
    let hangs = ["--exec", "test -e fixed || sleep 10000", "--slow-after", "1s"];
    let host = shop.host("worker-1", &hangs);
    shop.owns("worker-1", 4);
    let leases = shop.json(&["leases", "list"], &[]);
    let busy = leases.as_array().unwrap().iter().find(|lease| lease["changes"] == 1).unwrap();
    let busy = busy["lease"].as_str().unwrap().to_owned();
    let explain = |more: &[&str]| shop.run(&["explain"], &[&["--lease", &busy], more].concat());
    eventually("a slow call", || explain(&[]).status.code() == Some(1));
    let said = text(&explain(&[]).stdout);
    let begin = format!("lease {busy}: 1 change behind; a delegate call on worker-1 runs for more than ");
    let end = " s\nnext: see what the call waits for; if it never ends, kill the host and start one that ends such calls: \
               `changefeed run mailer --delegate-timeout TIME`\n";
    assert!(said.starts_with(&begin) && said.ends_with(end), "{said}");
    let as_json: Value = serde_json::from_slice(&explain(&["--json"]).stdout).unwrap();
    assert_eq!((&as_json[0]["cause"], &as_json[0]["needs_attention"]), (&"slow_delegate".into(), &true.into()));
    assert_eq!(format!("next: {}\n", as_json[0]["next"].as_str().unwrap()), said.split_once('\n').unwrap().1);

    shop.folder.write("fixed", "");
    let other = shop.host("worker-2", &hangs);
    let released = shop.json(&["leases", "release"], &["--lease", &busy, "--force"]);
    assert_eq!(released[0]["outcome"], "taken");
    shop.catches_up();
    other.stop();
    drop(host);
}

#[test]
fn advice_fits_a_host_that_has_a_container_for_dead_letters() {
    let shop = Shop::served();
    shop.load(1);
    let letters = ["--dead-letters", "shop/rejected", "--dead-letter-after", "1000"];
    let host = shop.host("worker-1", &[&["--exec", "exit 3"], &letters[..]].concat());
    let mut said = String::new();
    eventually("a failing delegate being named", || {
        said = text(&shop.run(&["explain"], &[]).stdout);
        said.contains(" of 1000: the command ended with exit status: 3")
    });
    let next = "\nnext: fix the cause; items that still fail after 1000 attempts become dead letters, and the others are \
                delivered\n";
    assert!(said.ends_with(next) && !said.contains("--dead-letters"), "{said}");
    host.stop();
}

#[test]
fn explain_tells_the_problems_of_the_lease_store_too_and_programs_get_all_that_people_get() {
    let (shop, leases) = (Shop::served(), Folder::new());
    shop.load(1);
    let folder = leases.join("data");
    let server = Server::start(&["--store", &folder]);
    let other = |server: &Server| ["--lease-store".to_owned(), server.endpoint()];
    let run = |server: &Server, name: &[&str], more: &[&str]| {
        shop.run(name, &[&other(server).each_ref().map(String::as_str)[..], more].concat())
    };
    let reject = ["--exec", "false", "--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    assert_good(&run(&server, &["run"], &[&reject[..], &["--once", "--from", "beginning"]].concat()));
    server.signal("TERM");
    assert_eq!(server.ended().0.code(), Some(0));
    // The first version of a lease, which later ones have replaced.
    let log = format!("{folder}/00000001-00000001.log");
    let mut bytes = std::fs::read(&log).unwrap();
    let at = bytes.windows(10).position(|bytes| bytes == b"LeaseToken").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let server = Server::start(&["--store", &folder]);
    let letters = ["--dead-letters", "shop/rejected"];
    let explained = run(&server, &["explain"], &letters);
    assert_eq!(explained.status.code(), Some(1));
    let said = text(&explained.stdout);
    let problem = said.lines().next().unwrap();
    assert!(problem.starts_with(&format!("store {}: ", server.endpoint())) && problem.contains("damaged"), "{said}");
    let as_json = run(&server, &["explain"], &[&letters[..], &["--json"]].concat());
    assert!(text(&as_json.stderr).starts_with(&format!("warning: {problem}\n")), "{as_json:?}");
    let as_json: Value = serde_json::from_slice(&as_json.stdout).unwrap();
    assert_eq!(as_json.as_array().unwrap().len(), 4);
    for lease in as_json.as_array().unwrap() {
        assert_eq!(lease["store_problems"], serde_json::json!([problem]));
        assert_eq!(
            lease["dead_letters"],
            serde_json::json!({ "container": "shop/rejected", "count": 1, "more": false })
        );
        assert_eq!((&lease["needs_attention"], &lease["next"]), (&false.into(), &Value::Null), "{lease}");
    }
}

#[test]
fn where_says_whether_an_item_is_behind_the_checkpoint() {
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
    let passed = "\nbehind the checkpoint of its lease: delivered, or passed over by the start or a seek of the processor, unless \
                  it became a dead letter, which --dead-letters DB/NAME tells\nlease ";
    assert!(at(3).contains(passed), "{}", at(3));
    assert!(at(25).contains("\nwaiting: it is after the checkpoint, the next of its partition key\n"), "{}", at(25));
    let output = crate::process::run(&[&["where", "mailer", "none", "--key", "k1"], &place[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("with the partition key [\"k1\"]: is --key right?"), "{output:?}");
}

#[test]
fn where_does_not_call_an_item_delivered_that_a_start_or_a_seek_passed_over() {
    let shop = Shop::in_folder();
    let first = shop.load(1);
    // Neither is ever delivered: the processor begins after the first and is moved past the second.
    shop.says(&["run"], &["--print", "--once", "--from", "now", "--log", "warn"]);
    let second = shop.load(1);
    shop.says(&["seek"], &["--to", "now"]);
    let place = ["--store", &shop.store(), "--container", "shop/orders", "--leases", "shop/leases"];
    for line in [first.last().unwrap(), second.last().unwrap()] {
        let (id, _) = line.split_once(' ').unwrap();
        let at =
            |more: &[&str]| text(&crate::process::run(&[&["where", "mailer", id], &place[..], more].concat()).stdout);
        let said = at(&[]);
        assert!(said.contains(": delivered, or passed over by the start or a seek"), "{said}");
        let found: serde_json::Value = serde_json::from_str(&at(&["--json"])).unwrap();
        assert_eq!(found["found"]["progress"], "passed", "{found}");
    }
}

#[test]
fn where_finds_an_item_by_its_id_alone() {
    let shop = Shop::in_folder();
    let store = shop.store();
    let load = ["load", "--store", &store, "--create", "--container", "shop/orders", "--prefix", "o", "--count"];
    assert_good(&crate::process::run(&[&load[..], &["11"]].concat()));
    // The same ids under another key.
    assert_good(&crate::process::run(&[&load[..], &["2", "--keys", "1"]].concat()));
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let at = |id: &str, more: &[&str]| {
        let output = crate::process::run(&[&["where", "mailer", id], &place[..], more].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (code, said, _) = at("o-7", &[]);
    assert!(code == Some(0) && said.starts_with("item o-7: newest version at lsn "), "{said}");
    let (code, _, said) = at("o-1", &[]);
    let both = "2 partition keys of orders have an item o-1: pass one of ";
    assert!(code == Some(1) && said.starts_with(both) && said.contains("--key '[\"k0\"]'"), "{said}");
    let (code, _, said) = at("o-", &[]);
    assert_eq!((code, said.as_str()), (Some(1), "no item o- in orders: scanned 12 items whose ids begin with it\n"));
    let (code, said, _) = at("none", &["--json"]);
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(code == Some(1) && found["found"].is_null(), "{found}");
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

    let mistyped = ["--dead-letters", "shop/rejecte"];
    let output = crate::process::run(&[&["where", "mailer", id, "--key", "k0"], &plain[..], &mistyped[..]].concat());
    assert_good(&output);
    let warning =
        "warning: dead letters are not searched: there is no container shop/rejecte; did you mean shop/rejected?";
    assert!(text(&output.stderr).starts_with(warning), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("unless it became a dead letter"), "{}", text(&output.stdout));
}

#[test]
fn lag_and_explain_count_the_dead_letters_of_the_processor_if_they_may_look_there() {
    let shop = Shop::in_folder();
    shop.load(1);
    let reject = ["--exec", "false", "--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    shop.says(&["run"], &[&reject[..], &["--once", "--from", "beginning"]].concat());
    let sentence = "1 dead letter in shop/rejected: see `changefeed dead-letters list --dead-letters shop/rejected \
                    --processor mailer`\n";
    let letters = ["--dead-letters", "shop/rejected"];
    let lag = shop.says(&["lag"], &letters);
    assert!(lag.starts_with("mailer has caught up\n\n") && lag.ends_with(&format!("\n\n{sentence}")), "{lag}");
    let by_variable = shop.command(&["lag"], &[]).env("CHANGEFEED_DEAD_LETTERS", "shop/rejected").output().unwrap();
    assert_eq!(text(&by_variable.stdout), lag);
    assert!(!shop.says(&["lag"], &[]).contains("dead letter"), "hosts store the name of the container nowhere");
    let count = shop.json(&["lag"], &letters)["dead_letters"].clone();
    assert_eq!(count, serde_json::json!({ "container": "shop/rejected", "count": 1, "more": false }));

    let explained = shop.run(&["explain"], &letters);
    assert_eq!(explained.status.code(), Some(1), "somebody has to look at it");
    let said = text(&explained.stdout);
    assert!(said.contains("\nlease 2: caught up; ") && said.ends_with(&format!("\n{sentence}")), "{said}");
    let as_json = shop.run(&["explain"], &[&letters[..], &["--json"]].concat());
    assert_eq!(text(&as_json.stderr), format!("warning: {sentence}"));
    let leases = shop.json(&["explain"], &[]);
    assert_eq!(leases.as_array().unwrap().len(), 4);
    // Item 0 has key k0, which is in one range; the other leases have no dead letters.
    let of_lease = |lease: &str| shop.run(&["explain"], &[&letters[..], &["--lease", lease]].concat()).status.code();
    let mut codes: Vec<_> = ["0", "1", "2", "3"].map(of_lease).to_vec();
    codes.sort();
    assert_eq!(codes, [Some(0), Some(0), Some(0), Some(1)]);

    let mistyped = shop.run(&["lag"], &["--dead-letters", "shop/rejecte"]);
    assert_eq!(mistyped.status.code(), Some(0));
    let said = text(&mistyped.stderr);
    let expected =
        "warning: dead letters are not counted: there is no container shop/rejecte; did you mean shop/rejected?";
    assert!(said.starts_with(expected), "{said}");
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
fn the_silence_of_a_killed_host_shows_over_a_server_before_its_leases_expire() {
    let shop = Shop::served();
    shop.load(20);
    let host = shop.host("worker-1", &["--print"]);
    shop.catches_up();
    // Dropping it kills it.
    drop(host);
    shop.load(20);
    let explained = || {
        let output = shop.run(&["explain"], &["--lease", "1"]);
        (text(&output.stdout), output.status.code())
    };
    let (said, code) = explained();
    let known = said.strip_suffix(" s ago\n").and_then(|said| said.rsplit_once(" changes behind; its owner worker-1 "));
    assert!(known.is_some_and(|(_, said)| said.starts_with("last renewed it ")), "{said}");
    assert_eq!(code, Some(0), "nothing is wrong as far as is known");
    let mut said = String::new();
    eventually("silence", || {
        let (now, code) = explained();
        said = now;
        code == Some(1)
    });
    let middle = " by the clock of this machine, 6 changes behind: if it stays silent the lease expires in ";
    assert!(said.starts_with("lease 1: owner worker-1 has been silent for ") && said.contains(middle), "{said}");
    let next = "next: if no other host runs, start one: `changefeed run mailer ...`\n";
    assert!(said.ends_with(&format!(" s, then another host takes it, if one runs\n{next}")), "{said}");
    let top = shop.run(&["top"], &["--once", "--interval", "100ms"]);
    assert_eq!(top.status.code(), Some(1));
    assert!(text(&top.stdout).contains("owner worker-1 has been silent for "), "{}", text(&top.stdout));
}

#[test]
fn top_measures_for_as_long_as_the_interval_says() {
    let shop = Shop::in_folder();
    shop.load(4);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let begin = SystemClock.wall().as_millis();
    shop.says(&["top"], &["--once", "--interval", "1500ms"]);
    assert!(SystemClock.wall().as_millis() - begin >= 1500);
}
