//! The containers of a processor, which may be in two stores.

use std::path::Path;

use changefeed::LeaseTiming;
use changefeed_core::Container;

use crate::{
    args::ProcessorArgs,
    exit::Result,
    store::{Missing, NewContainer, Store},
};

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
        let found = FoundStores::open(args).await?;
        if found.leases.is_none() {
            let (problem, name) = (found.of_leases().unknown(&args.leases).await?, &args.name);
            return Err(format!("{problem}; the first `changefeed run {name}` makes it").into());
        }
        found.or_create_leases(args).await
    }

    /// The store of the monitored container, and that of the leases if it is another one.
    pub(crate) fn stores(&self) -> impl Iterator<Item = &Store> {
        [Some(&self.store), self.lease_store.as_ref()].into_iter().flatten()
    }

    /// The folders that another process has open and through which these stores are reached.
    pub(crate) fn joined(&self) -> Vec<&Path> {
        self.stores().filter_map(|store| store.joined.as_deref()).collect()
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

/// A processor's containers as they are found: nothing is created.
pub(crate) struct FoundStores {
    pub(crate) monitored: Container,
    /// None if it is missing.
    pub(crate) leases: Option<Container>,
    pub(crate) store: Store,
    pub(crate) lease_store: Option<Store>,
}

impl FoundStores {
    /// Opens the monitored container, which must be there, and the lease container if it is there.
    pub(crate) async fn open(args: &ProcessorArgs) -> Result<Self> {
        let store = Store::open(&args.store, Missing::Refused)?;
        let other = args.lease_store.as_ref().filter(|other| **other != args.store.store);
        let lease_store = other
            .map(|other| Store::open(&args.store.other(other, args.lease_key_file.as_ref()), Missing::Refused))
            .transpose()?;
        let monitored = store.container(&args.container).await?;
        let of_leases = lease_store.as_ref().unwrap_or(&store);
        let leases = of_leases.leases_if_any(&args.leases, args.write_region.as_deref()).await?;
        Ok(Self { monitored, leases, store, lease_store })
    }

    /// Creates the lease container if it is missing.
    pub(crate) async fn or_create_leases(self, args: &ProcessorArgs) -> Result<ProcessorStores> {
        let leases = match &self.leases {
            Some(found) => found.clone(),
            None => {
                let new = NewContainer { partition_key: None, ranges: 1, retention: None };
                self.of_leases().container_or_new(&args.leases, new).await?;
                let opened = self.of_leases().leases_if_any(&args.leases, args.write_region.as_deref()).await?;
                opened.ok_or_else(|| format!("{} was deleted as soon as it was made", args.leases))?
            }
        };
        let Self { monitored, store, lease_store, .. } = self;
        Ok(ProcessorStores { name: args.name.clone(), monitored, leases, store, lease_store })
    }

    /// The default timing of the leases, also of those that are not there yet.
    pub(crate) fn lease_timing(&self) -> LeaseTiming {
        self.leases.as_ref().map_or_else(|| self.of_leases().lease_timing(), LeaseTiming::for_container)
    }

    pub(crate) async fn close(self) -> Result<()> {
        drop((self.monitored, self.leases));
        self.store.close().await?;
        match self.lease_store {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }

    fn of_leases(&self) -> &Store {
        self.lease_store.as_ref().unwrap_or(&self.store)
    }
}
