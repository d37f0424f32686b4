//! What the account says of a container: its settings, and which container of which store it is.

use azure_data_cosmos::{
    ContainerClient, CosmosError,
    models::{ContainerProperties, TimeToLive as SdkTimeToLive},
};
use changefeed_core::{ContainerIdentity, ResourceId, Response, Result, StoreId, TimeToLive};
use serde::Deserialize;

use crate::{body, error::charge, key};

/// The settings of a container.
#[derive(Deserialize)]
pub(crate) struct Settings {
    #[serde(flatten)]
    properties: ContainerProperties,
    /// What `changefeed serve` adds for hosts that use an SDK; Azure does not have it.
    #[serde(rename = "_changefeed")]
    store: Option<StoreNames>,
}

/// How leases name a store.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoreNames {
    store_id: StoreId,
    account_host: String,
}

impl StoreNames {
    /// The names of a store that says none itself. An account keeps its name; servers on one machine differ by their port.
    pub(crate) fn of_endpoint(host: &str, port: Option<u16>) -> Result<Self> {
        let account_host = host.to_ascii_lowercase();
        let store_id = match port {
            Some(port) => StoreId::new(format!("{account_host}:{port}"))?,
            None => StoreId::new(account_host.as_str())?,
        };
        Ok(Self { store_id, account_host })
    }

    /// Those of a container.
    pub(crate) fn of_container(identity: &ContainerIdentity) -> Self {
        Self { store_id: identity.store.clone(), account_host: identity.account_host.clone() }
    }
}

impl Settings {
    /// Reads them, with what that was charged.
    pub(crate) async fn read(container: &ContainerClient) -> std::result::Result<Response<Self>, CosmosError> {
        let read = container.read(None).await?;
        let charge = charge(&read.diagnostics());
        Ok(Response::new(read.into_body().into_single()?, charge))
    }

    pub(crate) fn time_to_live(&self) -> TimeToLive {
        time_to_live(&self.properties.default_ttl)
    }

    /// Which container it is: of the store that it names, otherwise of the one with `names`.
    pub(crate) fn identity(&self, names: StoreNames, database: &str) -> Result<ContainerIdentity> {
        let StoreNames { store_id, account_host } = self.store.clone().unwrap_or(names);
        let container = body::rid(self.rid())?;
        Ok(ContainerIdentity {
            store: store_id,
            account_host,
            database_name: database.to_owned(),
            container_name: self.properties.id.to_string(),
            database: container.database_part(),
            container,
            partition_key: key::definition(&self.properties.partition_key)?,
        })
    }

    /// Whether these are settings of this container. One whose store did not say its id when it was opened is known by its
    /// resource id alone.
    pub(crate) fn are_of(&self, identity: &ContainerIdentity) -> bool {
        let is_same_store = match &self.store {
            Some(store) if identity.store.is_random() => store.store_id == identity.store,
            _ => true,
        };
        is_same_store && ResourceId::try_parse(self.rid()) == Some(identity.container)
    }

    fn rid(&self) -> &str {
        self.properties.system_properties.resource_id.as_deref().unwrap_or_default()
    }
}

/// How long items live, from the `defaultTtl` of a container.
pub(crate) fn time_to_live(default_ttl: &SdkTimeToLive) -> TimeToLive {
    match default_ttl {
        SdkTimeToLive::NoDefault => TimeToLive::ItemsOnly,
        SdkTimeToLive::Seconds(seconds) => TimeToLive::Seconds(*seconds),
        _ => TimeToLive::Off,
    }
}
