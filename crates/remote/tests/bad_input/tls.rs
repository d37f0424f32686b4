//! Certificates that are not trusted or not for this name, and TLS where there is none.

use std::net::SocketAddr;

use changefeed_core::{Error, ErrorKind};
use changefeed_embedded::Engine;
use changefeed_remote::{Builder, EMULATOR_KEY, Server as Client};
use changefeed_server::{Certificate, Server, Tls, self_signed};

use crate::{
    says,
    support::{ANY_PORT, Served},
};

async fn encrypted(address: SocketAddr) -> (Server, Certificate) {
    let certificate = self_signed().unwrap();
    let engine = Engine::in_memory().unwrap();
    let server = Server::builder(engine.catalog()).listen(address).tls(Tls::Given(certificate.clone()));
    (server.start().await.unwrap(), certificate)
}

async fn error_of(client: Builder) -> Error {
    let client = client.retries(0).connect().unwrap();
    client.database("shop").container("orders").open().await.unwrap_err()
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_with_both_ways_out() {
    // The certificate names 127.0.0.1 only.
    let (server, certificate) = encrypted(([127, 0, 0, 2], 0).into()).await;
    let client = Client::builder(&server.endpoint(), EMULATOR_KEY).certificate(certificate.certificate);
    let error = error_of(client).await;
    says(&error, ErrorKind::InvalidArgument, &["is not for 127.0.0.2", "connect by a name that it holds"]);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_refused_with_how_to_trust_it() {
    let (server, _) = encrypted(ANY_PORT).await;
    let error = error_of(Client::builder(&server.endpoint(), EMULATOR_KEY)).await;
    says(&error, ErrorKind::InvalidArgument, &["is not trusted", "`certificate`", "--tls self-signed"]);
    let other = self_signed().unwrap().certificate;
    let error = error_of(Client::builder(&server.endpoint(), EMULATOR_KEY).certificate(other)).await;
    says(&error, ErrorKind::InvalidArgument, &["is not trusted"]);
}

/// Servers with certificates of their own at one address, one after the other.
#[tokio::test]
async fn a_certificate_that_changes_is_trusted_as_soon_as_its_file_holds_it() {
    let folder = tempfile();
    let file = folder.join("ca.pem");
    let engine = Engine::in_memory().unwrap();
    let serve = async |address: SocketAddr, certificate: &Certificate| {
        let server = Server::builder(engine.catalog()).listen(address).tls(Tls::Given(certificate.clone()));
        server.start().await.unwrap()
    };
    let [first, second] = [self_signed().unwrap(), self_signed().unwrap()];
    std::fs::write(&file, &first.certificate).unwrap();
    let server = serve(ANY_PORT, &first).await;
    let address = server.address();
    let client = Client::builder(&server.endpoint(), EMULATOR_KEY).certificate_file(&file).connect().unwrap();
    let orders = client.database("shop").container("orders").create().await.unwrap();
    server.stop().await;
    let server = serve(address, &second).await;
    let refused = orders.create(&serde_json::json!({"id": "1"})).await.unwrap_err();
    let name = file.to_str().unwrap();
    says(&refused, ErrorKind::InvalidArgument, &["is not trusted", name, "which is read again", "--tls self-signed"]);
    // Half a file changes nothing; both certificates are as good as the new one alone.
    std::fs::write(&file, "-----BEGIN CERTIFICATE-----").unwrap();
    says(
        &orders.create(&serde_json::json!({"id": "1"})).await.unwrap_err(),
        ErrorKind::InvalidArgument,
        &["not trusted"],
    );
    std::fs::write(&file, format!("{}{}", first.certificate, second.certificate)).unwrap();
    orders.create(&serde_json::json!({"id": "1"})).await.unwrap();
    server.stop().await;
    std::fs::remove_dir_all(folder).unwrap();
}

fn tempfile() -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("changefeed-remote-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[tokio::test]
async fn a_certificate_file_that_is_missing_or_no_certificate_is_named() {
    let missing = Client::builder("https://localhost:1", EMULATOR_KEY).certificate_file("/nowhere/ca.pem");
    says(&missing.connect().unwrap_err(), ErrorKind::InvalidArgument, &["/nowhere/ca.pem", "cannot be read"]);
    let rubbish = Client::builder("https://localhost:1", EMULATOR_KEY).certificate_file("Cargo.toml");
    says(&rubbish.connect().unwrap_err(), ErrorKind::InvalidArgument, &["Cargo.toml", "PEM"]);
    let both = Client::builder("https://localhost:1", EMULATOR_KEY).certificate("x").certificate_file("Cargo.toml");
    says(&both.connect().unwrap_err(), ErrorKind::InvalidArgument, &["pass one of them"]);
}

#[tokio::test]
async fn https_to_a_server_without_tls_is_named() {
    let served = Served::start().await;
    let endpoint = served.server.endpoint().replace("http://", "https://");
    says(
        &error_of(Client::builder(&endpoint, EMULATOR_KEY)).await,
        ErrorKind::InvalidArgument,
        &["does not speak TLS", "http://"],
    );
}

#[tokio::test]
async fn http_to_a_server_with_tls_is_named() {
    let (server, _) = encrypted(ANY_PORT).await;
    let endpoint = server.endpoint().replace("https://", "http://");
    let error = error_of(Client::builder(&endpoint, EMULATOR_KEY)).await;
    says(&error, ErrorKind::Unavailable, &["https://"]);
}

#[tokio::test]
async fn a_certificate_that_is_not_pem_is_refused_before_anything_is_sent() {
    for (text, why) in [("", "BEGIN CERTIFICATE"), ("rubbish", "BEGIN CERTIFICATE")] {
        let client = Client::builder("https://localhost:1", EMULATOR_KEY).certificate(text);
        says(&client.connect().unwrap_err(), ErrorKind::InvalidArgument, &[why, "PEM"]);
    }
}
