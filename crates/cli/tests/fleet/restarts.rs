//! A server that is stopped in good order and started again while hosts run: nothing is lost, nothing comes twice, however
//! long it is away.

use std::time::Duration;

use changefeed::remote::{EMULATOR_KEY, Server as Client};
use serde_json::json;

use crate::{
    block_on, connect, create_orders,
    host::Host,
    ledger::{Ledger, Writer},
    process::{Folder, Server, command, eventually},
    serve,
    soak::{owners, pass, settled},
};

/// Some calls end while the server is away, and the progress of others is being stored when it goes.
const CALLS: [Duration; 3] = [Duration::ZERO, Duration::from_millis(400), Duration::from_secs(3)];

/// Shorter than a renew interval; longer than the ten seconds after which leases expire.
const AWAY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(14)];

#[test]
fn a_server_that_is_restarted_in_good_order_repeats_nothing_and_moves_no_lease() {
    let folder = Folder::new();
    let (store, mut ledger) = (folder.join("store"), Ledger::new(&folder.join("ledger")));
    let mut server = serve(&store, "127.0.0.1:0");
    let (endpoint, address) = (server.endpoint(), server.address().to_string());
    create_orders(&endpoint, 6);
    let writer = Writer::start(endpoint.clone());
    let hosts: Vec<Host> = (0..)
        .zip(CALLS)
        .map(|(number, call)| Host::with_calls(&endpoint, &format!("h{number}"), ledger.path(), call))
        .collect();
    let shared = |owners: &[Option<String>]| settled(&hosts, owners) && hosts.iter().all(|host| host.leases() == 2);
    eventually("two leases for each host", || shared(&owners(&connect(&endpoint))));
    writer.writes(100);
    for away in AWAY {
        let before = owners(&connect(&endpoint));
        server.signal("TERM");
        assert!(server.ended().0.success(), "the server ends in good order");
        pass(away);
        server = serve(&store, &address);
        writer.writes(200);
        ledger.catches_up(&writer);
        assert_eq!(owners(&connect(&endpoint)), before, "away for {away:?}: no lease has moved");
        assert_eq!(ledger.duplicates(), 0, "away for {away:?}: nothing came twice");
    }
    writer.stop();
    ledger.catches_up(&writer);
    hosts.into_iter().for_each(Host::stop);
    assert_eq!(ledger.duplicates(), 0);
}

fn serve_encrypted(store: &str, listen: &str) -> (Server, String) {
    let server = Server::spawn(&mut command(&["serve", "--store", store, "--listen", listen, "--tls", "self-signed"]));
    let certificate = server.ready["certificate"].as_str().unwrap().to_owned();
    (server, certificate)
}

/// Writes orders through a client of its own, which trusts this certificate.
fn write(endpoint: &str, certificate: &str, orders: std::ops::Range<u32>) {
    block_on(async {
        let client = Client::builder(endpoint, EMULATOR_KEY).certificate(certificate).connect().unwrap();
        let container = client.database("shop").container("orders").ranges(4).open_or_create().await.unwrap();
        for order in orders {
            container.create(&json!({ "id": format!("{order}-{order}") })).await.unwrap();
        }
    });
}

#[test]
fn a_certificate_that_is_replaced_while_hosts_run_is_trusted_without_a_restart() {
    let folder = Folder::new();
    let (store, mut ledger) = (folder.join("store"), Ledger::new(&folder.join("ledger")));
    let (server, certificate) = serve_encrypted(&store, "127.0.0.1:0");
    let file = folder.write("ca.pem", &certificate);
    let (endpoint, address) = (server.endpoint(), server.address().to_string());
    write(&endpoint, &certificate, 0..50);
    let host = Host::with_certificates(&endpoint, "a", ledger.path(), &file);
    eventually("the first orders", || ledger.len() == 50);
    server.signal("TERM");
    assert!(server.ended().0.success(), "the server ends in good order");
    // Otherwise the certificate stays the same.
    std::fs::remove_file(format!("{store}/certificate.key")).unwrap();
    let (server, certificate) = serve_encrypted(&store, &address);
    eventually("a sentence about the certificate", || host.has_said("is not trusted: write it into"));
    assert!(host.has_said(&file), "{}", host.log());
    write(&endpoint, &certificate, 50..100);
    assert_eq!(ledger.len(), 50);
    folder.write("ca.pem", &certificate);
    eventually("the other orders", || ledger.len() == 100);
    assert_eq!(ledger.duplicates(), 0);
    host.stop();
    drop(server);
}

/// As the README shows it, with an address that no certificate holds by itself in place of another machine.
#[test]
fn hosts_on_other_machines_trust_the_server_by_its_name_also_after_a_restart() {
    const KEY: &str = "bmV3a2V5bmV3a2V5bmV3a2V5";
    let folder = Folder::new();
    let (store, mut ledger) = (folder.join("store"), Ledger::new(&folder.join("ledger")));
    let key = folder.write("key", KEY);
    let serve = |listen: &str| {
        let tls = ["--key-file", &key, "--tls", "self-signed", "--tls-name", "127.0.0.2"];
        Server::spawn(command(&["serve", "--store", &store, "--listen", listen]).args(tls))
    };
    let server = serve("127.0.0.2:0");
    let (endpoint, address) = (server.endpoint(), server.address().to_string());
    let copy = folder.write("copy.pem", &std::fs::read_to_string(format!("{store}/certificate.pem")).unwrap());
    let write = |orders: std::ops::Range<u32>| {
        block_on(async {
            let client = Client::builder(&endpoint, KEY).certificate_file(&copy).connect().unwrap();
            // The host has made it.
            let container = client.database("shop").container("orders").partition_key("/customer").open_or_create();
            let container = container.await.unwrap();
            for order in orders {
                let order = json!({ "id": format!("{order}-{order}"), "customer": "ada" });
                container.create(&order).await.unwrap();
            }
        });
    };
    let host = Host::elsewhere(&endpoint, "c", ledger.path(), KEY, &copy);
    write(0..50);
    eventually("the first orders", || ledger.len() == 50);
    server.kill();
    let server = serve(&address);
    write(50..100);
    eventually("the other orders", || ledger.len() == 100);
    host.stop();
    drop(server);
}
