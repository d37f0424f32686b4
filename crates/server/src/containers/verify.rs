//! Verification of a store: everything can be read, and the feed contains every item.

use std::{collections::BTreeSet, sync::Arc};

use changefeed_core::{
    Catalog, Container, Error, ErrorKind, FeedRange, ListItems, Lsn, ReadChanges, ResourceId, Result, StartFrom,
};
use serde::Serialize;

/// The contents of a store that passed verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    databases: u64,
    containers: u64,
    ranges: u64,
    items: u64,
    changes: u64,
}

/// Reads every item and every change of every container, so that checksums are checked on the way, and compares both.
/// Writes may continue meanwhile.
pub async fn verify(catalog: &Arc<dyn Catalog>) -> Result<Findings> {
    let mut findings = Findings::default();
    for database in catalog.list_databases().await? {
        findings.databases += 1;
        for info in catalog.list_containers(&database.name).await? {
            findings.containers += 1;
            let container = catalog.container(&database.name, &info.spec.name).await?;
            check(&container, &mut findings).await?;
        }
    }
    Ok(findings)
}

async fn check(container: &Container, findings: &mut Findings) -> Result<()> {
    let (fed, read) = feed(container, findings).await?;
    let definition = &container.identity().partition_key;
    let mut request = ListItems::default();
    loop {
        let page = container.backend().list_items(request.clone()).await?.into_value();
        for item in &page.items {
            findings.items += 1;
            let key = definition.epk(&definition.extract(&item.body)?)?;
            let as_of = read.iter().find(|(range, _)| range.contains(&key)).map_or(Lsn::ZERO, |(_, as_of)| *as_of);
            // An item as old as the feed of its range has not changed since, so the feed must contain it.
            if item.lsn <= as_of && !fed.contains(&(item.rid, item.lsn)) {
                let name = &container.identity().container_name;
                let message = format!("the feed of {name} does not tell of item {} at lsn {}", item.id, item.lsn);
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        match page.next {
            Some(next) => request.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The changes of a container, and for each range the newest LSN when reading it began.
type Fed = (BTreeSet<(ResourceId, Lsn)>, Vec<(FeedRange, Lsn)>);

async fn feed(container: &Container, findings: &mut Findings) -> Result<Fed> {
    let mut fed = BTreeSet::new();
    let mut read = Vec::new();
    for physical in container.feed_ranges().await? {
        findings.ranges += 1;
        let mut start = StartFrom::Beginning;
        let mut as_of = None;
        loop {
            let page = container.read_changes(ReadChanges::new(physical.range.clone(), start)).await?.into_value();
            as_of.get_or_insert(page.newest_lsn);
            findings.changes += page.changes.len() as u64;
            fed.extend(page.changes.iter().filter_map(|change| Some((change.rid?, change.lsn))));
            if page.changes.is_empty() {
                break;
            }
            start = StartFrom::Continuation(page.continuation);
        }
        read.push((physical.range, as_of.unwrap_or(Lsn::ZERO)));
    }
    Ok((fed, read))
}
