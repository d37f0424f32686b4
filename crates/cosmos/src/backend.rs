//! [`Backend`] over the SDK: one container.

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, Continuation, FeedRange, Item, ItemKey,
    ItemPage, ListItems, PhysicalRange, ReadChanges, Response, Result, TimeToLive, WriteResult, async_trait,
};

use crate::container::CosmosContainer;

/// What Azure Cosmos DB can do, as seen through the SDK: it splits ranges by its own decision, tells no wake-ups, and the
/// SDK does not show the parents of a range.
pub(crate) const CAPABILITIES: Capabilities = Capabilities::new().all_versions(true);

#[async_trait]
impl Backend for CosmosContainer {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.live_ranges().await
    }

    async fn read_changes(&self, request: ReadChanges) -> Result<Response<ChangePage>> {
        self.read_page(request).await
    }

    /// Never returns: the service has no wake-ups, so readers poll.
    async fn changed(&self, _: &FeedRange, _: &Continuation) {
        std::future::pending().await
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.read_one(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        self.write_batch(batch).await
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.list_page(request).await
    }

    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        let settings = self.settings("read the time to live of").await?;
        Ok(settings.map(|settings| settings.time_to_live()))
    }

    async fn reopen(&self) -> Result<Container> {
        self.open_again().await
    }
}
