//! One name for one account: leases of the same container under another account host are refused.
//!
//! The account host is part of every lease id. Hosts that knew one account by two names would not see each other's
//! leases, and each group would process everything.

use changefeed_core::{ContainerIdentity, Error, ErrorKind, Item, ListItems, Result};

use super::{document::InfoDocument, store::LeaseStore};

/// Refuses to start the processor `name` if it has leases of the same container of the same store under another account
/// host.
///
/// # Errors
/// `InvalidArgument` if there are such leases, and those of the store.
pub(crate) async fn check(name: &str, monitored: &ContainerIdentity, leases: &LeaseStore) -> Result<()> {
    let mut request = ListItems { id_prefix: name.to_owned(), ..ListItems::default() };
    loop {
        let page = leases.container().backend().list_items(request.clone()).await?.into_value();
        if let Some(other) = page.items.iter().find_map(|item| other_host(name, monitored, item)) {
            let ContainerIdentity { account_host, database_name, container_name, .. } = monitored;
            let message = format!(
                "processor {name:?} has leases for {database_name}/{container_name} under the account host {other}, but \
                 the store is called {account_host} here: hosts of both names would each process everything; start the \
                 server with --account-host {other}, or delete the leases whose ids begin with {name}{other}_"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The account host of an item that says that leases of the same processor were created under another one.
fn other_host(name: &str, monitored: &ContainerIdentity, item: &Item) -> Option<String> {
    let ContainerIdentity { store, account_host, database, container, .. } = monitored;
    let suffix = format!("_{database}_{container}.info");
    if !item.id.ends_with(&suffix) {
        return None;
    }
    let info = InfoDocument::parse(&item.body).ok()?;
    let other = info.account_host()?;
    let is_ours = item.id.as_str() == format!("{name}{other}{suffix}") && info.store() == Some(store.as_str());
    (is_ours && other != account_host).then(|| other.to_owned())
}
