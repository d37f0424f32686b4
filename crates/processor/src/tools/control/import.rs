//! Import: the documents of an archive become those of a processor, fenced against hosts that run.

use std::collections::{BTreeMap, BTreeSet};

use changefeed_core::{Error, ErrorKind, ReadChanges, Result, StartFrom, StoreId};
use serde::Serialize;
use serde_json::Value;

use super::{
    archive::{LeaseArchive, archived, written_at},
    handle::Control,
    liveness::{OwnerState, owner_state},
    seek::{Position, position},
    update::gone_is_fine,
};
use crate::lease::{
    document::{InfoDocument, LeaseDocument, StartPositions},
    listing::{BrokenDocument, Listing, StoredLease},
    prefix::LeaseToken,
    ranges::live_from,
    store::LeaseStore,
    update::end_ownership,
};

/// What becomes of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImportAction {
    /// The archive has it, and the lease container did not.
    Create,
    /// Both have it: the position of the archive counts. The document in the lease container need not be readable.
    Replace,
    /// The lease container has it, readable or not, and the archive does not.
    Delete,
}

/// A lease that was, or would be, imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ImportedLease {
    /// The lease.
    pub lease: LeaseToken,
    /// What becomes of it.
    pub action: ImportAction,
    /// Where it stood; none if it was not there, or could not be read.
    pub from: Option<Position>,
    /// Where it stands afterwards.
    pub to: Option<Position>,
}

/// An import about to happen, from [`Control::import`].
///
/// ```
/// use changefeed::{LeaseArchive, core::Result};
///
/// # async fn example(control: changefeed::Control, archive: LeaseArchive) -> Result<()> {
/// let import = control.import(archive);
/// for lease in import.dry_run().await? {
///     println!("lease {}: {:?}", lease.lease, lease.action);
/// }
/// import.apply().await?; // refused while hosts are alive
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `apply`"]
pub struct Import {
    control: Control,
    archive: LeaseArchive,
    other_store: bool,
    force: bool,
}

/// An import that was found possible.
struct Plan {
    store: LeaseStore,
    info: InfoDocument,
    leases: Vec<(LeaseDocument, Existing)>,
    deletes: Vec<StoredLease>,
    /// Documents that cannot be read, and of which the archive has no other version.
    broken: Vec<BrokenDocument>,
}

/// What the lease container has for a lease of the archive.
enum Existing {
    Nothing,
    Lease(StoredLease),
    Broken(BrokenDocument),
}

impl Existing {
    fn lease(&self) -> Option<&LeaseDocument> {
        match self {
            Self::Lease(lease) => Some(&lease.document),
            Self::Nothing | Self::Broken(_) => None,
        }
    }
}

impl Control {
    /// Makes the documents of an archive those of this processor, whose name may be another: leases of the archive are
    /// created or replaced, and those that it does not have are deleted, whether they can be read or not. All are free
    /// afterwards; pauses, users' properties and what is known of failures come with them.
    ///
    /// Nothing happens before [`Import::apply`].
    pub fn import(&self, archive: LeaseArchive) -> Import {
        Import { control: self.clone(), archive, other_store: false, force: false }
    }
}

impl Import {
    /// Accepts positions of another store or container than the monitored one: right if it is a restored copy of the
    /// one that the archive comes from, otherwise changes are skipped or repeated. Default: refused.
    pub fn accept_other_store(mut self, accept: bool) -> Self {
        self.other_store = accept;
        self
    }

    /// Imports also while hosts are alive: they lose their leases, and what they did since their last checkpoint may be
    /// delivered again. Also replaces documents of a newer version or of another implementation. Default: refused.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Returns what [`Import::apply`] would do now. Everything is checked, nothing is written.
    ///
    /// # Errors
    /// `ForeignContinuation` if the positions are of another store or container, `Locked` if hosts are alive or if
    /// documents are of a newer version or of another implementation, `InvalidArgument` if a document of the archive cannot be read, `BadContinuation` for a position that the feed does
    /// not have, and those of the stores.
    pub async fn dry_run(&self) -> Result<Vec<ImportedLease>> {
        Ok(self.plan(self.control.lease_store()?).await?.shown())
    }

    /// Writes the documents: `.info` first, then leases, each by a compare-and-swap under a new epoch; last, leases that
    /// the archive does not have are deleted. An import that was interrupted loses nothing, and can be repeated.
    ///
    /// # Errors
    /// As for [`Import::dry_run`]; `Unavailable` if a host writes meanwhile: leases before it were imported, so stop the
    /// hosts and try again.
    pub async fn apply(&self) -> Result<Vec<ImportedLease>> {
        self.check_store()?;
        let plan = self.plan(self.control.lease_store()?.with_store_time().await?).await?;
        let now = self.control.clock().wall();
        let before_reset = plan.store.positions_before_reset_version().await;
        write_info(&plan.store, &plan.info).await?;
        plan.store.forget_positions_before_reset(before_reset).await;
        for (document, existing) in &plan.leases {
            let mut document = document.clone();
            document.touch(now);
            match existing {
                Existing::Lease(StoredLease { etag, .. }) | Existing::Broken(BrokenDocument { etag, .. }) => {
                    drop(plan.store.replace(&document, etag).await.map_err(changed)?);
                }
                Existing::Nothing => {
                    let token = document.token.clone();
                    if plan.store.create(document).await?.is_none() {
                        return Err(meanwhile(&token));
                    }
                }
            }
        }
        for lease in &plan.deletes {
            gone_is_fine(plan.store.delete(lease).await).map_err(changed)?;
        }
        for broken in &plan.broken {
            gone_is_fine(plan.store.delete_broken(broken).await).map_err(changed)?;
        }
        Ok(plan.shown())
    }

    async fn plan(&self, store: LeaseStore) -> Result<Plan> {
        self.check_store()?;
        let listing = store.list().await?;
        self.check_hosts(&store, &listing).await?;
        let documents = self.documents(&store)?;
        self.check_positions(&documents).await?;
        let info = self.info(&store, &documents).await?;
        let existing = listing.leases.iter().chain(&listing.duplicates);
        // Earlier versions gave some leases other ids: such a one would count beside the new one of its token.
        let is_replaced = |lease: &&StoredLease| {
            documents.get(&lease.document.token).is_some_and(|document| document.id == lease.document.id)
        };
        let deletes = existing.clone().filter(|lease| !is_replaced(lease)).cloned().collect();
        let leases = documents.into_iter().map(|(token, mut document)| {
            let same = existing.clone().filter(|lease| lease.document.token == token);
            let lease = same.clone().find(|lease| lease.document.id == document.id);
            let broken = listing.broken.iter().find(|broken| store.replaces(&document, broken));
            let existing = match (lease, broken) {
                (Some(lease), _) => Existing::Lease(lease.clone()),
                (None, Some(broken)) => Existing::Broken(broken.clone()),
                (None, None) => Existing::Nothing,
            };
            raise(&mut document, same.map(|lease| &*lease.document));
            (document, existing)
        });
        let leases: Vec<(LeaseDocument, Existing)> = leases.collect();
        let is_replaced = |broken: &BrokenDocument| leases.iter().any(|(document, _)| store.replaces(document, broken));
        let broken = listing.broken.iter().filter(|broken| !is_replaced(broken)).cloned().collect();
        Ok(Plan { info, leases, deletes, broken, store })
    }

    fn check_store(&self) -> Result<()> {
        let (from, to) = (&self.archive.monitored, archived(self.control.processor.monitored().identity()));
        let same = from.store == to.store && from.resource_id == to.resource_id;
        if same || self.other_store {
            return Ok(());
        }
        let message = format!(
            "the archive has positions in container {}/{} of store {}, but {}/{} is another container or in another store \
             ({}): they could skip changes; accept them only if it is a restored copy",
            from.database, from.container, from.store, to.database, to.container, to.store
        );
        Err(Error::new(ErrorKind::ForeignContinuation, message))
    }

    async fn check_hosts(&self, store: &LeaseStore, listing: &Listing) -> Result<()> {
        if self.force {
            return Ok(());
        }
        let (now, expiration) = (self.control.clock().wall(), self.control.timing.expiration);
        let alive = |lease: &&StoredLease| owner_state(listing, lease, now, expiration) == OwnerState::Alive;
        let owners: BTreeSet<&str> =
            listing.leases.iter().filter(alive).filter_map(|lease| lease.document.owner.as_deref()).collect();
        let lock = store.prefix().lock_id();
        let message = if !owners.is_empty() {
            let owners: Vec<&str> = owners.into_iter().collect();
            format!("hosts are alive: {}; stop them, then import", owners.join(", "))
        } else if store.read_raw(&lock, store.partition_key_field(&lock).as_deref()).await?.is_some() {
            format!("a host is creating leases, or died while it did: {lock} exists; stop hosts, then import")
        } else if let Some(BrokenDocument { id, error, .. }) =
            listing.broken.iter().find(|broken| broken.error.is_future() || broken.error.is_java())
        {
            format!("document {id} is not damaged, but of other hosts: {error}; import with a program that can read it")
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::Locked, message))
    }

    /// The leases of the archive as they would be stored here, free.
    fn documents(&self, store: &LeaseStore) -> Result<BTreeMap<LeaseToken, LeaseDocument>> {
        let mut documents = BTreeMap::new();
        for value in &self.archive.leases {
            let parsed = LeaseDocument::parse(value.to_string().as_bytes());
            let mut document = parsed.map_err(|error| {
                let id = value.get("id").and_then(Value::as_str).unwrap_or("without id");
                Error::new(ErrorKind::InvalidArgument, format!("document {id} of the archive cannot be read: {error}"))
            })?;
            document.id = store.lease_id(&document.token);
            document.partition_key = store.partition_key_field(&document.id);
            if documents.insert(document.token.clone(), document).is_some() {
                let message = "the archive has two leases with one token: delete the one with the lower epoch";
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
        }
        Ok(documents)
    }

    /// Refuses positions that the feed does not have, before anything is written.
    async fn check_positions(&self, documents: &BTreeMap<LeaseToken, LeaseDocument>) -> Result<()> {
        let monitored = &self.control.processor.monitored();
        let live = monitored.feed_ranges().await?;
        for document in documents.values().filter(|document| !document.is_gone()) {
            let (Some(range), Some(token)) = (document.range(), &document.continuation) else { continue };
            let parts = live_from(&range, &live).map_while(|physical| physical.range.intersection(&range));
            for part in parts {
                let start = StartFrom::Continuation(changefeed_core::Continuation::from_token(token.as_str()));
                let read = ReadChanges::new(part, start).mode(document.mode.unwrap_or_default()).max_items(1);
                monitored.read_changes(read).await?;
            }
        }
        Ok(())
    }

    /// `.info` as it would be stored here. When hosts of the .NET SDK created the leases is noted before anything of ours is
    /// written into it: leases without a position begin there.
    async fn info(&self, store: &LeaseStore, documents: &BTreeMap<LeaseToken, LeaseDocument>) -> Result<InfoDocument> {
        let id = store.prefix().info_id();
        let monitored = self.control.processor.monitored();
        let identity = monitored.identity();
        let mut info = match &self.archive.info {
            Some(archived) => {
                let mut value = archived.clone();
                if let Some(members) = value.as_object_mut() {
                    members.insert("id".to_owned(), id.as_str().into());
                    members.remove("partitionKey");
                    members.extend(store.partition_key_field(&id).map(|key| ("partitionKey".to_owned(), key.into())));
                }
                let mut info = InfoDocument::parse(value.to_string().as_bytes()).map_err(|error| {
                    let message = format!("the .info document of the archive cannot be read: {error}");
                    Error::new(ErrorKind::InvalidArgument, message)
                })?;
                written_at(archived).into_iter().for_each(|written| info.note_dot_net_creation(written));
                info
            }
            None => {
                let field = store.partition_key_field(&id);
                let item = store.read_raw(&id, field.as_deref()).await?;
                // What cannot be read is replaced.
                let existing = item.and_then(|item| Some((InfoDocument::parse(&item.body).ok()?, item.timestamp)));
                let (mut info, written) = match existing {
                    Some((info, written)) => (info, Some(written)),
                    None => (InfoDocument::new(&id, field, &StartPositions::default()), None),
                };
                // Hosts of the .NET SDK create leases before `.info`.
                let created = documents.values().filter_map(LeaseDocument::created_at);
                created.chain(written).min().into_iter().for_each(|created| info.note_dot_net_creation(created));
                info
            }
        };
        info.set_store(identity.store.as_str());
        info.set_account_host(&identity.account_host);
        Ok(info)
    }
}

impl Plan {
    fn shown(&self) -> Vec<ImportedLease> {
        let imported = self.leases.iter().map(|(document, existing)| ImportedLease {
            lease: document.token.clone(),
            action: if matches!(existing, Existing::Nothing) { ImportAction::Create } else { ImportAction::Replace },
            from: existing.lease().map(position),
            to: Some(position(document)),
        });
        let deleted = self.deletes.iter().map(|lease| ImportedLease {
            lease: lease.document.token.clone(),
            action: ImportAction::Delete,
            from: Some(position(&lease.document)),
            to: None,
        });
        let broken = self.broken.iter().filter_map(|broken| {
            let lease = self.store.prefix().token_of(&broken.id)?;
            Some(ImportedLease { lease, action: ImportAction::Delete, from: None, to: None })
        });
        imported.chain(deleted).chain(broken).collect()
    }
}

/// Frees a lease under numbers that no host has seen, so that nobody takes it for the one that was there.
fn raise<'a>(document: &mut LeaseDocument, existing: impl Iterator<Item = &'a LeaseDocument> + Clone) {
    let generation = existing.clone().map(LeaseDocument::generation).fold(document.generation(), u64::max) + 1;
    document.set_epoch(existing.map(LeaseDocument::epoch).fold(document.epoch(), u64::max));
    end_ownership(document, None);
    document.set_generation(generation);
}

async fn write_info(store: &LeaseStore, info: &InfoDocument) -> Result<()> {
    let id = store.prefix().info_id();
    let field = store.partition_key_field(&id);
    if store.create_raw(&id, field.as_deref(), info.to_json()).await?.is_some() {
        return Ok(());
    }
    match store.read_raw(&id, field.as_deref()).await? {
        Some(item) => {
            store.replace_raw(&id, field.as_deref(), info.to_json(), &item.etag).await.map(drop).map_err(changed)
        }
        None => Err(Error::new(ErrorKind::Unavailable, format!("{id} was deleted meanwhile: try again"))),
    }
}

fn changed(error: Error) -> Error {
    match error.kind() {
        ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => {
            let message = "a host wrote to a lease meanwhile: stop the hosts, then import again";
            Error::new(ErrorKind::Unavailable, message).with_source(error)
        }
        _ => error,
    }
}

fn meanwhile(token: &LeaseToken) -> Error {
    let message = format!("lease {token} was created meanwhile: stop the hosts, then import again");
    Error::new(ErrorKind::Unavailable, message)
}

/// Says of all processors with leases in `leases` whose positions are in the store `from` that they are in the store `to`:
/// right if `to` is a restored copy of `from` and the lease container was copied with it. Returns how many processors.
///
/// # Errors
/// `Corrupt` if a document cannot be read, and those of the store.
pub async fn adopt_store(leases: &changefeed_core::Container, from: &StoreId, to: &StoreId) -> Result<usize> {
    let mut adopted = 0;
    for item in leases.list("").await?.into_iter().filter(|item| item.id.as_str().ends_with(".info")) {
        // Other programs may keep documents of this name here.
        let Ok(mut info) = InfoDocument::parse(&item.body) else { continue };
        if info.store() == Some(from.as_str()) {
            info.set_store(to.as_str());
            let body: Value = serde_json::from_slice(&info.to_json())
                .map_err(|error| Error::new(ErrorKind::Corrupt, format!("read {}", item.id)).with_source(error))?;
            leases.replace(&body).await?;
            adopted += 1;
        }
    }
    Ok(adopted)
}
