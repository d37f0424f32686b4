//! `backup` and `restore`: of a folder, of a store that is served and written to, killed in the middle, damaged.

use std::{
    fs,
    process::{Output, Stdio},
};

use serde_json::Value;

use crate::{
    process::{Folder, command, eventually, run, text},
    shop::{Shop, assert_good, changes},
};

fn backup(shop: &Shop, to: &str) -> Output {
    run(&["backup", "--store", &shop.store(), "--to", to, "--json"])
}

fn restore(from: &str, to: &str) -> Output {
    run(&["restore", "--from", from, "--store", to, "--json"])
}

/// What `tail` finds in a store, as a ledger has it.
fn found(store: &str) -> Vec<String> {
    let args = ["tail", "--store", store, "--container", "shop/orders", "--from", "beginning", "--json", "--once"];
    let output = run(&args);
    assert_good(&output);
    let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    changes(&lines).into_iter().collect()
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

#[test]
fn a_restored_store_has_everything_a_new_identity_and_processors_that_go_on() {
    let shop = Shop::in_folder();
    shop.load(30);
    shop.says(&["run"], &["--print", "--once", "--from", "beginning", "--log", "warn"]);
    let ledger = shop.load(12);
    let (to, restored) = (shop.folder.join("backup"), shop.folder.join("restored"));
    let made = backup(&shop, &to);
    assert_good(&made);
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let output = restore(&to, &restored);
    assert_good(&output);
    let done: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&done["was"], &done["processors"], &done["bytes"]), (&made["store"], &1.into(), &made["bytes"]));
    assert_ne!(done["store"], made["store"]);
    assert_eq!(found(&restored), sorted(ledger));
    let lag = ["lag", "mailer", "--container", "shop/orders", "--leases", "shop/leases", "--json"];
    let lag = run(&[&lag[..], &["--store", &restored]].concat());
    let lag: Value = serde_json::from_slice(&lag.stdout).unwrap();
    assert_eq!(lag["total"], 12, "it goes on where it was");
    let mut host = command(&["run", "mailer", "--store", &restored, "--container", "shop/orders"]);
    let host = host.args(["--leases", "shop/leases", "--print", "--json", "--once", "--log", "warn"]).output().unwrap();
    assert_good(&host);
    assert_eq!(text(&host.stdout).lines().count(), 12);

    // Leases kept elsewhere were made for the other store, and are refused.
    let refused = run(&[
        "run",
        "mailer",
        "--store",
        &restored,
        "--lease-store",
        &shop.store(),
        "--container",
        "shop/orders",
        "--leases",
        "shop/leases",
        "--print",
        "--once",
        "--log",
        "error",
    ]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("restored or replaced"), "{}", text(&refused.stderr));
}

#[test]
fn a_store_that_is_written_to_is_copied_as_it_is_at_one_moment() {
    let shop = Shop::served();
    let before = shop.load(300);
    let mut writer = command(&["load", "--store", &shop.store(), "--container", "shop/orders", "--size", "2000"]);
    let mut writer = writer.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let output = backup(&shop, &shop.folder.join("backup"));
    // Through the folder, which the server has open, it is the same.
    let data = shop.folder.join("data");
    let second = run(&["backup", "--store", &data, "--to", &shop.folder.join("second")]);
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_good(&output);
    assert_good(&second);
    assert!(text(&second.stdout).contains("changefeed restore --from"), "{}", text(&second.stdout));
    for (name, restored) in [("backup", "r1"), ("second", "r2")] {
        let restored = shop.folder.join(restored);
        assert_good(&restore(&shop.folder.join(name), &restored));
        let found = found(&restored);
        let missing: Vec<_> = before.iter().filter(|line| !found.contains(line)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert_good(&run(&["verify", "--store", &restored]));
    }
}

#[test]
fn a_killed_backup_or_restore_leaves_nothing_under_the_final_name() {
    let shop = Shop::in_folder();
    let store = shop.store();
    let load =
        ["load", "--create", "--store", &store, "--container", "shop/orders", "--count", "20000", "--size", "2000"];
    assert_good(&run(&[&load[..], &["--concurrency", "64"]].concat()));
    let (to, restored) = (shop.folder.join("backup"), shop.folder.join("restored"));
    let backup_args = ["backup", "--store", &store, "--to", &to];
    killed_when_begun(&backup_args, &format!("{to}.partial/files"));
    assert!(!fs::exists(&to).unwrap() && fs::exists(format!("{to}.partial")).unwrap());
    assert_good(&run(&backup_args));
    assert!(!fs::exists(format!("{to}.partial")).unwrap(), "what was left is replaced");

    let restore_args = ["restore", "--from", &to, "--store", &restored];
    killed_when_begun(&restore_args, &format!("{restored}.partial"));
    assert!(!fs::exists(&restored).unwrap() && fs::exists(format!("{restored}.partial")).unwrap());
    assert_good(&run(&restore_args));
    assert!(!fs::exists(format!("{restored}.partial")).unwrap());
    assert_eq!(found(&restored).len(), 20000);
    assert_eq!(found(&store).len(), 20000, "the store itself is as it was");
}

/// Starts a command and kills it when the first file is there.
fn killed_when_begun(args: &[&str], folder: &str) {
    let mut child = command(args).stdout(Stdio::null()).spawn().unwrap();
    eventually("a first file", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be killed");
        fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some())
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn damage_and_mistakes_are_named_and_leave_nothing_behind() {
    let shop = Shop::in_folder();
    shop.load(50);
    let to = shop.folder.join("backup");
    assert_good(&backup(&shop, &to));
    let refused = |output: Output, words: &[&str]| {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        words.iter().for_each(|word| assert!(said.contains(word), "{word:?} is not in {said}"));
    };
    refused(backup(&shop, &to), &["is not empty"]);
    refused(backup(&shop, "/proc/none/backup"), &["make the folder"]);
    refused(restore(&shop.folder.join("none"), &shop.folder.join("r")), &["manifest.json", "changefeed backup"]);
    refused(restore(&to, &shop.store()), &["is not empty"]);
    refused(
        run(&["backup", "--store", &shop.folder.join("none"), "--to", &shop.folder.join("x")]),
        &["there is no folder"],
    );

    let segment = format!("{to}/files/00000001-00000001.log");
    let good = fs::read(&segment).unwrap();
    let mut bad = good.clone();
    bad[9000] ^= 4;
    fs::write(&segment, bad).unwrap();
    let target = shop.folder.join("restored");
    refused(restore(&to, &target), &["is damaged", "manifest"]);
    let names: Vec<String> = fs::read_dir(shop.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("restored"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
    fs::write(&segment, good).unwrap();
    let manifest = format!("{to}/manifest.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("00000001-00000001.log", "../../escape.log")).unwrap();
    refused(restore(&to, &target), &["no name of a file"]);
    fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
    refused(restore(&to, &target), &["version 7"]);

    // A damaged store makes no backup.
    let mut log = fs::read(format!("{}/00000001-00000001.log", shop.store())).unwrap();
    log[3000] ^= 1;
    let broken = Folder::new();
    for name in ["FORMAT", "STORE"] {
        fs::copy(format!("{}/{name}", shop.store()), broken.path().join(name)).unwrap();
    }
    fs::write(broken.path().join("00000001-00000001.log"), log).unwrap();
    let to = shop.folder.join("of-broken");
    refused(run(&["backup", "--store", broken.path().to_str().unwrap(), "--to", &to]), &["is damaged at byte"]);
    assert!(!fs::exists(&to).unwrap());
}
