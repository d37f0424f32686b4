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
