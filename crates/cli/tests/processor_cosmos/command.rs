//! The command with an account of Azure Cosmos DB: named by a connection string, with the key in it or beside it.

use std::process::Output;

use changefeed::remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;

use crate::process::{Folder, Server, command, text};

const KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";

/// A server with a key of its own, ten orders and a folder for key files.
async fn shop() -> (Server, Folder) {
    let folder = Folder::new();
    let keys = folder.write("keys", KEY);
    let server = Server::start(&["--store", "memory", "--key-file", &keys]);
    let client = Client::connect(&server.endpoint(), KEY).unwrap();
    let orders = client.database("shop").container("orders").ranges(2).create().await.unwrap();
    for number in 0..10 {
        orders.create(&json!({"id": number.to_string()})).await.unwrap();
    }
    (server, folder)
}

/// The endpoint with the name that people type.
fn endpoint(server: &Server) -> String {
    format!("AccountEndpoint=http://localhost:{}/;", server.address().port())
}

/// The ids in lines of JSON.
fn ids(output: &Output) -> Vec<u32> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lines = text(&output.stdout);
    let id = |line: &str| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        value["id"].as_str().unwrap().parse::<u32>().unwrap()
    };
    let mut ids: Vec<_> = lines.lines().map(id).collect();
    ids.sort_unstable();
    ids
}

const TAIL: [&str; 7] = ["tail", "--container", "shop/orders", "--from", "beginning", "--once", "--json"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_of_an_account_comes_from_the_connection_string_a_file_or_a_variable() {
    let (server, folder) = shop().await;
    let (bare, all) = (endpoint(&server), (0..10).collect::<Vec<_>>());
    let file = folder.write("key", KEY);
    let wrong = folder.write("wrong", EMULATOR_KEY);
    let whole = format!("{bare}AccountKey={KEY};");
    assert_eq!(ids(&command(&TAIL).env("CHANGEFEED_STORE", &whole).output().unwrap()), all);
    assert_eq!(ids(&command(&TAIL).args(["--store", &bare, "--key-file", &file]).output().unwrap()), all);
    assert_eq!(ids(&command(&TAIL).args(["--store", &bare]).env("CHANGEFEED_KEY", KEY).output().unwrap()), all);
    // The one in the string counts.
    assert_eq!(ids(&command(&TAIL).args(["--store", &whole, "--key-file", &wrong]).output().unwrap()), all);
    let refused = command(&TAIL).args(["--store", &bare, "--key-file", &wrong]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("(401): check key"), "{}", text(&refused.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_of_the_command_goes_on_where_the_last_one_ended() {
    let (server, _folder) = shop().await;
    let store = format!("{}AccountKey={KEY};", endpoint(&server));
    let run = || {
        let words = ["run", "mailer", "--container", "shop/orders", "--leases", "shop/leases", "--from", "beginning"];
        let mut command = command(&words);
        command.args(["--print", "--json", "--once"]).env("CHANGEFEED_STORE", &store);
        ids(&command.output().unwrap())
    };
    assert_eq!(run(), (0..10).collect::<Vec<_>>());
    let client = Client::connect(&server.endpoint(), KEY).unwrap();
    let orders = client.database("shop").container("orders").open().await.unwrap();
    orders.create(&json!({"id": "10"})).await.unwrap();
    assert_eq!(run(), [10]);
}

/// No request is made: its host alone says that it is an account.
#[test]
fn the_endpoint_of_an_account_needs_a_key() {
    let refused = command(&TAIL).args(["--store", "https://my-shop.documents.azure.com:443/"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("my-shop.documents.azure.com needs the account's key: pass --key-file"), "{said}");
}
