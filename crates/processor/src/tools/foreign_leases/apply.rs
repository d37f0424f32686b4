//! Applies an import plan: creates the leases that are missing, after the hosts of the source are known to be gone.
//!
//! `.info` is written first, with the positions of all leases: a host that finds only some of them creates the others there.

use std::sync::Arc;

use changefeed_core::{Container, Continuation, ETag, Error, ErrorKind, FeedRange, Result, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::{
    plan::{ConvertedLease, ImportPlan},
    source::{ForeignLease, SourceDocument},
};
use crate::{
    lease::{
        document::{InfoDocument, LeaseDocument, StartPosition, StartPositions},
        listing::{BrokenDocument, Listing},
        lock::Lock,
        ranges::uncovered,
        replaced_store,
        store::LeaseStore,
    },
    runtime::{Runtime, TokioRuntime},
};

/// What an import made of a lease of its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImportOutcome {
    /// The lease was created at the position of the plan.
    Created,
    /// The lease container has a lease of this name that began no later than the plan says, and was left as it is. An
    /// earlier import created it, or a host from the positions that an earlier import stored.
    Present,
    /// Other leases have its keys, such as the children of a range that was split since, and began no later. Nothing was
    /// written.
    Covered,
}

/// A lease of a plan that was applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AppliedLease {
    /// The id of the document that the lease comes from.
    pub from: String,
    /// The id of the lease; if it is covered by others, the id of one of them.
    pub id: String,
    /// What was done.
    pub outcome: ImportOutcome,
    /// The continuation of that lease now; none if it has not read anything yet. If it is present and not where the plan
    /// says, a host has worked on it since an earlier import.
    pub continuation: Option<String>,
}

/// `.info` of the processor, as it was read.
struct StoredInfo {
    document: InfoDocument,
    etag: ETag,
    written: Timestamp,
}

/// What an import finds.
struct Found {
    sources: Vec<ForeignLease>,
    listing: Listing,
    info: Option<StoredInfo>,
    /// Whether the documents of the source are in the lease container of the plan.
    same_container: bool,
}

/// A lease that exists, with the keys it has.
struct Existing<'a> {
    document: &'a LeaseDocument,
    range: FeedRange,
}

impl ImportPlan {
    /// Creates the leases of the plan in `leases`. `source` is the container that the documents of the plan were read
    /// from, which may be the same one. The dry run is the plan itself.
    ///
    /// The documents of the source are read again first: nothing is written if a host owns one of them, or if one has
    /// moved since the plan was made. They are not changed. The positions of all leases are stored first. Leases that exist
    /// already are left as they are, if they began no later than the plan says. So an import that was interrupted can be
    /// repeated, also after hosts have begun to work on the new leases: those find the positions of the leases that are
    /// missing. No host creates leases meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] if the plan does not move everything (see [`ImportPlan::check`]) or was made for a
    /// container with another partition key, if leases would expire in `leases`, or if the processor has leases of the other
    /// mode, [`ErrorKind::Locked`] if a host owns a document of the source, or is creating leases,
    /// [`ErrorKind::PreconditionFailed`] if a document of the source was moved or deleted since the plan was made,
    /// [`ErrorKind::AlreadyExists`] if the processor has a lease that may have begun later than the plan says,
    /// [`ErrorKind::ForeignContinuation`] if its leases have positions of another store, [`ErrorKind::Corrupt`] if a
    /// document of it cannot be read, and those of the stores. After an error of a store some leases may exist: apply the
    /// plan again.
    pub async fn apply(&self, source: &Container, leases: &Container) -> Result<Vec<AppliedLease>> {
        self.check()?;
        self.check_partition_key(leases)?;
        leases.time_to_live().await?.check_for_leases(leases.identity())?;
        let store = LeaseStore::new(leases.clone(), self.target.prefix.clone())?;
        let runtime: Arc<dyn Runtime> = TokioRuntime::new();
        let mut lock = Lock::wait(&store, &self.target.monitored, &runtime).await?;
        let applied = self.apply_alone(source, &store, &mut lock).await;
        lock.release().await;
        applied
    }

    /// Applies the plan under the lock of those who create leases.
    async fn apply_alone(
        &self,
        source: &Container,
        store: &LeaseStore,
        lock: &mut Lock<'_>,
    ) -> Result<Vec<AppliedLease>> {
        let found = self.look(source, store).await?;
        let compared = self.compare(&found)?;
        let created = compared.iter().filter(|(_, found)| found.is_none()).map(|(lease, _)| *lease);
        let info = self.info(created, found.info.as_ref(), store);
        hold(lock).await?;
        write_info(store, &info, found.info.as_ref()).await?;
        let mut applied = Vec::with_capacity(compared.len());
        for (lease, found) in compared {
            applied.push(match found {
                Some(found) => found,
                None => {
                    hold(lock).await?;
                    create(lease, store).await?
                }
            });
        }
        Ok(applied)
    }

    async fn look(&self, source: &Container, store: &LeaseStore) -> Result<Found> {
        let prefix = common_prefix(self.leases.iter().map(|lease| lease.from.as_str()));
        let sources = source.list(&prefix).await?;
        let sources = sources.iter().filter_map(|item| SourceDocument::parse(&item.body).ok()?.into_lease()).collect();
        let (from, to) = (source.identity(), store.container().identity());
        let same_container = from.store == to.store && from.container == to.container;
        let info = read_info(store).await?;
        if let Some(info) = &info {
            replaced_store::check(&info.document, &self.target.monitored)?;
        }
        Ok(Found { sources, listing: store.list().await?, info, same_container })
    }

    /// Decides what becomes of each lease: what was found in its place, or none if it is to be created. Pure.
    fn compare(&self, found: &Found) -> Result<Vec<(&ConvertedLease, Option<AppliedLease>)>> {
        let resolved = found.listing.resolved(&self.target.live);
        let all = found.listing.leases.iter().chain(&found.listing.duplicates).map(|lease| &*lease.document);
        let existing: Vec<Existing<'_>> = all
            .filter_map(|document| {
                let planned =
                    || self.leases.iter().find(|lease| lease.id == document.id).map(|lease| lease.range.clone());
                let range = document.range().or_else(|| resolved.get(&document.token).cloned()).or_else(planned)?;
                Some(Existing { document, range })
            })
            .collect();
        let began = found.info.as_ref().map(|info| info.document.start_positions()).unwrap_or_default();
        self.leases.iter().map(|lease| Ok((lease, self.compare_one(lease, found, &existing, &began)?))).collect()
    }

    fn compare_one(
        &self,
        lease: &ConvertedLease,
        found: &Found,
        existing: &[Existing<'_>],
        began: &StartPositions,
    ) -> Result<Option<AppliedLease>> {
        let source = found.sources.iter().find(|source| source.id == lease.from);
        let is_its_source = |id: &str| found.same_container && id == lease.from;
        if let Some(owner) = source.filter(|_| !is_its_source(&lease.id)).and_then(|source| source.owner.as_deref()) {
            let message = format!("lease {} is owned by {owner}: stop its hosts first", lease.from);
            return Err(Error::new(ErrorKind::Locked, message));
        }
        if let Some(BrokenDocument { id, error, .. }) = found.listing.broken.iter().find(|broken| broken.id == lease.id)
        {
            return Err(Error::new(ErrorKind::Corrupt, format!("document {id} exists and cannot be read: {error}")));
        }
        let mut here: Vec<&Existing<'_>> = existing
            .iter()
            .filter(|other| other.document.id == lease.id || !is_its_source(&other.document.id))
            .filter(|other| {
                other.document.id == lease.id || !other.document.is_gone() && other.range.overlaps(&lease.range)
            })
            .collect();
        here.sort_by_key(|other| (other.document.is_gone(), other.document.id != lease.id));
        let Some(first) = here.first().map(|first| first.document) else {
            check_unmoved(lease, source)?;
            return Ok(None);
        };
        if !is_its_source(&first.id) {
            self.check_began(lease, &here, began)?;
        }
        let outcome = if first.id == lease.id { ImportOutcome::Present } else { ImportOutcome::Covered };
        let (from, id, continuation) = (lease.from.clone(), first.id.clone(), first.continuation.clone());
        Ok(Some(AppliedLease { from, id, outcome, continuation }))
    }

    /// Refuses leases that may leave out changes after the position of the plan: they stand no later than it themselves, or
    /// `.info` says that they began no later.
    fn check_began(&self, lease: &ConvertedLease, here: &[&Existing<'_>], began: &StartPositions) -> Result<()> {
        if let Some(other) = here.iter().find(|other| other.document.mode.unwrap_or_default() != lease.mode) {
            let message = format!(
                "lease {} exists and is for {:?} mode, and the plan for {:?}: use another processor name",
                other.document.id,
                other.document.mode.unwrap_or_default(),
                lease.mode
            );
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        let stands = here.iter().filter(|other| !other.document.is_gone()).filter_map(|other| {
            let continuation = other.document.continuation.clone().map(StartPosition::Continuation);
            Some((other.range.clone(), continuation.or_else(|| other.document.start())?))
        });
        let early: Vec<FeedRange> = began
            .pieces(&lease.range)
            .into_iter()
            .chain(stands)
            .filter(|(_, position)| self.is_no_later(position, &lease.position))
            .map(|(range, _)| range)
            .collect();
        if uncovered(&lease.range, &early).is_empty() {
            return Ok(());
        }
        let id = here.first().map_or(lease.id.as_str(), |other| other.document.id.as_str());
        let message = format!(
            "lease {id} exists, and may have begun later than the position that the plan has for {}: seek it there, or stop \
             the hosts, reset the processor and apply the plan again",
            lease.from
        );
        Err(Error::new(ErrorKind::AlreadyExists, message))
    }

    /// Whether reading one range from `position` leaves out nothing that follows `planned`, as far as that can be told without
    /// reading.
    fn is_no_later(&self, position: &StartPosition, planned: &StartPosition) -> bool {
        let lsn = |token: &str| Continuation::from_token(token).to_lsn(&self.target.monitored.container).ok();
        match (position, planned) {
            (StartPosition::Beginning, _) => true,
            (StartPosition::Time(position), StartPosition::Time(planned)) => position <= planned,
            (StartPosition::Continuation(position), StartPosition::Continuation(planned)) => {
                position == planned
                    || lsn(position).zip(lsn(planned)).is_some_and(|(position, planned)| position <= planned)
            }
            _ => false,
        }
    }

    /// `.info` with the positions of the plan: those of leases that are created count, and for all others what is stored.
    fn info<'a>(
        &self,
        created: impl Iterator<Item = &'a ConvertedLease>,
        stored: Option<&StoredInfo>,
        store: &LeaseStore,
    ) -> InfoDocument {
        let id = store.prefix().info_id();
        let mut info = match stored {
            Some(StoredInfo { document, written, .. }) => {
                let mut info = document.clone();
                info.note_dot_net_creation(*written);
                info
            }
            None => InfoDocument::new(&id, store.partition_key_field(&id), &StartPositions::default()),
        };
        let planned = self.leases.iter().map(|lease| (lease.range.clone(), lease.position.clone())).collect();
        let positions = created.fold(info.start_positions(), |all, lease| all.moved(&lease.range, &lease.position));
        info.set_start_positions(&positions.or(&StartPositions::new(planned)));
        info.set_store(self.target.monitored.store.as_str());
        info.set_account_host(&self.target.monitored.account_host);
        info
    }

    fn check_partition_key(&self, leases: &Container) -> Result<()> {
        let definition = &leases.identity().partition_key;
        let paths: Vec<&str> = definition.paths().collect();
        let is_keyed = |lease: &ConvertedLease| {
            serde_json::from_slice::<Value>(&lease.document)
                .is_ok_and(|document| document.get("partitionKey").is_some())
        };
        let fits = match paths.as_slice() {
            ["/id"] => !self.leases.iter().any(is_keyed),
            ["/partitionKey"] => self.leases.iter().all(is_keyed),
            _ => false,
        };
        if fits {
            return Ok(());
        }
        let message = format!(
            "the lease container {} has the partition key {definition}, and the plan was made for another one: pass \
             `keyed` to plan_import if it is /partitionKey, and use a container with /id or /partitionKey",
            leases.identity().container_name
        );
        Err(Error::new(ErrorKind::InvalidArgument, message))
    }
}

/// Refuses a lease whose source is not what the plan was made from.
fn check_unmoved(lease: &ConvertedLease, source: Option<&ForeignLease>) -> Result<()> {
    let problem = match source {
        None => "was deleted",
        Some(source) if source.start != lease.stood => "has moved",
        Some(_) => return Ok(()),
    };
    let message = format!("lease {} {problem} since the plan was made: plan the import again", lease.from);
    Err(Error::new(ErrorKind::PreconditionFailed, message))
}

/// Renews the lock if that is due; fails if another may hold it.
async fn hold(lock: &mut Lock<'_>) -> Result<()> {
    lock.keep().await?;
    if lock.holds() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unavailable, "the lease store is too slow to create leases: apply the plan again"))
}

async fn read_info(store: &LeaseStore) -> Result<Option<StoredInfo>> {
    let id = store.prefix().info_id();
    let Some(item) = store.read_raw(&id, store.partition_key_field(&id).as_deref()).await? else { return Ok(None) };
    let document = InfoDocument::parse(&item.body)
        .map_err(|error| Error::new(ErrorKind::Corrupt, format!("document {id} cannot be read: {error}")))?;
    Ok(Some(StoredInfo { document, etag: item.etag, written: item.timestamp }))
}

async fn write_info(store: &LeaseStore, info: &InfoDocument, stored: Option<&StoredInfo>) -> Result<()> {
    let id = store.prefix().info_id();
    let field = store.partition_key_field(&id);
    let changed = || Error::new(ErrorKind::Unavailable, format!("{id} was changed meanwhile: apply the plan again"));
    match stored {
        Some(stored) if stored.document == *info => Ok(()),
        Some(stored) => match store.replace_raw(&id, field.as_deref(), info.to_json(), &stored.etag).await {
            Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound) => {
                Err(changed().with_source(error))
            }
            written => written.map(drop),
        },
        None => store.create_raw(&id, field.as_deref(), info.to_json()).await?.map(drop).ok_or_else(changed),
    }
}

async fn create(lease: &ConvertedLease, store: &LeaseStore) -> Result<AppliedLease> {
    let field = store.partition_key_field(&lease.id);
    if store.create_raw(&lease.id, field.as_deref(), lease.document.clone()).await?.is_none() {
        // A store that repeats a write whose answer was lost finds its own.
        let item = store.read_raw(&lease.id, field.as_deref()).await?;
        let document = item.and_then(|item| LeaseDocument::parse(&item.body).ok());
        let stands = |document: LeaseDocument| {
            document.continuation.clone().map(StartPosition::Continuation).or_else(|| document.start())
        };
        if document.and_then(stands).as_ref() != Some(&lease.position) {
            let message = format!("lease {} was created meanwhile: apply the plan again", lease.id);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
    Ok(AppliedLease {
        from: lease.from.clone(),
        id: lease.id.clone(),
        outcome: ImportOutcome::Created,
        continuation: lease.continuation.clone(),
    })
}

/// The longest text that all ids begin with.
fn common_prefix<'a>(mut ids: impl Iterator<Item = &'a str>) -> String {
    let Some(first) = ids.next() else { return String::new() };
    let common = ids.fold(first.len(), |length, id| {
        let same = first.char_indices().zip(id.chars()).take_while(|((_, own), other)| own == other);
        same.last().map_or(0, |((at, own), _)| at + own.len_utf8()).min(length)
    });
    first.get(..common).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_prefix_ends_where_ids_differ() {
        for (ids, common) in [
            (&["a..0", "a..1"][..], "a.."),
            (&["a..0", "a..0é", "a..0è"], "a..0"),
            (&["a", "b"], ""),
            (&["a..-FF"], "a..-FF"),
            (&[], ""),
        ] {
            assert_eq!(common_prefix(ids.iter().copied()), common, "{ids:?}");
        }
    }
}
