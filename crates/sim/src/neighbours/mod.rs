//! Hosts of other kinds that share the leases: scripted, with one loop each. How they choose and write leases is in
//! `dotnet` and `previous`.

mod dotnet;
mod previous;
mod timestamp;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_core::{
    Batch, Container, Continuation, ETag, ErrorKind, FeedRange, ItemId, ItemKey, Mode, PartitionKey, ReadChanges,
    StartFrom, Write,
};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    checks::{
        lease_document::{DocumentKey, LeaseDocument},
        takeover::{Process, ProcessKind},
    },
    coverage::Sometimes,
    exec::ProcessId,
    host::PROCESSOR,
    rng::Rng,
    runtime::{EPOCH_MILLIS, wall_at},
    scenario::{NeighbourKind, NeighbourPlan, Store, Timing},
    simulation::Simulation,
    store::SimStore,
    workload::item_number,
};

/// How often a neighbour looks at its timers.
const TICK: Duration = Duration::from_millis(500);

/// How long a neighbour leaves a lease alone whose batch it cannot handle, in microseconds.
const AVOIDED: u64 = 60_000_000;

/// Starts the neighbours of a scenario.
pub fn start(sim: &Arc<Simulation>) {
    for (number, plan) in sim.scenario.neighbours.iter().cloned().enumerate() {
        let sim = Arc::clone(sim);
        sim.clone().exec.detach("neighbour start", async move {
            sim.exec.sleep_until(plan.starts_at * 1000).await;
            let neighbour = Neighbour::new(&sim, number, plan);
            let process = neighbour.process;
            drop(sim.exec.spawn(process, "neighbour", Box::pin(neighbour.run())));
        });
    }
}

/// A lease document as a neighbour has read it.
#[derive(Clone, Debug)]
struct Seen {
    document: LeaseDocument,
    body: Value,
    /// None for a lease that a .NET host has just created.
    etag: Option<ETag>,
}

/// A lease that a neighbour works on.
#[derive(Debug)]
struct Owned {
    seen: Seen,
    /// What it reads; none for a .NET host, which asks each time.
    range: Option<FeedRange>,
    /// Where to read on.
    position: Option<String>,
    renewed: u64,
    polls_at: u64,
}

/// One neighbour.
struct Neighbour {
    sim: Arc<Simulation>,
    process: ProcessId,
    name: String,
    plan: NeighbourPlan,
    timing: Timing,
    feed: Container,
    leases: Container,
    owned: BTreeMap<DocumentKey, Owned>,
    /// Tokens that it leaves alone until a moment.
    avoided: BTreeMap<String, u64>,
    /// Since when each document has been unchanged.
    observed: BTreeMap<DocumentKey, (ETag, u64)>,
    /// Since when its own requests have been there.
    requests: BTreeMap<DocumentKey, u64>,
}

/// What a neighbour wants to do with a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Take(DocumentKey),
    Request(DocumentKey),
}

impl Neighbour {
    fn new(sim: &Arc<Simulation>, number: usize, plan: NeighbourPlan) -> Self {
        let process = sim.exec.process();
        let (kind, timing) = match plan.kind {
            NeighbourKind::DotNet => (ProcessKind::DotNet, dotnet::TIMING),
            NeighbourKind::Previous => (ProcessKind::Previous, sim.scenario.timing(usize::MAX)),
        };
        let name = format!("n{number}");
        let facts = Process {
            name: name.clone(),
            kind,
            expiration: timing.expiration * 1000,
            acquire: timing.acquire * 1000,
            renew: timing.renew * 1000,
        };
        sim.leases.lock().register(process, facts);
        let label: Arc<str> = name.as_str().into();
        let rng = Arc::new(Mutex::new(Rng::new(sim.scenario.seed, &format!("network {name}"))));
        let container =
            |store| Container::new(Arc::new(SimStore::new(sim, process, usize::MAX, &label, store, Arc::clone(&rng))));
        sim.log(format_args!("{name} starts as process {process}, a neighbour: {:?}", plan.kind));
        Self {
            feed: container(Store::Feed),
            leases: container(Store::Leases),
            sim: Arc::clone(sim),
            process,
            name,
            plan,
            timing,
            owned: BTreeMap::new(),
            avoided: BTreeMap::new(),
            observed: BTreeMap::new(),
            requests: BTreeMap::new(),
        }
    }

    async fn run(mut self) {
        let end = self.plan.leaves_at.min(self.sim.scenario.chaos) * 1000;
        let mut next_cycle = 0;
        while self.now() < end {
            if self.now() >= next_cycle {
                next_cycle = self.now() + self.timing.acquire * 1000;
                self.balance().await;
            }
            let keys: Vec<DocumentKey> = self.owned.keys().cloned().collect();
            for key in keys {
                self.renew(&key).await;
                self.poll(&key).await;
            }
            self.sim.exec.sleep(TICK).await;
        }
        if self.plan.crashes {
            self.sim.log(format_args!("{} crashes", self.name));
            return self.sim.exec.kill(self.process);
        }
        let keys: Vec<DocumentKey> = self.owned.keys().cloned().collect();
        for key in keys {
            self.release(&key, None).await;
        }
        self.sim.log(format_args!("{} is down", self.name));
    }

    fn now(&self) -> u64 {
        self.sim.exec.now()
    }

    fn is_dotnet(&self) -> bool {
        self.plan.kind == NeighbourKind::DotNet
    }

    async fn balance(&mut self) {
        let Ok(items) = self.leases.list(PROCESSOR).await else { return };
        let all = if self.is_dotnet() { self.dotnet_leases(&items) } else { Some(previous::leases(&items)) };
        let Some(all) = all else { return };
        let now = self.now();
        for seen in &all {
            let Some(etag) = &seen.etag else { continue };
            let entry = self.observed.entry(seen.document.key.clone()).or_insert_with(|| (etag.clone(), now));
            if entry.0 != *etag {
                *entry = (etag.clone(), now);
            }
        }
        self.avoided.retain(|_, until| *until > now);
        let actions = if self.is_dotnet() { self.dotnet_actions(&all) } else { self.previous_actions(&all) };
        for action in actions {
            let (Action::Take(key) | Action::Request(key)) = &action;
            let Some(seen) = all.iter().find(|seen| seen.document.key == *key) else { continue };
            match action {
                Action::Take(_) => self.take(seen).await,
                Action::Request(_) => self.request(seen).await,
            }
        }
    }

    /// Whether a lease can be worked on at all by a scripted host.
    fn is_usable(&self, seen: &Seen) -> bool {
        let positioned = seen.document.continuation.is_some() || self.first_start().is_some();
        positioned && seen.document.start().is_none() && !self.avoided.contains_key(&seen.document.token)
    }

    /// Where this host begins to read a lease without a continuation; none if it would leave out changes, which no host of
    /// ours could prevent: it begins at the start of its own process, and that of the processor may have been earlier. With
    /// all versions it begins at its first read.
    fn first_start(&self) -> Option<StartFrom> {
        let plan = &self.sim.scenario.processor;
        if plan.from_beginning {
            return Some(StartFrom::Beginning);
        }
        let of_the_first = self.is_dotnet() && self.plan.starts_at == 0 && !plan.all_versions;
        let started = self.sim.dotnet_started.lock().filter(|_| of_the_first)?;
        Some(StartFrom::Time(wall_at(started).saturating_sub(Duration::from_secs(1))))
    }

    async fn take(&mut self, seen: &Seen) {
        if self.is_dotnet() {
            return self.dotnet_take(seen).await;
        }
        let mut body = seen.body.clone();
        body["Owner"] = json!(self.name);
        self.stamp_take(&mut body, &seen.document);
        let range = self.sim.leases.lock().by_token(&seen.document.token).and_then(|lease| lease.range.clone());
        let Some(range) = range.and_then(|range| range.to_string().parse::<FeedRange>().ok()) else { return };
        let Some(seen) = self.write(body, seen.etag.clone()).await else { return };
        let position = seen.document.continuation.clone();
        let (now, key) = (self.now(), seen.document.key.clone());
        self.owned.insert(key, Owned { seen, range: Some(range), position, renewed: now, polls_at: now });
    }

    /// Writes a lease with a fresh timestamp; none if it was not written.
    async fn write(&mut self, mut body: Value, if_match: Option<ETag>) -> Option<Seen> {
        body["timestamp"] = json!(timestamp::format(wall_at(self.now()).as_millis()));
        let bytes = Bytes::from(body.to_string());
        let document = LeaseDocument::parse(&bytes)?;
        let key = self.item_key(&document)?.partition_key;
        let write = Write::Replace { body: bytes, if_match };
        let written = self.leases.backend().write(Batch::single(Some(key), write)).await.ok()?;
        let etag = written.into_value().into_iter().next()?.etag;
        Some(Seen { document, body, etag })
    }

    fn item_key(&self, document: &LeaseDocument) -> Option<ItemKey> {
        let (id, field) = &document.key;
        let value = if self.sim.scenario.leases_by_partition_key { field.as_deref().unwrap_or(id) } else { id };
        Some(ItemKey::new(PartitionKey::from(value), ItemId::new(id.as_str()).ok()?))
    }

    /// Changes an owned lease. After a conflict or a timeout it reads the document and continues if it is still its
    /// own, by owner, epoch and session. Returns whether it is still owned.
    async fn update(&mut self, key: &DocumentKey, change: impl Fn(&mut Value)) -> bool {
        for _ in 0..3 {
            let Some(owned) = self.owned.get(key) else { return false };
            let (mut body, etag, before) = (owned.seen.body.clone(), owned.seen.etag.clone(), owned.seen.clone());
            change(&mut body);
            if let Some(seen) = self.write(body, etag).await {
                let now = self.now();
                if let Some(owned) = self.owned.get_mut(key) {
                    (owned.seen, owned.renewed) = (seen, now);
                }
                return true;
            }
            let Some(item_key) = self.item_key(&before.document) else { return false };
            let Ok(item) = self.leases.backend().read_item(&item_key).await else { continue };
            let body: Value = serde_json::from_slice(&item.body).unwrap_or_default();
            let document = LeaseDocument::parse(&item.body);
            let Some(document) = document.filter(|document| self.is_mine(document, &before.document)) else {
                self.sim.log(format_args!("{} lost lease {}", self.name, before.document.token));
                self.owned.remove(key);
                return false;
            };
            if let Some(owned) = self.owned.get_mut(key) {
                owned.seen = Seen { document, body, etag: Some(item.etag.clone()) };
            }
        }
        true
    }

    fn is_mine(&self, now: &LeaseDocument, before: &LeaseDocument) -> bool {
        let owner = now.owner.as_deref() == Some(self.name.as_str());
        owner && now.epoch() == before.epoch() && now.session() == before.session()
    }

    async fn renew(&mut self, key: &DocumentKey) {
        let due = |owned: &Owned| self.now() >= owned.renewed + self.timing.renew * 1000;
        if !self.owned.get(key).is_some_and(due) {
            return;
        }
        if self.is_dotnet() {
            return self.dotnet_renew(key).await;
        }
        self.update(key, |_| ()).await;
        self.grant_if_requested(key).await;
    }

    /// Gives a lease up; `to` is the host that it is granted to.
    async fn release(&mut self, key: &DocumentKey, to: Option<&str>) {
        if self.is_dotnet() {
            return self.dotnet_end(key).await;
        }
        let change = |body: &mut Value| {
            body["Owner"] = to.map_or(Value::Null, |to| json!(to));
            previous::stamp_release(body);
        };
        self.update(key, change).await;
        self.owned.remove(key);
    }

    async fn poll(&mut self, key: &DocumentKey) {
        let now = self.now();
        let Some(owned) = self.owned.get(key).filter(|owned| now >= owned.polls_at) else { return };
        if !self.is_dotnet() && now - owned.renewed > self.timing.expiration * 800 {
            // The version before stops working when it could not renew.
            self.owned.remove(key);
            return;
        }
        let start = match &owned.position {
            Some(token) => StartFrom::Continuation(Continuation::from_token(token.clone())),
            None => self.first_start().unwrap_or(StartFrom::Beginning),
        };
        if owned.position.is_none() && self.sim.dotnet_started.lock().is_some() {
            self.sim.cover(Sometimes::DotNetStart);
        }
        let range = match &owned.range {
            Some(range) => Some(range.clone()),
            None => self.dotnet_range(&owned.seen).await,
        };
        let Some(range) = range else { return self.dotnet_split(key).await };
        let plan = &self.sim.scenario.processor;
        let mode = if plan.all_versions { Mode::AllVersions } else { Mode::LatestVersion };
        let request = ReadChanges::new(range, start).mode(mode).max_items(plan.max_items);
        let token = owned.seen.document.token.clone();
        let backend = self.feed.backend();
        let page = match self.is_dotnet() {
            true => self.sent(|| backend.read_changes(request.clone())).await,
            false => backend.read_changes(request).await,
        };
        let idle = self.now() + plan.poll * 1000;
        match page {
            Ok(page) => {
                let changes: Vec<(u64, String)> =
                    page.changes.iter().map(|change| (change.lsn.get(), change.id.to_string())).collect();
                let empty = changes.is_empty();
                if !empty && !self.handle(key, &changes, now).await {
                    return;
                }
                let position = page.continuation.token().to_owned();
                if let Some(owned) = self.owned.get_mut(key) {
                    owned.position = Some(position.clone());
                    owned.polls_at = if empty { idle } else { 0 };
                }
                if !empty && self.is_dotnet() {
                    self.dotnet_checkpoint(key).await;
                } else if !empty {
                    self.update(key, |body| body["ContinuationToken"] = json!(position)).await;
                    self.grant_if_requested(key).await;
                }
            }
            Err(error) if self.is_dotnet() => match error.kind() {
                ErrorKind::RangeGone => self.dotnet_split(key).await,
                // The next cycle may acquire it again.
                _ => self.dotnet_end(key).await,
            },
            Err(error) if error.kind() == ErrorKind::RangeGone => {
                // Splitting is left to hosts of ours.
                self.avoided.insert(token, u64::MAX);
                self.release(key, None).await;
            }
            Err(_) => {
                if let Some(owned) = self.owned.get_mut(key) {
                    owned.polls_at = idle;
                }
            }
        }
    }

    /// Handles a batch; false if it cannot, and the lease was released.
    async fn handle(&mut self, key: &DocumentKey, changes: &[(u64, String)], begun: u64) -> bool {
        let found: Vec<usize> = {
            let oracle = self.sim.oracle.lock();
            changes.iter().filter_map(|(lsn, id)| oracle.find(*lsn, item_number(id)?)).collect()
        };
        let bad = {
            let oracle = self.sim.oracle.lock();
            let bad = |at: &usize| oracle.get(*at).is_some_and(|c| c.poison || c.killer || c.unparsable);
            found.iter().any(bad)
        };
        if bad {
            let until = self.now() + AVOIDED;
            if let Some(owned) = self.owned.get(key) {
                self.avoided.insert(owned.seen.document.token.clone(), until);
            }
            self.release(key, None).await;
            return false;
        }
        self.sim.log(format_args!("{} handles {changes:?}", self.name));
        self.sim.cover(Sometimes::NeighbourHandled);
        self.sim.exec.sleep(Duration::from_millis(20)).await;
        let mut oracle = self.sim.oracle.lock();
        for at in found {
            oracle.deliver(at);
            oracle.update(at, |change| {
                change.handled += 1;
                change.claimed = true;
                change.due_since.take_if(|since| *since <= begun);
            });
        }
        true
    }

    /// The wall clock in milliseconds since the epoch.
    fn wall(&self) -> u64 {
        EPOCH_MILLIS + self.now() / 1000
    }
}
