//! `load`: as many items, of such a size, under such keys, as fast as it was asked for.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use serde_json::Value;

use crate::{
    process::{command, eventually, run, text},
    proxy::{Fault, Proxy},
    shop::{Shop, assert_good},
};

#[test]
fn items_and_their_container_are_as_the_options_say() {
    let shop = Shop::in_folder();
    let store = shop.store();
    let place = ["--store", &store, "--container", "shop/orders"];
    let wanted = ["--count", "30", "--prefix", "order", "--size", "900", "--keys", "7"];
    let container = ["--partition-key", "/address/city", "--ranges", "3", "--create", "--json"];
    let loaded = run(&[&["load"], &place[..], &wanted, &container].concat());
    assert_good(&loaded);
    let loaded: Value = serde_json::from_slice(&loaded.stdout).unwrap();
    assert_eq!((&loaded["written"], &loaded["container"]), (&30.into(), &"shop/orders".into()), "{loaded}");

    let ranges = run(&[&["ranges", "--json"], &place[..]].concat());
    assert_eq!(serde_json::from_slice::<Value>(&ranges.stdout).unwrap().as_array().unwrap().len(), 3);
    let tail = run(&[&["tail", "--from", "beginning", "--once", "--json"], &place[..]].concat());
    let mut ids = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for line in text(&tail.stdout).lines() {
        let mut change: Value = serde_json::from_str(line).unwrap();
        let item = change["item"].as_object_mut().unwrap();
        item.retain(|name, _| !name.starts_with('_'));
        ids.insert(item["id"].as_str().unwrap().to_owned());
        keys.insert(item["address"]["city"].as_str().unwrap().to_owned());
        let size = change["item"].to_string().len();
        assert!((850..=950).contains(&size), "{size} bytes: {change}");
    }
    assert_eq!(ids, (0..30).map(|number| format!("order-{number}")).collect());
    assert_eq!(keys, (0..7).map(|number| format!("k{number}")).collect());
    let of_one = run(&[&["tail", "--from", "beginning", "--once", "--key", "k6"], &place[..]].concat());
    assert_eq!(text(&of_one.stdout).lines().count(), 4, "items 6, 13, 20 and 27: the path is the partition key");
}

fn a_container_with_a_retention_keeps_all_versions(shop: &Shop) {
    let store = shop.store();
    let (orders, plain) =
        (["--store", &store, "--container", "shop/orders"], ["--store", &store, "--container", "shop/plain"]);
    let load = |place: &[&str], more: &[&str]| {
        let args = ["load", "--create", "--count", "1", "--prefix", "same"];
        run(&[&args[..], place, more].concat())
    };
    assert_good(&load(&orders, &["--retention", "10"]));
    let bookmark = shop.folder.join("bookmark");
    let tail = |place: &[&str]| {
        let args = ["tail", "--all-versions", "--from", "now", "--once", "--json", "--bookmark", &bookmark];
        run(&[&args[..], place].concat())
    };
    assert_good(&tail(&orders));
    let host = ["--all-versions", "--print", "--json", "--once", "--log", "off"];
    assert_eq!(shop.says(&["run"], &host), "", "nothing since now");
    // One that is there and keeps them is as it was.
    assert_good(&load(&orders, &["--retention", "10"]));
    assert_good(&load(&orders, &[]));
    assert_eq!(text(&tail(&orders).stdout).lines().count(), 2);
    assert_eq!(shop.says(&["run"], &host).lines().count(), 2);

    assert_good(&load(&plain, &[]));
    let fix = "error: --all-versions: shop/plain keeps no versions: `changefeed load --retention 10` makes a container that \
               keeps them for ten minutes; or set the changeFeedPolicy of this one with an SDK\n";
    let run_on_plain = [&["run", "other", "--leases", "shop/leases", "--print", "--all-versions"], &plain[..]].concat();
    let refused = [
        tail(&plain),
        run(&[&run_on_plain[..], &["--once"]].concat()),
        run(&[&run_on_plain[..], &["--check"]].concat()),
    ];
    for output in refused {
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), fix.to_owned()));
    }
    let refused = load(&plain, &["--retention", "10"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.starts_with("error: --retention is for a container that is made, and shop/plain is there"), "{said}");
}

#[test]
fn a_container_that_is_made_with_a_retention_keeps_all_versions() {
    a_container_with_a_retention_keeps_all_versions(&Shop::in_folder());
    a_container_with_a_retention_keeps_all_versions(&Shop::served());
}

#[test]
fn items_come_no_faster_than_the_rate() {
    let shop = Shop::in_folder();
    shop.load(1);
    let args = ["load", "--store", &shop.store(), "--container", "shop/orders", "--count", "21", "--rate", "20"];
    let output = run(&[&args[..], &["--json"]].concat());
    assert_good(&output);
    let loaded: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(loaded["seconds"].as_f64().unwrap() >= 1.0, "{loaded}");
}

#[test]
fn a_rate_that_is_almost_none_writes_the_first_item_and_waits() {
    let shop = Shop::in_folder();
    let ledger = shop.folder.join("ledger");
    let store = shop.store();
    let args = ["load", "--store", &store, "--container", "shop/orders", "--create", "--ledger", &ledger];
    let load = crate::signals::spawn(command(&[&args[..], &["--rate", "1e-20", "--count", "2"]].concat()));
    eventually("the first item", || shop.lines("ledger").len() == 1);
    crate::signals::send("TERM", &load);
    let (status, said) = crate::signals::ended(load);
    assert_eq!((status.code(), said.as_str()), (Some(130), ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_writes_are_under_way_as_concurrency_says() {
    let shop = Shop::served();
    shop.load(1);
    let proxy = Proxy::start(shop.address());
    proxy.inject("write", Fault::Stalled(Duration::from_secs(600)), usize::MAX);
    let endpoint = proxy.endpoint();
    let place = ["load", "--store", &endpoint, "--container", "shop/orders", "--count", "100"];
    for concurrency in [1, 20] {
        let before = proxy.count("write");
        let mut load = command(&[&place[..], &["--concurrency", &concurrency.to_string()]].concat());
        let mut load = load.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // None of them is answered, so that no other follows.
        eventually("writes under way", || proxy.count("write") >= before + concurrency);
        assert_eq!(proxy.count("write"), before + concurrency);
        load.kill().unwrap();
        drop(load.wait());
    }
}

#[test]
fn a_load_that_is_cut_short_says_how_many_items_were_acknowledged() {
    let mut shop = Shop::served();
    let store = shop.store();
    let ledger = shop.folder.join("ledger");
    let place = ["load", "--store", &store, "--container", "shop/orders", "--ledger", &ledger, "--concurrency", "1"];
    let spawn = |more: &[&str]| crate::signals::spawn(command(&[&place[..], more].concat()));
    let (counted, endless) = (spawn(&["--count", "1000000"]), spawn(&[]));
    eventually("some writes", || shop.lines("ledger").len() > 10);
    shop.kill_server();
    // The first of them gives up by itself, the other one is interrupted while it tries.
    let mut said = String::new();
    let mut endless = endless;
    let mut stderr = std::io::BufReader::new(endless.stderr.take().unwrap());
    std::io::BufRead::read_line(&mut stderr, &mut said).unwrap();
    assert!(said.starts_with("warning: a write failed and is repeated: "), "{said}");
    crate::signals::send("INT", &endless);
    said.clear();
    std::io::Read::read_to_string(&mut stderr, &mut said).unwrap();
    assert_eq!(endless.wait().unwrap().code(), Some(2), "{said}");
    let listed = " acknowledged before, listed in ";
    assert!(said.starts_with("error: interrupted while writes fail: ") && said.contains(listed), "{said}");
    let (status, said) = crate::signals::ended(counted);
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains(listed) && said.ends_with("run `load` again for the rest\n"), "{said}");
}

#[test]
fn the_ledger_has_each_acknowledged_write() {
    let shop = Shop::in_folder();
    let ledger = shop.folder.join("ledger");
    let args = ["load", "--store", &shop.store(), "--container", "shop/orders", "--create", "--ledger", &ledger];
    for (prefix, lines) in [("a", 5), ("b", 10)] {
        assert_good(&run(&[&args[..], &["--count", "5", "--prefix", prefix]].concat()));
        assert_eq!(shop.lines("ledger").len(), lines, "it is appended to");
    }
    let ids: BTreeSet<String> =
        shop.lines("ledger").iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(
        ids,
        ["a", "b"].iter().flat_map(|prefix| (0..5).map(move |number| format!("{prefix}-{number}"))).collect()
    );
}
