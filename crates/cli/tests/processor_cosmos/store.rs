//! How the tests reach their containers: through the SDK.

use std::sync::Arc;

use changefeed::core::{Container, Database};
use changefeed_cosmos::Account;

use crate::support::{OnSdk, TestCatalog, connect, on_sdk};

/// Faults for requests for changes only, as options of `changefeed fault`.
pub(crate) const FEED_FAULT: [&str; 4] = ["--method", "GET", "--path-contains", "colls/orders/docs"];
/// What writes of leases have in their path.
pub(crate) const LEASE_WRITE_PATH: &str = "colls/leases/docs";

pub(crate) struct Store(Account);

impl Store {
    pub(crate) async fn connect(endpoint: &str) -> Self {
        Self(connect(endpoint.to_owned()).await)
    }

    pub(crate) async fn container(&self, name: &str) -> Container {
        let (account, name) = (self.0.clone(), name.to_owned());
        OnSdk::container(&on_sdk(async move { account.container("shop", &name).await }).await.unwrap())
    }

    pub(crate) fn database(&self) -> Database {
        Database::new(Arc::new(TestCatalog { account: self.0.clone(), admin: self.0.catalog() }), "shop")
    }
}
