//! `ranges`, `split`, `merge`, `verify`, `throttle`, `fault`: by folder, and by the URL of a server.

use std::process::Output;

use serde_json::Value;

use crate::{
    http::Http,
    process::{Folder, Server, run, text},
};

/// Runs a sub-command on a store.
fn on(store: &str, command: &str, args: &[&str]) -> Output {
    run(&[&[command, "--store", store], args].concat())
}

/// What it prints as JSON.
#[track_caller]
fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout).lines().count(), 1);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn ids(ranges: &Value) -> Vec<&str> {
    ranges.as_array().unwrap().iter().map(|range| range["id"].as_str().unwrap()).collect()
}

#[track_caller]
fn assert_refused(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(text(&output.stdout), "");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said}");
    }
}

/// All that can be done with ranges, the same by folder and by URL.
fn ranges_of(store: &str) {
    let container = ["--container", "db/c", "--json"];
    let with = |more: &[&'static str]| [&container[..], more].concat();
    let before = json(&on(store, "ranges", &container));
    assert_eq!(ids(&before), ["0"]);
    assert_eq!((before[0]["min"].as_str(), before[0]["max"].as_str()), (Some(""), Some("FF")));
    let children = json(&on(store, "split", &with(&["--range", "0"])));
    assert_eq!(ids(&children), ["1", "2"]);
    assert_eq!(children[0]["parents"], serde_json::json!(["0"]));
    let again = json(&on(store, "split", &with(&["--range", "1", "--at", "0A"])));
    assert_eq!(ids(&again), ["3", "4"]);
    assert_eq!((again[0]["max"].as_str(), again[1]["min"].as_str()), (Some("0A"), Some("0A")));
    let merged = json(&on(store, "merge", &with(&["--ranges", "4,2"])));
    assert_eq!(ids(&merged), ["5"]);
    assert_eq!(ids(&json(&on(store, "ranges", &container))), ["3", "5"]);
    let shown = on(store, "ranges", &["--container", "db/c"]);
    let table = text(&shown.stdout);
    assert!(table.starts_with("ID ") && table.lines().count() == 3, "{table}");

    assert_refused(&on(store, "split", &with(&["--range", "0"])), &["0"]);
    assert_refused(&on(store, "split", &with(&["--range", "3", "--at", "FE"])), &["error"]);
    assert_refused(&on(store, "split", &with(&["--range", "3", "--at", "xyz"])), &["xyz"]);
    assert_refused(&on(store, "merge", &with(&["--ranges", "3,77"])), &["77"]);
    for wrong in ["3", "3,4,5"] {
        let output = on(store, "merge", &["--container", "db/c", "--ranges", wrong]);
        assert_refused(&output, &["--ranges takes two ids"]);
    }
    assert_refused(&on(store, "merge", &container), &["--ranges"]);
    assert_refused(&on(store, "ranges", &["--container", "db/none"]), &["none"]);
    assert_refused(&on(store, "ranges", &["--container", "none/c"]), &["none"]);
    assert_refused(&on(store, "ranges", &["--container", "c"]), &["database/container"]);
    assert_eq!(ids(&json(&on(store, "ranges", &container))), ["3", "5"], "what was refused changed nothing");
}

fn verified(store: &str, items: u64) {
    let found = json(&on(store, "verify", &["--json"]));
    assert_eq!((found["containers"].as_u64(), found["items"].as_u64()), (Some(1), Some(items)), "{found}");
    let said = text(&on(store, "verify", &[]).stdout);
    assert!(said.starts_with("all is well: 1 database, 1 container"), "{said}");
}

/// A store with twenty items, and the server that has it open.
fn filled(folder: &Folder) -> (String, Server) {
    let store = folder.join("store");
    let server = Server::start(&["--store", &store, "--allow-faults"]);
    let mut client = Http::connect(server.address()).unwrap();
    client.make_container();
    for number in 0..20 {
        assert_eq!(client.write(&number.to_string(), number).unwrap(), 201);
    }
    (store, server)
}

#[test]
fn ranges_are_split_merged_listed_and_verified_by_url() {
    let folder = Folder::new();
    let (_, server) = filled(&folder);
    verified(&server.endpoint(), 20);
    ranges_of(&server.endpoint());
    verified(&server.endpoint(), 20);
    assert_eq!(Http::connect(server.address()).unwrap().items().len(), 20);
}

#[test]
fn ranges_are_split_merged_listed_and_verified_by_folder() {
    let folder = Folder::new();
    let (store, server) = filled(&folder);
    // While the server has it open, through the server's admin endpoint.
    verified(&store, 20);
    server.signal("TERM");
    assert_eq!(server.ended().0.code(), Some(0));
    verified(&store, 20);
    ranges_of(&store);
    verified(&store, 20);
    let server = Server::start(&["--store", &store]);
    let mut client = Http::connect(server.address()).unwrap();
    let fed: usize = ["3", "5"].iter().map(|range| client.feed(range).len()).sum();
    assert_eq!(fed, 20, "a server sees what was done while it was away");
}

#[test]
fn damage_that_verify_finds_is_an_answer_and_no_error() {
    let folder = Folder::new();
    let (store, server) = filled(&folder);
    let log = format!("{store}/00000001-00000001.log");
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[3000] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    // Through the server that has it open, and without one, where the damage is found while it is opened.
    let served = server.endpoint();
    let damaged = |store: &str| {
        let (said, as_json) = (on(store, "verify", &[]), on(store, "verify", &["--json"]));
        assert_eq!((said.status.code(), as_json.status.code()), (Some(1), Some(1)), "{said:?} {as_json:?}");
        assert_eq!(text(&said.stderr) + &text(&as_json.stderr), "");
        let found: Value = serde_json::from_slice(&as_json.stdout).unwrap();
        let damage = found["damage"].as_str().unwrap().to_owned();
        assert!(damage.contains("00000001-00000001.log is damaged at byte"), "{damage}");
        let next = "next: `changefeed restore --from BACKUP --store FOLDER` makes a new store of a backup\n";
        assert_eq!(text(&said.stdout), format!("damage: {damage}\n{next}"));
    };
    damaged(&served);
    server.signal("TERM");
    assert_eq!(server.ended().0.code(), Some(0));
    damaged(&store);
}

#[test]
fn a_secure_server_is_reached_by_its_certificate_and_key() {
    let folder = Folder::new();
    let key = folder.write("key", "bmV3a2V5bmV3a2V5bmV3a2V5");
    let server = Server::start(&["--store", "memory", "--tls", "self-signed", "--key-file", &key]);
    let certificate = folder.write("cert.pem", server.ready["certificate"].as_str().unwrap());
    let other = Server::start(&["--store", "memory", "--tls", "self-signed"]);
    let wrong = folder.write("wrong.pem", other.ready["certificate"].as_str().unwrap());
    let url = server.endpoint();
    let verify = |args: &[&str]| on(&url, "verify", args);
    assert_eq!(verify(&["--key-file", &key, "--ca-file", &certificate]).status.code(), Some(0));
    assert_eq!(verify(&["--key-file", &key]).status.code(), Some(0), "on loopback nobody can step in between");
    // The commands that use the client answer as those that do not.
    let ranges = |args: &[&str]| on(&url, "ranges", &[&["--container", "db/c"], args].concat());
    let unknown = "there is no container db/c";
    assert_refused(&ranges(&["--key-file", &key, "--ca-file", &certificate]), &[unknown]);
    assert_refused(&ranges(&["--key-file", &key]), &[unknown]);
    assert_refused(&ranges(&["--key-file", &key, "--ca-file", &wrong]), &["is not trusted"]);
    assert_refused(&ranges(&[]), &["does not accept the key"]);
    assert_refused(&verify(&["--key-file", &key, "--ca-file", &wrong]), &["--ca-file"]);
    assert_refused(&verify(&["--ca-file", &certificate]), &["does not accept the key", "--key-file"]);
}

#[test]
fn stores_that_are_not_there_are_errors_that_say_what_to_do() {
    let folder = Folder::new();
    assert_refused(&on(&folder.join("none"), "verify", &[]), &["there is no folder", "http://"]);
    assert_refused(&on("http://127.0.0.1:1/", "verify", &[]), &["nothing listens", "changefeed serve"]);
    assert_refused(&on("http://", "verify", &[]), &["error"]);
    assert_refused(&on("https://192.0.2.1/", "verify", &[]), &["--key-file"]);
    let empty = folder.join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_refused(&on(&empty, "throttle", &["--seconds", "1"]), &["needs a server"]);
}

#[test]
fn throttling_and_faults_come_and_go_by_url() {
    let folder = Folder::new();
    let (_, server) = filled(&folder);
    let url = server.endpoint();
    let mut client = Http::connect(server.address()).unwrap();
    assert_eq!(on(&url, "throttle", &["--seconds", "60"]).status.code(), Some(0));
    assert_eq!(client.write("x", 1).unwrap(), 429);
    assert_eq!(on(&url, "throttle", &["--seconds", "0"]).status.code(), Some(0));
    assert_eq!(client.write("x", 1).unwrap(), 201);
    let fault = ["--status", "503", "--method", "POST", "--path-contains", "/docs"];
    assert_eq!(on(&url, "fault", &fault).status.code(), Some(0));
    assert_eq!(client.write("y", 1).unwrap(), 503);
    assert_eq!(client.write("y", 1).unwrap(), 201);
    assert_eq!(on(&url, "fault", &["--status", "408", "--after"]).status.code(), Some(0));
    assert_eq!(client.write("z", 1).unwrap(), 408);
    assert_eq!(client.write("z", 2).unwrap(), 200, "it was carried out before");
    assert_eq!(on(&url, "fault", &["--status", "500", "--count", "100"]).status.code(), Some(0));
    let one = on(&url, "fault", &["--status", "410", "--path-contains", "nothing"]);
    assert_eq!(text(&one.stdout), "the next matching request gets 410\n");
    assert_eq!(text(&on(&url, "fault", &["--clear"]).stdout), "all faults and throttling ended\n");
    assert_eq!(json(&on(&url, "fault", &["--clear", "--json"])), serde_json::json!({ "cleared": true }));
    let fault = json(&on(&url, "fault", &["--status", "500", "--path-contains", "nothing", "--json"]));
    assert_eq!((fault["status"].as_u64(), fault["count"].as_u64()), (Some(500), Some(1)));
    let throttled = json(&on(&url, "throttle", &["--seconds", "0", "--container", "db/c", "--json"]));
    assert_eq!(throttled, serde_json::json!({ "seconds": 0.0, "retryAfterMs": 500, "container": "db/c" }));
    assert_eq!(client.write("z", 3).unwrap(), 200);
    assert_refused(&on(&url, "fault", &["--status", "200"]), &["200"]);
    let strict = Server::start(&["--store", "memory"]);
    assert_refused(&on(&strict.endpoint(), "fault", &["--status", "500"]), &["--allow-faults"]);
}

#[test]
fn throttling_and_faults_meet_the_requests_that_are_meant_with_the_answer_that_is_meant() {
    let folder = Folder::new();
    let (_, server) = filled(&folder);
    let url = server.endpoint();
    let mut client = Http::connect(server.address()).unwrap();
    let mut read = || client.send("GET", "/dbs/db/colls/c/docs", &[], "").unwrap();
    let throttle = |container: &str| {
        on(&url, "throttle", &["--seconds", "60", "--retry-after-ms", "1234", "--container", container])
    };
    assert_eq!(throttle("db/other").status.code(), Some(0));
    assert_eq!(read().status, 200, "another container is meant");
    assert_eq!(throttle("db/c").status.code(), Some(0));
    let answer = read();
    assert_eq!((answer.status, answer.retry_after_ms.as_deref()), (429, Some("1234")), "{answer:?}");
    assert_eq!(on(&url, "fault", &["--clear"]).status.code(), Some(0));
    assert_eq!(read().status, 200);
    let fault = ["--status", "410", "--substatus", "1002", "--count", "2", "--method", "GET"];
    assert_eq!(on(&url, "fault", &fault).status.code(), Some(0));
    let answers = [read(), read(), read()].map(|answer| (answer.status, answer.substatus));
    let gone = (410, Some("1002".to_owned()));
    assert_eq!(answers, [gone.clone(), gone, (200, None)]);
}
