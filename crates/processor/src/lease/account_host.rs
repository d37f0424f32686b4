//! One name for one account: leases of the same container under another account host are refused.
//!
//! The account host is part of every lease id. Hosts that knew one account by two names would not see each other's
//! leases, and each group would process everything. Two first starts at the same time are distinguished by their locks:
//! each creates its own before it looks for those of others, so that at least one of them sees the other.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use changefeed_core::{ContainerIdentity, ETag, Error, ErrorKind, Item, ListItems, Result, StoreId};

use super::{
    document::{InfoDocument, LockDocument},
    store::LeaseStore,
};

/// Hosts that use the same processor under other account hosts.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// The account host of leases that exist.
    started: Option<String>,
    /// Locks of hosts that create leases.
    starting: BTreeMap<String, ETag>,
}

/// Locks of other account hosts, as they were first seen.
#[derive(Debug, Default)]
pub(crate) struct ForeignLocks(BTreeMap<String, (ETag, Duration)>);

impl ForeignLocks {
    /// Whether none of these locks has changed for `life` as far as we saw, so that their holders died.
    pub(crate) fn are_stale(&mut self, others: &Others, now: Duration, life: Duration) -> bool {
        self.0.retain(|id, (etag, _)| others.starting.get(id) == Some(etag));
        for (id, etag) in &others.starting {
            self.0.entry(id.clone()).or_insert_with(|| (etag.clone(), now));
        }
        self.0.values().all(|(_, since)| now.saturating_sub(*since) >= life)
    }
}

/// Refuses to start the processor `name` if it has leases of the same container of the same store under another account
/// host. Returns the locks of hosts that are about to create such leases.
///
/// Hosts of .NET do not write which store they use. Their leases count by the resource ids in them alone, although those
/// of two new stores can be the same: a refusal is better than processing everything twice.
///
/// # Errors
/// `InvalidArgument` if there are such leases, and those of the store.
pub(crate) async fn check(name: &str, monitored: &ContainerIdentity, leases: &LeaseStore) -> Result<Others> {
    let mut request = ListItems { id_prefix: name.to_owned(), ..ListItems::default() };
    let mut others = Others::default();
    loop {
        let page = leases.container().backend().list_items(request.clone()).await?.into_value();
        for item in &page.items {
            others.note(name, monitored, item);
        }
        if let Some(other) = &others.started {
            let ContainerIdentity { account_host, database_name, container_name, .. } = monitored;
            let message = format!(
                "processor {name:?} has leases for {database_name}/{container_name} under the account host {other}, but \
                 the store is called {account_host} here: hosts of both names would each process everything; start the \
                 server with --account-host {other}, or use the endpoint {other} of the account, or delete the leases whose \
                 ids begin with {name}{other}_"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(others),
        }
    }
}

impl Others {
    /// Notes an item that says that leases of the same processor were or are being created under another account host.
    fn note(&mut self, name: &str, monitored: &ContainerIdentity, item: &Item) {
        let ContainerIdentity { store, account_host, database, container, .. } = monitored;
        // The account host in the id of a document, if the rest of the id is that of our own document of this kind.
        let host_in_id = |kind: &str| {
            let rest = item.id.as_str().strip_prefix(name)?;
            rest.strip_suffix(&format!("_{database}_{container}.{kind}")).filter(|other| other != account_host)
        };
        let is_other = |kind: &str, written: Option<&str>, of: Option<&str>| {
            let other = host_in_id(kind)?;
            let is_same = match (written, of) {
                (Some(written), Some(of)) => written == other && may_be_same(of, store),
                _ => is_certain(other, &item.id),
            };
            is_same.then(|| other.to_owned())
        };
        if item.id.ends_with(".info") {
            let Ok(info) = InfoDocument::parse(&item.body) else { return };
            self.started = is_other("info", info.account_host(), info.store()).or_else(|| self.started.take());
        } else if item.id.ends_with(".lock") {
            let Ok(lock) = LockDocument::parse(&item.body) else { return };
            if is_other("lock", lock.account_host(), lock.store()).is_some() {
                self.starting.insert(item.id.as_str().to_owned(), item.etag.clone());
            }
        }
    }
}

/// Whether leases of the store `written` may be of `store`, given that the resource ids are equal. Only random ids tell stores
/// apart: an account of Azure Cosmos DB has a name for each of its regions, and the SDK knows a server without an id by the
/// name in the endpoint.
fn may_be_same(written: &str, store: &StoreId) -> bool {
    written == store.as_str() || !store.is_random() || !StoreId::new(written).is_ok_and(|written| written.is_random())
}

/// Whether the text between a processor name and resource ids is an account host beyond doubt. An id has no separator
/// after the processor name, so any other text may be the rest of a longer name and its host: that is only logged.
fn is_certain(host: &str, id: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let certain = host == "localhost" || address.parse::<IpAddr>().is_ok();
    if !certain {
        tracing::warn!(
            id,
            "leases of the same container under another account host, or of a processor with a longer name: if they are of \
             this processor, all changes are processed twice"
        );
    }
    certain
}
