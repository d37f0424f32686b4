//! Orders on a server that goes away, changes its keys or loses writes; leases on another one.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{
    Processor, Running,
    core::{Container, StartFrom},
    remote::{EMULATOR_KEY, Server as Client},
};
use changefeed_cosmos::{Account, Credential, Options};
use serde_json::json;

use crate::{
    process::{Folder, Server, command},
    shop::{Seen, TIMING, pass, start, until},
    support::{OnSdk, on_sdk},
};

/// How long something is wrong: longer than several renewals and polls.
pub(crate) const WRONG: Duration = Duration::from_secs(3);

/// How often hosts read while nothing is new.
const POLL: Duration = Duration::from_millis(200);

pub(crate) struct Stage {
    pub(crate) folder: Folder,
    /// None while it is down.
    server: Option<Server>,
    address: String,
    leases: Server,
    pub(crate) keys: String,
    pub(crate) seen: Seen,
    pub(crate) errors: Arc<Mutex<Vec<String>>>,
}

impl Stage {
    /// A server with the public key of emulators.
    pub(crate) async fn new() -> Self {
        let folder = Folder::new();
        let keys = folder.write("keys", EMULATOR_KEY);
        let server = Server::start(&["--store", &folder.join("store"), "--key-file", &keys]);
        let leases = Server::start(&["--store", "memory"]);
        for (server, container) in [(&server, "orders"), (&leases, "leases")] {
            let client = Client::connect(&server.endpoint(), EMULATOR_KEY).unwrap();
            client.database("shop").container(container).create().await.unwrap();
        }
        let address = server.address().to_string();
        Self { folder, server: Some(server), address, leases, keys, seen: Seen::default(), errors: Arc::default() }
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Ends the server in good order.
    pub(crate) fn stop(&mut self) {
        let server = self.server.take().unwrap();
        server.signal("TERM");
        let (status, _, _, said) = server.ended();
        assert!(status.success(), "{said}");
    }

    /// Ends the server without warning.
    pub(crate) fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    /// Starts it again at the same address.
    pub(crate) fn restart(&mut self) {
        let (store, keys) = (self.folder.join("store"), self.keys.clone());
        let args = ["serve", "--store", &store, "--key-file", &keys, "--listen", &self.address];
        self.server = Some(Server::spawn(&mut command(&args)));
    }

    /// Keeps the orders as they are, in a region that gets nothing from now on.
    pub(crate) fn replicate(&mut self) {
        self.stop();
        copy(self.folder.path().join("store").as_path(), self.folder.path().join("replica").as_path());
        self.restart();
    }

    /// That region takes over.
    pub(crate) fn fail_over(&mut self) {
        self.kill();
        std::fs::remove_dir_all(self.folder.path().join("store")).unwrap();
        std::fs::rename(self.folder.path().join("replica"), self.folder.path().join("store")).unwrap();
        self.restart();
    }

    /// Another client of the account, as another process would have it.
    pub(crate) async fn connect(&self) -> Account {
        let endpoint = self.endpoint();
        let account =
            on_sdk(async move { Account::connect(&endpoint, Credential::Key(EMULATOR_KEY.to_owned())).await });
        account.await.unwrap().options(Options::new().failover_patience(Duration::from_secs(1)))
    }

    /// Starts a host whose orders come through this client.
    pub(crate) async fn host(&self, account: &Account) -> Running {
        let orders = open(account.clone(), "orders").await;
        let endpoint = self.leases.endpoint();
        let leases = on_sdk(async move { Account::connect(&endpoint, Credential::Key(EMULATOR_KEY.to_owned())).await });
        let leases = open(leases.await.unwrap(), "leases").await;
        let errors = Arc::clone(&self.errors);
        let builder = Processor::builder("mailer", &orders, &leases)
            .instance_name("a")
            .start_from(StartFrom::Beginning)
            .lease_timing(TIMING)
            .poll_interval(POLL)
            .on_error(move |report| errors.lock().unwrap().push(report.failure.to_string()));
        start(builder, &self.seen).await
    }

    /// Writes orders with a key of the account.
    pub(crate) async fn write(&self, key: &str, numbers: std::ops::Range<u32>) {
        let client = Client::connect(&self.endpoint(), key).unwrap();
        let orders = loop {
            // A server that has just got other keys may not know them yet.
            match client.database("shop").container("orders").open().await {
                Ok(orders) => break orders,
                Err(_) => pass(Duration::from_millis(20)).await,
            }
        };
        for number in numbers {
            orders.create(&json!({"id": number.to_string()})).await.unwrap();
        }
    }

    pub(crate) async fn delivers(&self, number: u32) {
        let number = number.to_string();
        until("delivery", || self.seen.ids().contains(&number)).await;
    }

    /// Waits for an error that has all these parts.
    pub(crate) async fn complains(&self, parts: &[&str]) {
        let sentence = |error: &String| parts.iter().all(|part| error.contains(part));
        until("the sentence", || self.errors.lock().unwrap().iter().any(sentence)).await;
    }

    /// The lease of the only range.
    pub(crate) async fn position(&self) -> String {
        let client = Client::connect(&self.leases.endpoint(), EMULATOR_KEY).unwrap();
        let leases = client.database("shop").container("leases").open().await.unwrap();
        let documents = leases.list("mailer").await.unwrap();
        let documents = documents.iter().map(|item| item.parse::<serde_json::Value>().unwrap());
        let positions: Vec<_> =
            documents.filter_map(|lease| lease["ContinuationToken"].as_str().map(ToOwned::to_owned)).collect();
        assert_eq!(positions.len(), 1, "{positions:?}");
        positions.into_iter().next().unwrap()
    }
}

async fn open(account: Account, name: &'static str) -> Container {
    OnSdk::container(&on_sdk(async move { account.container("shop", name).await }).await.unwrap())
}

/// Copies a folder with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
