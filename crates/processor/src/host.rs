//! A host: finds out which leases are its own, and keeps a worker for each.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Mode, Result};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::{
    delegate::Delegate,
    deliver::told,
    lease::{
        balance::{self, LeaseView, View},
        bootstrap::Bootstrap,
        document::Anchors,
        keeper::{Keeper, KeeperHandle},
        lock::Stranger,
        news::{Heard, News},
        observation::Observations,
        ownership::{Identity, OwnedLease},
        prefix::LeaseToken,
        store::{LeaseStore, Listing, StoredLease},
    },
    mutant::{self, Mutant},
    notification::{Failure, Notification, Notifier},
    options::Options,
    runtime::Runtime,
    session::work,
    worker::Orders,
};

/// A lease that was free for this many cycles is anyone's, whosever share it would be.
const STRANDED_CYCLES: u32 = 3;

/// The pause for each document of the lease container that was read for nothing: a thousand in a second cost little.
const NOISE_PAUSE: Duration = Duration::from_millis(1);

/// What everything on a host shares.
pub(crate) struct Shared {
    pub(crate) name: Arc<str>,
    pub(crate) instance: Arc<str>,
    pub(crate) identity: Identity,
    pub(crate) monitored: Container,
    pub(crate) store: Arc<LeaseStore>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: Options,
    pub(crate) mode: Mode,
    pub(crate) delegate: Arc<dyn Delegate>,
    pub(crate) notifier: Notifier,
    pub(crate) anchors: Anchors,
    /// Held while an item that may kill the process is delivered.
    pub(crate) alone: tokio::sync::Mutex<()>,
}

impl Shared {
    pub(crate) fn bootstrap(&self) -> Bootstrap<'_> {
        Bootstrap {
            store: &self.store,
            monitored: &self.monitored,
            runtime: &self.runtime,
            start: &self.options.start,
            mode: self.mode,
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shared({} on {})", self.name, self.instance)
    }
}

/// A worker, as the host knows it.
pub(crate) struct Running {
    pub(crate) keeper: KeeperHandle,
    /// Has the worker look at whether its range is still one.
    pub(crate) reconsider: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// What workers tell the host.
pub(crate) enum Report {
    /// The worker of this lease has ended.
    Ended(LeaseToken),
    /// A split made this lease ours.
    Adopted(Box<OwnedLease>),
}

/// Since when a request stands, on our monotonic clock, and under which epoch of its lease. Who takes a lease drops the
/// request for it: under the next epoch it is another one, even if it is for the same instance.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) epoch: u64,
    pub(crate) since: Duration,
}

/// The balancer of one host. Owns the list of workers.
pub(crate) struct Host {
    pub(crate) shared: Arc<Shared>,
    pub(crate) running: BTreeMap<LeaseToken, Running>,
    pub(crate) observations: Observations,
    /// Our requests for leases of others.
    pub(crate) asked: BTreeMap<LeaseToken, Standing>,
    /// Documents that cannot be read, and problems, that were reported already.
    pub(crate) reported: BTreeMap<String, String>,
    /// Requests for leases, and by whom.
    requests: BTreeMap<LeaseToken, (String, Standing)>,
    /// For how many cycles leases of ours have overlapped others.
    pub(crate) overlapping: BTreeMap<LeaseToken, u32>,
    /// The host that makes leases at the moment, if it is not this one.
    pub(crate) locked_by: Option<Stranger>,
    /// For how many cycles leases were seen without a living owner.
    free_cycles: BTreeMap<LeaseToken, u32>,
    /// The epoch of the last worker of each lease.
    pub(crate) epochs: BTreeMap<LeaseToken, u64>,
    first_cycle: bool,
    pub(crate) news: News,
    /// When all leases were listed and nothing was left to do; none if something was, or has happened since.
    pub(crate) at_rest: Option<Duration>,
    pub(crate) orders: Orders,
    reports: mpsc::UnboundedSender<Report>,
    inbox: mpsc::UnboundedReceiver<Report>,
}

impl Host {
    pub(crate) fn new(shared: Arc<Shared>, orders: Orders) -> Self {
        let (reports, inbox) = mpsc::unbounded_channel();
        let news = News::new(&shared.store);
        Self {
            shared,
            running: BTreeMap::new(),
            observations: Observations::default(),
            asked: BTreeMap::new(),
            reported: BTreeMap::new(),
            requests: BTreeMap::new(),
            overlapping: BTreeMap::new(),
            locked_by: None,
            free_cycles: BTreeMap::new(),
            epochs: BTreeMap::new(),
            first_cycle: true,
            news,
            at_rest: None,
            orders,
            reports,
            inbox,
        }
    }

    /// Balances until told to stop, then waits for all workers.
    pub(crate) async fn run(mut self) {
        let mut failures = 0;
        while !*self.orders.stopping.borrow() {
            self.news.begin().await;
            let begun = self.shared.runtime.monotonic();
            match self.cycle().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    self.report(None, Failure::Balancer(Arc::new(error)));
                }
            }
            let took = self.shared.runtime.monotonic().saturating_sub(begun);
            let interval = self.shared.options.timing.acquire;
            let pause = match failures {
                0 => crate::backoff::jittered(interval, 256 + self.shared.runtime.random() % 512),
                failures => self.shared.options.store_retry.after(failures, self.shared.runtime.random()).min(interval),
            };
            self.rest(pause, took).await;
        }
        self.part().await;
        while !self.running.is_empty() {
            match self.inbox.recv().await {
                Some(report) => self.take_report(report),
                None => return,
            }
        }
    }

    /// Waits for the next cycle; takes reports of workers meanwhile. What others write into leases cuts it short, but not
    /// so that looking takes more than a tenth of the time, or that our own checkpoints keep us looking.
    async fn rest(&mut self, pause: Duration, took: Duration) {
        let runtime = Arc::clone(&self.shared.runtime);
        let interval = self.shared.options.timing.acquire;
        let least = (interval / 10).max(took * 10).min(pause);
        let mut until = runtime.sleep(pause);
        let mut news = self.news.next(&runtime, least);
        let mut stopping = self.orders.stopping.clone();
        loop {
            tokio::select! {
                biased;
                () = told(&mut stopping) => return,
                report = self.inbox.recv() => if let Some(report) = report { self.take_report(report) },
                () = &mut until => return,
                page = &mut news => {
                    let Heard::Nothing { read } = self.hear(page) else { return };
                    news = self.news.next(&runtime, least.max((NOISE_PAUSE * read).min(interval / 2)));
                }
            }
        }
    }

    fn take_report(&mut self, report: Report) {
        self.at_rest = None;
        match report {
            Report::Ended(token) => drop(self.running.remove(&token)),
            Report::Adopted(lease) => {
                // A cycle may have seen it in our name and taken it, under a newer epoch; it may even be gone again. Or its
                // document was deleted and made anew while a worker of ours still has it, which goes on or ends first.
                let document = lease.document();
                let known = self.epochs.get(&document.token).is_some_and(|known| *known >= document.epoch());
                if !known && !self.running.contains_key(&document.token) {
                    self.start(*lease);
                }
            }
        }
    }

    pub(crate) fn report(&self, lease: Option<LeaseToken>, failure: Failure) {
        self.shared.notifier.notify(Notification::Error(lease, failure));
    }

    /// One look at all leases, unless nothing can have changed, and what follows from it.
    async fn cycle(&mut self) -> Result<()> {
        if self.is_still_at_rest().await {
            return Ok(());
        }
        self.at_rest = None;
        let listing = self.shared.store.list().await?;
        let now = self.shared.runtime.monotonic();
        self.news.know(&listing);
        self.observations.observe(&listing.leases, now);
        self.report_broken(&listing);
        let disturbed = self.poke(&listing);
        let covered = self.audit(&listing).await?;
        self.count_free(&listing, now);
        self.date_requests(&listing, now);
        self.epochs.retain(|token, _| listing.find(token).is_some());
        let views: Vec<LeaseView> = listing.leases.iter().map(|lease| self.view(lease, now)).collect();
        let view = View {
            me: &self.shared.identity.instance,
            leases: &views,
            max_leases: self.shared.options.max_leases,
            shuffle: self.shared.runtime.random(),
        };
        let steps = balance::plan(&view);
        let settled = self.free_cycles.is_empty() && self.requests.is_empty() && self.asked.is_empty();
        if covered && settled && !disturbed && steps.is_empty() && balance::is_at_rest(&view) {
            self.at_rest = Some(now);
        }
        self.perform(&steps, &listing).await;
        self.first_cycle = false;
        Ok(())
    }

    /// Notes since when requests stand: one that stands far beyond its deadline comes from a host that died.
    fn date_requests(&mut self, listing: &Listing, now: Duration) {
        let mut requests = BTreeMap::new();
        for lease in &listing.leases {
            let Some(asked) = lease.document.hand_over() else { continue };
            let epoch = lease.document.epoch();
            let standing = match self.requests.get(&lease.document.token) {
                Some((to, standing)) if *to == asked.to && standing.epoch == epoch => *standing,
                _ => Standing { epoch, since: now },
            };
            requests.insert(lease.document.token.clone(), (asked.to, standing));
        }
        self.requests = requests;
    }

    fn count_free(&mut self, listing: &Listing, now: Duration) {
        let expiration = self.shared.options.timing.expiration;
        let free = listing.leases.iter().filter(|lease| {
            lease.document.owner.is_none() || self.observations.is_silent(&lease.document.token, expiration, now)
        });
        let count = |token: &LeaseToken| self.free_cycles.get(token).copied().unwrap_or(0) + 1;
        self.free_cycles = free.map(|lease| (lease.document.token.clone(), count(&lease.document.token))).collect();
    }

    fn view(&self, lease: &StoredLease, now: Duration) -> LeaseView {
        let document = &lease.document;
        let timing = &self.shared.options.timing;
        let token = document.token.clone();
        let silent = if mutant::is(Mutant::ExpiryByWallClock) {
            let wall = self.shared.runtime.wall();
            document.written_at().is_some_and(|at| at.saturating_add(timing.expiration) < wall)
        } else {
            self.observations.is_silent(&token, timing.expiration, now)
        };
        let running = self.running.contains_key(&token);
        // A lease in our name that another session holds: our own past, to be taken back when we start, or a twin.
        let foreign = document.session().is_some_and(|session| session != self.shared.identity.session);
        let twin = document.owner.as_deref() == Some(&self.shared.identity.instance) && foreign && !self.first_cycle;
        LeaseView {
            owner: document.owner.clone().map(|owner| if twin && !silent { format!("{owner} (twin)") } else { owner }),
            expired: silent,
            hand_over_to: self
                .requests
                .get(&token)
                .filter(|(_, standing)| now.saturating_sub(standing.since) < timing.hand_over() * 3)
                .map(|(to, _)| to.clone()),
            available: !document.is_paused() && !document.is_gone(),
            mine_running: running,
            stranded: self.free_cycles.get(&token).is_some_and(|cycles| *cycles >= STRANDED_CYCLES),
            asked_overdue: self
                .asked
                .get(&token)
                .is_some_and(|standing| now.saturating_sub(standing.since) >= timing.hand_over()),
            token,
        }
    }

    /// Lets our workers know what others have written into their leases. Returns whether there was anything.
    fn poke(&mut self, listing: &Listing) -> bool {
        let mut any = false;
        for lease in &listing.leases {
            let document = &lease.document;
            let disturbed = document.hand_over().is_some()
                || document.is_paused()
                || document.session() != Some(&self.shared.identity.session);
            if let Some(running) = self.running.get(&document.token)
                && disturbed
            {
                running.keeper.refresh();
                any = true;
            }
        }
        let instance = &self.shared.identity.instance;
        self.asked.retain(|token, standing| {
            listing.find(token).is_some_and(|StoredLease { document, .. }| {
                document.epoch() == standing.epoch && document.hand_over().is_some_and(|asked| asked.to == *instance)
            })
        });
        any
    }

    fn report_broken(&mut self, listing: &Listing) {
        for (id, error) in &listing.broken {
            let text = error.to_string();
            if self.reported.insert(id.clone(), text.clone()).as_ref() != Some(&text) {
                let error = Error::new(ErrorKind::Corrupt, format!("lease document {id} cannot be read: {text}"));
                self.report(None, Failure::Balancer(Arc::new(error)));
            }
        }
    }

    /// Starts the worker of a lease that is ours.
    pub(crate) fn start(&mut self, lease: OwnedLease) {
        let token = lease.document().token.clone();
        self.epochs.insert(token.clone(), lease.document().epoch());
        let shared = Arc::clone(&self.shared);
        let document = Box::new(lease.document().clone());
        let (name, processor, notifier) = (token.clone(), Arc::clone(&shared.name), shared.notifier.clone());
        let complain = move |error| {
            notifier.notify(Notification::Error(Some(name.clone()), Failure::Lease(Arc::new(error))));
        };
        let (keeper, handle) =
            Keeper::new(lease, Arc::clone(&shared.runtime), shared.options.timing, Box::new(complain));
        drop(shared.runtime.spawn(&format!("keeper[{processor}/{token}]"), Box::pin(Box::new(keeper).run())));
        let (reconsider, reconsidering) = watch::channel(false);
        let (mut orders, reports, keeper) = (self.orders.clone(), self.reports.clone(), handle.clone());
        orders.reconsider = reconsidering;
        let task = work(shared, document, handle, orders, reports);
        let task = self.shared.runtime.spawn(&format!("worker[{processor}/{token}]"), Box::pin(task));
        self.running.insert(token, Running { keeper, reconsider, task });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for running in self.running.values() {
            running.task.abort();
        }
    }
}

/// Makes a session id that no other process has.
pub(crate) fn new_session(runtime: &dyn Runtime) -> String {
    format!("{:016x}", runtime.random())
}

/// Ends workers when the time for going in good order is over.
pub(crate) struct Stopper {
    pub(crate) stopping: watch::Sender<bool>,
    pub(crate) hurry: watch::Sender<bool>,
}
