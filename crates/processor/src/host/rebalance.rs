//! Performs the moves that the balancer planned.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use changefeed_core::{Effect, ErrorKind, FeedRange, Result, StartFrom};

use super::{Host, balance::Move, contention::Contention, dotnet_start::has_no_position, record::PendingRequest};
use crate::{
    join::{AT_ONCE, join_bounded},
    lease::{
        document::{LeaseDocument, StartPosition},
        feed_positions::FeedPositions,
        host_context::HostContext,
        listing::StoredLease,
        writer::{Acquire, LeaseWriter},
    },
    notification::{Failure, Notification},
    runtime::BoxFuture,
};

/// A host that lost races for free leases lists them again after this part of the acquire interval: long enough that the
/// other hosts have written what they acquire.
const CONTENDED_CYCLES: u32 = 10;

/// A processor with so few leases does not wait for other hosts: handing some of them over later costs little, and users
/// of small containers expect to be served at once.
const FEW_LEASES: usize = 16;

/// How a move ended.
enum Moved {
    /// This host owns the lease.
    Acquired(Box<LeaseWriter>),
    /// The owner was asked for it.
    Requested,
    /// Another host was faster, or nothing is left to be done.
    Nothing,
}

impl Host {
    /// Performs moves, some at a time: a store that groups writes stores them together, and a task starts as soon as its
    /// lease is owned. Returns a pause if the leases are to be listed again after it: free leases were left because other
    /// hosts acquire some, too, or because the fleet still grows. `hosts` are those that the plan knows.
    pub(super) async fn perform(&mut self, moves: &[(Move, StoredLease)], hosts: BTreeSet<String>) -> Option<Duration> {
        let moves = moves.iter().map(|(one, seen)| (one, seen));
        let (contended, certain): (Vec<_>, Vec<_>) =
            moves.partition(|(one, seen)| self.is_contended(one, &seen.document));
        for some in certain.chunks(AT_ONCE) {
            self.perform_some(some).await;
        }
        let visible = self.records.is_visible();
        let grows = !contended.is_empty() && self.initial_delay.take_in(&hosts, self.context.runtime.monotonic());
        if grows && visible {
            return Some(self.contention_pause());
        }
        let mut contention = Contention::new(hosts, visible);
        let mut left = contended.as_slice();
        while !left.is_empty() {
            let (some, rest) = left.split_at(contention.at_once().min(left.len()));
            let lost = self.perform_some(some).await;
            if !rest.is_empty() {
                if self.records.len() > FEW_LEASES {
                    self.wait_for_hosts(&contention).await;
                }
                self.look_for_hosts(&mut contention).await;
            }
            // Without a rest, a lost race still shows that others acquire leases that the plan counted as free.
            if !contention.goes_on(some.len(), lost, rest.len()) && (lost > 0 || !rest.is_empty()) {
                return Some(self.contention_pause());
            }
            left = rest;
        }
        None
    }

    /// How long other hosts get to acquire free leases before this one lists them again.
    fn contention_pause(&self) -> Duration {
        let quiet = self.initial_delay.quiet(self.context.runtime.monotonic()).unwrap_or_default();
        quiet.max(self.context.options.timing.acquire / CONTENDED_CYCLES)
    }

    /// Gives hosts that start at the same time as this one the time to acquire a lease each.
    async fn wait_for_hosts(&mut self, contention: &Contention) {
        let HostContext { runtime, signals, .. } = &*self.context;
        let pause = self.initial_delay.step_pause(runtime.monotonic()).filter(|_| contention.is_growing());
        let Some(pause) = pause else { return };
        tokio::select! {
            biased;
            () = signals.stop.cancelled() => {}
            () = runtime.sleep(pause) => {}
        }
        self.waited += pause;
    }

    /// Reads who has written leases since the last listing, as far as one page of the feed tells.
    async fn look_for_hosts(&mut self, contention: &mut Contention) {
        let Some(page) = self.feed.page().await else { return };
        if let Ok(page) = &page {
            for lease in self.feed.leases(page).flatten() {
                for host in lease.owner().into_iter().chain(lease.requested_by()) {
                    contention.see(host);
                    self.initial_delay.see(host);
                }
            }
        }
        self.take_changes(page);
    }

    /// Whether other hosts may want to acquire the same lease.
    fn is_contended(&self, one: &Move, document: &LeaseDocument) -> bool {
        matches!(one, Move::Acquire(_)) && document.owner.as_deref() != Some(&self.context.identity.instance)
    }

    /// Performs moves side by side; returns how many leases another host was faster to acquire.
    async fn perform_some(&mut self, some: &[(&Move, &StoredLease)]) -> usize {
        if self.context.signals.stop.is_cancelled() {
            return 0;
        }
        let moving = some.iter().map(|(one, seen)| -> BoxFuture<'_, Result<Moved>> {
            match one {
                Move::Acquire(token) | Move::Steal(token) if self.records.has_task(token) => {
                    Box::pin(std::future::ready(Ok(Moved::Nothing)))
                }
                one => Box::pin(perform(&self.context, one, seen, self.range_of(seen))),
            }
        });
        let moved = join_bounded(moving.collect()).await;
        let lost = moved.iter().filter(|moved| matches!(moved, Ok(Moved::Nothing))).count();
        for ((one, seen), moved) in some.iter().zip(moved) {
            self.moved(one, seen, moved);
        }
        lost
    }

    fn moved(&mut self, one: &Move, seen: &StoredLease, moved: Result<Moved>) {
        let (token, epoch) = (one.lease(), seen.document.epoch());
        let now = self.context.runtime.monotonic();
        let own = self.records.own_mut(token);
        if !matches!(one, Move::Request(_)) {
            own.pending = None;
        }
        match moved {
            Ok(Moved::Acquired(lease)) => {
                if let Some(range) = self.range_of(seen) {
                    self.start(lease, range);
                }
                if let (Move::Steal(_), Some(from)) = (one, seen.document.owner.clone()) {
                    self.context.notifier.notify(Notification::Stolen { lease: token.clone(), from });
                }
            }
            Ok(Moved::Requested) => own.pending = Some(PendingRequest { epoch, since: now }),
            Ok(Moved::Nothing) => {}
            Err(error) => {
                if matches!(one, Move::Acquire(_) | Move::Steal(_)) {
                    // It may have been performed all the same: a split's lease under an older epoch is void then.
                    own.epoch = Some(epoch + 1);
                }
                self.report(Some(token.clone()), Failure::Lease(Arc::new(error)));
            }
        }
    }
}

async fn perform(context: &HostContext, one: &Move, seen: &StoredLease, range: Option<FeedRange>) -> Result<Moved> {
    let HostContext { store, runtime, identity, .. } = context;
    let mut document = LeaseDocument::clone(&seen.document);
    match one {
        Move::Acquire(_) | Move::Steal(_) => {
            let Some(range) = range else { return Ok(Moved::Nothing) };
            let why = why(context, one, &seen.document);
            let first = first_continuation(context, &seen.document, &range).await;
            let seen =
                StoredLease { document: first.unwrap_or_else(|| Arc::clone(&seen.document)), etag: seen.etag.clone() };
            let acquired = LeaseWriter::acquire(store, runtime, identity, &seen, &range, why).await?;
            Ok(acquired.map_or(Moved::Nothing, |lease| Moved::Acquired(Box::new(lease))))
        }
        Move::Request(_) => {
            document.request(&identity.instance, identity.expiration);
            Ok(if write_request(context, &document, seen).await? { Moved::Requested } else { Moved::Nothing })
        }
        Move::CancelRequest(_) => {
            document.set_hand_over(None);
            write_request(context, &document, seen).await.map(|_| Moved::Nothing)
        }
    }
}

/// The lease of a .NET host that has no continuation, with the one that it begins after, if the store has one: should this
/// host be gone before it stores any progress, a .NET host would begin at its own start, and not where this one did. Errors
/// are left to the lease task, which begins at the same place.
async fn first_continuation(
    context: &HostContext,
    document: &Arc<LeaseDocument>,
    range: &FeedRange,
) -> Option<Arc<LeaseDocument>> {
    let HostContext { monitored, mode, start_positions, options, .. } = context;
    // Hosts of ours write where they begin if that is now, and raise the epoch whenever they acquire a lease.
    let is_dotnet = document.epoch() == 0 && (document.timestamp.is_some() || options.start == StartFrom::Now);
    if !has_no_position(document) || !is_dotnet {
        return None;
    }
    let feed = FeedPositions { monitored, mode: *mode };
    let ranges = std::slice::from_ref(range);
    let found = match start_positions.get().of(range).as_slice() {
        [StartPosition::Beginning] => feed.at_beginning(ranges).await,
        [StartPosition::Time(time)] => feed.at_time(ranges, *time).await,
        [StartPosition::Continuation(token)] => Ok(StartPosition::Continuation(token.clone())),
        _ => return None,
    };
    let Ok(StartPosition::Continuation(token)) = found else { return None };
    let mut document = LeaseDocument::clone(document);
    document.continuation = Some(token);
    Some(Arc::new(document))
}

/// Why a lease is acquired: only an owner that went without releasing it may have crashed.
fn why(context: &HostContext, one: &Move, document: &LeaseDocument) -> Acquire {
    let identity = &context.identity;
    let granted = document.owner.as_deref() == Some(&identity.instance) && document.session().is_none();
    let own = document.session() == Some(&identity.session);
    match one {
        Move::Steal(_) => Acquire::Steal,
        _ if document.owner.is_none() || granted || own => Acquire::Free,
        _ => Acquire::Expired,
    }
}

/// Writes a request into a lease of another host. If it has changed meanwhile the next cycle decides again.
async fn write_request(context: &HostContext, document: &LeaseDocument, seen: &StoredLease) -> Result<bool> {
    match context.store.replace(document, &seen.etag).await {
        Ok(_) => Ok(true),
        Err(error) if error.effect() == Effect::Unknown => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => Ok(false),
            _ => Err(error),
        },
    }
}
