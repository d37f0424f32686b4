//! Deletes all items of a partition key. Cosmos DB does it in the background; here the response follows the last delete.

use changefeed_core::{Batch, ErrorKind, Item, ListItems, Write};
use hyper::StatusCode;

use super::{scope, session_headers};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
    wire::http::{Reply, Request},
};

/// Deletes the items under the partition key of the request, in transactions of up to a hundred. Items that are written
/// meanwhile may remain.
pub(crate) async fn run(request: &Request<'_>, handle: &ContainerHandle) -> ApiResult<Reply> {
    let key = scope::partition_key(request)?.ok_or_else(|| {
        ApiError::bad_request("the deletion of a partition key needs the key: send x-ms-documentdb-partitionkey")
    })?;
    let definition = &handle.identity().partition_key;
    let epk = definition.epk(&key)?;
    let mut list =
        ListItems { range: definition.key_range(&key)?, max_items: Batch::MAX_WRITES, ..ListItems::default() };
    let mut charge = 0.0;
    loop {
        let page = handle.list_items(list.clone()).await?;
        charge += page.request_charge;
        let page = page.into_value();
        // Keys of version 1 may share a hash with others.
        let is_of_key =
            |item: &Item| definition.extract(&item.body).is_ok_and(|own| own == key || key.values().is_empty());
        let writes: Vec<Write> = page
            .items
            .into_iter()
            .filter(is_of_key)
            .map(|item| Write::Delete { id: item.id, if_match: None })
            .collect();
        if !writes.is_empty() {
            let batch = Batch { partition_key: Some(key.clone()), writes, return_items: false };
            match handle.write(batch).await {
                Ok(written) => {
                    charge += written.request_charge;
                    if let Some(last) = written.last() {
                        handle.observe_lsn(&handle.range_of(&epk).await?, last.lsn.get());
                    }
                }
                // One of them was deleted meanwhile, and none of the others yet.
                Err(error) if error.kind() == ErrorKind::ItemNotFound => continue,
                Err(error) => return Err(error.into()),
            }
        }
        match page.next {
            Some(next) => list.after = Some(next),
            None => break,
        }
    }
    let mut reply = Reply::new(StatusCode::OK, "");
    reply.charge(charge);
    let range = handle.range_of(&epk).await?;
    session_headers::set(&mut reply, handle, &range, handle.known_lsn(&range));
    Ok(reply)
}
