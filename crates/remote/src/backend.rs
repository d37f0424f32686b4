//! [`Backend`] over the server: one container.

use std::{fmt, sync::Arc};

use changefeed_core::{
    Backend, Batch, Capabilities, ChangePage, Container, ContainerIdentity, ContainerInfo, Continuation, Effect, Error,
    ErrorKind, FeedRange, Item, ItemKey, ItemPage, ListItems, MAX_ITEM_BYTES, PhysicalRange, ReadChanges, Response,
    Result, TimeToLive, Write, WriteResult, async_trait,
};
use changefeed_protocol::{Address, CatalogCall, ContainerCall, Opened, Target, Wait, Wire};

use crate::{
    backoff::pause_after,
    page_size::PageSize,
    server::Client,
    timer::{instant, pause},
};

/// How often a write of one version is sent again whose outcome is unknown. More would delay the caller, who can read.
const RESENT: u32 = 2;

/// From how many bytes on the bodies of a batch are refused here: the server takes requests of 4 MiB. The store counts them
/// without system members, and judges smaller ones itself.
const MAX_SENT_BYTES: usize = 2 * MAX_ITEM_BYTES - (256 << 10);

/// One container of a server.
pub(crate) struct RemoteContainer {
    client: Arc<Client>,
    identity: ContainerIdentity,
    capabilities: Capabilities,
    address: Address,
    page_size: PageSize,
}

impl RemoteContainer {
    pub(crate) fn new(client: Arc<Client>, Opened { identity, capabilities }: Opened) -> Self {
        let address = Address { store: identity.store.clone(), container: identity.container };
        Self { client, identity, capabilities: capabilities.in_process(false), address, page_size: PageSize::default() }
    }

    /// Opens the container of this name.
    pub(crate) async fn open(client: &Arc<Client>, database: &str, name: &str) -> Result<Container> {
        let target = Target::Catalog(CatalogCall::OpenContainer);
        let opened = client.transport.call(&target, &(database.to_owned(), name.to_owned())).await?;
        Ok(Container::new(Arc::new(Self::new(Arc::clone(client), opened))))
    }

    async fn call<T: Wire>(&self, call: ContainerCall, message: &(impl Wire + Sync)) -> Result<T> {
        let ContainerIdentity { database_name, container_name, .. } = &self.identity;
        let target = Target::Container(database_name.clone(), container_name.clone(), call);
        self.client.transport.call(&target, message).await
    }
}

impl fmt::Debug for RemoteContainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ContainerIdentity { database_name, container_name, .. } = &self.identity;
        write!(f, "RemoteContainer({database_name}/{container_name} at {})", self.client.transport.endpoint)
    }
}

#[async_trait]
impl Backend for RemoteContainer {
    fn identity(&self) -> &ContainerIdentity {
        &self.identity
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn feed_ranges(&self) -> Result<Response<Vec<PhysicalRange>>> {
        self.call(ContainerCall::FeedRanges, &self.address).await
    }

    async fn read_changes(&self, mut request: ReadChanges) -> Result<Response<ChangePage>> {
        request.max_items = self.page_size.limit(request.max_items);
        let (asked, began) = (request.max_items, instant());
        let page: Result<Response<ChangePage>> =
            self.call(ContainerCall::ReadChanges, &(self.address.clone(), request)).await;
        match &page {
            Ok(page) => {
                let count = page.changes.len();
                self.page_size.received(asked, count, began.elapsed(), self.client.transport.timeout);
            }
            Err(error) if error.kind() == ErrorKind::Timeout => self.page_size.timed_out(asked),
            Err(_) => {}
        }
        page
    }

    async fn changed(&self, range: &FeedRange, continuation: &Continuation) {
        let wait = Wait {
            id: 0,
            database: self.identity.database_name.clone(),
            container: self.identity.container_name.clone(),
            address: self.address.clone(),
            range: range.clone(),
            continuation: continuation.clone(),
        };
        self.client.watcher.wait(wait).await;
    }

    async fn read_item(&self, key: &ItemKey) -> Result<Response<Item>> {
        self.call(ContainerCall::ReadItem, &(self.address.clone(), key.clone())).await
    }

    /// A write of one version of an item whose outcome is unknown is sent again: a version never comes back, so that it is
    /// performed at most once. If it is refused then, either the first one landed or another writer was faster, and the
    /// outcome stays unknown.
    async fn write(&self, batch: Batch) -> Result<Response<Vec<WriteResult>>> {
        check_sizes(&batch)?;
        let happens_once = happens_once(&batch);
        let message = (self.address.clone(), batch);
        let mut first = match self.call(ContainerCall::Write, &message).await {
            Err(error) if happens_once && may_have_landed(&error) => error,
            answer => return answer,
        };
        for failures in 1..=RESENT {
            pause(pause_after(failures, first.retry_after(), fastrand::f64())).await;
            match self.call(ContainerCall::Write, &message).await {
                Ok(written) => return Ok(written),
                Err(error) if may_have_landed(&error) => first = error,
                Err(_) => break,
            }
        }
        Err(first)
    }

    async fn list_items(&self, request: ListItems) -> Result<Response<ItemPage>> {
        self.call(ContainerCall::ListItems, &(self.address.clone(), request)).await
    }

    /// Taken from the list of all containers: an earlier server has no call for one.
    async fn time_to_live(&self) -> Result<Response<TimeToLive>> {
        let ContainerIdentity { database_name, container_name, container, .. } = &self.identity;
        let target = Target::Catalog(CatalogCall::ListContainers);
        let listed: Result<Vec<ContainerInfo>> = self.client.transport.call(&target, database_name).await;
        let listed = match listed {
            Err(error) if error.kind() == ErrorKind::DatabaseNotFound => Vec::new(),
            listed => listed?,
        };
        match listed.iter().find(|info| info.rid == *container) {
            Some(found) => Ok(Response::free(found.spec.time_to_live)),
            None => {
                let message = format!(
                    "container {container_name} was deleted: open the one that has its name now, if there is one"
                );
                Err(Error::new(ErrorKind::ContainerNotFound, message))
            }
        }
    }

    async fn reopen(&self) -> Result<Container> {
        let ContainerIdentity { database_name, container_name, .. } = &self.identity;
        Self::open(&self.client, database_name, container_name).await
    }
}

fn may_have_landed(error: &Error) -> bool {
    // A timeout has taken long enough already.
    error.effect() == Effect::Unknown && error.kind() == ErrorKind::Unavailable
}

/// Refuses batches that are too large before they are sent, as the store does: a server hangs up on a body that is.
fn check_sizes(batch: &Batch) -> Result<()> {
    let count = batch.writes.len();
    if count > Batch::MAX_WRITES {
        let most = Batch::MAX_WRITES;
        return Err(Error::new(ErrorKind::BadBatch, format!("a batch has 1 to {most} writes, not {count}")));
    }
    let mut bytes = 0;
    for (index, write) in batch.writes.iter().enumerate() {
        let (Write::Create { body } | Write::Upsert { body, .. } | Write::Replace { body, .. }) = write else {
            continue;
        };
        if body.len() > MAX_ITEM_BYTES {
            let message = format!("the item has {} bytes, but {MAX_ITEM_BYTES} is the most", body.len());
            let error = Error::new(ErrorKind::TooLarge, message);
            return Err(if count > 1 { error.with_operation(index) } else { error });
        }
        bytes += body.len();
    }
    if bytes > MAX_SENT_BYTES {
        let message = format!("the batch has {bytes} bytes, but {MAX_ITEM_BYTES} is the most: cut it in two");
        return Err(Error::new(ErrorKind::TooLarge, message));
    }
    Ok(())
}

/// Whether a batch is refused if it has been performed before, whatever happened since. A new item can have been deleted
/// meanwhile, and would be created twice. Batches of several writes may undo their own conditions.
fn happens_once(batch: &Batch) -> bool {
    match batch.writes.as_slice() {
        [Write::Replace { if_match, .. } | Write::Delete { if_match, .. }] => if_match.is_some(),
        _ => false,
    }
}
