//! An account: its client and its containers, for programs that have no client of the SDK yet.

use std::sync::Arc;

use azure_core::credentials::Secret;
use azure_data_cosmos::{AccountReference, CosmosClient, RoutingStrategy};
use changefeed_core::{Catalog, Container, Database, Error, ErrorKind, Result};

use crate::{
    account_properties::{AccountProperties, Credential, TIMEOUT},
    catalog::CosmosCatalog,
    container::CosmosContainer,
    error::{Call, failed},
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
    client: CosmosClient,
    properties: AccountProperties,
    options: Options,
}

impl Account {
    /// Connects to the account at `endpoint`, such as `https://shop.documents.azure.com`. Requests prefer the regions in
    /// the order in which the account lists them.
    ///
    /// # Errors
    /// See [`AccountProperties::read`].
    pub async fn connect(endpoint: &str, credential: Credential) -> Result<Self> {
        let properties = AccountProperties::read(endpoint, &credential).await?;
        let bad = |error| crate::error::refused(ErrorKind::InvalidArgument, "the endpoint", error);
        let endpoint = endpoint.parse().map_err(bad)?;
        let account = match credential {
            Credential::Key(key) => AccountReference::with_authentication_key(endpoint, Secret::new(key)),
            Credential::Token(identity) => AccountReference::with_credential(endpoint, identity),
        };
        let regions = properties.regions.iter().map(|region| region.clone().into()).collect();
        let building = CosmosClient::builder().build(account, RoutingStrategy::PreferredRegions(regions));
        let built = within(TIMEOUT, building).await;
        let built = built.ok_or_else(|| Error::new(ErrorKind::Timeout, "connect to the account: no answer"))?;
        let client = built.map_err(|error| failed(Call::Container, "connect to the account", error))?;
        Ok(Self { client, properties, options: Options::new() })
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

    /// The client of the SDK.
    pub fn client(&self) -> &CosmosClient {
        &self.client
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
        CosmosContainer::open_with(&self.client, database, container, self.options.clone()).await
    }

    /// Opens a container for leases.
    ///
    /// # Errors
    /// See [`CosmosContainer::open_leases`].
    pub async fn lease_container(&self, database: &str, container: &str) -> Result<Container> {
        let (client, options) = (&self.client, self.options.clone());
        CosmosContainer::open_leases(client, database, container, &self.properties, options).await
    }

    /// A database, to open and create containers in. Creating needs a key: tokens do not allow it.
    pub fn database(&self, name: &str) -> Database {
        Database::new(self.catalog(), name)
    }

    /// The databases and containers of the account.
    pub fn catalog(&self) -> Arc<dyn Catalog> {
        Arc::new(CosmosCatalog::new(self.client.clone(), self.options.clone()))
    }
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
