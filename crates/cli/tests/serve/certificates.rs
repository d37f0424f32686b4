//! `--tls self-signed` for other machines: a certificate by the name that they use, which outlives the process.

use std::os::unix::fs::PermissionsExt as _;

use changefeed::{
    core::{Container, ErrorKind},
    remote::Server as Client,
};
use serde_json::json;

use crate::process::{Folder, Server, run, text};

const KEY: &str = "bmV3a2V5bmV3a2V5bmV3a2V5";

/// An address of this machine that no certificate holds by itself.
const OTHER: &str = "127.0.0.2";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A client as it runs on another machine: it verifies the certificate, and the name in it.
fn client(endpoint: &str, certificate: &str) -> Client {
    Client::builder(endpoint, KEY).certificate_file(certificate).retries(0).connect().unwrap()
}

async fn orders(client: &Client) -> changefeed::core::Result<Container> {
    client.database("shop").container("orders").open_or_create().await
}

#[test]
fn another_machine_trusts_the_server_by_its_name_and_after_each_restart() {
    let folder = Folder::new();
    let (store, key) = (folder.join("store"), folder.write("key", KEY));
    let start = |listen: &str, names: &[&str]| {
        let names: Vec<&str> = names.iter().flat_map(|name| ["--tls-name", *name]).collect();
        let base = ["--store", &store, "--listen", listen, "--key-file", &key, "--tls", "self-signed"];
        Server::spawn(crate::process::command(&["serve"]).args(base).args(names))
    };
    let mut server = start(&format!("{OTHER}:0"), &[OTHER]);
    server.hear("new certificate for localhost, 127.0.0.1, ::1, 127.0.0.2 in ");
    let (endpoint, address) = (server.endpoint(), server.address().to_string());
    let file = format!("{store}/certificate.pem");
    assert_eq!(server.ready["certificate_file"], file.as_str());
    assert_eq!(server.ready["certificate"], std::fs::read_to_string(&file).unwrap());
    for name in ["certificate.pem", "certificate.key"] {
        let mode = std::fs::metadata(format!("{store}/{name}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    // What is copied to the other machine.
    let copy = folder.write("copy.pem", &std::fs::read_to_string(&file).unwrap());
    let client = client(&endpoint, &copy);
    block_on(async { orders(&client).await.unwrap().create(&json!({"id": "1"})).await.unwrap() });

    // A restart changes nothing; a further name makes another certificate with the same key, which the copy vouches for.
    let before = server.ready["certificate"].clone();
    server.kill();
    let server = start(&address, &[OTHER]);
    assert_eq!(server.ready["certificate"], before);
    block_on(async { orders(&client).await.unwrap().create(&json!({"id": "2"})).await.unwrap() });
    server.kill();
    let server = start(&address, &["db.example.com", OTHER]);
    assert_ne!(server.ready["certificate"], before);
    block_on(async { orders(&client).await.unwrap().create(&json!({"id": "3"})).await.unwrap() });

    // The command, with the key in a file.
    let access = ["--store", &endpoint, "--key-file", &key, "--ca-file", &copy];
    let seen = run(&[&["tail", "--container", "shop/orders", "--from", "beginning", "--once"], &access[..]].concat());
    assert_eq!((seen.status.code(), text(&seen.stdout).lines().count()), (Some(0), 3), "{}", text(&seen.stderr));
    // The private key stays where it is, and the store accepts both files beside its own.
    let backup = folder.join("backup");
    let done = run(&[&["backup", "--to", &backup], &access[..]].concat());
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    let names = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(!names(&backup).iter().any(|name| name.contains("certificate")), "{:?}", names(&backup));
    server.kill();
    assert_eq!(run(&["verify", "--store", &store]).status.code(), Some(0));
    let restored = folder.join("restored");
    assert_eq!(run(&["restore", "--from", &backup, "--store", &restored]).status.code(), Some(0));
    assert!(!names(&restored).iter().any(|name| name.contains("certificate")), "{:?}", names(&restored));

    // Under a name that it was not made for nobody trusts it, and the sentence names the option.
    let server = start(&address, &[]);
    let error = block_on(orders(&client)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
    assert!(error.message().contains("--tls self-signed --tls-name 127.0.0.2"), "{error}");
    drop(server);
}

#[test]
fn a_store_in_memory_keeps_no_certificate() {
    let arguments = ["--store", "memory", "--tls", "self-signed", "--tls-name", "DB.example.com"];
    let server = Server::start(&arguments);
    assert!(server.ready["certificate"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----"));
    assert!(server.ready.get("certificate_file").is_none());
    server.signal("TERM");
    let (status, _, _, said) = server.ended();
    assert_eq!((status.code(), said.as_str()), (Some(0), ""));
}
