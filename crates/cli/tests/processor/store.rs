//! How the tests reach their containers: through the client of the server.

use changefeed::{
    core::{Container, Database},
    remote::{EMULATOR_KEY, Server as Client},
};

/// Faults for requests for changes only, as options of `changefeed fault`.
pub(crate) const FEED_FAULT: [&str; 4] = ["--method", "POST", "--path-contains", "read_changes"];
/// What writes of leases have in their path.
pub(crate) const LEASE_WRITE_PATH: &str = "leases/write";

pub(crate) struct Store(Client);

impl Store {
    pub(crate) async fn connect(endpoint: &str) -> Self {
        Self(Client::connect(endpoint, EMULATOR_KEY).unwrap())
    }

    pub(crate) async fn container(&self, name: &str) -> Container {
        self.database().container(name).open().await.unwrap()
    }

    pub(crate) fn database(&self) -> Database {
        self.0.database("shop")
    }
}
