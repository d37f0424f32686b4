//! A host: finds out which leases are its own, and runs a task for each.

pub(crate) mod audit;
pub(crate) mod balance;
pub(crate) mod bootstrap;
mod contention;
mod dotnet_start;
mod idle;
mod info_reads;
mod initial_delay;
mod lease_feed;
mod observation;
mod read_budget;
mod rebalance;
mod record;
mod shutdown;

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use changefeed_core::{ETag, Error, ErrorKind, FeedRange, Result};
use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use self::{
    balance::{LeaseView, Move, View},
    bootstrap::Bootstrap,
    info_reads::InfoReads,
    initial_delay::InitialDelay,
    lease_feed::{LeaseFeed, Relevance},
    read_budget::ReadBudget,
    record::{LeaseRecord, Records, RunningTask},
};
use crate::{
    backoff::jittered,
    lease::{
        document::OwnerKind,
        host_context::HostContext,
        listing::{BrokenDocument, Listing, StoredLease},
        lock::ForeignLock,
        loss::Loss,
        prefix::LeaseToken,
        session::ended_sessions,
        task::{LeaseTask, TaskReport},
        writer::LeaseWriter,
    },
    notification::{Failure, Notification, Release},
    runtime::panic_message,
};

/// A lease that was free for this many acquire intervals may be acquired by any host, whatever its share.
const UNCLAIMED_INTERVALS: u32 = 2;

/// The pause for each document of the lease container that was read in vain: a thousand in a second cost little.
const NOISE_PAUSE: Duration = Duration::from_millis(1);

/// One host of a processor. Owns the records of all leases.
pub(crate) struct Host {
    context: Arc<HostContext>,
    records: Records,
    /// Problems that were reported already, by what they concern.
    reported: BTreeMap<String, String>,
    /// The bootstrap lock of another host, as it was first seen.
    foreign_lock: Option<ForeignLock>,
    first_cycle: bool,
    /// The pause after which the leases are to be listed again, if the last cycle left something to do.
    list_again: Option<Duration>,
    initial_delay: InitialDelay,
    /// How long the current cycle has waited for other hosts.
    waited: Duration,
    feed: LeaseFeed,
    /// Bounds the reads of an idle host.
    budget: ReadBudget,
    info_reads: InfoReads,
    /// When all leases were listed and nothing was left to do; `None` if something was, or has happened since.
    idle_since: Option<Duration>,
    /// How many sessions of this process had ended when the leases were listed.
    ended_sessions: u64,
    /// When a lease was last stolen.
    last_steal: Option<Duration>,
    /// Second documents for one token, by id and partition key: the version that was first seen, and when.
    duplicates_seen: BTreeMap<(String, Option<String>), (ETag, Duration)>,
    /// The ranges of leases that do not say theirs.
    resolved: BTreeMap<LeaseToken, FeedRange>,
    reports: mpsc::UnboundedSender<TaskReport>,
    inbox: mpsc::UnboundedReceiver<TaskReport>,
}

impl Host {
    pub(crate) fn new(context: Arc<HostContext>) -> Self {
        let (reports, inbox) = mpsc::unbounded_channel();
        let feed = LeaseFeed::new(&context.store);
        Self {
            records: Records::default(),
            reported: BTreeMap::new(),
            foreign_lock: None,
            first_cycle: true,
            list_again: None,
            initial_delay: InitialDelay::new(context.options.timing.acquire),
            waited: Duration::ZERO,
            budget: ReadBudget::new(context.options.timing.acquire),
            info_reads: InfoReads::default(),
            context,
            feed,
            idle_since: None,
            ended_sessions: 0,
            last_steal: None,
            duplicates_seen: BTreeMap::new(),
            resolved: BTreeMap::new(),
            reports,
            inbox,
        }
    }

    /// Balances until the host stops, then waits for all lease tasks.
    pub(crate) async fn run(mut self) {
        let mut failures = 0;
        while !self.context.signals.stop.is_cancelled() {
            self.feed.begin().await;
            let begun = self.context.runtime.monotonic();
            self.initial_delay.begin(begun);
            // A bug in a cycle must not end the host: its leases are renewed by their own tasks.
            let cycle = AssertUnwindSafe(self.cycle()).catch_unwind().await.unwrap_or_else(|panic| {
                let message = format!("bug: the balancer panicked: {}", panic_message(&*panic));
                Err(Error::new(ErrorKind::Corrupt, message))
            });
            match cycle {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    self.report(None, Failure::Balancer(Arc::new(error)));
                }
            }
            let now = self.context.runtime.monotonic();
            let (interval, random) = (self.context.options.timing.acquire, self.context.runtime.random());
            // On average an idle host must not read more than once in an interval.
            let spread = if self.idle_since.is_some() { 512 + random % 256 } else { 256 + random % 512 };
            let list_again = self.list_again.take();
            let pause = match failures {
                0 => list_again.map_or_else(|| jittered(interval, spread), |pause| jittered(pause, random)),
                failures => self.context.options.store_retry.after(failures, random).min(interval),
            };
            // Listing must not take more than a tenth of the time. If other hosts are about to write leases, none of these
            // writes ends the pause.
            let busy = now.saturating_sub(begun + std::mem::take(&mut self.waited));
            let listings = (interval / 10).max(busy * 10).min(pause);
            let least = if list_again.is_some() { pause } else { listings };
            self.pause(pause, least).await;
        }
        self.withdraw_requests().await;
        while self.records.has_tasks() {
            match self.inbox.recv().await {
                Some(report) => self.take_report(report).await,
                None => return,
            }
        }
    }

    /// Waits for the next cycle; takes reports of lease tasks meanwhile. Writes of other hosts cut it short, but not below
    /// `least`, nor so that this host's own checkpoints cause listings, or that an idle host reads more than its budget
    /// allows.
    async fn pause(&mut self, pause: Duration, least: Duration) {
        let runtime = Arc::clone(&self.context.runtime);
        let interval = self.context.options.timing.acquire;
        let mut until = runtime.sleep(pause);
        let mut page = self.feed.next(&runtime, least.max(self.wait_while_idle()));
        let stop = self.context.signals.stop.clone();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                report = self.inbox.recv() => if let Some(report) = report { self.take_report(report).await },
                () = &mut until => return,
                changes = &mut page => {
                    let Relevance::Irrelevant { read } = self.take_changes(changes) else { return };
                    self.budget.spend(runtime.monotonic());
                    let noise = (NOISE_PAUSE * read).min(interval / 2);
                    page = self.feed.next(&runtime, least.max(noise).max(self.wait_while_idle()));
                }
            }
        }
    }

    async fn take_report(&mut self, report: TaskReport) {
        self.idle_since = None;
        match report {
            TaskReport::Ended(token, release) => {
                let again = self.context.runtime.monotonic() + self.context.options.timing.expiration;
                let own = self.records.own_mut(&token);
                own.task = None;
                // The call still blocks a thread of this host.
                own.not_before = matches!(release, Release::Lost(Loss::Blocked)).then_some(again);
            }
            TaskReport::Panicked(token, message) => self.release_after_panic(token, message).await,
            TaskReport::Adopted(lease) => {
                // A cycle may have seen it in this host's name and acquired it, under a newer epoch, and it may even have been
                // deleted since; or its document was deleted and created again while a task still runs, which goes on or
                // ends first.
                let document = lease.document();
                let known = self.records.has_had_task(&document.token, document.epoch(), lease.confirmed());
                let running = self.records.has_task(&document.token);
                if let Some(range) = document.range().filter(|_| !known && !running) {
                    self.start(lease, range);
                }
            }
        }
    }

    fn report(&self, lease: Option<LeaseToken>, failure: Failure) {
        self.context.notifier.notify(Notification::error(lease, failure));
    }

    /// Reports a problem unless the same was reported of the same thing before.
    fn report_once(&mut self, key: String, lease: Option<LeaseToken>, kind: ErrorKind, message: String) {
        if self.reported.insert(key, message.clone()).as_ref() != Some(&message) {
            self.report(lease, Failure::Balancer(Arc::new(Error::new(kind, message))));
        }
    }

    /// Lists all leases, unless nothing can have changed, and acts on what it finds.
    async fn cycle(&mut self) -> Result<()> {
        if self.is_still_idle().await {
            return Ok(());
        }
        self.idle_since = None;
        self.ended_sessions = ended_sessions();
        let replaced = self.context.paused.replaced();
        let listing = self.context.store.list().await.inspect_err(|_| self.records.read_failed())?;
        let now = self.context.runtime.monotonic();
        self.budget.spend(now);
        self.records.read_succeeded(now);
        self.feed.listed(&listing);
        self.context.paused.listed(&listing, replaced);
        let (expiration, instance) = (self.context.options.timing.expiration, self.context.identity.instance.clone());
        self.info_reads.listed(&listing, now, expiration);
        self.read_info().await;
        self.records.take_in(&listing, expiration, &instance, now);
        self.report_broken(&listing);
        let notified = self.notify_tasks(&listing);
        let covered = self.audit(&listing).await?;
        let (moves, hosts) = self.plan(&listing, covered && !notified, now);
        // What is not needed any more does not wait in memory for the writes of this host.
        let moves: Vec<_> = moves
            .into_iter()
            .filter_map(|one| {
                let seen = listing.find(one.lease())?.clone();
                Some((one, seen))
            })
            .collect();
        drop(listing);
        self.list_again = self.perform(&moves, hosts).await;
        self.first_cycle = false;
        Ok(())
    }

    /// Reads where ranges begin, if an operator may have moved that. What is not read is read in a later cycle.
    async fn read_info(&mut self) {
        if !self.info_reads.is_due() {
            return;
        }
        let known = self.context.start_positions.get();
        match Bootstrap::of(&self.context).start_positions(&known).await {
            Ok(positions) => {
                self.info_reads.read(positions.is_some());
                if let Some(positions) = positions {
                    self.context.start_positions.set(positions);
                }
            }
            Err(error) => tracing::debug!(%error, "the start positions cannot be read"),
        }
    }

    /// Plans what to do at `now`; returns also the hosts that the plan knows. `in_order` says that the listing showed
    /// nothing that needs attention: then a host that has nothing to do is idle.
    fn plan(&mut self, listing: &Listing, in_order: bool, now: Duration) -> (Vec<Move>, BTreeSet<String>) {
        let views = self.views(listing, now);
        let view = View {
            me: &self.context.identity.instance,
            leases: &views,
            max_leases: self.context.options.max_leases,
            shuffle: self.context.runtime.random(),
        };
        let mut moves = balance::plan(&view);
        let interval = self.context.options.timing.acquire;
        if self.last_steal.is_some_and(|last| now.saturating_sub(last) < interval) {
            // Cycles may follow one another quickly; hosts of other implementations expect one steal per interval.
            moves.retain(|one| !matches!(one, Move::Steal(_)));
        }
        if moves.iter().any(|one| matches!(one, Move::Steal(_))) {
            self.last_steal = Some(now);
        }
        if in_order && self.records.is_settled() && moves.is_empty() && balance::is_idle(&view) {
            self.idle_since = Some(now);
        }
        // Known hosts matter to one that acquires leases only.
        let hosts = if moves.is_empty() { BTreeSet::new() } else { balance::hosts(&view) };
        (moves, hosts)
    }

    /// What the balancer needs to know of each lease.
    fn views(&mut self, listing: &Listing, now: Duration) -> Vec<LeaseView> {
        for (_, record) in self.records.iter_mut() {
            record.end_wait(now);
        }
        let living = |record: &LeaseRecord| !record.is_silent(now);
        let mut alive: BTreeSet<&str> = self
            .records
            .beside(listing)
            .filter(|(_, record)| record.is_some_and(living))
            .filter_map(|(lease, _)| lease.document.owner.as_deref())
            .collect();
        alive.insert(&self.context.identity.instance);
        self.records.beside(listing).map(|(lease, record)| self.view(lease, record, &alive, now)).collect()
    }

    fn view(
        &self,
        lease: &StoredLease,
        record: Option<&LeaseRecord>,
        alive: &BTreeSet<&str>,
        now: Duration,
    ) -> LeaseView {
        let (document, identity) = (&lease.document, &self.context.identity);
        let token = document.token.clone();
        let silent = record.is_some_and(|record| record.is_silent(now));
        // A lease in this host's name that another session holds: its own past, taken back at the start, or a second
        // process with the same name.
        let other_session = document.session().is_some_and(|session| session != identity.session);
        let duplicate_instance =
            document.owner.as_deref() == Some(&identity.instance) && other_session && !self.first_cycle && !silent;
        let owner = document.owner.clone().map(|owner| match duplicate_instance {
            true => format!("{owner} (duplicate)"),
            false => owner,
        });
        let answers = document.owner_kind() != Some(OwnerKind::Foreign);
        let lifetime = self.context.options.timing.request_lifetime();
        let requested_by = record.and_then(|record| record.requested_by(now, lifetime, |name| alive.contains(name)));
        let blocked = record.is_some_and(|record| record.not_before().is_some());
        let options = &self.context.options;
        let steal_after = crate::planted!(ImpatientSteal => Some(options.timing.expiration / 2); options.steal_after);
        let overdue = steal_after.is_some_and(|deadline| {
            let pending = record.and_then(LeaseRecord::pending);
            pending.is_some_and(|pending| now.saturating_sub(pending.since) >= deadline)
        });
        let unclaimed_after = options.timing.acquire * UNCLAIMED_INTERVALS;
        LeaseView {
            owner,
            expired: silent,
            answers_requests: answers,
            requested_by: requested_by.filter(|_| answers).map(str::to_owned),
            available: !document.is_paused() && !document.is_gone() && !blocked && self.range_of(lease).is_some(),
            mine_running: record.is_some_and(LeaseRecord::has_task),
            unclaimed: record.and_then(|record| record.free_for(now)).is_some_and(|free| free >= unclaimed_after),
            request_overdue: overdue,
            token,
        }
    }

    /// The range of a lease; `None` if an old lease does not say it and it cannot be determined.
    fn range_of(&self, lease: &StoredLease) -> Option<FeedRange> {
        lease.document.range().or_else(|| self.resolved.get(&lease.document.token).cloned())
    }

    /// Has the tasks of leases that others wrote into read them. Returns whether there were any.
    fn notify_tasks(&self, listing: &Listing) -> bool {
        let mut any = false;
        for (token, task) in self.records.tasks() {
            let Some(document) = listing.find(token).map(|lease| &lease.document) else { continue };
            let touched = document.hand_over().is_some()
                || document.is_paused()
                || document.session() != Some(&self.context.identity.session)
                || document.owner.as_deref() != Some(&self.context.identity.instance);
            if touched {
                task.commands.refresh();
                any = true;
            }
        }
        any
    }

    fn report_broken(&mut self, listing: &Listing) {
        for BrokenDocument { id, error, .. } in &listing.broken {
            let message = format!("lease document {id} cannot be read: {error}");
            self.report_once(id.clone(), None, ErrorKind::Corrupt, message);
        }
    }

    /// Starts the task of a lease that this host owns.
    fn start(&mut self, lease: Box<LeaseWriter>, range: FeedRange) {
        let (token, epoch) = (lease.document().token.clone(), lease.document().epoch());
        let document = (lease.document().id.clone(), lease.document().partition_key.clone());
        let (task, commands) = LeaseTask::new(Arc::clone(&self.context), lease, range, self.reports.clone());
        let (reports, panicked) = (self.reports.clone(), token.clone());
        let guarded = async move {
            if let Err(panic) = AssertUnwindSafe(Box::pin(task.run())).catch_unwind().await {
                drop(reports.send(TaskReport::Panicked(panicked, panic_message(&*panic))));
            }
        };
        let name = format!("lease[{}/{token}]", self.context.name);
        let handle = AbortOnDropHandle::new(self.context.runtime.spawn(&name, Box::pin(guarded)));
        let own = self.records.own_mut(&token);
        own.epoch = Some(epoch);
        own.task = Some(RunningTask { commands, document, _handle: handle });
    }
}
