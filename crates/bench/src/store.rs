//! The store under test.

use std::path::Path;

use bytes::Bytes;
use changefeed_core::{Batch, Container, Write};
use changefeed_embedded::{Durability, Engine};

use crate::{
    Result,
    documents::Documents,
    load::{self, Sink},
};

/// A store on disk with one container.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) engine: Engine,
    pub(crate) container: Container,
}

impl Store {
    /// Opens or creates the store in `folder`, with a container of `ranges` physical ranges.
    pub(crate) async fn open(folder: &Path, durability: Durability, ranges: usize) -> Result<Self> {
        let engine = Engine::builder().durability(durability).open(folder)?;
        let container =
            engine.database("bench").container("items").partition_key("/pk").ranges(ranges).open_or_create().await?;
        Ok(Self { engine, container })
    }

    /// A store at rest in which each of `items` was written and half as many writes replaced some of them.
    pub(crate) async fn filled(folder: &Path, items: u64, ranges: usize) -> Result<Self> {
        Self::written(folder, items, items * 3 / 2, ranges).await
    }

    /// A store at rest in which each of `items` was written, and some of them again, `writes` times in all.
    pub(crate) async fn written(folder: &Path, items: u64, writes: u64, ranges: usize) -> Result<Self> {
        let store = Self::open(folder, Durability::Relaxed, ranges).await?;
        load::fill(store.writer(), &Documents::new(items), load::FILL_WRITERS, writes).await?;
        store.engine.settle().await?;
        Ok(store)
    }

    /// A container for leases in the same engine.
    pub(crate) async fn leases(&self) -> Result<Container> {
        Ok(self.engine.database("bench").container("leases").open_or_create().await?)
    }

    /// A handle for writers.
    pub(crate) fn writer(&self) -> StoreWriter {
        StoreWriter(self.container.clone())
    }
}

/// A writer of a [`Store`]. Bodies are handed over as bytes, so that nothing but the store is measured.
#[derive(Clone, Debug)]
pub(crate) struct StoreWriter(Container);

impl StoreWriter {
    /// A writer of this container.
    pub(crate) fn new(container: Container) -> Self {
        Self(container)
    }
}

impl Sink for StoreWriter {
    async fn write(&self, body: Bytes) -> Result<()> {
        self.0.backend().write(Batch::single(None, Write::Upsert { body, if_match: None })).await?;
        Ok(())
    }
}
