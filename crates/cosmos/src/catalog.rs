//! [`Catalog`] over the SDK. Creating and deleting needs the key of the account; tokens of Entra ID allow neither.

use std::sync::Arc;

use azure_data_cosmos::{
    CosmosError,
    models::{
        ChangeFeedPolicy, ContainerProperties, DatabaseProperties, SystemProperties, TimeToLive as SdkTimeToLive,
    },
};
use changefeed_core::{
    Catalog, Container, ContainerInfo, ContainerSpec, DatabaseInfo, DatabaseSpec, Epk, Error, ErrorKind, PhysicalRange,
    RangeId, ResourceId, Result, TimeToLive, Timestamp, async_trait, check_name,
};
use futures_util::TryStreamExt as _;

use crate::{
    account::Connection,
    body,
    error::{Call, failed, source_text, timed_out},
    key,
    options::Options,
    settings,
    timer::within,
};

/// The databases and containers of one account.
#[derive(Debug)]
pub(crate) struct CosmosCatalog {
    connection: Arc<Connection>,
    options: Options,
}

impl CosmosCatalog {
    pub(crate) fn new(connection: Arc<Connection>, options: Options) -> Self {
        Self { connection, options }
    }

    async fn call<T>(
        &self,
        call: Call,
        what: String,
        answer: impl Future<Output = Result<T, CosmosError>> + Send,
    ) -> Result<T> {
        let limit = self.options.budgets().items.limit;
        match within(limit, answer).await {
            Some(answer) => answer.map_err(|error| failed(call, &what, error)),
            None => Err(timed_out(call, &what, limit)),
        }
    }
}

#[async_trait]
impl Catalog for CosmosCatalog {
    async fn create_database(&self, DatabaseSpec { name, extra }: DatabaseSpec) -> Result<DatabaseInfo> {
        check_name(&name)?;
        no_extra(&extra)?;
        let creating = async { self.connection.client().create_database(&name, None).await?.into_model() };
        database(self.call(Call::Database, format!("create database {name}"), creating).await?)
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let listing = async {
            let rows = self.connection.client().query_databases("SELECT * FROM c", None).await?;
            rows.try_collect::<Vec<_>>().await
        };
        let listed = self.call(Call::Database, "list databases".to_owned(), listing).await?;
        let mut databases = listed.into_iter().map(database).collect::<Result<Vec<_>>>()?;
        databases.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(databases)
    }

    async fn replace_database(&self, _: DatabaseSpec) -> Result<DatabaseInfo> {
        Err(Error::new(ErrorKind::Unsupported, "a database of Azure Cosmos DB has no settings to replace"))
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let deleting = async { self.connection.client().database_client(name).delete(None).await.map(drop) };
        self.call(Call::Database, format!("delete database {name}"), deleting).await
    }

    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        check_name(&spec.name)?;
        if spec.ranges != 1 {
            let message = "Azure Cosmos DB decides how many ranges a container has: give it more throughput";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let properties = properties(&spec)?;
        let what = format!("create container {database}/{}", spec.name);
        let creating = async {
            let database = self.connection.client().database_client(database);
            database.create_container(properties, None).await?.into_model()
        };
        container(Box::pin(self.call(Call::Database, what, creating)).await.map_err(explain_retention)?)
    }

    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let listing = async {
            let database = self.connection.client().database_client(database);
            database.query_containers("SELECT * FROM c", None).await?.try_collect::<Vec<_>>().await
        };
        let listed = self.call(Call::Database, format!("list containers of {database}"), listing).await?;
        let mut containers = listed.into_iter().map(container).collect::<Result<Vec<_>>>()?;
        containers.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        Ok(containers)
    }

    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo> {
        let what = format!("replace container {database}/{}", spec.name);
        let replacing = async {
            let client =
                self.connection.client().database_client(database).container_client(spec.name.as_str(), None).await?;
            // What this library does not interpret, such as the indexing policy, stays.
            let mut found = client.read(None).await?.into_model()?;
            found.default_ttl = default_ttl(spec.time_to_live);
            found.change_feed_policy = policy(&spec);
            client.replace(found, None).await?.into_model()
        };
        container(Box::pin(self.call(Call::Container, what, replacing)).await.map_err(explain_retention)?)
    }

    async fn delete_container(&self, database: &str, name: &str) -> Result<()> {
        let deleting = async {
            let client = self.connection.client().database_client(database).container_client(name, None).await?;
            client.delete(None).await.map(drop)
        };
        let what = format!("delete container {database}/{name}");
        Box::pin(self.call(Call::Container, what, deleting)).await
    }

    async fn container(&self, database: &str, name: &str) -> Result<Container> {
        self.connection.open(database, name, self.options.clone()).await
    }

    async fn split(&self, _: &str, _: &str, _: &RangeId, _: Option<Epk>) -> Result<Vec<PhysicalRange>> {
        let message = "Azure Cosmos DB splits ranges by itself: give the container more throughput";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    async fn merge(&self, _: &str, _: &str, _: [&RangeId; 2]) -> Result<PhysicalRange> {
        let message = "ranges of Azure Cosmos DB are merged in the portal or by its command line";
        Err(Error::new(ErrorKind::Unsupported, message))
    }
}

fn no_extra(extra: &serde_json::Map<String, serde_json::Value>) -> Result<()> {
    match extra.keys().next() {
        None => Ok(()),
        Some(name) => Err(Error::new(ErrorKind::Unsupported, format!("member {name:?} cannot be set through the SDK"))),
    }
}

fn properties(spec: &ContainerSpec) -> Result<ContainerProperties> {
    no_extra(&spec.extra)?;
    let mut properties = ContainerProperties::new(spec.name.clone(), key::definition_to_sdk(&spec.partition_key));
    properties.default_ttl = default_ttl(spec.time_to_live);
    properties.change_feed_policy = policy(spec);
    Ok(properties)
}

fn policy(spec: &ContainerSpec) -> Option<ChangeFeedPolicy> {
    spec.all_versions_retention.map(|retention| ChangeFeedPolicy::default().with_retention_duration(retention))
}

/// Says what to do if an account with continuous backup refuses a container with a retention.
fn explain_retention(error: Error) -> Error {
    if error.kind() != ErrorKind::InvalidArgument || !source_text(&error).contains("continuous backup") {
        return error;
    }
    let message = format!(
        "{}: the account keeps all versions by its continuous backup, and takes no retention of a container: leave it out",
        error.message()
    );
    Error::new(ErrorKind::InvalidArgument, message).with_request_charge(error.request_charge()).with_source(error)
}

fn default_ttl(time: TimeToLive) -> SdkTimeToLive {
    match time {
        TimeToLive::Off => SdkTimeToLive::Forever,
        TimeToLive::ItemsOnly => SdkTimeToLive::NoDefault,
        TimeToLive::Seconds(seconds) => SdkTimeToLive::Seconds(seconds),
    }
}

/// Resource id and time of a database or container.
fn system(properties: &SystemProperties) -> Result<(ResourceId, Timestamp)> {
    let rid = body::rid(properties.resource_id.as_deref().unwrap_or_default())?;
    let seconds = properties.last_modified.map_or(0, |time| time.unix_timestamp());
    Ok((rid, Timestamp::from_secs(u64::try_from(seconds).unwrap_or_default())))
}

fn database(properties: DatabaseProperties) -> Result<DatabaseInfo> {
    let (rid, timestamp) = system(&properties.system_properties)?;
    Ok(DatabaseInfo { name: properties.id.unwrap_or_default(), rid, timestamp, extra: serde_json::Map::new() })
}

fn container(properties: ContainerProperties) -> Result<ContainerInfo> {
    let (rid, timestamp) = system(&properties.system_properties)?;
    let mut spec = ContainerSpec::new(properties.id.to_string(), key::definition(&properties.partition_key)?);
    spec.time_to_live = settings::time_to_live(&properties.default_ttl);
    spec.all_versions_retention = properties.change_feed_policy.and_then(|policy| policy.retention_duration());
    Ok(ContainerInfo { rid, timestamp, spec })
}
