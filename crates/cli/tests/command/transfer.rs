//! `load`, `tail`, `run --print`: what goes in comes out, whole.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    process::Stdio,
    time::Duration,
};

use changefeed::embedded::Engine;
use serde_json::Value;

use crate::{
    http::free_port,
    process::{Folder, Server, command, eventually, run, text},
    shop::{Shop, assert_good, changes},
    signals::{ended, send},
};

fn tail(shop: &Shop, more: &[&str]) -> Vec<String> {
    let store = shop.store();
    let args = ["tail", "--store", &store, "--container", "shop/orders", "--from", "beginning", "--once", "--json"];
    let output = command(&[&args[..], more].concat()).output().unwrap();
    assert_good(&output);
    text(&output.stdout).lines().map(str::to_owned).collect()
}

fn what_goes_in_comes_out(shop: &Shop) {
    let ledger: BTreeSet<String> = shop.load(300).into_iter().collect();
    assert_eq!(ledger.len(), 300);
    let lines = tail(shop, &[]);
    assert_eq!(lines.len(), 300, "each once");
    assert_eq!(changes(&lines), ledger);

    // Two hosts of two processors would need two names: here one, with a bookmark beside it.
    let bookmark = shop.folder.join("bookmark");
    assert_eq!(tail(shop, &["--bookmark", &bookmark, "--max", "7"]).len(), 7);
    assert_eq!(tail(shop, &["--bookmark", &bookmark]).len(), 293, "it goes on where it was");
    assert_eq!(tail(shop, &["--bookmark", &bookmark]).len(), 0);
    assert_eq!(tail(shop, &["--where", "c.number >= 290"]).len(), 10);
    let of_one_key = tail(shop, &["--key", "k7"]);
    assert_eq!(of_one_key.len(), 3, "numbers 7, 107, 207");
    assert_eq!(tail(shop, &["--key", "[\"k7\"]"]), of_one_key);
    let of_k7 = shop.folder.join("bookmark-of-k7");
    assert_eq!(tail(shop, &["--key", "k7", "--bookmark", &of_k7, "--max", "1"]), of_one_key[..1]);
    assert_eq!(tail(shop, &["--key", "k7", "--bookmark", &of_k7, "--max", "1"]), of_one_key[1..2]);
    for (option, value) in [("--key", "k8"), ("--range", "0")] {
        let args = ["tail", "--store", &shop.store(), "--container", "shop/orders", "--once", option, value];
        let output = command(&[&args[..], &["--bookmark", &of_k7]].concat()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
        let expected = format!("was made for other keys than {option} {value}: pass another file");
        assert!(text(&output.stderr).contains(&expected), "{}", text(&output.stderr));
    }
    assert_eq!(tail(shop, &["--bookmark", &of_k7]), of_one_key[2..], "the keys of the bookmark");
    let by_range: usize = (0..4).map(|range| tail(shop, &["--range", &range.to_string()]).len()).sum();
    assert_eq!(by_range, 300);
}

#[test]
fn what_is_loaded_into_a_folder_is_read_whole() {
    what_goes_in_comes_out(&Shop::in_folder());
}

#[test]
fn what_is_loaded_into_a_server_is_read_whole() {
    what_goes_in_comes_out(&Shop::served());
}

#[tokio::test]
async fn tail_shows_every_version_if_asked_to() {
    let shop = Shop::in_folder();
    let (store, bookmark) = (shop.store(), shop.folder.join("bookmark"));
    let engine = Engine::open(&store).unwrap();
    let orders = engine.database("shop").container("orders").partition_key("/customer");
    drop(orders.all_versions(Duration::from_secs(600)).create().await.unwrap());
    engine.close().await.unwrap();
    let write = || {
        let args = ["load", "--store", &store, "--container", "shop/orders", "--count", "1", "--prefix", "same"];
        assert_good(&command(&args).output().unwrap());
    };
    let tail = || {
        let args = ["tail", "--store", &store, "--container", "shop/orders", "--from", "now", "--once", "--json"];
        let output = command(&[&args[..], &["--bookmark", &bookmark, "--all-versions"]].concat()).output().unwrap();
        assert_good(&output);
        text(&output.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>()
    };
    write();
    assert!(tail().is_empty(), "nothing since now");
    write();
    write();
    let versions = tail();
    assert_eq!(versions.len(), 2, "{versions:?}");
    assert_eq!(versions[0]["id"], versions[1]["id"]);
    assert!(versions[0]["lsn"].as_u64() < versions[1]["lsn"].as_u64(), "{versions:?}");
}

#[test]
fn tail_follows_what_comes() {
    let shop = Shop::served();
    shop.load(1);
    let store = shop.store();
    let mut child =
        command(&["tail", "--store", &store, "--container", "shop/orders", "--from", "beginning", "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    shop.load(1);
    let second = lines.next().unwrap().unwrap();
    assert_ne!(first, second);
    child.kill().unwrap();
    drop(child.wait());
}

#[test]
fn tail_goes_on_after_its_server_was_restarted_or_has_throttled_and_says_each_once() {
    let folder = Folder::new();
    let (data, address) = (folder.join("data"), free_port().to_string());
    let serve = || Server::spawn(&mut command(&["serve", "--store", &data, "--listen", &address]));
    let store = format!("http://{address}");
    let place = ["--store", &store, "--container", "shop/orders"];
    let load = || assert_good(&run(&[&["load", "--count", "2"], &place[..]].concat()));
    let file = |name: &str| std::fs::File::create(folder.path().join(name)).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let server = serve();
    load();
    let mut tail = command(&[&["tail", "--from", "beginning", "--json"], &place[..]].concat());
    let tail = tail.stdout(file("out")).stderr(file("err")).spawn().unwrap();
    eventually("what is there", || read("out").lines().count() == 2);
    server.kill();
    eventually("a warning", || read("err").ends_with('\n'));
    let server = serve();
    load();
    eventually("what came after the restart", || read("out").lines().count() == 4);
    assert_good(&run(&["throttle", "--store", &store, "--seconds", "1"]));
    load();
    eventually("what came after the throttling", || read("out").lines().count() == 6);
    send("TERM", &tail);
    let mut tail = tail;
    assert_eq!(tail.wait().unwrap().code(), Some(130));
    let said = read("err");
    let lines: Vec<&str> = said.lines().take(2).collect();
    let warning = format!("warning: a read failed and is repeated until it succeeds: nothing listens at {store}");
    assert!(lines[0].starts_with(&warning), "{said}");
    assert_eq!(lines[1], "reads succeed again", "{said}");
    assert!(said.lines().count() <= 4, "each outage takes two lines: {said}");
    drop(server);
    // One that is to end by itself does not wait for a server.
    let once = run(&[&["tail", "--once"], &place[..]].concat());
    assert_eq!(once.status.code(), Some(2));
}

fn a_host_prints_everything(shop: &Shop) {
    let ledger: BTreeSet<String> = shop.load(200).into_iter().collect();
    let host = shop.host("a", &["--print", "--json"]);
    eventually("all orders printed", || changes(&shop.lines("out")) == ledger);
    host.stop();
    assert_eq!(shop.lines("out").len(), 200, "none twice");
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);

    // The next one goes on where it was, and ends by itself.
    let before: BTreeSet<String> = ledger;
    let all: BTreeSet<String> = shop.load(5).into_iter().collect();
    let printed = shop.says(&["run"], &["--print", "--json", "--once", "--from", "beginning", "--log", "warn"]);
    let printed: Vec<String> = printed.lines().map(str::to_owned).collect();
    assert_eq!(changes(&printed), all.difference(&before).cloned().collect());
}

#[test]
fn a_host_on_a_folder_prints_everything_once_and_goes_on_where_it_was() {
    a_host_prints_everything(&Shop::in_folder());
}

#[test]
fn a_host_on_a_server_prints_everything_once_and_goes_on_where_it_was() {
    a_host_prints_everything(&Shop::served());
}

#[test]
fn a_host_ends_when_nobody_reads_what_it_prints_and_loses_nothing() {
    let shop = Shop::served();
    shop.load(50);
    let more = ["--print", "--json", "--from", "beginning", "--max-items", "1", "--log", "off"];
    let mut child = shop.command(&["run"], &more).stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut printed = vec![reader.next().unwrap().unwrap()];
    drop(reader);
    // Whatever fitted into the pipe before: this does not.
    let ledger: BTreeSet<String> = shop.load(20).into_iter().collect();
    let mut ended = None;
    eventually("the end of the host", || {
        ended = child.try_wait().unwrap();
        ended.is_some()
    });
    assert!(ended.unwrap().success(), "a reader that left is no error: {ended:?}");
    let rest = shop.says(&["run"], &["--print", "--json", "--once", "--log", "warn"]);
    printed.extend(rest.lines().map(str::to_owned));
    // Lines that were in the pipe when the reader left are gone with it; nothing else is missing, and nothing comes twice.
    let seen = changes(&printed);
    assert_eq!(seen.len(), printed.len());
    assert!(seen.is_subset(&ledger) && ledger.len() == 70);
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
}

#[test]
fn a_run_once_whose_reader_goes_away_says_that_it_has_not_caught_up_and_loses_nothing() {
    let shop = Shop::in_folder();
    // More than a pipe holds.
    let ledger: BTreeSet<String> = shop.load(2000).into_iter().collect();
    // One attempt, so that a second one would look for the items to put aside.
    let letters = ["--dead-letters", "shop/rejected", "--dead-letter-after", "1"];
    let once = ["--print", "--json", "--once", "--from", "beginning", "--max-items", "50", "--log", "off"];
    let mut run = shop.command(&["run"], &[&once[..], &letters[..]].concat());
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    reader.read_line(&mut String::new()).unwrap();
    drop(reader);
    let (status, said) = ended(child);
    let expected = "stopped before it had caught up, since stdout is closed: the next run delivers the rest\n";
    assert_eq!((status.code(), said.as_str()), (Some(1), expected));

    let lag = shop.json(&["lag"], &[])["total"].as_u64().unwrap();
    let rest = shop.says(&["run"], &[&once[..], &letters[..]].concat());
    let rest: Vec<String> = rest.lines().map(str::to_owned).collect();
    assert!(lag > 0 && rest.len() as u64 == lag, "{lag} changes were not checkpointed, {} came", rest.len());
    assert!(changes(&rest).is_subset(&ledger));
    assert_eq!(shop.json(&["lag"], &[])["total"], 0);
    assert_eq!(crate::dead_letters::letters(&shop, &["list"]), "no dead letters\n");
}

#[test]
fn a_run_that_cannot_print_ends_with_an_error() {
    let shop = Shop::in_folder();
    shop.load(3);
    for once in [&["--once"][..], &[]] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let options = [&["--print", "--from", "beginning", "--log", "off"], once].concat();
        let run = shop.command(&["run"], &options).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        let (status, said) = ended(run);
        assert_eq!(status.code(), Some(2), "{said}");
        assert!(said.contains("error: write to stdout: No space left on device"), "{said}");
    }
    assert_eq!(shop.json(&["lag"], &[])["total"], 3, "nothing was checkpointed");
}

#[test]
fn run_check_changes_nothing() {
    let shop = Shop::in_folder();
    shop.load(3);
    let said = shop.says(&["run"], &["--print", "--check"]);
    assert_eq!(
        said,
        "processor mailer on shop/orders, 4 ranges, leases in shop/leases: shop/leases would be created, and the \
         processor begin at --from; prints each change\n"
    );
    let checked = shop.json(&["run"], &["--exec", "cat", "--check"]);
    assert_eq!((checked["processor"].as_str(), checked["ranges"].as_u64()), (Some("mailer"), Some(4)));
    assert_eq!(checked["delegate"], "runs \"cat\" for each batch");
    let output = shop.run(&["lag"], &[]);
    assert_eq!(
        text(&output.stderr),
        "error: there is no container shop/leases; there are: shop/orders; the first `changefeed run mailer` makes it\n"
    );
}
