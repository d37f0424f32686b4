//! `dead-letters`: found, read, delivered again, deleted.

use std::process::Output;

use serde_json::Value;

use crate::{
    process::{command, eventually, text},
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

    let listed = letters(&shop, &["list"]);
    assert!(
        listed
            .starts_with("2 dead letters, grouped by their last error\n\n2 x the command ended with exit status: 1\n"),
        "{listed}"
    );
    // One after the other as JSON, the same as text.
    let all: Vec<Value> =
        letters(&shop, &["list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines = listed.lines().skip(3).collect::<Vec<_>>();
    for (letter, lines) in all.iter().zip(lines.chunks(2)) {
        let begin = format!(
            "  item {}: lsn {}, lease {}, 2 attempts, 20",
            letter["itemId"].as_str().unwrap(),
            letter["lsn"],
            letter["lease"].as_str().unwrap()
        );
        assert!(lines[0].starts_with(&begin) && lines[0].ends_with('Z'), "{lines:?}");
        assert_eq!(lines[1], format!("    {}", letter["id"].as_str().unwrap()));
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }
    let one: Value = serde_json::from_str(letters(&shop, &["list", "--json"]).lines().next().unwrap()).unwrap();
    let id = one["id"].as_str().unwrap();
    let shown: Value = serde_json::from_str(&letters(&shop, &["show", id])).unwrap();
    assert_eq!(shown["attempts"], 2, "{shown}");

    let container = ["--container", "shop/orders"];
    let would = letters(&shop, &[&["redrive", "--dry-run"], &container[..]].concat());
    assert_eq!(would, "2 dead letters would be written again, 0 left\n");
    assert_eq!(letters(&shop, &["list", "--json"]).lines().count(), 2);
    shop.folder.write("fixed", "");
    let item = one["itemId"].as_str().or(one["item_id"].as_str()).unwrap();
    let done = letters(&shop, &[&["redrive", "--item", item], &container[..]].concat());
    assert_eq!(done, "1 dead letter written again, 0 left\n");
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
