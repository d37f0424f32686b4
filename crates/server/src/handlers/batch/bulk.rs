//! Bulk requests: independent operations.

use std::collections::BTreeMap;

use changefeed_core::{PartitionKey, PhysicalRange};
use futures_util::future::join_all;

use super::{
    atomic::atomic,
    operation::{Kind, Operation, id_of},
    outcome::{FAILED_DEPENDENCY, Outcome, Room},
};
use crate::{
    containers::handle::ContainerHandle,
    error::{ApiError, ApiResult},
};

/// Runs each operation independently: concurrently if errors do not stop the rest, except that operations on one item keep
/// their order.
pub(super) async fn bulk(
    handle: &ContainerHandle,
    header: Option<&PartitionKey>,
    range: Option<&PhysicalRange>,
    operations: &[Operation<'_>],
    continue_on_error: bool,
    minimal: bool,
    room: &Room,
) -> Vec<Outcome> {
    let one = async |operation| match bulk_one(handle, header, range, operation, minimal, room).await {
        Ok(outcome) => outcome,
        Err(error) => Outcome::of_error(&error),
    };
    let mut outcomes: BTreeMap<usize, Outcome> = BTreeMap::new();
    if continue_on_error {
        let mut by_item: BTreeMap<Option<String>, Vec<(usize, &Operation<'_>)>> = BTreeMap::new();
        for (index, operation) in operations.iter().enumerate() {
            by_item.entry(id_of(operation)).or_default().push((index, operation));
        }
        let in_order = by_item.into_values().map(async |of_item| {
            let mut done = Vec::with_capacity(of_item.len());
            for (index, operation) in of_item {
                done.push((index, one(operation).await));
            }
            done
        });
        outcomes.extend(join_all(in_order).await.into_iter().flatten());
    } else {
        for (index, operation) in operations.iter().enumerate() {
            let stopped = outcomes.values().next_back().is_some_and(|last| !last.is_success());
            let outcome = if stopped { Outcome::new(FAILED_DEPENDENCY) } else { one(operation).await };
            outcomes.insert(index, outcome);
        }
    }
    outcomes.into_values().collect()
}

async fn bulk_one(
    handle: &ContainerHandle,
    header: Option<&PartitionKey>,
    range: Option<&PhysicalRange>,
    operation: &Operation<'_>,
    minimal: bool,
    room: &Room,
) -> ApiResult<Outcome> {
    let definition = &handle.identity().partition_key;
    let key = match (&operation.partition_key, header, operation.resource_body) {
        (Some(text), _, _) => text.parse::<PartitionKey>()?,
        (None, Some(key), _) => key.clone(),
        (None, None, Some(body)) if Kind::of(operation) != Some(Kind::Patch) => {
            definition.extract(body.get().as_bytes())?
        }
        _ => return Err(ApiError::bad_request("an operation of a bulk request needs its partitionKey")),
    };
    let epk = definition.epk(&key)?;
    if let Some(range) = range
        && !range.range.contains(&epk)
    {
        return Err(ApiError::range_gone(format!("the partition key {key} is not in range {}", range.id)));
    }
    let outcomes = atomic(handle, &key, std::slice::from_ref(operation), minimal, room).await?;
    outcomes.into_iter().next().ok_or_else(|| ApiError::bad_request("an operation without an outcome"))
}
