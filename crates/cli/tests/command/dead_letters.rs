//! `dead-letters`: found, read, delivered again, deleted.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use changefeed::core::{Clock as _, SystemClock};
use serde_json::Value;

use crate::{
    process::{command, eventually, text},
    proxy::{Fault, Proxy},
    shop::{Shop, assert_good},
};

fn run(shop: &Shop, args: &[&str]) -> Output {
    let store = shop.store();
    let (name, more) = args.split_first().unwrap();
    let place = ["dead-letters", name, "--store", &store, "--dead-letters", "shop/rejected"];
    command(&[&place[..], more].concat()).output().unwrap()
}

/// What `dead-letters` prints.
#[track_caller]
pub(crate) fn letters(shop: &Shop, args: &[&str]) -> String {
    let output = run(shop, args);
    assert_good(&output);
    text(&output.stdout)
}

#[test]
fn dead_letters_are_listed_shown_redriven_and_purged() {
    let shop = Shop::served();
    shop.load(20);
    // Orders 3 and 17 fail until a file says that the bug is fixed.
    let command = "! grep -q -e '\"number\":3,' -e '\"number\":17,' || test -e fixed";
    let options = ["--dead-letters", "shop/rejected", "--dead-letter-after", "2", "--max-items", "1"];
    let host = shop.host("a", &[&["--exec", command], &options[..]].concat());
    eventually("two dead letters", || text(&run(&shop, &["list", "--json"]).stdout).lines().count() == 2);
    shop.catches_up();

    let all: Vec<Value> =
        letters(&shop, &["list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut by_key: Vec<&Value> = all.iter().collect();
    by_key.sort_by_key(|letter| letter["itemKey"].as_str().unwrap());
    let group = |letter: &&Value| {
        let (id, item, lease) = (&letter["id"], &letter["itemId"], &letter["lease"]);
        let [id, item, lease] = [id, item, lease].map(|text| text.as_str().unwrap());
        let key = letter["current"]["customer"].as_str().unwrap();
        assert_eq!(letter["itemKey"], format!("[\"{key}\"]"));
        let failed_at = std::time::Duration::from_millis(letter["diedAt"].as_u64().unwrap());
        let failed_at = humantime::format_rfc3339_millis(std::time::SystemTime::UNIX_EPOCH + failed_at);
        let lsn = &letter["lsn"];
        format!(
            "  key {key}: 1 dead letter\n    item {item}: lsn {lsn}, lease {lease}, 2 attempts, {failed_at}\n      {id}\n"
        )
    };
    let groups: String = by_key.iter().map(group).collect();
    let heading = "2 dead letters, by error and partition key\n\n2 x the command ended with exit status: 1\n";
    let listed = letters(&shop, &["list"]);
    assert_eq!(listed, format!("{heading}{groups}"));
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let key = by_key[0]["current"]["customer"].as_str().unwrap();
    let of_key = letters(&shop, &["list", "--key", key]);
    assert_eq!(
        of_key.lines().filter(|line| line.starts_with("  key ")).collect::<Vec<_>>(),
        [format!("  key {key}: 1 dead letter")]
    );
    let one: Value = serde_json::from_str(letters(&shop, &["list", "--json"]).lines().next().unwrap()).unwrap();
    let id = one["id"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&letters(&shop, &["show", id])).unwrap();
    assert_eq!(shown["attempts"], 2, "{shown}");
    let on_one_line = letters(&shop, &["show", id, "--json"]);
    assert_eq!((on_one_line.lines().count(), serde_json::from_str::<Value>(&on_one_line).unwrap()), (1, shown));

    let container = ["--container", "shop/orders"];
    let would = letters(&shop, &[&["redrive", "--dry-run"], &container[..]].concat());
    assert_eq!(would, "2 dead letters would be written again\n");
    assert_eq!(letters(&shop, &["list", "--json"]).lines().count(), 2);
    shop.folder.write("fixed", "");
    let item = one["itemId"].as_str().unwrap();
    let done = letters(&shop, &[&["redrive", "--item", item], &container[..]].concat());
    assert_eq!(done, "1 dead letter written again\n");
    shop.catches_up();
    assert_eq!(letters(&shop, &["list", "--json"]).lines().count(), 1, "what was written again is gone from here");

    let would = "1 dead letter would be deleted for good: pass --yes to do it\n";
    assert_eq!(letters(&shop, &["purge"]), would);
    assert_eq!(letters(&shop, &["purge", "--before", "1h ago", "--yes"]), "0 dead letters deleted\n");
    assert_eq!(letters(&shop, &["purge", "--error", "no such error", "--yes"]), "0 dead letters deleted\n");
    assert_eq!(letters(&shop, &["purge", "--yes"]), "1 dead letter deleted\n");
    assert_eq!(letters(&shop, &["list"]), "no dead letters\n");
    host.stop();
}

#[test]
fn filters_choose_the_dead_letters_that_are_listed_redriven_and_purged() {
    let shop = Shop::in_folder();
    shop.load(4);
    // The error of an item is its number.
    let fails = "exit $(sed 's/.*\"number\":\\([0-9]\\).*/1\\1/')";
    for name in ["mailer", "biller"] {
        let store = shop.store();
        let place = ["run", name, "--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
        let options =
            ["--exec", fails, "--max-items", "1", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
        assert_good(&crate::process::run(
            &[&place[..], &options, &["--once", "--from", "beginning", "--log", "off"]].concat(),
        ));
    }
    let all: Vec<Value> =
        letters(&shop, &["list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(all.len(), 8);
    let item = all.iter().find(|letter| letter["itemKey"] == "[\"k2\"]").unwrap()["itemId"].as_str().unwrap();
    let filters: [(&[&str], usize); 4] = [
        (&["--processor", "biller"], 4),
        (&["--error", "status: 12"], 2),
        (&["--item", item], 2),
        (&["--key", "k3"], 2),
    ];
    let overwrite = ["--container", "shop/orders", "--dry-run", "--overwrite", "--json"];
    for (filter, count) in filters {
        assert_eq!(letters(&shop, &[&["list", "--json"], filter].concat()).lines().count(), count, "list {filter:?}");
        let redriven = letters(&shop, &[&["redrive"], filter, &overwrite].concat());
        let redriven: Value = serde_json::from_str(&redriven).unwrap();
        assert_eq!(redriven["done"].as_array().unwrap().len(), count, "redrive {filter:?}");
        let purged: Value = serde_json::from_str(&letters(&shop, &[&["purge", "--json"], filter].concat())).unwrap();
        assert_eq!(purged["ids"].as_array().unwrap().len(), count, "purge {filter:?}");
    }
    assert_eq!(
        letters(&shop, &["purge", "--processor", "biller", "--before", "now", "--yes"]),
        "4 dead letters deleted\n"
    );
    assert_eq!(letters(&shop, &["purge", "--before", "1h ago", "--yes"]), "0 dead letters deleted\n");

    let begin = SystemClock.wall().as_millis();
    let redriven = letters(&shop, &["redrive", "--container", "shop/orders", "--rate", "2", "--key", "k0"]);
    assert_eq!(redriven, "1 dead letter written again\n");
    let redriven = letters(&shop, &["redrive", "--container", "shop/orders", "--rate", "2"]);
    assert_eq!(redriven, "3 dead letters written again\n");
    let millis = SystemClock.wall().as_millis() - begin;
    assert!(millis >= 1000, "{millis} ms for three at two a second");
}

#[test]
fn a_purge_goes_on_past_what_others_delete_and_tells_what_it_deleted_before_an_error() {
    for ends_with_an_error in [false, true] {
        let shop = Shop::served();
        shop.load(3);
        let reject = ["--exec", "false", "--max-items", "1", "--dead-letters", "shop/rejected", "--log", "off"];
        let once = ["--dead-letter-after", "1", "--once", "--from", "beginning"];
        shop.says(&["run"], &[&reject[..], &once].concat());
        let listed = letters(&shop, &["list", "--json"]);
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().to_owned();
        let ids: Vec<String> = listed.lines().map(id).collect();
        let proxy = Proxy::start(shop.address());
        // The answer to the first delete takes so long that another command can delete the second letter meanwhile.
        proxy.inject("write", Fault::Stalled(Duration::from_secs(5)), 1);
        let purge = ["dead-letters", "purge", "--yes", "--dead-letters", "shop/rejected", "--store"];
        let mut purge = command(&[&purge[..], &[&proxy.endpoint()]].concat());
        let purge = purge.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the first delete", || letters(&shop, &["list", "--json"]).lines().count() == 2);
        let other = ["dead-letters", "purge", "--yes", "--dead-letters", "shop/rejected", "--store"];
        let item = id_of_item(&listed, &ids[1]);
        assert_good(&command(&[&other[..], &[&shop.store(), "--item", &item]].concat()).output().unwrap());
        if ends_with_an_error {
            proxy.inject("write", Fault::Refused(403), 1);
        }
        let purged = purge.wait_with_output().unwrap();
        let (said, error) = (text(&purged.stdout), text(&purged.stderr));
        if ends_with_an_error {
            assert_eq!((purged.status.code(), said.as_str()), (Some(2), "1 dead letter deleted\n"), "{error}");
            assert!(
                error.starts_with("error: ") && letters(&shop, &["list"]).starts_with("1 dead letter\n"),
                "{error}"
            );
        } else {
            assert_eq!((purged.status.code(), said.as_str()), (Some(0), "2 dead letters deleted\n"), "{error}");
            assert_eq!(letters(&shop, &["list"]), "no dead letters\n");
        }
    }
}

/// The item of a dead letter in a list.
fn id_of_item(listed: &str, id: &str) -> String {
    let letters = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let letter = letters.into_iter().find(|letter| letter["id"] == id).unwrap();
    letter["itemId"].as_str().unwrap().to_owned()
}

#[test]
fn an_item_that_has_changed_since_is_written_again_with_overwrite_only() {
    let shop = Shop::in_folder();
    shop.load(1);
    let store = shop.store();
    let load = |size: &str| {
        let args =
            ["load", "--store", &store, "--container", "shop/orders", "--count", "1", "--prefix", "o", "--size", size];
        assert_good(&crate::process::run(&args));
    };
    load("100");
    let reject =
        ["--exec", "! grep -q '\"id\":\"o-0\"'", "--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    let once = ["--max-items", "1", "--once", "--from", "beginning", "--log", "off"];
    shop.says(&["run"], &[&reject[..], &once].concat());
    load("2000");
    let size = || {
        let args = ["tail", "--store", &store, "--container", "shop/orders", "--from", "beginning", "--once", "--json"];
        text(&crate::process::run(&[&args[..], &["--where", "c.id = 'o-0'"]].concat()).stdout).len()
    };
    assert!(size() > 2000);
    let left = run(&shop, &["redrive", "--container", "shop/orders"]);
    assert_eq!(left.status.code(), Some(1), "{}", text(&left.stdout));
    assert!(text(&left.stdout).starts_with("0 dead letters written again, 1 not, and kept:\n") && size() > 2000);
    letters(&shop, &["redrive", "--container", "shop/orders", "--overwrite"]);
    assert!(size() < 1000, "the version that failed is the newest again");
}
