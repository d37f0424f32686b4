//! Release: a lease of a dead owner becomes free at once; a living owner is asked to give its lease up.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use changefeed_core::{ETag, Effect, ErrorKind, Result, Timestamp};
use serde::Serialize;

use super::{
    handle::Control,
    liveness::{OwnerState, owner_state},
    scope::{Scope, chosen},
    update::update,
};
use crate::{
    lease::{
        document::{LeaseDocument, OwnerKind},
        listing::StoredLease,
        prefix::LeaseToken,
        update::end_ownership,
    },
    tools::snapshot::Snapshot,
};

/// How often leases are read while their owners finish their batches.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// What became, or would become, of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// No host owned it.
    AlreadyFree,
    /// Its owner is dead, and it is free now.
    OwnerDead,
    /// Its owner lives, and gave it up after its batch.
    GivenUp,
    /// Its owner lives and lost it: what the owner did since its last checkpoint is delivered again.
    Taken,
    /// Its owner still has it: it did not end its batch in time, is of another implementation, or the lease was taken by
    /// another host meanwhile.
    Kept,
}

/// A lease that was meant by a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ReleasedLease {
    /// The lease.
    pub lease: LeaseToken,
    /// The host that had it.
    pub owner: Option<String>,
    /// What became of it.
    pub outcome: ReleaseOutcome,
}

/// A release about to happen, from [`Control::release`].
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{ReleaseOutcome, Scope};
///
/// # async fn example(control: changefeed::Control) -> changefeed::core::Result<()> {
/// for released in control.release(Scope::All).patience(Duration::from_secs(60)).apply().await? {
///     if released.outcome == ReleaseOutcome::Kept {
///         println!("lease {} still belongs to {:?}", released.lease, released.owner);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens before `apply`"]
pub struct LeaseRelease {
    control: Control,
    scope: Scope,
    force: bool,
    patience: Duration,
}

impl Control {
    /// Frees leases, so that other hosts can take them. An owner is taken for dead if it wrote nothing for longer than
    /// it promised, by the clock of the lease store. A living owner is asked: its lease is paused, given up after the running
    /// batch and resumed at once; whichever host is entitled to it takes it, which may be the same one. An owner that has just
    /// died is noticed while it is waited for, if that lasts longer than it promised.
    ///
    /// Nothing happens before [`LeaseRelease::apply`].
    pub fn release(&self, scope: Scope) -> LeaseRelease {
        LeaseRelease { control: self.clone(), scope, force: false, patience: Duration::from_secs(30) }
    }
}

impl LeaseRelease {
    /// Takes leases from living owners, too, without waiting for their batches: they can store nothing any more, and
    /// what they did since their last checkpoint is delivered again. Default: off.
    pub fn force(mut self, force: bool) -> Self {
        self.force = force;
        self
    }

    /// Sets how long living owners may take to finish their batches. Default: 30 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Returns what [`LeaseRelease::apply`] would do now, if every owner that is asked gives up in time. Writes
    /// nothing, and so judges by the clock of this machine: only a write tells the time of a store.
    ///
    /// # Errors
    /// `ItemNotFound` if there is no such processor or lease, and those of the stores.
    pub async fn dry_run(&self) -> Result<Vec<ReleasedLease>> {
        let snapshot = self.control.snapshot().await?;
        let leases = chosen(&snapshot, &self.scope)?;
        Ok(leases.into_iter().map(|lease| released(lease, self.plan(&snapshot, lease))).collect())
    }

    /// Frees the leases, each by a compare-and-swap under a new epoch. Writes one small document `<prefix>.time`.
    ///
    /// *Cancellation.* If the future is dropped while owners are waited for, leases may stay paused: resume them.
    ///
    /// # Errors
    /// As for [`LeaseRelease::dry_run`]; `Unavailable` if a lease kept changing or was replaced meanwhile.
    pub async fn apply(&self) -> Result<Vec<ReleasedLease>> {
        self.apply_unless(std::future::pending()).await
    }

    /// Does what [`LeaseRelease::apply`] does, but waits no longer for owners as soon as `stop` ends: leases that were
    /// paused for it are resumed, and owners that have not given theirs up keep them.
    ///
    /// # Errors
    /// As for [`LeaseRelease::apply`].
    pub async fn apply_unless(&self, stop: impl Future<Output = ()>) -> Result<Vec<ReleasedLease>> {
        let snapshot = self.control.snapshot_with_ages().await?;
        let now = self.control.clock().wall();
        let (mut done, mut asked) = (Vec::new(), Vec::new());
        for lease in chosen(&snapshot, &self.scope)? {
            let mut outcome = self.plan(&snapshot, lease);
            match outcome {
                ReleaseOutcome::OwnerDead => {
                    if !free_dead(&snapshot, lease, now).await? {
                        outcome = ReleaseOutcome::Kept;
                    }
                }
                ReleaseOutcome::Taken => take(&snapshot, lease, now).await?,
                ReleaseOutcome::GivenUp => asked.push(lease),
                ReleaseOutcome::AlreadyFree | ReleaseOutcome::Kept => {}
            }
            done.push(released(lease, outcome));
        }
        for (token, outcome) in self.ask(&snapshot, &asked, stop).await? {
            done.iter_mut().filter(|one| one.lease == token).for_each(|one| one.outcome = outcome);
        }
        Ok(done)
    }

    fn plan(&self, snapshot: &Snapshot, lease: &StoredLease) -> ReleaseOutcome {
        let (now, expiration) = (self.control.clock().wall(), self.control.timing.expiration);
        let answers = lease.document.owner_kind() != Some(OwnerKind::Foreign);
        match owner_state(&snapshot.listing, lease, now, expiration) {
            OwnerState::None => ReleaseOutcome::AlreadyFree,
            OwnerState::Dead => ReleaseOutcome::OwnerDead,
            OwnerState::Alive if self.force => ReleaseOutcome::Taken,
            OwnerState::Alive if !answers => ReleaseOutcome::Kept,
            OwnerState::Alive => ReleaseOutcome::GivenUp,
        }
    }

    /// Pauses leases until their owners have given them up; returns those that their owners kept, and those whose owners
    /// turned out to be dead.
    async fn ask(
        &self,
        snapshot: &Snapshot,
        asked: &[&StoredLease],
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<(LeaseToken, ReleaseOutcome)>> {
        // One that an operator paused stays paused.
        let to_resume: Vec<_> = asked.iter().filter(|lease| !lease.document.is_paused()).collect();
        for lease in &to_resume {
            set_paused(snapshot, lease, true).await?;
        }
        let kept = self.given_up(snapshot, asked, stop).await;
        // Also if reading failed: what was paused for this must not stay so.
        for lease in &to_resume {
            let Some(current) = snapshot.store.read(&lease.document).await? else { continue };
            set_paused(snapshot, &current, false).await?;
        }
        kept
    }

    /// Waits until they have been given up, for as long as patience lasts, and frees those whose owners stay silent for longer
    /// than they promised; returns what became of those that were not given up.
    async fn given_up(
        &self,
        snapshot: &Snapshot,
        asked: &[&StoredLease],
        stop: impl Future<Output = ()>,
    ) -> Result<Vec<(LeaseToken, ReleaseOutcome)>> {
        let clock = self.control.clock();
        let begin = clock.monotonic();
        let (mut stop, mut is_stopped) = (pin!(stop), false);
        let (mut silences, mut dead) = (BTreeMap::new(), Vec::new());
        loop {
            let mut kept = Vec::new();
            for lease in asked {
                let Some(current) = snapshot.store.read(&lease.document).await? else { continue };
                if current.document.epoch() != lease.document.epoch() || current.document.owner.is_none() {
                    continue;
                }
                let (token, now) = (&lease.document.token, clock.monotonic());
                let silence = silences.entry(token).or_insert_with(|| Silence::new(&current, now));
                if silence.exceeds_promise(&current, now, self.control.timing.expiration)
                    && free_dead(snapshot, &current, clock.wall()).await?
                {
                    dead.push((token.clone(), ReleaseOutcome::OwnerDead));
                } else {
                    kept.push((token.clone(), ReleaseOutcome::Kept));
                }
            }
            if is_stopped || kept.is_empty() || clock.monotonic().saturating_sub(begin) >= self.patience {
                dead.extend(kept);
                return Ok(dead);
            }
            tokio::select! {
                biased;
                () = stop.as_mut() => is_stopped = true,
                () = clock.sleep(LOOK_INTERVAL) => {}
            }
        }
    }
}

/// How long a lease has not been written, by the clock of this process.
struct Silence {
    etag: ETag,
    since: Duration,
}

impl Silence {
    fn new(lease: &StoredLease, now: Duration) -> Self {
        Self { etag: lease.etag.clone(), since: now }
    }

    /// Whether the owner has written nothing for longer than it promised; any write begins the time again.
    fn exceeds_promise(&mut self, lease: &StoredLease, now: Duration, expiration: Duration) -> bool {
        if self.etag != lease.etag {
            *self = Self::new(lease, now);
        }
        now.saturating_sub(self.since) >= lease.document.expires_after(expiration)
    }
}

fn released(lease: &StoredLease, outcome: ReleaseOutcome) -> ReleasedLease {
    ReleasedLease { lease: lease.document.token.clone(), owner: lease.document.owner.clone(), outcome }
}

async fn set_paused(snapshot: &Snapshot, lease: &StoredLease, paused: bool) -> Result<()> {
    let done = |document: &LeaseDocument| document.is_paused() == paused;
    update(&snapshot.store, lease, done, |document| document.set_paused(paused)).await
}

/// Frees a lease as it was seen: any write in between is a sign of life. Returns whether it is free.
async fn free_dead(snapshot: &Snapshot, lease: &StoredLease, now: Timestamp) -> Result<bool> {
    let mut document = LeaseDocument::clone(&lease.document);
    // As for a host that takes an expired lease: the batch after the checkpoint may have crashed the owner.
    if document.owner_kind() != Some(OwnerKind::Foreign) {
        document.count_crash();
    }
    end_ownership(&mut document, None);
    document.touch(now);
    match snapshot.store.replace(&document, &lease.etag).await {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound) => Ok(false),
        Err(error) if error.effect() == Effect::Unknown => {
            let stored = snapshot.store.read(&document).await?;
            Ok(stored.is_some_and(|stored| stored.document.epoch() == document.epoch()))
        }
        Err(error) => Err(error),
    }
}

/// Ends the ownership that was seen, whatever its owner writes meanwhile.
async fn take(snapshot: &Snapshot, lease: &StoredLease, now: Timestamp) -> Result<()> {
    let epoch = lease.document.epoch();
    let done = |document: &LeaseDocument| document.epoch() != epoch;
    let change = |document: &mut LeaseDocument| {
        // Another host may own it by now, which nobody asked to give it up.
        if document.epoch() == epoch {
            end_ownership(document, None);
            document.touch(now);
        }
    };
    update(&snapshot.store, lease, done, change).await
}
