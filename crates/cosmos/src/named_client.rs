//! The client of the SDK for one container, by its name: another one after the key of the account was replaced.

use std::{fmt, time::Duration};

use azure_data_cosmos::{ContainerClient, CosmosClient};
use changefeed_core::Result;
use parking_lot::{Mutex, RwLock};

use crate::{
    error::{Call, failed, timed_out},
    timer::within,
};

/// The client of the SDK for one container. Shared by all handles to it, also to one that was created again.
pub(crate) struct NamedClient {
    current: RwLock<ContainerClient>,
    /// The client of the account that `current` is of.
    account: RwLock<CosmosClient>,
    /// The client of the account that replaced the one of `current` while no container had the name.
    newer: Mutex<Option<CosmosClient>>,
    database: String,
    container: String,
    limit: Duration,
}

impl NamedClient {
    /// The client of the container of this name in the account; opening it again may take `limit`.
    pub(crate) fn new(
        account: CosmosClient,
        client: ContainerClient,
        (database, container): (&str, &str),
        limit: Duration,
    ) -> Self {
        Self {
            current: RwLock::new(client),
            account: RwLock::new(account),
            newer: Mutex::default(),
            database: database.to_owned(),
            container: container.to_owned(),
            limit,
        }
    }

    /// The client that is in use now.
    pub(crate) fn get(&self) -> ContainerClient {
        self.current.read().clone()
    }

    /// The container in another client of the same account.
    pub(crate) async fn open_in(&self, client: &CosmosClient) -> Result<ContainerClient> {
        let Self { database, container, limit, .. } = self;
        let what = format!("open again {database}/{container}");
        let client = client.database_client(database);
        let opening = Box::pin(client.container_client(container.as_str(), None));
        match within(*limit, opening).await {
            Some(opened) => opened.map_err(|error| failed(Call::Container, &what, error)),
            None => Err(timed_out(Call::Container, &what, *limit)),
        }
    }

    /// Uses another client of the account from now on, in which the container is `client`.
    pub(crate) fn set(&self, account: CosmosClient, client: ContainerClient) {
        *self.newer.lock() = None;
        *self.account.write() = account;
        *self.current.write() = client;
    }

    /// Uses a client of the container that has the name now. Each keeps the resource id that the name had when it was made,
    /// and finds no ranges once that container is deleted.
    ///
    /// # Errors
    /// Those of [`NamedClient::open_in`].
    pub(crate) async fn resolve(&self) -> Result<()> {
        let account = self.account.read().clone();
        let client = self.open_in(&account).await?;
        self.set(account, client);
        Ok(())
    }

    /// Uses another client of the account once there is a container: see [`NamedClient::catch_up`].
    pub(crate) fn set_later(&self, client: CosmosClient) {
        *self.newer.lock() = Some(client);
    }

    /// Uses the client of the account that came while no container had the name, if one did.
    ///
    /// # Errors
    /// Those of [`NamedClient::open_in`].
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let newer = self.newer.lock().clone();
        if let Some(client) = newer {
            let container = self.open_in(&client).await?;
            self.set(client, container);
        }
        Ok(())
    }
}

impl fmt::Debug for NamedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedClient({}/{})", self.database, self.container)
    }
}
