//! The certificate: read again without dropping anybody, kept if the new one is no good.

use std::{
    fs,
    path::{Path, PathBuf},
};

use changefeed_core::ErrorKind;
use changefeed_embedded::Engine;
use changefeed_server::{Certificate, Server, Tls, auth::Keys, self_signed};

use crate::support::{Ask, Wire, World, raw, trust};

/// Two files for a certificate and its key, removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("changefeed-server-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn certificate(&self) -> PathBuf {
        self.0.join("cert.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.join("key.pem")
    }

    fn write(&self, made: &Certificate) {
        fs::write(self.certificate(), &made.certificate).unwrap();
        fs::write(self.key(), &made.key).unwrap();
    }

    fn tls(&self) -> Tls {
        Tls::Files(self.certificate(), self.key())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

async fn world(tls: Tls) -> World {
    let engine = Engine::in_memory().unwrap();
    let catalog = engine.catalog();
    World::over(engine, catalog, Keys::emulator(), |builder| builder.tls(tls)).await
}

async fn trusts(world: &World, certificate: &Certificate) -> bool {
    let stream = raw::connect(world.address()).await;
    trust::connect(stream, &certificate.certificate, &["h2"]).await.is_ok()
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_old_ones_stay() {
    let (files, old, new) = (Files::new("reload"), self_signed().unwrap(), self_signed().unwrap());
    files.write(&old);
    let world = world(files.tls()).await;
    let mut clients = Vec::new();
    for wire in [Wire::TlsOne(old.certificate.clone()), Wire::TlsTwo(old.certificate.clone())] {
        clients.push(world.client_by(&wire).await);
    }
    files.write(&new);
    assert!(trusts(&world, &old).await, "files are read when told, not before");
    world.server.reload_certificate().unwrap();
    assert!(trusts(&world, &new).await);
    assert!(!trusts(&world, &old).await);
    for client in &mut clients {
        client.send(Ask::get("/")).await.expect(200);
    }
    world.client_by(&Wire::TlsTwo(new.certificate)).await.send(Ask::get("/")).await.expect(200);
}

#[tokio::test]
async fn a_certificate_that_is_no_good_leaves_the_old_one_in_use() {
    let (files, old, new) = (Files::new("bad-reload"), self_signed().unwrap(), self_signed().unwrap());
    files.write(&old);
    let world = world(files.tls()).await;
    let bad = [
        (Certificate { certificate: "garbage".into(), key: new.key.clone() }, "BEGIN CERTIFICATE"),
        (Certificate { certificate: new.certificate.clone(), key: "garbage".into() }, "private key"),
        (Certificate { certificate: old.certificate.clone(), key: new.key.clone() }, "do not fit together"),
        (Certificate { certificate: String::new(), key: String::new() }, "BEGIN CERTIFICATE"),
    ];
    for (bad, said) in bad {
        files.write(&bad);
        let error = world.server.reload_certificate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains(said), "{error}");
        assert!(!error.to_string().contains(new.key.lines().nth(1).unwrap()), "the key is not shown");
        assert!(trusts(&world, &old).await);
    }
    fs::remove_file(files.key()).unwrap();
    let error = world.server.reload_certificate().unwrap_err();
    assert!(error.message().contains("key.pem"), "it names the file: {error}");
    assert!(trusts(&world, &old).await);
}

#[tokio::test]
async fn a_server_does_not_start_with_a_certificate_that_is_no_good() {
    let engine = Engine::in_memory().unwrap();
    let start = |tls| Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).tls(tls).start();
    let (one, other) = (self_signed().unwrap(), self_signed().unwrap());
    let mixed = Certificate { certificate: one.certificate, key: other.key };
    assert_eq!(start(Tls::Given(mixed)).await.unwrap_err().kind(), ErrorKind::InvalidArgument);
    let missing = Tls::Files(Path::new("no-such-file").into(), Path::new("nor-this").into());
    assert!(start(missing).await.unwrap_err().message().contains("no-such-file"));
}

#[tokio::test]
async fn plain_http_on_the_tls_port_gets_no_answer_and_does_no_harm() {
    let made = self_signed().unwrap();
    let world = world(Tls::Given(made.clone())).await;
    for bytes in [&Ask::get("/").bytes(&world.keys)[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0xff; 600]] {
        let came = raw::exchange(world.address(), bytes).await;
        assert!(!came.contains("HTTP/1.1"), "{came}");
    }
    world.client_by(&Wire::TlsTwo(made.certificate)).await.send(Ask::get("/")).await.expect(200);
}
