//! Databases and containers of a store: create, list, replace, delete, split, merge.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use crate::{
    Container, ContainerIdentity, Effect, Epk, Error, ErrorKind, PartitionKeyDefinition, PartitionKeyKind,
    PhysicalRange, RangeId, ResourceId, Result, Timestamp,
};

/// How often `open_or_create` asks for a container whose creation has an unknown outcome and that is not there.
const CREATE_TRIES: u32 = 3;

/// A store that holds databases and containers.
#[async_trait]
pub trait Catalog: fmt::Debug + Send + Sync + 'static {
    /// Creates a database; refused with `AlreadyExists` if there is one of this name.
    async fn create_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo>;

    /// Lists all databases, by name.
    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>>;

    /// Replaces the members that the store does not interpret.
    async fn replace_database(&self, spec: DatabaseSpec) -> Result<DatabaseInfo>;

    /// Deletes a database with all its containers.
    async fn delete_database(&self, name: &str) -> Result<()>;

    /// Creates a container; refused with `AlreadyExists` if there is one of this name.
    async fn create_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo>;

    /// Lists all containers of a database, by name.
    async fn list_containers(&self, database: &str) -> Result<Vec<ContainerInfo>>;

    /// Replaces time to live, retention and the members that the store does not interpret. Name and partition key
    /// cannot change.
    async fn replace_container(&self, database: &str, spec: ContainerSpec) -> Result<ContainerInfo>;

    /// Deletes a container with all its items. Handles to it answer `ContainerNotFound` from then on, also when a
    /// new container gets the same name.
    async fn delete_container(&self, database: &str, name: &str) -> Result<()>;

    /// Opens a handle to an existing container.
    async fn container(&self, database: &str, name: &str) -> Result<Container>;

    /// Splits a physical range in two, at `at` or in the middle, without stopping readers and writers. Refused with
    /// `Unsupported` by stores without the capability `split_on_demand`.
    async fn split(
        &self,
        database: &str,
        container: &str,
        range: &RangeId,
        at: Option<Epk>,
    ) -> Result<Vec<PhysicalRange>>;

    /// Merges two neighbouring ranges into one, without stopping readers and writers.
    async fn merge(&self, database: &str, container: &str, ranges: [&RangeId; 2]) -> Result<PhysicalRange>;
}

/// A database.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseInfo {
    /// Its name.
    pub name: String,
    /// Its resource id.
    pub rid: ResourceId,
    /// When it was created.
    pub timestamp: Timestamp,
    /// Members that this library does not interpret, kept unchanged.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// The settings of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseSpec {
    /// Its name.
    pub name: String,
    /// Members that this library does not interpret, kept unchanged. Default: none.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl DatabaseSpec {
    /// Creates the settings of a database without further settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), extra: serde_json::Map::new() }
    }
}

/// A container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerInfo {
    /// Its resource id.
    pub rid: ResourceId,
    /// When it was created or last changed.
    pub timestamp: Timestamp,
    /// Its settings.
    pub spec: ContainerSpec,
}

/// How long items live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeToLive {
    /// Without limit; a `ttl` in an item is ignored.
    #[default]
    Off,
    /// Without limit, unless the item has a `ttl` of its own.
    ItemsOnly,
    /// This many seconds after their last write, unless the item has a `ttl` of its own (`-1`: without limit).
    Seconds(u32),
}

impl TimeToLive {
    /// Refuses a container that deletes items which are not written for a while: leases must stay however long they are
    /// idle. A `ttl` in an item harms none that has no such member.
    ///
    /// # Errors
    /// `InvalidArgument` with the setting to change.
    pub fn check_for_leases(self, container: &ContainerIdentity) -> Result<()> {
        let Self::Seconds(seconds) = self else { return Ok(()) };
        let ContainerIdentity { database_name, container_name, .. } = container;
        let message = format!(
            "container {database_name}/{container_name} deletes items after {seconds} s (defaultTtl), leases among them: \
             set its defaultTtl to -1 or turn it off, or use another container for leases"
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

impl fmt::Display for TimeToLive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::ItemsOnly => f.write_str("of items only"),
            Self::Seconds(seconds) => write!(f, "{seconds} s"),
        }
    }
}

/// The settings of a container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerSpec {
    /// Its name.
    pub name: String,
    /// How items are spread over the key space.
    pub partition_key: PartitionKeyDefinition,
    /// How many physical ranges it begins with. Used at creation only. Default: 1.
    pub ranges: usize,
    /// How long items live. Default: without limit.
    pub time_to_live: TimeToLive,
    /// How long all-versions mode can look back; none: that mode is off. Default: none.
    pub all_versions_retention: Option<Duration>,
    /// Members of the container's JSON that this library does not interpret, kept unchanged.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl ContainerSpec {
    /// Creates the settings of a container with one range, without time to live, latest versions only.
    pub fn new(name: impl Into<String>, partition_key: PartitionKeyDefinition) -> Self {
        Self {
            name: name.into(),
            partition_key,
            ranges: 1,
            time_to_live: TimeToLive::Off,
            all_versions_retention: None,
            extra: serde_json::Map::new(),
        }
    }
}

/// A database of a store, to open and create containers in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Database {
    catalog: Arc<dyn Catalog>,
    name: Arc<str>,
}

impl Database {
    /// Returns the database `name` of `catalog`. It need not exist yet.
    pub fn new(catalog: Arc<dyn Catalog>, name: impl Into<Arc<str>>) -> Self {
        Self { catalog, name: name.into() }
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names a container, to open or create.
    pub fn container(&self, name: impl Into<String>) -> ContainerBuilder {
        ContainerBuilder {
            database: self.clone(),
            spec: ContainerSpec::new(name, PartitionKeyDefinition::id()),
            given: Given::default(),
            paths: Ok(()),
        }
    }
}

/// A container about to be opened or created.
#[derive(Debug)]
#[must_use = "nothing happens before `open`, `create` or `open_or_create`"]
pub struct ContainerBuilder {
    database: Database,
    spec: ContainerSpec,
    given: Given,
    paths: Result<()>,
}

/// Which settings the caller has named.
#[derive(Debug, Default)]
struct Given {
    ranges: bool,
    time_to_live: bool,
    all_versions: bool,
}

impl ContainerBuilder {
    /// Sets the path of the partition key, such as `/customer`. Default: `/id`.
    pub fn partition_key(self, path: &str) -> Self {
        self.definition(PartitionKeyDefinition::hash(path))
    }

    /// Sets the paths of a hierarchical partition key, from the widest to the narrowest. Default: `/id` alone.
    pub fn hierarchical_partition_key<const N: usize>(self, paths: [&str; N]) -> Self {
        self.definition(PartitionKeyDefinition::hierarchical(paths))
    }

    /// Sets the number of physical ranges that a new container begins with. Default: 1.
    pub fn ranges(mut self, ranges: usize) -> Self {
        (self.spec.ranges, self.given.ranges) = (ranges, true);
        self
    }

    /// Sets how long items live. Default: without limit.
    pub fn time_to_live(mut self, time_to_live: TimeToLive) -> Self {
        (self.spec.time_to_live, self.given.time_to_live) = (time_to_live, true);
        self
    }

    /// Keeps every version and delete for this long, for all-versions mode. Default: newest versions only.
    pub fn all_versions(mut self, retention: Duration) -> Self {
        (self.spec.all_versions_retention, self.given.all_versions) = (Some(retention), true);
        self
    }

    /// Opens the container.
    ///
    /// # Errors
    /// `ContainerNotFound` or `DatabaseNotFound` if there is none, and those of the store.
    pub async fn open(self) -> Result<Container> {
        self.database.catalog.container(&self.database.name, &self.spec.name).await
    }

    /// Creates the container, and the database if it does not exist.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a container of this name, `InvalidArgument` for contradicting settings, and those of
    /// the store.
    pub async fn create(self) -> Result<Container> {
        self.paths?;
        let catalog = &self.database.catalog;
        let name = self.spec.name.clone();
        match catalog.create_container(&self.database.name, self.spec.clone()).await {
            Err(error) if error.kind() == ErrorKind::DatabaseNotFound => {
                let created = catalog.create_database(DatabaseSpec::new(&*self.database.name)).await.map(drop);
                // One whose outcome is unknown shows with the container.
                let unknown = match exists_is_fine(created) {
                    Err(error) if error.effect() == Effect::Unknown => Some(error),
                    created => created.map(|()| None)?,
                };
                match (catalog.create_container(&self.database.name, self.spec).await, unknown) {
                    (Err(error), Some(unknown)) if error.kind() == ErrorKind::DatabaseNotFound => return Err(unknown),
                    (created, _) => drop(created?),
                }
            }
            other => drop(other?),
        }
        catalog.container(&self.database.name, &name).await
    }

    /// Opens the container, or creates it if there is none. One that exists must have the same partition key and the
    /// settings that were named here. The number of ranges is compared only while none was split or merged, as far as the
    /// store can tell. If the outcome of creating it is unknown, what exists then is opened.
    ///
    /// # Errors
    /// `InvalidArgument` if it exists with other settings; the message names the differences. Those of the store.
    pub async fn open_or_create(self) -> Result<Container> {
        let Self { database, spec, given, paths } = self;
        paths?;
        let mut tries = 0;
        let container = loop {
            let (database, spec) = (database.clone(), spec.clone());
            let open = || database.catalog.container(&database.name, &spec.name);
            let builder =
                Self { database: database.clone(), spec: spec.clone(), given: Given::default(), paths: Ok(()) };
            match builder.create().await {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => break open().await?,
                // The answer was lost: what counts is what exists now.
                Err(error) if error.effect() == Effect::Unknown => match open().await {
                    Err(missing) if is_missing(&missing) => {
                        tries += 1;
                        if tries == CREATE_TRIES {
                            return Err(error);
                        }
                    }
                    opened => break opened?,
                },
                other => return other,
            }
        };
        let mut differences = Vec::new();
        let mut compare = |what: &str, found: String, wanted: String| {
            if found != wanted {
                differences.push(format!("{what} {found}, not {wanted}"));
            }
        };
        let shown = |key: &PartitionKeyDefinition| match key.kind() {
            PartitionKeyKind::Hash => key.to_string(),
            PartitionKeyKind::MultiHash => format!("{key} (hierarchical)"),
        };
        compare("partition key", shown(&container.identity().partition_key), shown(&spec.partition_key));
        if given.time_to_live || given.all_versions {
            let containers = database.catalog.list_containers(&database.name).await?;
            if let Some(ContainerInfo { spec: found, .. }) = containers.iter().find(|info| info.spec.name == spec.name)
            {
                if given.time_to_live {
                    compare("time to live", found.time_to_live.to_string(), spec.time_to_live.to_string());
                }
                if given.all_versions {
                    let shown = |retention: Option<Duration>| {
                        retention.map_or_else(|| "off".to_owned(), |retention| format!("kept for {retention:?}"))
                    };
                    let (found, wanted) = (found.all_versions_retention, spec.all_versions_retention);
                    compare("all versions", shown(found), shown(wanted));
                }
            }
        }
        if given.ranges && container.capabilities().range_parents {
            let ranges = container.feed_ranges().await?;
            if ranges.iter().all(|range| range.parents.is_empty()) {
                compare("ranges", ranges.len().to_string(), spec.ranges.to_string());
            }
        }
        if differences.is_empty() {
            return Ok(container);
        }
        let (path, differences) = (format!("{}/{}", database.name, spec.name), differences.join("; "));
        let message = format!(
            "container {path} exists with other settings ({differences}): ask for the settings that it has, or use \
             another name"
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }

    fn definition(mut self, definition: Result<PartitionKeyDefinition>) -> Self {
        match definition {
            Ok(definition) => self.spec.partition_key = definition,
            Err(error) => self.paths = self.paths.and(Err(error)),
        }
        self
    }
}

/// Whether there was nothing to open.
fn is_missing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ContainerNotFound | ErrorKind::DatabaseNotFound)
}

fn exists_is_fine(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}
