//! The store that a sub-command works on: a folder, a server, or memory.

use std::{path::Path, sync::Arc};

use changefeed::remote;
use changefeed_core::{Catalog, Container, Database, Error, ErrorKind};
use changefeed_embedded::Engine;
use hyper::Uri;

use crate::{
    args::{ContainerName, ProcessorArgs, StoreArgs},
    exit::Result,
    keys,
};

/// What `--store` says for a store that is gone with its process.
pub(crate) const MEMORY: &str = "memory";

/// A store that is open.
#[derive(Clone)]
pub(crate) struct Store {
    catalog: Arc<dyn Catalog>,
    /// Set if the store is in this process.
    engine: Option<Engine>,
}

/// What happens to a store folder that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Refused,
    Created,
}

impl Store {
    /// Opens what the arguments name.
    pub(crate) fn open(args: &StoreArgs, missing: Missing) -> Result<Self> {
        if is_url(&args.store) {
            return Self::connect(args);
        }
        if args.store == MEMORY {
            return Ok(Self::embedded(Engine::in_memory()?));
        }
        let folder = Path::new(&args.store);
        if missing == Missing::Refused && !folder.is_dir() {
            let folder = folder.display();
            return Err(format!(
                "there is no folder {folder}: pass that of a store, or a URL such as http://127.0.0.1:8081; \
                 `serve` and `load --create` make a new store"
            )
            .into());
        }
        Ok(Self::embedded(Engine::open(folder)?))
    }

    fn embedded(engine: Engine) -> Self {
        Self { catalog: engine.catalog(), engine: Some(engine) }
    }

    fn connect(args: &StoreArgs) -> Result<Self> {
        let uri: Uri = args.store.parse().map_err(|error| format!("--store {}: {error}", args.store))?;
        let host = uri.host().ok_or_else(|| format!("--store {}: a URL needs a host", args.store))?;
        let mut server = remote::Server::builder(&args.store, &keys::of_client(args, host)?);
        server = server.trust_loopback();
        if let Some(file) = &args.ca_file {
            let pem = std::fs::read_to_string(file)
                .map_err(|error| format!("read the certificate {}: {error}", file.display()))?;
            server = server.certificate(pem);
        }
        Ok(Self { catalog: server.connect()?.catalog(), engine: None })
    }

    pub(crate) fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.catalog
    }

    pub(crate) fn database(&self, name: &str) -> Database {
        Database::new(Arc::clone(&self.catalog), name)
    }

    /// A container that must be there; if it is not, the error names those that are.
    pub(crate) async fn container(&self, name: &ContainerName) -> Result<Container> {
        match self.container_if_any(name).await? {
            Some(container) => Ok(container),
            None => Err(self.unknown(name).await?.into()),
        }
    }

    /// A container, if it is there.
    pub(crate) async fn container_if_any(&self, name: &ContainerName) -> Result<Option<Container>> {
        match self.catalog.container(&name.database, &name.container).await {
            Err(error) if is_not_found(&error) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    /// A container, made with `partition_key` and `ranges` if it is not there.
    pub(crate) async fn container_or_new(
        &self,
        name: &ContainerName,
        partition_key: Option<&str>,
        ranges: usize,
    ) -> Result<Container> {
        if let Some(container) = self.container_if_any(name).await? {
            return Ok(container);
        }
        let mut new = self.database(&name.database).container(name.container.as_str()).ranges(ranges);
        if let Some(path) = partition_key {
            new = new.partition_key(path);
        }
        Ok(new.open_or_create().await?)
    }

    async fn unknown(&self, name: &ContainerName) -> Result<String> {
        let mut names = Vec::new();
        for database in self.catalog.list_databases().await? {
            for container in self.catalog.list_containers(&database.name).await? {
                names.push(format!("{}/{}", database.name, container.spec.name));
            }
        }
        Ok(match names.as_slice() {
            [] => format!("there is no container {name}, and no other: is this the right store?"),
            names => format!("there is no container {name}; there are: {}", names.join(", ")),
        })
    }

    /// Ends the use of the store; everything that was acknowledged is on disk already.
    pub(crate) async fn close(self) -> Result<()> {
        drop(self.catalog);
        match self.engine {
            Some(engine) => Ok(engine.close().await?),
            None => Ok(()),
        }
    }
}

/// A processor's containers, open.
pub(crate) struct ProcessorStores {
    pub(crate) name: String,
    pub(crate) monitored: Container,
    pub(crate) leases: Container,
    pub(crate) store: Store,
    lease_store: Option<Store>,
}

impl ProcessorStores {
    /// Opens both containers, which must be there.
    pub(crate) async fn open(args: &ProcessorArgs) -> Result<Self> {
        let (store, lease_store) = Self::open_stores(args, Missing::Refused)?;
        let monitored = store.container(&args.container).await?;
        let leases = lease_store.as_ref().unwrap_or(&store).container(&args.leases).await?;
        Ok(Self { name: args.name.clone(), monitored, leases, store, lease_store })
    }

    /// Opens the monitored container, which must be there, and makes the lease container if it is not.
    pub(crate) async fn open_or_create_leases(args: &ProcessorArgs, missing: Missing) -> Result<Self> {
        let (store, lease_store) = Self::open_stores(args, missing)?;
        let monitored = store.container(&args.container).await?;
        let leases = lease_store.as_ref().unwrap_or(&store).container_or_new(&args.leases, None, 1).await?;
        Ok(Self { name: args.name.clone(), monitored, leases, store, lease_store })
    }

    /// Opens both stores and changes nothing: the monitored container, which must be there, and the lease container if
    /// it is there.
    pub(crate) async fn look(args: &ProcessorArgs) -> Result<(Store, Container, Option<Container>)> {
        let (store, lease_store) = Self::open_stores(args, Missing::Refused)?;
        let monitored = store.container(&args.container).await?;
        let leases = lease_store.as_ref().unwrap_or(&store).container_if_any(&args.leases).await?;
        if let Some(other) = lease_store {
            other.close().await?;
        }
        Ok((store, monitored, leases))
    }

    fn open_stores(args: &ProcessorArgs, missing: Missing) -> Result<(Store, Option<Store>)> {
        let store = Store::open(&args.store, missing)?;
        let other = args.lease_store.as_ref().filter(|other| **other != args.store.store);
        let lease_store = other
            .map(|other| Store::open(&StoreArgs { store: other.clone(), ..args.store.clone() }, missing))
            .transpose()?;
        Ok((store, lease_store))
    }

    pub(crate) async fn close(self) -> Result<()> {
        drop((self.monitored, self.leases));
        self.store.close().await?;
        match self.lease_store {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }
}

pub(crate) fn is_url(store: &str) -> bool {
    store.starts_with("http://") || store.starts_with("https://")
}

fn is_not_found(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::ContainerNotFound | ErrorKind::DatabaseNotFound)
}
