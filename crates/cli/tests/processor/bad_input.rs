//! What goes wrong while a host runs: a sentence that names the fix, few requests meanwhile, and it carries on by itself
//! once it is right again. Nothing is lost.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Context, Notification, Processor, RawChanges, Running,
    core::{Clock, Container, StartFrom, SystemClock, Timestamp},
    remote::{EMULATOR_KEY, Server as Client},
};
use serde_json::json;

use crate::{
    process::{Folder, Server, command},
    proxy::{Fault, Proxy},
    shop::{Seen, TIMING, pass, until},
};

const OTHER_KEY: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";

/// How long something is wrong: longer than a renewal, shorter than an expiration.
const WRONG: Duration = Duration::from_secs(3);

/// A server that is reached by hosts through a proxy, and directly by writers.
struct Stage {
    proxy: Proxy,
    direct: Container,
    seen: Seen,
    errors: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    async fn new(server: &Server, key: &str) -> Self {
        let client = Client::connect(&server.endpoint(), key).unwrap();
        let direct = client.database("shop").container("orders").create().await.unwrap();
        client.database("shop").container("leases").create().await.unwrap();
        let proxy = Proxy::start(server.address());
        Self { proxy, direct, seen: Seen::default(), errors: Arc::default() }
    }

    /// Starts a host that reaches the server through the proxy.
    async fn host(&self, key: &str, clock: Arc<dyn Clock>) -> Running {
        let client = Client::builder(&self.proxy.endpoint(), key).clock(clock);
        self.host_of(client.connect().unwrap()).await
    }

    async fn host_of(&self, client: Client) -> Running {
        let orders = client.database("shop").container("orders").open().await.unwrap();
        let leases = client.database("shop").container("leases").open().await.unwrap();
        let (seen, errors) = (self.seen.clone(), Arc::clone(&self.errors));
        let processor = Processor::builder("mailer", &orders, &leases)
            .instance_name("a")
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .poll_interval(Duration::from_millis(500))
            .on_notification(move |notification| {
                if let Notification::Error(report) = notification {
                    errors.lock().unwrap().push(report.failure.to_string());
                }
            })
            .build(move |changes: RawChanges, context: Context| {
                seen.note(&changes, &context);
                async { Ok(()) }
            });
        processor.unwrap().start().await.unwrap()
    }

    async fn write(&self, number: u32) {
        self.direct.create(&json!({"id": number.to_string()})).await.unwrap();
    }

    /// Waits until the order has been delivered.
    async fn delivers(&self, number: u32) {
        until("delivery", || self.seen.ids().contains(&number.to_string())).await;
    }

    /// Checks that the sentence was reported, and that few requests were made since there were `before`.
    async fn complains(&self, parts: &[&str], before: usize) {
        let said = || self.errors.lock().unwrap().clone();
        let sentence = |error: &String| parts.iter().all(|part| error.contains(part));
        until("the sentence", || said().iter().any(sentence)).await;
        let requests = self.proxy.total() - before;
        assert!(requests < 150, "{requests} requests in {WRONG:?} are no back-off");
    }

    /// Checks that everything was delivered in the end.
    async fn ends(self, running: Running, count: usize) {
        until("delivery", || self.seen.distinct() == count).await;
        running.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_replaced_and_put_back_is_named_and_the_host_carries_on() {
    let folder = Folder::new();
    let keys = folder.write("keys", EMULATOR_KEY);
    let server = Server::start(&["--store", "memory", "--key-file", &keys]);
    let stage = Stage::new(&server, EMULATOR_KEY).await;
    let running = stage.host(EMULATOR_KEY, Arc::new(SystemClock)).await;
    stage.write(1).await;
    stage.delivers(1).await;
    let before = stage.proxy.total();
    folder.write("keys", OTHER_KEY);
    server.signal("HUP");
    let other = Client::connect(&server.endpoint(), OTHER_KEY).unwrap();
    let other = loop {
        match other.database("shop").container("orders").open().await {
            Ok(orders) => break orders,
            Err(_) => pass(Duration::from_millis(20)).await,
        }
    };
    other.create(&json!({"id": "2"})).await.unwrap();
    pass(WRONG).await;
    stage.complains(&["does not accept the key", "--key-file"], before).await;
    folder.write("keys", EMULATOR_KEY);
    server.signal("HUP");
    stage.delivers(2).await;
    stage.write(3).await;
    stage.ends(running, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stands_in_the_way_for_a_while_is_named_and_the_host_carries_on() {
    for (fault, parts) in [
        (Fault::Html(200), &["does not come from a changefeed server", "proxy"][..]),
        (Fault::Html(502), &["does not come from a changefeed server", "proxy"]),
        (Fault::Refused(404), &["does not offer the calls of this client", "same version"]),
    ] {
        let server = Server::start(&["--store", "memory"]);
        let stage = Stage::new(&server, EMULATOR_KEY).await;
        let running = stage.host(EMULATOR_KEY, Arc::new(SystemClock)).await;
        stage.write(1).await;
        stage.delivers(1).await;
        let before = stage.proxy.total();
        stage.proxy.inject("", fault, usize::MAX);
        stage.write(2).await;
        pass(WRONG).await;
        stage.complains(parts, before).await;
        assert_eq!(stage.seen.distinct(), 1, "{fault:?}");
        stage.proxy.clear();
        stage.delivers(2).await;
        stage.write(3).await;
        stage.ends(running, 3).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_cannot_be_reached_for_a_while_is_named_and_the_host_carries_on() {
    let folder = Folder::new();
    let store = folder.join("store");
    let server = Server::start(&["--store", &store]);
    let (address, stage) = (server.address().to_string(), Stage::new(&server, EMULATOR_KEY).await);
    // Not through the proxy, which listens on.
    let running = stage.host_of(Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap()).await;
    stage.write(1).await;
    stage.delivers(1).await;
    server.kill();
    pass(WRONG).await;
    stage.complains(&["nothing listens at", "start `changefeed serve`"], stage.proxy.total()).await;
    let _server = Server::spawn(&mut command(&["serve", "--store", &store, "--listen", &address]));
    stage.write(2).await;
    stage.ends(running, 2).await;
}

/// A clock that is an hour ahead for a while.
#[derive(Debug, Default)]
struct Skewed(AtomicBool);

impl Clock for Skewed {
    fn wall(&self) -> Timestamp {
        let hour = if self.0.load(Ordering::Acquire) { 3_600_000 } else { 0 };
        Timestamp::from_millis(SystemClock.wall().as_millis() + hour)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_is_off_by_an_hour_for_a_while_is_named_and_the_host_carries_on() {
    let server = Server::start(&["--store", "memory"]);
    let (stage, clock) = (Stage::new(&server, EMULATOR_KEY).await, Arc::new(Skewed::default()));
    let running = stage.host(EMULATOR_KEY, Arc::<Skewed>::clone(&clock)).await;
    stage.write(1).await;
    stage.delivers(1).await;
    let before = stage.proxy.total();
    clock.0.store(true, Ordering::Release);
    stage.write(2).await;
    pass(WRONG).await;
    stage.complains(&["the clock of this machine is", "minutes ahead of", "NTP"], before).await;
    clock.0.store(false, Ordering::Release);
    stage.delivers(2).await;
    stage.write(3).await;
    stage.ends(running, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_that_is_deleted_and_created_again_is_named_and_the_host_carries_on() {
    let server = Server::start(&["--store", "memory"]);
    let stage = Stage::new(&server, EMULATOR_KEY).await;
    let running = stage.host(EMULATOR_KEY, Arc::new(SystemClock)).await;
    stage.write(1).await;
    stage.delivers(1).await;
    let before = stage.proxy.total();
    let client = Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap();
    client.catalog().delete_container("shop", "orders").await.unwrap();
    pass(WRONG).await;
    stage.complains(&["database shop has no container orders: create it first"], before).await;
    let again = client.database("shop").container("orders").create().await.unwrap();
    again.create(&json!({"id": "2"})).await.unwrap();
    stage.delivers(2).await;
    again.create(&json!({"id": "3"})).await.unwrap();
    stage.ends(running, 3).await;
}
