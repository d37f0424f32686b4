//! The command with an account of Azure Cosmos DB: named by a connection string, with the key in it or beside it.

use std::process::Output;

use changefeed::remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;

use crate::{
    front::{Front, account},
    process::{Folder, Server, command, text},
    stage::copy,
};

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

/// The SDK takes no certificates from a program: it trusts those of the machine.
#[cfg(target_os = "linux")]
#[test]
fn an_endpoint_with_a_certificate_of_its_own_is_trusted_if_the_machine_trusts_it() {
    let folder = Folder::new();
    let keys = folder.write("keys", KEY);
    let server = Server::start(&["--store", "memory", "--key-file", &keys, "--tls", "self-signed"]);
    let certificate = folder.write("ca.pem", server.ready["certificate"].as_str().unwrap());
    let load = ["load", "--store", &server.endpoint(), "--container", "shop/orders", "--create", "--count", "10"];
    let loaded = command(&load).args(["--key-file", &keys, "--ca-file", &certificate]).output().unwrap();
    assert!(loaded.status.success(), "{}", text(&loaded.stderr));
    let store = format!("AccountEndpoint=https://localhost:{}/;AccountKey={KEY};", server.address().port());
    let mut tail = command(&TAIL);
    let tail = tail.env("CHANGEFEED_STORE", &store);
    let unknown = tail.args(["--ca-file", &certificate]).output().unwrap();
    assert_eq!((unknown.status.code(), text(&unknown.stdout).lines().count()), (Some(2), 0));
    assert!(text(&unknown.stderr).contains("--ca-file has no effect"), "{}", text(&unknown.stderr));
    let trusted = tail.env("SSL_CERT_FILE", &certificate).output().unwrap();
    assert!(trusted.status.success(), "{}", text(&trusted.stderr));
    assert_eq!(text(&trusted.stdout).lines().count(), 10);
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

/// Two regions with the same containers, ten orders in each, and the account that has them.
struct Regions {
    east: Server,
    west: Server,
    account: Front,
    _folder: Folder,
}

impl Regions {
    async fn new() -> Self {
        let folder = Folder::new();
        let east = Server::start(&["--store", &folder.join("east")]);
        let shop = Client::connect(&east.endpoint(), EMULATOR_KEY).unwrap().database("shop");
        let orders = shop.container("orders").create().await.unwrap();
        shop.container("leases").create().await.unwrap();
        for number in 0..10 {
            orders.create(&json!({"id": number.to_string()})).await.unwrap();
        }
        east.signal("TERM");
        assert!(east.ended().0.success());
        copy(&folder.path().join("east"), &folder.path().join("west"));
        let [east, west] = ["east", "west"].map(|region| Server::start(&["--store", &folder.join(region)]));
        let regions = [("East US", east.endpoint()), ("West US", west.endpoint())];
        let account = Front::start(account(&regions, true, "Session")).await;
        Self { east, west, account, _folder: folder }
    }

    /// Runs a host until it has delivered everything.
    fn run(&self, more: &[&str]) -> Output {
        let words = ["run", "mailer", "--container", "shop/orders", "--leases", "shop/leases", "--from", "beginning"];
        let mut command = command(&words);
        command.args(["--print", "--json", "--once"]).args(more);
        let store = format!("AccountEndpoint={}/;AccountKey={EMULATOR_KEY};", self.account.endpoint);
        command.env("CHANGEFEED_STORE", store).output().unwrap()
    }
}

/// How many documents of the processor a region has.
async fn leases(region: &Server) -> usize {
    let shop = Client::connect(&region.endpoint(), EMULATOR_KEY).unwrap().database("shop");
    shop.container("leases").open().await.unwrap().list("mailer").await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_kept_in_the_region_that_write_region_names() {
    let regions = Regions::new().await;
    let all = (0..10).collect::<Vec<_>>();
    assert_eq!(ids(&regions.run(&["--write-region", "West US"])), all);
    assert_eq!((leases(&regions.east).await, leases(&regions.west).await > 0), (0, true));
    // Nothing is new for those leases, and everything for others.
    assert!(ids(&regions.run(&["--write-region", "West US"])).is_empty());
    assert_eq!(ids(&regions.run(&["--write-region", "East US"])), all);
    assert!(leases(&regions.east).await > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_with_several_write_regions_is_refused_with_the_option_that_pins_one() {
    let regions = Regions::new().await;
    let said = |output: Output| {
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr)
    };
    let refused = said(regions.run(&[]));
    assert!(refused.contains("several regions (East US, West US)"), "{refused}");
    assert!(refused.contains("pin one of them with --write-region") && !refused.contains("Options::"), "{refused}");
    let unknown = said(regions.run(&["--write-region", "Mars"]));
    assert!(unknown.contains("\"Mars\" is no write region of the account: use one of East US, West US"), "{unknown}");
    let words = ["lag", "mailer", "--container", "shop/orders", "--leases", "shop/leases", "--write-region", "East US"];
    let server = said(command(&words).args(["--store", &regions.east.endpoint()]).output().unwrap());
    assert!(server.contains("--write-region is for leases in an account of Azure Cosmos DB"), "{server}");
    assert_eq!((leases(&regions.east).await, leases(&regions.west).await), (0, 0), "nothing was written");
}
