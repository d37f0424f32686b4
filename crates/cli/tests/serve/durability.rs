//! What was acknowledged is there, however the server ended.

use std::{collections::BTreeMap, thread};

use crate::{
    http::Http,
    process::{Folder, Server, eventually, run, text},
};

const WRITERS: u64 = 4;

/// Writes items without pause until the server is gone; the newest number that was acknowledged for each.
fn write_until_the_end(mut client: Http, writer: u64, round: u64) -> BTreeMap<String, u64> {
    let mut acknowledged = BTreeMap::new();
    for number in 0.. {
        // Some items are new, some are written again and again.
        let id = format!("{writer}-{}", if number % 3 == 0 { number } else { number % 7 });
        let value = round * 1_000_000 + number;
        match client.write(&id, value) {
            Ok(200 | 201) => drop(acknowledged.insert(id, value)),
            Ok(other) => panic!("a write was answered with {other}"),
            Err(_) => break,
        }
    }
    acknowledged
}

/// Rounds of concurrent writers that end with `end`; everything acknowledged must be there afterwards.
fn rounds(count: u64, end: impl Fn(Server)) {
    let folder = Folder::new();
    let store = folder.join("store");
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for round in 1..=count {
        let server = Server::start(&["--store", &store]);
        let address = server.address();
        if round == 1 {
            Http::connect(address).unwrap().make_container();
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = Http::connect(address).unwrap();
                thread::spawn(move || write_until_the_end(client, writer, round))
            })
            .collect();
        let mut watcher = Http::connect(address).unwrap();
        let enough = 60 + expected.len();
        eventually("writing", || watcher.items().len() > enough);
        end(server);
        let mut written = 0;
        for writer in writers {
            let acknowledged = writer.join().unwrap();
            written += acknowledged.len();
            expected.extend(acknowledged);
        }
        assert!(written > 30, "round {round} proves something");
        let server = Server::start(&["--store", &store]);
        let mut client = Http::connect(server.address()).unwrap();
        let number = |item: &serde_json::Value| (item["id"].as_str().unwrap().to_owned(), item["n"].as_u64().unwrap());
        let listed: BTreeMap<String, u64> = client.items().iter().map(number).collect();
        let fed: BTreeMap<String, u64> = client.feed("0").iter().map(number).collect();
        assert_eq!(listed, fed, "the feed tells of exactly what is there");
        for (id, value) in &expected {
            let found = listed.get(id).unwrap_or_else(|| panic!("item {id} was acknowledged and is lost"));
            // A write whose acknowledgement was cut off may be there as well.
            assert!(found >= value, "item {id} was acknowledged with {value} and holds {found}");
        }
        expected = listed;
        server.signal("TERM");
        assert_eq!(server.ended().0.code(), Some(0));
        let verified = run(&["verify", "--store", &store]);
        assert_eq!(verified.status.code(), Some(0), "{}", text(&verified.stderr));
    }
}

#[test]
fn a_server_that_is_killed_loses_nothing_that_it_acknowledged() {
    rounds(3, Server::kill);
}

#[test]
fn a_server_that_is_terminated_while_clients_write_loses_nothing_that_it_acknowledged() {
    rounds(2, |server| {
        server.signal("TERM");
        let (status, _, _, err) = server.ended();
        let said: Vec<&str> = err.lines().filter(|line| !line.starts_with("new store in ")).collect();
        assert_eq!((status.code(), said), (Some(0), Vec::new()));
    });
}
