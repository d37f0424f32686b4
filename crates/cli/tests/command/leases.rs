//! `leases release|export|import`: while hosts run, after one was killed, and on a copy of the store.

use changefeed::core::{Clock as _, SystemClock};
use serde_json::Value;

use crate::{
    process::{command, eventually, text},
    shop::{Shop, assert_good},
};

#[test]
fn leases_of_a_killed_host_are_freed_and_say_so() {
    let shop = Shop::in_folder();
    shop.load(4);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let free = "LEASE  OWNER  RESULT\n    0  -      free already\n    1  -      free already\n    2  -      free \
                already\n    3  -      free already\n";
    assert_eq!(shop.says(&["leases", "release"], &[]), free);
    let host = shop.host("w1", &["--print"]);
    eventually("leases", || shop.json(&["leases", "list"], &[]).as_array().unwrap().iter().all(|l| l["owner"] == "w1"));
    // Killed: the folder is free, and nobody in this process can be the owner.
    drop(host);
    let would = shop.says(&["leases", "release"], &["--lease", "2", "--dry-run"]);
    assert_eq!(would, "LEASE  OWNER  RESULT\n    2  w1     owner is dead: freed\n\nnothing was done\n");
    let freed = shop.json(&["leases", "release"], &["--lease", "2"]);
    assert_eq!(freed, serde_json::json!([{ "lease": "2", "owner": "w1", "outcome": "owner_dead" }]));
    let owners: Vec<Value> =
        shop.json(&["leases", "list"], &[]).as_array().unwrap().iter().map(|lease| lease["owner"].clone()).collect();
    assert_eq!(owners, ["w1".into(), "w1".into(), Value::Null, "w1".into()]);
}

#[test]
fn a_living_owner_is_asked_and_keeps_a_lease_whose_batch_does_not_end() {
    let shop = Shop::served();
    shop.load(4);
    let host = shop.host("w1", &["--print"]);
    shop.catches_up();
    eventually("leases", || shop.json(&["leases", "list"], &[]).as_array().unwrap().iter().all(|l| l["owner"] == "w1"));
    let released = shop.json(&["leases", "release"], &["--lease", "1"]);
    assert_eq!(released[0]["outcome"], "given_up");
    host.stop();

    let host = shop.host("w2", &["--exec", "sleep 60"]);
    shop.load(40);
    eventually("work", || shop.json(&["leases", "list"], &[]).as_array().unwrap().iter().all(|l| l["owner"] == "w2"));
    let begin = SystemClock.wall().as_millis();
    let kept = shop.run(&["leases", "release"], &["--lease", "1", "--wait", "500ms"]);
    let millis = SystemClock.wall().as_millis() - begin;
    assert!((500..25_000).contains(&millis), "{millis} ms; the default is half a minute");
    assert_eq!(kept.status.code(), Some(1));
    assert!(text(&kept.stdout).contains("kept by its owner: try --force"), "{}", text(&kept.stdout));
    assert_eq!(shop.json(&["leases", "list"], &[])[1]["state"], "owned", "it is not left paused");
    let taken = shop.json(&["leases", "release"], &["--lease", "1", "--force"]);
    assert_eq!(taken[0]["outcome"], "taken");
    drop(host);
}

#[test]
fn an_export_is_imported_again_and_living_hosts_are_left_alone() {
    let shop = Shop::served();
    shop.load(20);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let file = shop.folder.join("leases.json");
    let said = shop.says(&["leases", "export"], &["--to", &file]);
    assert_eq!(said, format!("4 leases of mailer written to {file}\n"));
    let written = shop.json(&["leases", "export"], &["--to", &file]);
    assert_eq!(written, serde_json::json!({ "processor": "mailer", "leases": 4, "to": file }));
    let archive: Value = serde_json::from_str(&shop.says(&["leases", "export"], &[])).unwrap();
    assert_eq!((archive["dialect"].as_str(), archive["version"].as_u64()), (Some("changefeed"), Some(1)));

    shop.load(10);
    shop.says(&["run"], &["--print", "--once", "--log", "warn"]);
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
    let would = shop.says(&["leases", "import"], &["--from", &file, "--dry-run"]);
    assert!(would.starts_with("LEASE  ACTION   FROM"), "{would}");
    assert!(would.ends_with("\n4 leases would be imported; nothing was done\n"), "{would}");
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
    let host = shop.host("w1", &["--print"]);
    eventually("an owner", || shop.json(&["leases", "list"], &[])[0]["owner"] == "w1");
    let refused = shop.run(&["leases", "import"], &["--from", &file]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(said, "error: hosts are alive: w1; stop them, then import, or pass --force\n");
    host.stop();
    let imported = shop.says(&["leases", "import"], &["--from", &file]);
    assert!(imported.ends_with("\n4 leases imported; start hosts to go on\n"), "{imported}");
    assert_eq!(shop.json(&["lag"], &[])["total"], 10, "they stand where they stood");
}

#[test]
fn an_import_from_another_store_names_the_option_that_allows_it() {
    let (shop, other) = (Shop::in_folder(), Shop::in_folder());
    for shop in [&shop, &other] {
        shop.load(8);
    }
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let file = shop.folder.join("leases.json");
    shop.says(&["leases", "export"], &["--to", &file]);
    let refused = other.run(&["leases", "import"], &["--from", &file]);
    let said = text(&refused.stderr);
    assert!(said.contains("in another store") && said.ends_with("with --other-store\n"), "{said}");
    other.says(&["leases", "import"], &["--from", &file, "--other-store"]);
    assert_eq!(other.json(&["lag"], &[])["total"], 0);
    let store = other.store();
    let place = ["--store", &store, "--container", "shop/orders", "--leases", "shop/leases"];
    let no_file = command(&[&["leases", "import", "mailer", "--from", "missing.json"], &place[..]].concat()).output();
    assert!(text(&no_file.unwrap().stderr).contains("read missing.json"));
    let verify = command(&["verify", "--store", &store]).output().unwrap();
    assert_good(&verify);
}

#[test]
fn an_import_by_force_is_done_while_a_host_is_alive() {
    let shop = Shop::served();
    shop.load(20);
    shop.says(&["run"], &["--print", "--once", "--from", "now", "--log", "warn"]);
    shop.says(&["seek"], &["--to", "beginning"]);
    let file = shop.folder.join("leases.json");
    shop.says(&["leases", "export"], &["--to", &file]);
    let host = shop.host("w1", &["--print"]);
    eventually("all orders", || shop.lines("out").len() == 20);
    shop.owns("w1", 4);
    assert_eq!(shop.run(&["leases", "import"], &["--from", &file]).status.code(), Some(2));
    shop.says(&["leases", "import"], &["--from", &file, "--force"]);
    eventually("all orders again", || shop.lines("out").len() >= 40);
    host.stop();
}
