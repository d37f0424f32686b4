//! The contract over real sockets: the suite that the embedded store passes, through a server, over each wire.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed_core::{Capabilities, Catalog, async_trait};
use changefeed_embedded::{Builder, Engine, vfs::memory::MemoryDisk};
use changefeed_remote::{EMULATOR_KEY, HttpVersion, Server as Client};
use changefeed_server::{Server, Tls, self_signed};
use changefeed_testkit::{
    clock::TestClock,
    conformance::{Case, Feature, Fixture, cases},
};

/// How a client reaches the server.
#[derive(Clone, Copy)]
struct Wire {
    version: HttpVersion,
    tls: bool,
}

/// A store behind a server, and a client.
struct Remote {
    wire: Wire,
    clock: TestClock,
    disk: MemoryDisk,
    /// None while it is being reopened.
    served: Mutex<Option<Served>>,
    other: Mutex<Option<Served>>,
}

struct Served {
    engine: Engine,
    server: Server,
    client: Client,
}

impl Served {
    async fn start(builder: Builder, disk: MemoryDisk, wire: Wire) -> Self {
        let engine = builder.open_on(disk).expect("open the store");
        let mut server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into());
        let certificate = wire.tls.then(|| self_signed().expect("make a certificate"));
        if let Some(certificate) = &certificate {
            server = server.tls(Tls::Given(certificate.clone()));
        }
        let server = server.start().await.expect("start the server");
        let mut client = Client::builder(&server.endpoint(), EMULATOR_KEY).http_version(wire.version);
        if let Some(certificate) = certificate {
            client = client.certificate(certificate.certificate);
        }
        Self { engine, server, client: client.connect().expect("make a client") }
    }
}

impl Remote {
    async fn new(version: HttpVersion, tls: bool) -> Self {
        let (clock, disk) = (TestClock::new(), MemoryDisk::new());
        let (served, other) = (Mutex::new(None), Mutex::new(None));
        let remote = Self { wire: Wire { version, tls }, clock, disk, served, other };
        let served = Served::start(remote.builder(), remote.disk.clone(), remote.wire).await;
        *remote.served.lock().expect("no panic") = Some(served);
        remote
    }

    fn builder(&self) -> Builder {
        Engine::builder().clock(Arc::new(self.clock.clone()))
    }
}

#[async_trait]
impl Fixture for Remote {
    fn catalog(&self) -> Arc<dyn Catalog> {
        self.served.lock().expect("no panic").as_ref().expect("it is served").client.catalog()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().split_on_demand(true).all_versions(true).wake_ups(true).range_parents(true)
    }

    fn supports(&self, feature: Feature) -> bool {
        feature != Feature::Charges
    }

    async fn reopen(&self) {
        let served = self.served.lock().expect("no panic").take().expect("it is served");
        served.server.stop().await;
        drop(served.client);
        served.engine.close().await.expect("close the store");
        let served = Served::start(self.builder(), self.disk.clone(), self.wire).await;
        *self.served.lock().expect("no panic") = Some(served);
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        let other = Served::start(self.builder(), MemoryDisk::new(), self.wire).await;
        let catalog = other.client.catalog();
        *self.other.lock().expect("no panic") = Some(other);
        catalog
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        let engine = self.served.lock().expect("no panic").as_ref().expect("it is served").engine.clone();
        engine.expire().await.expect("expire items");
    }
}

async fn http1() -> Remote {
    Remote::new(HttpVersion::Http1, false).await
}

async fn http2() -> Remote {
    Remote::new(HttpVersion::Http2, false).await
}

async fn tls_http1() -> Remote {
    Remote::new(HttpVersion::Http1, true).await
}

async fn tls() -> Remote {
    Remote::new(HttpVersion::Auto, true).await
}

mod plain_http1 {
    changefeed_testkit::conformance!(async super::http1);
}

mod plain_http2 {
    changefeed_testkit::conformance!(async super::http2);
}

mod encrypted_http1 {
    changefeed_testkit::conformance!(async super::tls_http1);
}

mod encrypted_http2 {
    changefeed_testkit::conformance!(async super::tls);
}

#[tokio::test]
async fn the_cases_that_do_not_apply_are_these_and_no_others() {
    let remote = http1().await;
    let offered = |feature: &Feature| remote.supports(*feature);
    // Of what the features of a fixture say; all capabilities are declared.
    let applies = |case: &&Case| case.needs().iter().all(offered) && !case.lacks().iter().any(offered);
    let others: Vec<&str> = cases().iter().filter(|case| !applies(case)).map(Case::name).collect();
    assert_eq!(others, NOT_APPLICABLE);
}

/// The first two are about stores that charge, the others about stores that lack something.
const NOT_APPLICABLE: [&str; 8] = [
    "every_response_carries_its_request_charge",
    "a_refused_call_carries_its_request_charge",
    "a_store_without_all_versions_mode_says_so",
    "a_store_with_one_range_per_container_says_so",
    "a_store_that_does_not_know_the_parents_of_ranges_names_none",
    "a_store_that_cannot_split_says_so",
    "a_store_that_cannot_merge_says_so",
    "a_store_without_time_to_live_says_so",
];
