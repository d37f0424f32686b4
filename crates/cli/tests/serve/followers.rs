//! Commands that follow a server while somebody changes its keys: what a running host survives, they survive as well.

use std::{
    io::BufReader,
    process::{ChildStderr, ChildStdout, Stdio},
};

use changefeed::remote::Server as Client;
use serde_json::json;

use crate::process::{Folder, Server, command, run, text};

const KEY: &str = "bmV3a2V5bmV3a2V5bmV3a2V5";
const OTHER_KEY: &str = "b3RoZXJrZXlvdGhlcmtleW90aGVy";

fn write_order(endpoint: &str, id: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = Client::connect(endpoint, KEY).unwrap();
    runtime.block_on(async {
        let orders = client.database("shop").container("orders").open_or_create().await.unwrap();
        orders.upsert(&json!({"id": id})).await.unwrap();
    });
}

/// Reads lines until one holds a text.
#[track_caller]
fn hear(pipe: &mut impl std::io::BufRead, what: &str) {
    let mut heard = String::new();
    while !heard.contains(what) {
        assert!(pipe.read_line(&mut heard).unwrap() > 0, "it ended without saying {what}: {heard}");
    }
}

#[test]
fn a_tail_waits_until_its_key_is_accepted_again() {
    let folder = Folder::new();
    let (keys, mine) = (folder.write("keys", KEY), folder.write("mine", KEY));
    let server = Server::start(&["--store", "memory", "--key-file", &keys, "--log", "error"]);
    let endpoint = server.endpoint();
    write_order(&endpoint, "first");
    let arguments = ["tail", "--store", &endpoint, "--container", "shop/orders", "--from", "beginning", "--key-file"];
    // One that was never accepted ends.
    let wrong = folder.write("wrong", OTHER_KEY);
    let refused = run(&[&arguments[..], &[&wrong]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("does not accept the key"), "{}", text(&refused.stderr));

    let mut tail = command(&[&arguments[..], &[&mine]].concat());
    let mut tail = tail.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out: BufReader<ChildStdout> = BufReader::new(tail.stdout.take().unwrap());
    let mut err: BufReader<ChildStderr> = BufReader::new(tail.stderr.take().unwrap());
    hear(&mut out, "first");
    folder.write("keys", OTHER_KEY);
    server.signal("HUP");
    hear(&mut err, "a read failed and is repeated until it succeeds: the server at");
    folder.write("keys", KEY);
    server.signal("HUP");
    hear(&mut err, "reads succeed again");
    write_order(&endpoint, "second");
    hear(&mut out, "second");
    tail.kill().unwrap();
    tail.wait().unwrap();
}
