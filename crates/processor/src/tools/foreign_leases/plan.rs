//! Plans an import. Pure: documents in, a plan out; `apply.rs` writes the documents.

use std::{collections::BTreeMap, sync::Arc};

use changefeed_core::{
    ContainerIdentity, Error, ErrorKind, FeedRange, Mode, PhysicalRange, Result, StartFrom, Timestamp,
};

use super::source::{ForeignLease, Keys, LeaseDialect, Marker, SourceDocument};
use crate::lease::{
    document::{LeaseDocument, LeaseVersion, StartPosition, StartPositions},
    dotnet_creation::start_of,
    prefix::{LeasePrefix, LeaseToken},
    ranges::uncovered,
    replaced_store,
};

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
    /// Where it begins if it has no continuation: a text for people.
    pub start: Option<String>,
    /// The new document, in JSON.
    pub document: Vec<u8>,
    pub(super) mode: Mode,
    /// Where it goes on or begins.
    pub(super) position: StartPosition,
    /// Where the document that it comes from stood; none if only its hosts knew.
    pub(super) stood: Option<StartPosition>,
}

/// What an import would do: its dry run. [`ImportPlan::apply`] does it.
#[derive(Clone, Debug, PartialEq)]
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
    pub(super) target: Target,
}

/// Where leases are imported to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub(super) prefix: LeasePrefix,
    pub(super) monitored: ContainerIdentity,
    pub(super) live: Vec<PhysicalRange>,
    keyed: bool,
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

/// Plans the import of the leases of another implementation, or of another processor, as leases of the processor `name`.
///
/// `documents` are those of the foreign processor: all items of its lease container whose ids begin with its lease prefix
/// and a dot, which are its leases and the document `.info`. `start` is where its hosts were told to begin, by default
/// [`StartFrom::Now`]. `live` are the ranges of the monitored container, from `feed_ranges`. `keyed` says that the lease
/// container is partitioned by `/partitionKey`.
///
/// A lease of a range that was split since becomes one lease for each of its children, at the same position. A lease that
/// has no position, since its range had no change yet, begins where its hosts were told, and five minutes before `.info` was
/// created if that is earlier or if they were told to begin at now: changes of these minutes may be delivered although they
/// came before the first start of those hosts. If that time is needed and `.info` is not among the documents, the lease is
/// refused; so it is with all versions, which cannot be read from a time, unless `start` is a continuation.
///
/// ```
/// use changefeed::{core::{Container, Result, StartFrom}, plan_import};
///
/// # async fn example(orders: &Container, java_leases: &Container, leases: &Container) -> Result<()> {
/// let documents = java_leases.list("mailer.").await?; // the lease prefix of the Java processor, and a dot
/// let bodies = documents.iter().map(|item| &*item.body);
/// let live = orders.feed_ranges().await?;
/// let plan = plan_import("mailer", orders.identity(), &live, bodies, &StartFrom::Now, false)?;
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
    start: &StartFrom,
    keyed: bool,
) -> Result<ImportPlan> {
    let prefix = LeasePrefix::new(name, monitored)?;
    let target = Target { prefix, monitored: monitored.clone(), live: live.to_vec(), keyed };
    let mut plan =
        ImportPlan { leases: Vec::new(), refused: Vec::new(), uncovered: Vec::new(), owned: Vec::new(), target };
    let (mut found, mut origins) = (Vec::new(), BTreeMap::new());
    let (mut markers, mut locks) = (Vec::new(), Vec::new());
    for body in documents {
        match SourceDocument::parse(body) {
            Ok(SourceDocument::Lease(lease)) => found.push(lease),
            Ok(SourceDocument::Marker(marker)) => markers.push(marker),
            Ok(SourceDocument::Lock(id)) => locks.push(id),
            Ok(SourceDocument::Other) => {}
            Err(refused) => plan.refused.push(refused),
        }
    }
    let found = plan.of_one_processor(found);
    // Those of another processor, whose ids begin alike, do not matter.
    let marker_id = found.first().map(ForeignLease::marker_id);
    let of_this = |id: &str| marker_id.as_deref().is_none_or(|own| stem(own) == stem(id));
    markers.into_iter().filter(|marker| of_this(&marker.id)).for_each(|marker| plan.note(&mut origins, marker));
    for id in locks.into_iter().filter(|id| of_this(id)) {
        let reason = "a host is creating leases, or died while it did: stop its hosts, then delete it";
        plan.refused.push((id, reason.to_owned()));
    }
    let (tombstones, found): (Vec<_>, Vec<_>) = found.into_iter().partition(|lease| lease.gone);
    let nothing = Origin::default();
    let add = |plan: &mut ImportPlan, lease: ForeignLease| {
        let origin = origins.get(&lease.marker_id()).unwrap_or(&nothing);
        plan.add(lease, origin, start);
    };
    found.into_iter().for_each(|lease| add(&mut plan, lease));
    for lease in tombstones {
        // The tombstone of a range that no lease has was left by a .NET host, which works on it as on a lease.
        let ranges = plan.target.ranges_of(&lease.keys);
        if !ranges.iter().any(|range| plan.leases.iter().any(|other| other.range.overlaps(range))) {
            add(&mut plan, lease);
        }
    }
    plan.leases.sort_by(|a, b| a.range.cmp(&b.range));
    refuse_overlaps(&mut plan);
    refuse_other_modes(&mut plan);
    plan.uncovered = live
        .iter()
        .flat_map(|physical| uncovered(&physical.range, plan.leases.iter().map(|lease| &lease.range)))
        .collect();
    Ok(plan)
}

/// The id of `.info` or `.lock` without its ending.
fn stem(id: &str) -> &str {
    id.rsplit_once('.').map_or(id, |(stem, _)| stem)
}

/// What is known of where the leases of a processor began.
#[derive(Default)]
struct Origin {
    /// Where hosts of ours stored that they began.
    positions: StartPositions,
    /// When others created them.
    created: Option<Timestamp>,
}

impl Origin {
    /// Where the keys of a range begin that is in no lease; `start` is what the hosts were told. An error says what to do.
    fn of(
        &self,
        lease: &ForeignLease,
        range: &FeedRange,
        start: &StartFrom,
    ) -> Result<Vec<(FeedRange, StartPosition)>, String> {
        let mut pieces = self.positions.pieces(range);
        let open = self.positions.missing(range);
        if !open.is_empty() {
            let position = first_position(lease.mode, start, self.created.or(lease.created))?;
            pieces.extend(open.into_iter().map(|range| (range, position.clone())));
        }
        Ok(StartPositions::new(pieces).pieces(range))
    }
}

/// Where hosts of another implementation began that were told to begin at `start`, and created their leases at `created`. An
/// error says what to do if nobody knows.
fn first_position(mode: Mode, start: &StartFrom, created: Option<Timestamp>) -> Result<StartPosition, String> {
    if let StartFrom::Continuation(continuation) = start {
        return Ok(StartPosition::Continuation(continuation.token().to_owned()));
    }
    if mode == Mode::AllVersions {
        return Err("it has no position yet, and all versions cannot be read from a time: start its hosts once more until they \
                    have delivered a change of this range, or pass a continuation as `start`"
            .to_owned());
    }
    match (start_of(start, created), created) {
        (StartFrom::Time(time), _) => Ok(StartPosition::Time(time)),
        (StartFrom::Beginning, _) if *start == StartFrom::Beginning => Ok(StartPosition::Beginning),
        _ => Err("it has no position yet, and nothing says when its hosts began: pass their .info document with the leases, as \
                  the lease store returns it, or as `start` where they were told to begin, if that is not now"
            .to_owned()),
    }
}

impl ImportPlan {
    /// The leases that are of the processor of the first one: a common beginning of ids may be that of several names.
    fn of_one_processor(&mut self, leases: Vec<ForeignLease>) -> Vec<ForeignLease> {
        let Some((first, marker)) = leases.first().map(|lease| (lease.id.clone(), lease.marker_id())) else {
            return leases;
        };
        let (own, others): (Vec<_>, Vec<_>) = leases.into_iter().partition(|lease| lease.marker_id() == marker);
        let reason = format!("it is of another processor than {first}: pass the documents of one");
        self.refused.extend(others.into_iter().map(|lease| (lease.id, reason.clone())));
        own
    }

    /// Notes what a document says about where leases began.
    fn note(&mut self, origins: &mut BTreeMap<String, Origin>, marker: Marker) {
        match replaced_store::check(&marker.document, &self.target.monitored) {
            Ok(_) => {
                let Marker { id, document, created } = marker;
                origins.insert(id, Origin { positions: document.start_positions(), created });
            }
            Err(error) => self.refused.push((marker.id, error.message().to_owned())),
        }
    }

    fn add(&mut self, lease: ForeignLease, origin: &Origin, start: &StartFrom) {
        if let Some(owner) = &lease.owner {
            self.owned.push((lease.id.clone(), owner.clone()));
        }
        let ranges = self.target.ranges_of(&lease.keys);
        if let (true, Keys::Physical(id)) = (ranges.is_empty(), &lease.keys) {
            let reason = format!(
                "range {id} is not there any more, and the store does not tell which ranges came from it: start its host \
                 once more, so that it follows the split, or name the position of each range by hand"
            );
            self.refused.push((lease.id, reason));
            return;
        }
        for range in ranges {
            let pieces = match &lease.start {
                Some(start) => Ok(vec![(range, start.clone())]),
                None => origin.of(&lease, &range, start),
            };
            match pieces {
                Ok(pieces) => self
                    .leases
                    .extend(pieces.into_iter().map(|(range, position)| self.target.lease(&lease, range, position))),
                Err(reason) => {
                    self.refused.push((lease.id, reason));
                    return;
                }
            }
        }
    }
}

impl Target {
    /// The ranges of a lease: those that a physical range has become, if it is for one.
    fn ranges_of(&self, keys: &Keys) -> Vec<FeedRange> {
        let id = match keys {
            Keys::Range(range) => return vec![range.clone()],
            Keys::Physical(id) => id,
        };
        let is_it = |range: &&PhysicalRange| {
            range.id.as_str() == id || range.parents.iter().any(|parent| parent.as_str() == id)
        };
        self.live.iter().filter(is_it).map(|range| range.range.clone()).collect()
    }

    fn lease(&self, foreign: &ForeignLease, range: FeedRange, position: StartPosition) -> ConvertedLease {
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
        document.set_start(&position);
        ConvertedLease {
            from: foreign.id.clone(),
            dialect: foreign.dialect,
            id,
            token: token.as_str().to_owned(),
            range,
            continuation: document.continuation.clone(),
            start: start_text(&position),
            document: document.to_json(),
            mode: foreign.mode,
            position,
            stood: foreign.start.clone(),
        }
    }
}

/// Where a lease begins that has no continuation, for people.
fn start_text(position: &StartPosition) -> Option<String> {
    match position {
        StartPosition::Beginning => Some("beginning".to_owned()),
        StartPosition::Time(time) => Some(format!("time {}", time.as_secs())),
        StartPosition::Continuation(_) => None,
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

/// Takes leases out of the plan that have another mode than the first one: no host would start with both.
fn refuse_other_modes(plan: &mut ImportPlan) {
    let Some((mode, first)) = plan.leases.first().map(|lease| (lease.mode, lease.from.clone())) else { return };
    let (kept, others) = std::mem::take(&mut plan.leases).into_iter().partition(|lease| lease.mode == mode);
    plan.leases = kept;
    let refused = |lease: ConvertedLease| {
        let reason = format!("it is for {:?} mode, and {first} for {mode:?}: a processor has one mode", lease.mode);
        (lease.from, reason)
    };
    plan.refused.extend(others.into_iter().map(refused));
}

#[cfg(test)]
mod tests;
