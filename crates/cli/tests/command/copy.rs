//! `run --copy-to`: live copies, in the same store and across stores.

use std::{collections::BTreeMap, time::Duration};

use changefeed::remote::{EMULATOR_KEY, Server as Client};
use serde_json::Value;

use crate::{
    process::{Server, command, eventually, run, text},
    shop::{Shop, assert_good},
    signals::{ended, send, spawn},
};

/// The items of a container by id, without what stores add.
fn items(store: &str, container: &str) -> BTreeMap<String, Value> {
    let args = ["tail", "--store", store, "--container", container, "--from", "beginning", "--once", "--json"];
    let output = run(&args);
    assert_good(&output);
    let item = |line: &str| {
        let mut change: Value = serde_json::from_str(line).unwrap();
        let members = change["item"].as_object_mut().unwrap();
        members.retain(|name, _| !name.starts_with('_'));
        (change["id"].as_str().unwrap().to_owned(), change["item"].take())
    };
    text(&output.stdout).lines().map(item).collect()
}

#[test]
fn a_copy_in_the_same_store_is_whole() {
    let shop = Shop::in_folder();
    shop.load(150);
    let copy = ["--copy-to", "shop/archive", "--once", "--from", "beginning", "--log", "warn"];
    shop.says(&["run"], &copy);
    let orders = items(&shop.store(), "shop/orders");
    assert_eq!(orders.len(), 150);
    assert_eq!(items(&shop.store(), "shop/archive"), orders);
    // From the beginning again: nothing is overwritten, nothing fails.
    shop.says(&["seek"], &["--to", "beginning"]);
    shop.says(&["run"], &copy);
    assert_eq!(items(&shop.store(), "shop/archive"), orders);
    let output = shop.run(&["run"], &["--copy-to", "shop/orders", "--once"]);
    assert!(text(&output.stderr).contains("this is the monitored container"), "{}", text(&output.stderr));
}

#[tokio::test]
async fn a_delete_is_copied_with_all_versions_only() {
    let shop = Shop::served();
    let database = Client::connect(&shop.store(), EMULATOR_KEY).unwrap().database("shop");
    let orders = database.container("orders").partition_key("/customer").all_versions(Duration::from_secs(600));
    let orders = orders.create().await.unwrap();
    database.container("archive").partition_key("/customer").create().await.unwrap();
    let write = async |id: &str| {
        orders.create(&serde_json::json!({ "id": id, "customer": "ada" })).await.unwrap();
    };
    let copies = || items(&shop.store(), "shop/archive").into_keys().collect::<Vec<_>>();

    let newest = shop.host("a", &["--copy-to", "shop/archive"]);
    write("o1").await;
    write("o2").await;
    eventually("two copies", || copies() == ["o1", "o2"]);
    orders.delete("ada", "o1").await.unwrap();
    write("o3").await;
    eventually("a third copy", || copies() == ["o1", "o2", "o3"]);
    newest.stop();

    let store = shop.store();
    let all = ["run", "mirror", "--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let all = command(&[&all[..], &["--all-versions", "--copy-to", "shop/archive", "--log", "warn"]].concat());
    let all = spawn(all);
    let owned =
        ["leases", "list", "mirror", "--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    eventually("an owner", || text(&run(&owned).stdout).contains("owned"));
    orders.delete("ada", "o2").await.unwrap();
    eventually("a deleted copy", || copies() == ["o1", "o3"]);
    send("TERM", &all);
    assert_eq!(ended(all).0.code(), Some(0));
}

#[test]
fn a_copy_on_another_server_follows_and_keeps_the_newest_version() {
    let shop = Shop::served();
    let target = Server::start(&["--store", "memory"]);
    let place = format!("{}/shop/archive", target.endpoint().trim_end_matches('/'));
    let load = |count: &str, size: &str| {
        let args = ["load", "--store", &shop.store(), "--container", "shop/orders", "--prefix", "o"];
        assert_good(&command(&[&args[..], &["--count", count, "--size", size]].concat()).output().unwrap());
    };
    load("40", "100");
    let host = shop.host("a", &["--copy-to", &place]);
    shop.catches_up();
    // The same ids again, larger.
    load("40", "300");
    let orders = items(&shop.store(), "shop/orders");
    eventually("the newest versions", || items(&target.endpoint(), "shop/archive") == orders);
    host.stop();

    // A copy of a later version, as a faster host may have written it, stays.
    let newer = serde_json::json!({"id": "o-7", "customer": "k7", "newer": true, "_cf_lsn": 1_000_000});
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = changefeed::remote::Server::connect(&target.endpoint(), changefeed::remote::EMULATOR_KEY).unwrap();
        server.database("shop").container("archive").open().await.unwrap().upsert(&newer).await.unwrap();
    });
    shop.says(&["seek"], &["--to", "beginning"]);
    shop.says(&["run"], &["--copy-to", &place, "--once", "--log", "warn"]);
    let copies = items(&target.endpoint(), "shop/archive");
    assert_eq!(copies["o-7"]["newer"], true, "{}", copies["o-7"]);
    assert_eq!(copies["o-8"], orders["o-8"]);
}

/// Runs a copy of a container of this server to its end; whether it is done, and what it said.
fn copied(store: &str, processor: &str, container: &str, more: &[&str]) -> (bool, String) {
    let place = ["run", processor, "--store", store, "--container", container, "--leases", "shop/leases"];
    let how = ["--copy-to", "shop/archive", "--once", "--from", "beginning"];
    let output = run(&[&place[..], &how, more].concat());
    (output.status.success(), text(&output.stderr))
}

#[tokio::test]
async fn a_container_that_was_created_again_replaces_its_copies_although_it_counts_from_one() {
    let shop = Shop::served();
    shop.load(60);
    let database = Client::connect(&shop.store(), EMULATOR_KEY).unwrap().database("shop");
    let orders = database.container("orders").open().await.unwrap();
    let write = async |number: u32, total: u32| {
        let orders = database.container("orders").open().await.unwrap();
        let item = serde_json::json!({ "id": format!("o{number}"), "customer": "ada", "total": total });
        orders.upsert(&item).await.unwrap();
    };
    for number in 0..20 {
        write(number, 1).await;
    }
    let host = shop.host("a", &["--copy-to", "shop/archive"]);
    shop.catches_up();
    drop(orders);
    Client::connect(&shop.store(), EMULATOR_KEY).unwrap().catalog().delete_container("shop", "orders").await.unwrap();
    database.container("orders").partition_key("/customer").create().await.unwrap();
    // Positions below those of the copies.
    for number in 0..20 {
        write(number, 2).await;
    }
    let totals = || {
        let copies = items(&shop.store(), "shop/archive");
        (0..20).map(|number| copies[&format!("o{number}")]["total"].as_u64().unwrap()).sum::<u64>()
    };
    eventually("the copies of the new container", || totals() == 40);
    // Within the new container an older version does not replace a newer one.
    write(7, 3).await;
    eventually("a newer version", || totals() == 41);
    host.stop();
    shop.says(&["seek"], &["--to", "beginning"]);
    shop.says(&["run"], &["--copy-to", "shop/archive", "--once", "--log", "warn"]);
    assert_eq!(totals(), 41);
}

#[test]
fn two_sources_do_not_overwrite_each_other_unless_one_has_taken_the_place_of_the_other() {
    let shop = Shop::served();
    let store = shop.store();
    let load = |container: &str, prefix: &str, size: &str| {
        let args = ["load", "--store", &store, "--container", container, "--count", "5", "--prefix", prefix];
        assert_good(&command(&[&args[..], &["--size", size]].concat()).output().unwrap());
    };
    load("shop/orders", "o", "100");
    load("shop/others", "o", "300");
    assert!(copied(&store, "first", "shop/orders", &["--log", "warn"]).0);
    let kept = items(&store, "shop/archive");
    // Retried without end: the dead letters show the reason.
    let letters = ["--dead-letters", "shop/rejected", "--dead-letter-after", "1", "--log", "off"];
    copied(&store, "second", "shop/others", &letters);
    let listed = crate::dead_letters::letters(&shop, &["list"]);
    assert!(listed.contains("was made of shop/orders in store") && listed.contains("--copy-other-source"), "{listed}");
    assert_eq!(items(&store, "shop/archive"), kept);

    assert!(copied(&store, "third", "shop/others", &["--copy-other-source", "--log", "warn"]).0);
    assert_eq!(items(&store, "shop/archive"), items(&store, "shop/others"));
}

#[test]
fn a_restored_store_goes_on_with_the_copies_that_were_restored_with_it() {
    let shop = Shop::in_folder();
    shop.load(20);
    assert!(copied(&shop.store(), "archive", "shop/orders", &["--log", "warn"]).0);
    let (backup, restored) = (shop.folder.join("backup"), shop.folder.join("restored"));
    assert_good(&run(&["backup", "--store", &shop.store(), "--to", &backup]));
    assert_good(&run(&["restore", "--from", &backup, "--store", &restored]));
    let write = ["load", "--store", &restored, "--container", "shop/orders", "--count", "20", "--prefix", "o"];
    assert_good(&run(&write));
    assert_good(&run(&[&write[..], &["--size", "300"]].concat()));
    let (done, said) = copied(&restored, "archive", "shop/orders", &["--log", "warn"]);
    assert!(done, "{said}");
    assert_eq!(items(&restored, "shop/archive"), items(&restored, "shop/orders"));
}
