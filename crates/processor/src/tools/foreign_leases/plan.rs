//! Plans an import. Pure: documents in, a plan out; `apply.rs` writes the documents.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{ContainerIdentity, Error, ErrorKind, FeedRange, Mode, PhysicalRange, Result};
use serde_json::Value;

use super::java::JavaLease;
use crate::lease::{
    document::{DocumentError, JavaDialect, LeaseDocument, LeaseVersion, StartPosition},
    prefix::{LeasePrefix, LeaseToken},
};

/// Who wrote a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LeaseDialect {
    /// The .NET SDK, version 3, and this library. Such leases need no conversion if the processor has the same name.
    DotNet,
    /// The change feed processor library for .NET, version 2.
    DotNetV2,
    /// Java's `handleChanges`: one lease for each physical range, named after database and container.
    JavaRanges,
    /// Java's `handleLatestVersionChanges` and `handleAllVersionsAndDeletesChanges`: one lease for each feed range.
    JavaFeedRanges,
}

/// A lease to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConvertedLease {
    /// The id of the document that it comes from.
    pub from: String,
    /// Who wrote that one.
    pub dialect: LeaseDialect,
    /// The id of the new document.
    pub id: String,
    /// The token of the new lease.
    pub token: String,
    /// The keys that it covers.
    pub range: FeedRange,
    /// Where it goes on; none if it begins at `start`.
    pub continuation: Option<String>,
    /// Where it begins if nothing was processed: a text for people.
    pub start: Option<String>,
    /// The new document, in JSON.
    pub document: Vec<u8>,
}

/// What an import would do: its dry run. [`ImportPlan::apply`] does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportPlan {
    /// The leases to write, in key order.
    pub leases: Vec<ConvertedLease>,
    /// Documents that give no lease, with the reason: they are to be looked into before the plan is applied.
    pub refused: Vec<(String, String)>,
    /// Keys that no lease of the plan covers: their changes would be delivered from the processor's own start.
    pub uncovered: Vec<FeedRange>,
    /// Leases that somebody owned when the documents were read: their hosts must be stopped first.
    pub owned: Vec<(String, String)>,
}

impl ImportPlan {
    /// Returns `true` if the plan moves everything: nothing was refused, every key is covered and no host works on a
    /// lease.
    pub fn is_complete(&self) -> bool {
        self.refused.is_empty() && self.uncovered.is_empty() && self.owned.is_empty()
    }

    /// Refuses a plan that does not move everything.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] with what is in the way.
    pub fn check(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::InvalidArgument, message));
        if let Some((id, owner)) = self.owned.first() {
            return refuse(format!("lease {id} is owned by {owner}: stop its hosts first"));
        }
        if let Some((id, reason)) = self.refused.first() {
            return refuse(format!("document {id} cannot be imported: {reason}"));
        }
        match self.uncovered.first() {
            Some(range) => refuse(format!("no lease covers {range}: its changes would begin at the processor's start")),
            None => Ok(()),
        }
    }
}

/// Plans the import of the leases of another implementation as leases of the processor `name`.
///
/// `documents` are those of the foreign processor: all items of its lease container whose ids begin with its lease prefix
/// and `..`. `live` are the ranges of the monitored container, from `feed_ranges`. A lease of a range that was split since
/// becomes one lease for each of its children, at the same position. `keyed` says that the lease container is partitioned
/// by `/partitionKey`.
///
/// ```
/// use changefeed::{core::{Container, Result}, plan_import};
///
/// # async fn example(orders: &Container, java_leases: &Container, leases: &Container) -> Result<()> {
/// let documents = java_leases.list("mailer").await?; // the lease prefix of the Java processor
/// let bodies = documents.iter().map(|item| &*item.body);
/// let plan = plan_import("mailer", orders.identity(), &orders.feed_ranges().await?, bodies, false)?;
/// plan.check()?; // refuses a plan that does not move everything
/// plan.apply(java_leases, leases).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if the name cannot be that of a processor.
pub fn plan_import<'a>(
    name: &str,
    monitored: &ContainerIdentity,
    live: &[PhysicalRange],
    documents: impl IntoIterator<Item = &'a [u8]>,
    keyed: bool,
) -> Result<ImportPlan> {
    let target = Target { prefix: LeasePrefix::new(name, monitored)?, live, keyed };
    let mut plan = ImportPlan::default();
    for body in documents {
        match Foreign::parse(body) {
            Ok(foreign) => target.add(&mut plan, foreign),
            Err((id, reason)) => plan.refused.push((id, reason)),
        }
    }
    plan.leases.sort_by(|a, b| a.range.cmp(&b.range));
    refuse_overlaps(&mut plan);
    plan.uncovered = uncovered(live, &plan.leases);
    Ok(plan)
}

/// A lease of another implementation, read.
pub(super) struct Foreign {
    pub(super) id: String,
    dialect: LeaseDialect,
    pub(super) owner: Option<String>,
    mode: Mode,
    keys: Keys,
    pub(super) start: Option<StartPosition>,
    properties: BTreeMap<String, String>,
}

/// What a foreign lease is for.
enum Keys {
    /// The physical range with this id.
    Physical(String),
    Range(FeedRange),
}

impl Foreign {
    /// Reads a document; an error has its id and says what is wrong.
    pub(super) fn parse(body: &[u8]) -> Result<Self, (String, String)> {
        let id = || {
            let document = serde_json::from_slice::<Value>(body).ok();
            document.and_then(|document| document["id"].as_str().map(str::to_owned)).unwrap_or_default()
        };
        match LeaseDocument::parse(body) {
            Ok(lease) => Ok(Self::dot_net(lease, body)),
            Err(DocumentError::JavaDialect(dialect)) => {
                JavaLease::parse(body, dialect).map(|lease| Self::java(lease, dialect)).map_err(|why| (id(), why))
            }
            Err(error) => Err((id(), error.to_string())),
        }
    }

    fn dot_net(lease: LeaseDocument, body: &[u8]) -> Self {
        let has = |name: &str| serde_json::from_slice::<Value>(body).is_ok_and(|document| document.get(name).is_some());
        let dialect = match has("LeaseToken") || !has("PartitionId") {
            true => LeaseDialect::DotNet,
            false => LeaseDialect::DotNetV2,
        };
        let keys = match lease.range() {
            Some(range) => Keys::Range(range),
            None => Keys::Physical(lease.token.as_str().to_owned()),
        };
        let is_ours = |key: &String| key.starts_with("cf.");
        Self {
            id: lease.id,
            dialect,
            owner: lease.owner,
            mode: lease.mode.unwrap_or_default(),
            keys,
            start: lease.continuation.map(StartPosition::Continuation),
            properties: Arc::unwrap_or_clone(lease.properties).into_iter().filter(|(key, _)| !is_ours(key)).collect(),
        }
    }

    fn java(lease: JavaLease, dialect: JavaDialect) -> Self {
        let dialect = match dialect {
            JavaDialect::PhysicalRanges => LeaseDialect::JavaRanges,
            JavaDialect::FeedRanges => LeaseDialect::JavaFeedRanges,
        };
        let keys = match lease.range {
            Some(range) => Keys::Range(range),
            None => Keys::Physical(lease.token),
        };
        let JavaLease { id, owner, mode, start, .. } = lease;
        Self { id, dialect, owner, mode, keys, start, properties: BTreeMap::new() }
    }
}

/// Where leases are imported to.
struct Target<'a> {
    prefix: LeasePrefix,
    live: &'a [PhysicalRange],
    keyed: bool,
}

impl Target<'_> {
    fn add(&self, plan: &mut ImportPlan, foreign: Foreign) {
        if let Some(owner) = &foreign.owner {
            plan.owned.push((foreign.id.clone(), owner.clone()));
        }
        let ranges = match &foreign.keys {
            Keys::Range(range) => vec![range.clone()],
            Keys::Physical(id) => self.ranges_of(id),
        };
        if ranges.is_empty() {
            let Keys::Physical(id) = &foreign.keys else { return };
            let reason = format!(
                "range {id} is not there any more, and the store does not tell which ranges came from it: start its host \
                 once more, so that it follows the split, or name the position of each range by hand"
            );
            plan.refused.push((foreign.id, reason));
            return;
        }
        plan.leases.extend(ranges.into_iter().map(|range| self.lease(&foreign, range)));
    }

    /// The live ranges that a physical range has become.
    fn ranges_of(&self, id: &str) -> Vec<FeedRange> {
        let is_it = |range: &&PhysicalRange| {
            range.id.as_str() == id || range.parents.iter().any(|parent| parent.as_str() == id)
        };
        self.live.iter().filter(is_it).map(|range| range.range.clone()).collect()
    }

    fn lease(&self, foreign: &Foreign, range: FeedRange) -> ConvertedLease {
        let physical = self.live.iter().find(|live| live.range == range);
        let (version, token) = match physical {
            Some(physical) => (LeaseVersion::Range, LeaseToken::from(&physical.id)),
            None => (LeaseVersion::FeedRange, LeaseToken::from(&range)),
        };
        let id = self.prefix.lease_id(&token);
        let partition_key = self.keyed.then(|| id.clone());
        let mut document =
            LeaseDocument::new(id.clone(), partition_key, version, token.clone(), range.clone(), foreign.mode);
        document.properties = Arc::new(foreign.properties.clone());
        if let Some(start) = &foreign.start {
            document.set_start(start);
        }
        ConvertedLease {
            from: foreign.id.clone(),
            dialect: foreign.dialect,
            id,
            token: token.as_str().to_owned(),
            range,
            continuation: document.continuation.clone(),
            start: start_text(foreign.start.as_ref()),
            document: document.to_json(),
        }
    }
}

/// Where a lease begins that has no position, for people.
pub(super) fn start_text(start: Option<&StartPosition>) -> Option<String> {
    match start {
        Some(StartPosition::Beginning) => Some("beginning".to_owned()),
        Some(StartPosition::Time(time)) => Some(format!("time {}", time.as_secs())),
        Some(StartPosition::Continuation(_)) => None,
        None => Some("the start of the processor".to_owned()),
    }
}

/// Takes leases out of the plan that claim keys which another has already: which position counts is not to be guessed.
fn refuse_overlaps(plan: &mut ImportPlan) {
    let mut kept: Vec<ConvertedLease> = Vec::with_capacity(plan.leases.len());
    for lease in std::mem::take(&mut plan.leases) {
        match kept.last() {
            Some(last) if last.range.overlaps(&lease.range) => {
                let reason = format!("{} covers some of its keys as well: delete the one that is left over", last.from);
                plan.refused.push((lease.from, reason));
            }
            _ => kept.push(lease),
        }
    }
    plan.leases = kept;
}

/// The live keys that no lease covers.
fn uncovered(live: &[PhysicalRange], leases: &[ConvertedLease]) -> Vec<FeedRange> {
    let mut open = Vec::new();
    for physical in live {
        let mut rest = Some(physical.range.clone());
        for lease in leases {
            let Some(range) = rest.take() else { break };
            let Some(common) = range.intersection(&lease.range) else {
                rest = Some(range);
                continue;
            };
            open.extend(FeedRange::new(range.min_inclusive().clone(), common.min_inclusive().clone()).ok());
            rest = FeedRange::new(common.max_exclusive().clone(), range.max_exclusive().clone()).ok();
        }
        open.extend(rest);
    }
    open
}

#[cfg(test)]
mod tests;
