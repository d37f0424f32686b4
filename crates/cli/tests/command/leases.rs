//! `leases release|export|import`: while hosts run, after one was killed, and on a copy of the store.

use changefeed::core::{Clock as _, SystemClock};
use serde_json::Value;

use crate::{
    process::{command, eventually, text},
    shop::{Shop, assert_good},
    signals::{Leases, ended, send, spawn},
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
fn an_export_follows_links_and_writes_to_what_is_no_file() {
    let shop = Shop::in_folder();
    shop.load(1);
    shop.says(&["run"], &["--print", "--once", "--log", "warn"]);
    let (link, file) = (shop.folder.join("link"), shop.folder.write("file", "before"));
    std::os::unix::fs::symlink("file", &link).unwrap();
    shop.says(&["leases", "export"], &["--to", &link]);
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink(), "the link stays");
    let archive: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(archive["processor"], "mailer", "{archive}");
    let said = shop.says(&["leases", "export"], &["--to", "/dev/stdout"]);
    assert!(said.starts_with('{') && said.contains("\"mailer\""), "{said}");
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
fn a_damaged_document_is_named_everywhere_and_replaced_by_an_import() {
    let shop = Shop::served();
    shop.load(20);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let file = shop.folder.join("leases.json");
    shop.says(&["leases", "export"], &["--to", &file]);
    let id = Leases::of(&shop).damage("1");
    let problem = "ContinuationToken is not a string (invalid type: integer `7`, expected a string at line 1 column 1): repair or \
                   delete the document";

    let listed = shop.run(&["leases", "list"], &[]);
    assert_eq!(listed.status.code(), Some(1));
    let said = text(&listed.stdout);
    let row = |lease| {
        if lease == 1 {
            "    1  broken  -            -  -\n".to_owned()
        } else {
            format!("    {lease}  free    -            0  -\n")
        }
    };
    let table: String = (0..4).map(row).collect();
    let document = format!("lease document {id}: {problem}");
    let named = format!("\ncannot be read: {document}; see `changefeed explain mailer`\n");
    assert_eq!(said, format!("LEASE  STATE   OWNER  CHANGES  BEHIND\n{table}{named}"));
    let listed: Value = serde_json::from_slice(&shop.run(&["leases", "list"], &["--json"]).stdout).unwrap();
    assert_eq!((listed.as_array().unwrap().len(), &listed[1]["state"]), (4, &"broken".into()), "{listed}");
    let lag = text(&shop.run(&["lag"], &[]).stdout);
    let heading = "mailer has caught up, but for leases whose documents cannot be read\n";
    assert!(lag.starts_with(heading) && lag.ends_with(&named), "{lag}");

    let explained = shop.run(&["explain"], &["--lease", "1"]);
    assert_eq!(explained.status.code(), Some(1));
    let expected = format!(
        "lease 1: document {id} cannot be read: {problem}; hosts create no missing lease as long as it is there\nnext: stop the \
         hosts, then `changefeed leases import mailer --from FILE` with an earlier export; without one, repair the document in \
         the file that `changefeed leases export mailer --to FILE` writes\n"
    );
    assert_eq!(text(&explained.stdout), expected);
    for refused in [shop.run(&["pause"], &[]), shop.run(&["seek"], &["--to", "now"])] {
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("nothing was done: replace it by importing leases that were exported"), "{said}");
    }
    let dry_run = shop.run(&["pause"], &["--dry-run"]);
    assert_eq!(
        text(&dry_run.stderr),
        format!("error: nothing would be done: {document}; see `changefeed explain mailer`\n")
    );

    // What the file needs that an export writes now: the position of the lease.
    let now: Value = serde_json::from_str(&shop.says(&["leases", "export"], &[])).unwrap();
    assert_eq!(now["leases"][1]["ContinuationToken"], 7);
    let imported = shop.says(&["leases", "import"], &["--from", &file]);
    assert!(imported.contains("\n    1  replace  -  "), "{imported}");
    assert!(shop.says(&["lag"], &[]).starts_with("mailer has caught up\n"));
    assert_eq!(shop.says(&["pause"], &["--lease", "1"]), "1 lease paused: 1\n");
}

#[test]
fn a_release_that_is_interrupted_leaves_no_lease_paused() {
    let shop = Shop::served();
    shop.load(1);
    let host = shop.host("w1", &["--exec", "touch called; sleep 10000"]);
    eventually("a call", || shop.folder.path().join("called").exists());
    let states = || {
        let leases = shop.json(&["leases", "list"], &[]);
        let leases = leases.as_array().unwrap().iter();
        leases.map(|lease| (lease["state"].clone(), lease["owner"].clone())).collect::<Vec<_>>()
    };
    for signal in ["INT", "TERM"] {
        let release = spawn(shop.command(&["leases", "release"], &["--wait", "1h"]));
        eventually("all but one given up", || states().iter().filter(|(_, owner)| owner == "w1").count() == 1);
        assert!(states().iter().any(|(state, owner)| state == "paused" && owner == "w1"));
        send(signal, &release);
        let (status, said) = ended(release);
        let expected = "stopped before all owners had finished their batch: no lease is left paused\n";
        assert_eq!((status.code(), said.as_str()), (Some(130), expected));
        assert!(states().iter().all(|(state, _)| state != "paused"), "{:?}", states());
        shop.owns("w1", 4);
    }
    drop(host);
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
