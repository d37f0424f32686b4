//! Seek: moving leases to another position, fenced against hosts that run.

use std::fmt;

use changefeed_core::{Continuation, Effect, Error, ErrorKind, FeedRange, Result, StartFrom, StoreId, Timestamp};
use serde::Serialize;

use super::{
    handle::Control,
    scope::{Scope, chosen},
    update::{CONFLICT_TRIES, kept_changing, update},
};
use crate::{
    lease::{
        document::{Attempts, InfoDocument, LeaseDocument, StartPosition},
        feed_positions::FeedPositions,
        listing::StoredLease,
        prefix::LeaseToken,
        store::LeaseStore,
        update::end_ownership,
    },
    tools::snapshot::Snapshot,
};

/// How often leases may be split while they are moved.
const ROUNDS: u32 = 4;

/// Where leases are to go.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekTo {
    /// To the oldest change. Latest-version mode only.
    Beginning,
    /// Past everything there is.
    Now,
    /// To the first change written at or after this moment. Latest-version mode only.
    Time(Timestamp),
    /// After this position.
    Continuation(Continuation),
}

/// Where a lease stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Position {
    /// Where the processor began; nothing was handled yet.
    Start,
    /// At the oldest change.
    Beginning,
    /// At the first change written at or after this moment.
    Time(Timestamp),
    /// After this position.
    Continuation(String),
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start => f.write_str("start"),
            Self::Beginning => f.write_str("beginning"),
            Self::Time(moment) => write!(f, "time {}", moment.as_millis()),
            Self::Continuation(token) => f.write_str(token),
        }
    }
}

/// A lease that was, or would be, moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Moved {
    /// The lease.
    pub lease: LeaseToken,
    /// The host that has, or had, it.
    pub owner: Option<String>,
    /// Where it stood when we looked; its owner may have gone on since.
    pub from: Position,
    /// Where it begins now.
    pub to: Position,
}

/// A seek about to happen, from [`Control::seek`].
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{Scope, SeekTo, core::Timestamp};
///
/// # async fn example(control: changefeed::Control) -> changefeed::core::Result<()> {
/// let hour_ago = Timestamp::now().saturating_sub(Duration::from_secs(3600));
/// let seek = control.seek(SeekTo::Time(hour_ago), Scope::All);
/// for moved in seek.dry_run().await? {
///     println!("lease {} would move from {} to {}", moved.lease, moved.from, moved.to);
/// }
/// seek.apply().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `apply`"]
pub struct Seek {
    control: Control,
    to: SeekTo,
    scope: Scope,
}

impl Control {
    /// Moves leases to another position, forth or back: from there on everything is delivered (again). An owner loses
    /// the lease, so that it cannot store what it did before, and whoever takes it next begins at the new position.
    /// A batch that is being delivered at that moment may still finish, while the next owner already delivers from the new
    /// position: it has the lower [`Context::epoch`](crate::Context::epoch). To have no such overlap, [`Control::pause`]
    /// the leases first, seek when none of them has an owner, then [`Control::resume`] them.
    ///
    /// Nothing happens before [`Seek::apply`].
    pub fn seek(&self, to: SeekTo, scope: Scope) -> Seek {
        Seek { control: self.clone(), to, scope }
    }
}

impl Seek {
    /// Returns what [`Seek::apply`] would do now. Everything is checked, nothing is written.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor or lease, `InvalidArgument` or `BadContinuation` for a position
    /// that the feed does not have, and those of the stores.
    pub async fn dry_run(&self) -> Result<Vec<Moved>> {
        let snapshot = self.control.processor.snapshot().await?;
        let chosen = chosen(&snapshot, &self.scope)?;
        Ok(self.plan(&snapshot, &chosen).await?.into_iter().map(|planned| planned.moved).collect())
    }

    /// Moves the leases, each by a compare-and-swap that takes it from its owner. All positions are known to be good
    /// before the first is written. From then on the keys begin there: a lease whose document is lost is created again at
    /// the position that was sought, not where the processor once began.
    ///
    /// A position that the store can express as a continuation is stored as one, which hosts of the .NET SDK
    /// understand, too. Where it cannot, the lease is left without continuation, and a property says where our hosts
    /// begin; .NET hosts would begin where they are configured to.
    ///
    /// # Errors
    /// As for [`Seek::dry_run`]; `Unavailable` if a lease kept changing or was replaced meanwhile: leases before it
    /// were moved, so try again.
    pub async fn apply(&self) -> Result<Vec<Moved>> {
        let mut snapshot = self.control.processor.snapshot().await?;
        let mut all: Vec<Moved> = Vec::new();
        for _ in 0..ROUNDS {
            let done: Vec<&LeaseToken> = all.iter().map(|moved| &moved.lease).collect();
            let mut open = chosen(&snapshot, &self.scope)?;
            open.retain(|lease| !done.contains(&&lease.document.token));
            if open.is_empty() {
                break;
            }
            let plan = self.plan(&snapshot, &open).await?;
            self.move_leases(&snapshot, &plan, |_| true).await?;
            all.extend(plan.into_iter().map(|planned| planned.moved));
            // A host that was splitting a lease meanwhile may have created its children at the old position.
            snapshot = self.control.processor.snapshot().await?;
            if matches!(self.scope, Scope::Lease(_)) {
                break;
            }
        }
        Ok(all)
    }

    /// Moves the leases that `may_move` allows at the moment of the write. What was moved before an error stays moved.
    pub(super) async fn move_leases(
        &self,
        snapshot: &Snapshot,
        plan: &[PlannedMove<'_>],
        may_move: impl Fn(&LeaseDocument) -> bool,
    ) -> Result<()> {
        let now = self.control.clock().wall();
        // Higher than that of all leases: a lease whose range is being split may have been moved less often than a child
        // that exists already, and the child must follow it nevertheless.
        let generation = snapshot.leases().map(|lease| lease.document.generation()).max().unwrap_or_default() + 1;
        let (mut moved, mut outcome) = (Vec::new(), Ok(()));
        for PlannedMove { lease, to, .. } in plan {
            let before = lease.document.generation();
            let done = |document: &LeaseDocument| document.generation() != before;
            let change = |document: &mut LeaseDocument| {
                if may_move(document) {
                    move_to(document, to, generation, now);
                }
            };
            outcome = update(&snapshot.store, lease, done, change).await;
            if outcome.is_err() {
                break;
            }
            let ranges = snapshot.ranges(&lease.document);
            moved.extend(ranges.into_iter().map(|range| (range, to.clone())));
        }
        // A lease whose document is lost is created again from there: it must not begin later than the operator wants.
        let all = matches!(self.scope, Scope::All) && outcome.is_ok();
        let store = all.then(|| snapshot.monitored.identity().store.clone());
        move_start_positions(&snapshot.store, &moved, store.as_ref()).await?;
        outcome
    }

    pub(super) async fn plan<'a>(
        &self,
        snapshot: &Snapshot,
        leases: &[&'a StoredLease],
    ) -> Result<Vec<PlannedMove<'a>>> {
        let mut plan = Vec::new();
        for lease in leases {
            let document = &lease.document;
            let to = self.resolve(snapshot, document).await?;
            let moved = Moved {
                lease: document.token.clone(),
                owner: document.owner.clone(),
                from: position(document),
                to: match &to {
                    StartPosition::Beginning => Position::Beginning,
                    StartPosition::Time(moment) => Position::Time(*moment),
                    StartPosition::Continuation(token) => Position::Continuation(token.clone()),
                },
            };
            plan.push(PlannedMove { lease, moved, to });
        }
        Ok(plan)
    }

    /// The position in a form that does not depend on when it is read, as a continuation if the store has one.
    async fn resolve(&self, snapshot: &Snapshot, lease: &LeaseDocument) -> Result<StartPosition> {
        let mode = lease.mode.unwrap_or_default();
        let ranges: Vec<FeedRange> =
            snapshot.ranges_from(lease).into_iter().map(|range_from| range_from.range).collect();
        let feed = FeedPositions { monitored: &snapshot.monitored, mode };
        match &self.to {
            SeekTo::Continuation(continuation) => {
                for range in &ranges {
                    feed.first(range, StartFrom::Continuation(continuation.clone())).await?;
                }
                Ok(StartPosition::Continuation(continuation.token().to_owned()))
            }
            SeekTo::Now => {
                let mut ends = Vec::new();
                for range in &ranges {
                    ends.push(feed.first(range, StartFrom::Now).await?.continuation);
                }
                FeedPositions::common(ends).map(StartPosition::Continuation).ok_or_else(|| split(&lease.token))
            }
            SeekTo::Beginning => feed.at_beginning(&ranges).await,
            SeekTo::Time(moment) => feed.at_time(&ranges, *moment).await,
        }
    }
}

/// A lease that is to be moved.
pub(super) struct PlannedMove<'a> {
    lease: &'a StoredLease,
    moved: Moved,
    to: StartPosition,
}

/// Takes the lease from whoever has it, and puts it where it is to go on.
fn move_to(document: &mut LeaseDocument, to: &StartPosition, generation: u64, now: Timestamp) {
    end_ownership(document, None);
    document.set_generation(generation.max(document.generation() + 1));
    document.set_attempts(&Attempts::default());
    document.set_search(None);
    document.set_start(to);
    document.touch(now);
}

/// Writes down that ranges begin elsewhere from now on.
async fn move_start_positions(
    store: &LeaseStore,
    moved: &[(FeedRange, StartPosition)],
    monitored: Option<&StoreId>,
) -> Result<()> {
    let id = store.prefix().info_id();
    let field = store.partition_key_field(&id);
    for _ in 0..CONFLICT_TRIES {
        // What an earlier reset has left is older than this seek.
        let before_reset = store.positions_before_reset_version().await;
        let Some(item) = store.read_raw(&id, field.as_deref()).await? else { return Ok(()) };
        let mut info = InfoDocument::parse(&item.body)?;
        let start_positions =
            moved.iter().fold(info.start_positions(), |start_positions, (range, to)| start_positions.moved(range, to));
        // Once all leases were moved their positions are of this store, whatever store they were of before.
        let known = monitored.is_none_or(|monitored| info.store() == Some(monitored.as_str()));
        if start_positions == info.start_positions() && known {
            return Ok(());
        }
        info.note_dot_net_creation(item.timestamp);
        monitored.into_iter().for_each(|monitored| info.set_store(monitored.as_str()));
        info.set_start_positions(&start_positions);
        match store.replace_raw(&id, field.as_deref(), info.to_json(), &item.etag).await {
            Err(error) if error.kind() == ErrorKind::PreconditionFailed || error.effect() == Effect::Unknown => {}
            Err(error) => return Err(error),
            Ok(_) => {
                store.forget_positions_before_reset(before_reset).await;
                return Ok(());
            }
        }
    }
    Err(kept_changing(&id))
}

pub(super) fn position(document: &LeaseDocument) -> Position {
    match (&document.continuation, document.start()) {
        (Some(token), _) => Position::Continuation(token.clone()),
        (None, None) => Position::Start,
        (None, Some(StartPosition::Beginning)) => Position::Beginning,
        (None, Some(StartPosition::Time(moment))) => Position::Time(moment),
        (None, Some(StartPosition::Continuation(token))) => Position::Continuation(token),
    }
}

fn split(token: &LeaseToken) -> Error {
    let message = format!(
        "the range of lease {token} was split, and its parts end at different positions: start a host, which replaces it, then seek"
    );
    Error::new(ErrorKind::Unavailable, message)
}
