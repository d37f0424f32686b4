//! An account: its client and its containers, for programs that have no client of the SDK yet.

use std::sync::{Arc, Weak};

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountReference, CosmosClient, CosmosRuntime, RoutingStrategy};
use changefeed_core::{Catalog, Container, Database, Error, ErrorKind, Result};
use parking_lot::{Mutex, RwLock};

use crate::{
    account_properties::{AccountProperties, Credential, TIMEOUT},
    catalog::CosmosCatalog,
    container::CosmosContainer,
    error::{Call, failed},
    named_client::NamedClient,
    options::Options,
    timer::within,
};

/// An account, for programs that have no client of the SDK yet. Cheap to clone.
///
/// ```no_run
/// # async fn example() -> changefeed_core::Result<()> {
/// use changefeed_cosmos::{Account, Credential};
///
/// let account = Account::connect("https://shop.documents.azure.com", Credential::Key("…".into())).await?;
/// let orders = account.container("shop", "orders").await?;
/// let leases = account.lease_container("shop", "leases").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Account {
    connection: Arc<Connection>,
    properties: AccountProperties,
    options: Options,
}

impl Account {
    /// Connects to the account at `endpoint`, such as `https://shop.documents.azure.com`. Requests prefer the regions in
    /// the order in which the account lists them. The certificate of the endpoint must be one that the machine trusts: the
    /// SDK takes no others (on Linux the variable `SSL_CERT_FILE` names a file with more).
    ///
    /// # Errors
    /// See [`AccountProperties::read`].
    pub async fn connect(endpoint: &str, credential: Credential) -> Result<Self> {
        let properties = AccountProperties::read(endpoint, &credential).await?;
        let client = connect(endpoint, credential, &properties).await?;
        let connection = Arc::new(Connection::new(endpoint, client));
        Ok(Self { connection, properties, options: Options::new() })
    }

    /// Connects with a connection string of the portal: `AccountEndpoint=https://…;AccountKey=…;`.
    ///
    /// # Errors
    /// `InvalidArgument` if a part is missing; otherwise see [`Account::connect`].
    pub async fn from_connection_string(text: &str) -> Result<Self> {
        let (endpoint, key) = parts(text)?;
        Self::connect(endpoint, Credential::Key(key.to_owned())).await
    }

    /// Settings of the containers that are opened from now on. Default: [`Options::new`].
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Signs with another key of the account from now on, in this account and its clones, in all containers that were
    /// opened through them and by every processor that uses these: a key is rotated without a restart. Calls that are
    /// under way end with the old key; if it is not accepted any more, they fail and are repeated by the processor.
    ///
    /// The key is tried first. The SDK's client keeps its key for good, so there is another client afterwards, whose
    /// session is new: clients that were taken with [`Account::client`] before, and containers opened with them, keep the
    /// old key.
    ///
    /// # Errors
    /// As [`Account::connect`]; the old key then stays in use.
    pub async fn replace_key(&self, key: &str) -> Result<()> {
        let credential = Credential::Key(key.to_owned());
        let properties = AccountProperties::read(&self.connection.endpoint, &credential).await?;
        let client = connect(&self.connection.endpoint, credential.clone(), &properties).await?;
        self.connection.replace(client).await?;
        self.properties.replace_credential(credential);
        Ok(())
    }

    /// The client of the SDK that is in use now.
    pub fn client(&self) -> CosmosClient {
        self.connection.client()
    }

    /// The settings of the account, as read when it was connected.
    pub fn properties(&self) -> &AccountProperties {
        &self.properties
    }

    /// Opens a container.
    ///
    /// # Errors
    /// See [`CosmosContainer::open`].
    pub async fn container(&self, database: &str, container: &str) -> Result<Container> {
        self.connection.open(database, container, self.options.clone()).await
    }

    /// Opens a container for leases.
    ///
    /// # Errors
    /// See [`CosmosContainer::open_leases`].
    pub async fn lease_container(&self, database: &str, container: &str) -> Result<Container> {
        let (client, options) = (self.client(), self.options.clone());
        let opening = CosmosContainer::open_shared_leases(&client, database, container, &self.properties, options);
        Ok(self.connection.keep(Box::pin(opening).await?))
    }

    /// A database, to open and create containers in. Creating needs a key: tokens do not allow it.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// The databases and containers of the account.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(CosmosCatalog::new(Arc::clone(&self.connection), self.options.clone()))
    }
}

/// The client of an account, and the containers that were opened with it.
#[derive(Debug)]
pub(crate) struct Connection {
    endpoint: String,
    client: RwLock<CosmosClient>,
    opened: Mutex<Vec<Weak<NamedClient>>>,
}

impl Connection {
    fn new(endpoint: &str, client: CosmosClient) -> Self {
        Self { endpoint: endpoint.to_owned(), client: RwLock::new(client), opened: Mutex::default() }
    }

    pub(crate) fn client(&self) -> CosmosClient {
        self.client.read().clone()
    }

    pub(crate) async fn open(&self, database: &str, container: &str, options: Options) -> Result<Container> {
        let client = self.client();
        let opened = Box::pin(CosmosContainer::open_shared(&client, database, container, options)).await?;
        Ok(self.keep(opened))
    }

    /// Remembers a container as long as somebody uses it.
    fn keep(&self, container: Arc<CosmosContainer>) -> Container {
        let mut opened = self.opened.lock();
        opened.retain(|client| client.strong_count() > 0);
        opened.push(Arc::downgrade(container.client()));
        Container::new(container)
    }

    /// Uses another client from now on: in all containers or, if one cannot be opened with it, in none.
    async fn replace(&self, client: CosmosClient) -> Result<()> {
        let opened: Vec<_> = self.opened.lock().iter().filter_map(Weak::upgrade).collect();
        let (mut ready, mut missing) = (Vec::with_capacity(opened.len()), Vec::new());
        for named in opened {
            match named.open_in(&client).await {
                Ok(again) => ready.push((named, again)),
                // The next call that uses it fails with this error. The container may be created again.
                Err(error) if error.kind() == ErrorKind::ContainerNotFound => missing.push(named),
                Err(error) => return Err(error),
            }
        }
        *self.client.write() = client.clone();
        for named in missing {
            named.set_later(client.clone());
        }
        for (named, again) in ready {
            named.set(client.clone(), again);
        }
        Ok(())
    }
}

/// Builds a client of the SDK.
///
/// Each has a runtime of its own: in the one that all clients of a process share by default, the SDK remembers containers
/// with the key that they were first opened with, and goes on looking for one that was deleted and created again.
async fn connect(endpoint: &str, credential: Credential, properties: &AccountProperties) -> Result<CosmosClient> {
    let bad = |error| crate::error::refused(ErrorKind::InvalidArgument, "the endpoint", error);
    let endpoint = endpoint.parse().map_err(bad)?;
    let account = match credential {
        Credential::Key(key) => AccountReference::with_authentication_key(endpoint, Secret::new(key)),
        Credential::Token(identity) => AccountReference::with_credential(endpoint, identity),
    };
    let regions = properties.regions.iter().map(|region| region.clone().into()).collect();
    let building = async {
        let runtime = CosmosRuntime::builder().build().await?;
        CosmosClient::builder().with_runtime(runtime).build(account, RoutingStrategy::PreferredRegions(regions)).await
    };
    let built = within(TIMEOUT, building).await;
    let built = built.ok_or_else(|| Error::new(ErrorKind::Timeout, "connect to the account: no answer"))?;
    built.map_err(|error| failed(Call::Container, "connect to the account", error))
}

/// Endpoint and key of a connection string.
fn parts(text: &str) -> Result<(&str, &str)> {
    let find = |name: &str| {
        let mut parts = text.split(';').filter_map(|part| part.split_once('='));
        let found = parts.find(|(own, _)| own.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim());
        found.filter(|value| !value.is_empty()).ok_or_else(|| {
            let message =
                format!("the connection string has no {name}: expected AccountEndpoint=https://…;AccountKey=…;");
            Error::new(ErrorKind::InvalidArgument, message)
        })
    };
    Ok((find("AccountEndpoint")?, find("AccountKey")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_string_has_an_endpoint_and_a_key() {
        let text = "AccountEndpoint=https://shop.documents.azure.com:443/;AccountKey=abc==;";
        assert_eq!(parts(text).unwrap(), ("https://shop.documents.azure.com:443/", "abc=="));
        assert!(parts("AccountEndpoint=https://x").unwrap_err().message().contains("no AccountKey"));
        assert!(parts("postgres://x").unwrap_err().message().contains("no AccountEndpoint"));
    }
}
