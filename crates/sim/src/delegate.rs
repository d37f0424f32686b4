//! The delegate of simulated hosts: takes its time, fails as the scenario says, and has every call checked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed::{BatchResult, Context, DelegateError, ItemResult, ManualContext, runtime::Runtime as _};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::{
    checks::{deliveries::Call, key_range::KeyRange},
    coverage::Sometimes,
    exec::ProcessId,
    host::KeptContexts,
    hosts,
    planted::Seam,
    runtime::SimRuntime,
    scenario::{CheckpointPlan, Timing},
    simulation::Simulation,
    workload::item_number,
};

/// An item as typed delegates want it.
#[derive(Clone, Debug, Deserialize)]
pub struct Item {
    /// The number of the write.
    pub n: u64,
}

/// A type that fits no item.
#[derive(Clone, Debug, Deserialize)]
pub struct Renamed {
    #[expect(dead_code, reason = "no item has it")]
    renamed: u64,
}

/// A change as a delegate received it.
#[derive(Clone, Debug)]
pub enum Received {
    /// Its position and item.
    Place(u64, String),
    /// The number of the write.
    Number(u64),
}

/// A batch that was handled.
#[derive(Debug)]
pub struct Batch {
    context: ManualContext,
    session: u64,
    last: Option<usize>,
}

/// Per lease: calls since the last checkpoint of the user, and the last batch.
pub type Batches = Arc<Mutex<BTreeMap<String, (u32, Option<Batch>)>>>;

/// The delegate of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delegate {
    /// The simulation.
    pub sim: Arc<Simulation>,
    /// The process.
    pub process: ProcessId,
    /// The machine.
    pub host: usize,
    /// The name of the process.
    pub name: Arc<str>,
    /// The intervals of the host.
    pub timing: Timing,
    /// The runtime of the process.
    pub runtime: Arc<SimRuntime>,
    /// What was handled and not checkpointed.
    pub batches: Batches,
    /// Contexts that are kept.
    pub kept: KeptContexts,
}

/// What a call is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    Succeed,
    Fail,
    FailAt(usize),
    FailPermanently(usize),
    Each,
    RetryAll,
    Panic,
    Never,
}

/// Records the end of a call, also if it is dropped.
struct CallGuard<'a> {
    delegate: &'a Delegate,
    token: &'a str,
    /// How many changes it has.
    changes: usize,
    failed: bool,
    /// Whether the call watches `cancelled`, and has not seen it.
    watching: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let Delegate { sim, process, host, .. } = self.delegate;
        sim.deliveries.lock().end(*process, self.token, self.failed);
        sim.call_ended(*process, self.token, if self.failed { 0 } else { self.changes });
        let crashed = sim.scenario.network.panics > 0
            || sim.exec.is_dead(*process)
            || sim.leases.lock().dropped_at(*process).is_some();
        if !self.watching || crashed || sim.hosts.lock().stalled_since(*host, sim.exec.now().saturating_sub(30_000_000))
        {
            return;
        }
        let token = self.token;
        sim.violated("S18", format!("the call of lease {token} was dropped, and `cancelled` had not fired"));
    }
}

impl Delegate {
    /// Handles a batch. `manual` is its context if this delegate stores progress.
    ///
    /// # Errors
    /// Those that the scenario wants.
    pub async fn call(
        self,
        received: Vec<Received>,
        context: Context,
        manual: Option<ManualContext>,
    ) -> Result<BatchResult, DelegateError> {
        let token = context.lease().as_str().to_owned();
        let Some(changes) = self.begin(&received, &context, &token) else {
            return std::future::pending().await;
        };
        if self.sim.scenario.delegate.keeps_contexts {
            self.kept.lock().push(context.clone());
        }
        let mut guard =
            CallGuard { delegate: &self, token: &token, changes: changes.len(), failed: true, watching: false };
        let (behaviour, pause) = self.plan(&changes);
        self.sim.log(format_args!(
            "{} calls {} changes {}..={} of lease {token}, attempt {}, {behaviour:?}",
            self.name,
            changes.len(),
            context.first_lsn(),
            context.last_lsn(),
            context.attempt()
        ));
        let early = behaviour == Behaviour::Succeed && self.sim.scenario.processor.checkpoint == CheckpointPlan::Early;
        if let Some(context) = manual.as_ref().filter(|_| early) {
            return self.checkpoint_early(&token, context, &changes, pause, guard).await;
        }
        self.work(pause, &context, &mut guard).await;
        self.crash_of_killer(&changes).await;
        let done: Vec<usize> = match behaviour {
            Behaviour::Succeed => changes,
            Behaviour::FailAt(item) | Behaviour::FailPermanently(item) => changes.into_iter().take(item).collect(),
            Behaviour::Fail => Vec::new(),
            Behaviour::Each => return Ok(self.each(&changes, &mut guard)),
            Behaviour::RetryAll => return Ok(self.retry_all(&changes, &token)),
            Behaviour::Panic => {
                self.sim.cover(Sometimes::Panicked);
                panic!("injected: the delegate panics");
            }
            Behaviour::Never => {
                self.sim.cover(Sometimes::TimedOut);
                return std::future::pending().await;
            }
        };
        self.sim.deliveries.lock().handled(self.process, &token, &done, &mut self.sim.oracle.lock());
        match behaviour {
            Behaviour::Succeed => {
                guard.failed = false;
                if let Some(context) = &manual {
                    self.checkpoint(&token, context, done.last().copied()).await;
                }
                Ok(BatchResult::Done)
            }
            Behaviour::FailAt(item) => Err(DelegateError::new("injected: one item fails").at(item)),
            Behaviour::FailPermanently(item) => {
                Err(DelegateError::new("injected: one item fails permanently").at(item).permanent())
            }
            _ => Err(DelegateError::new("injected: the batch fails")),
        }
    }

    fn begin(&self, received: &[Received], context: &Context, token: &str) -> Option<Vec<usize>> {
        let sim = &self.sim;
        let plan = &sim.scenario;
        let mut oracle = sim.oracle.lock();
        let find = |received: &Received| match received {
            Received::Place(lsn, id) => oracle.find(*lsn, item_number(id)?),
            Received::Number(number) => oracle.find_number(*number),
        };
        let changes: Vec<Option<usize>> = received.iter().map(find).collect();
        if plan.delegate.typed {
            sim.cover(Sometimes::TypedCall);
        }
        let call = Call {
            process: self.process,
            token,
            range: &KeyRange::of(context.range()),
            changes: &changes,
            decided: sim.exec.running_since(),
            intervals: (self.timing.expiration * 1000, self.timing.renew * 1000),
            automatic: !plan.is_manual(),
            planned_only: plan.is_planned_only(),
            partial: plan.workload.unparsable_per_mille > 0,
            reliable: self.is_reliable(),
            most: plan.processor.max_concurrent_calls,
        };
        let mut cover = |what| sim.cover(what);
        let begun = sim.deliveries.lock().begin(&call, sim.exec.now(), &mut oracle, &sim.leases.lock(), &mut cover);
        drop(oracle);
        match begun {
            Ok(changes) => Some(changes),
            Err((check, what)) => {
                sim.violated(check, what);
                None
            }
        }
    }

    /// Passes the time of a call; ends early if `cancelled` fires and the delegate watches it.
    async fn work(&self, pause: Duration, context: &Context, guard: &mut CallGuard<'_>) {
        let sleep = self.runtime.sleep(pause);
        if !self.sim.scenario.delegate.watches_cancelled || pause < Duration::from_secs(1) {
            return sleep.await;
        }
        guard.watching = true;
        tokio::select! {
            biased;
            () = context.cancelled(), if !self.sim.has(Seam::CancelledNeverFires) => {
                self.sim.cover(Sometimes::Cancelled);
                self.sim.log(format_args!("{} is cancelled", self.name));
            }
            () = sleep => self.check_cancelled(guard.token),
        }
        guard.watching = false;
    }

    /// S18: a call that was not cancelled although its lease was paused or requested long enough ago for the owner to
    /// know.
    fn check_cancelled(&self, token: &str) {
        let (sim, now) = (&self.sim, self.sim.exec.now());
        let bound = 2 * self.timing.renew * 1000 + 1_000_000;
        let signalled = {
            let leases = sim.leases.lock();
            let lease = leases.by_token(token).filter(|lease| lease.holder == Some(self.process));
            lease.and_then(|lease| [lease.paused, lease.requested].into_iter().flatten().min())
        };
        let Some(since) = signalled.filter(|since| now - since > bound) else { return };
        if self.is_reliable() && !sim.hosts.lock().stalled_since(self.host, since) {
            let ago = (now - since) / 1000;
            let message = format!("lease {token} was paused or requested {ago} ms ago, and `cancelled` has not fired");
            sim.violated("S18", message);
        }
    }

    /// Whether the lease store answers every request soon.
    fn is_reliable(&self) -> bool {
        let plan = &self.sim.scenario;
        plan.is_calm() && !plan.has_store_faults() && plan.network.slowest_micros < 50_000
    }

    fn plan(&self, changes: &[usize]) -> (Behaviour, Duration) {
        let plan = &self.sim.scenario.delegate;
        let chaos = *self.sim.chaos.lock();
        let poison = {
            let oracle = self.sim.oracle.lock();
            changes.iter().position(|at| oracle.get(*at).is_some_and(|change| change.poison))
        };
        let expiration = self.timing.expiration * 1000;
        let outage = *self.sim.delegate_outages.lock() > 0;
        self.sim.draw(&format!("delegate {}", self.name), |rng| {
            let mut pause = rng.between(plan.shortest * 1000, plan.longest * 1000);
            if chaos && rng.chance(plan.slow_per_mille) {
                pause += rng.below(expiration);
            }
            if chaos && plan.long_per_mille > 0 && rng.chance(plan.long_per_mille) {
                self.sim.cover(Sometimes::LongCall);
                pause = plan.long * 1000;
            }
            let any = usize::try_from(rng.below(changes.len().max(1) as u64)).unwrap_or_default();
            let mut left = rng.below(1000);
            let style = usize::try_from(rng.below(5)).unwrap_or_default();
            let behaviour = match poison {
                Some(item) => [
                    Behaviour::Fail,
                    Behaviour::FailAt(item),
                    Behaviour::FailPermanently(item),
                    Behaviour::Each,
                    Behaviour::Panic,
                ][style],
                None if chaos && outage => Behaviour::Fail,
                None if chaos => {
                    let behaviours = [
                        (plan.fail_per_mille, Behaviour::Fail),
                        (plan.blame_per_mille, Behaviour::FailAt(any)),
                        (plan.each_per_mille, Behaviour::Each),
                        (plan.panic_per_mille, Behaviour::Panic),
                        (plan.never_per_mille, Behaviour::Never),
                        (plan.retry_all_per_mille, Behaviour::RetryAll),
                    ];
                    let mut chosen = Behaviour::Succeed;
                    for (per_mille, behaviour) in behaviours {
                        if left < per_mille {
                            chosen = behaviour;
                            break;
                        }
                        left -= per_mille;
                    }
                    chosen
                }
                None => Behaviour::Succeed,
            };
            (behaviour, Duration::from_micros(pause))
        })
    }

    /// A result for each item: poison is dead-lettered, some others are to be retried.
    fn each(&self, changes: &[usize], guard: &mut CallGuard<'_>) -> BatchResult {
        let letters = self.sim.scenario.processor.dead_letter_after.is_some();
        let (mut done, mut results) = (Vec::new(), Vec::new());
        for at in changes {
            let poison = self.sim.oracle.lock().get(*at).is_some_and(|change| change.poison);
            let again = self.sim.draw(&format!("delegate {}", self.name), |rng| rng.chance(300));
            results.push(if poison && letters {
                ItemResult::DeadLetter { reason: "injected: poison".to_owned() }
            } else if poison || again {
                self.sim.oracle.lock().update(*at, |change| change.retries += 1);
                ItemResult::Retry { after: Duration::from_millis(50) }
            } else {
                done.push(*at);
                ItemResult::Done
            });
        }
        guard.failed = done.len() < changes.len();
        self.sim.deliveries.lock().handled(self.process, guard.token, &done, &mut self.sim.oracle.lock());
        BatchResult::Each(results)
    }

    /// All items are to be retried.
    fn retry_all(&self, changes: &[usize], token: &str) -> BatchResult {
        self.sim.cover(Sometimes::RetriedAll);
        let mut oracle = self.sim.oracle.lock();
        changes.iter().for_each(|at| oracle.update(*at, |change| change.retries += 1));
        drop(oracle);
        self.sim.deliveries.lock().retried(self.process, token, changes);
        BatchResult::Each(vec![ItemResult::Retry { after: Duration::from_millis(50) }; changes.len()])
    }

    async fn crash_of_killer(&self, changes: &[usize]) {
        let killer = {
            let oracle = self.sim.oracle.lock();
            changes.iter().any(|at| oracle.get(*at).is_some_and(|change| change.killer))
        };
        if killer {
            self.sim.log(format_args!("{} crashes because of an item", self.name));
            hosts::crash_of_item(&self.sim, self.host, self.process);
            std::future::pending().await
        }
    }

    /// Handles everything, checkpoints, and takes its time afterwards.
    async fn checkpoint_early(
        &self,
        token: &str,
        context: &ManualContext,
        changes: &[usize],
        pause: Duration,
        mut guard: CallGuard<'_>,
    ) -> Result<BatchResult, DelegateError> {
        self.crash_of_killer(changes).await;
        self.sim.deliveries.lock().handled(self.process, token, changes, &mut self.sim.oracle.lock());
        self.sim.cover(Sometimes::EarlyCheckpoint);
        let session = self.sim.deliveries.lock().session(self.process, token);
        self.store(token, Batch { context: context.clone(), session, last: changes.last().copied() }).await;
        guard.failed = false;
        self.work(pause, context, &mut guard).await;
        Ok(BatchResult::Done)
    }

    /// The user's own checkpoints.
    async fn checkpoint(&self, token: &str, context: &ManualContext, last: Option<usize>) {
        let session = self.sim.deliveries.lock().session(self.process, token);
        let batch = Batch { context: context.clone(), session, last };
        let batch = {
            let mut batches = self.batches.lock();
            let (calls, before) = batches.entry(token.to_owned()).or_default();
            *calls += 1;
            match self.sim.scenario.processor.checkpoint {
                CheckpointPlan::Manual(every) if *calls >= every => {
                    *calls = 0;
                    Some(batch)
                }
                CheckpointPlan::Lagging => before.replace(batch),
                CheckpointPlan::Late(millis) => {
                    self.checkpoint_late(token, batch, millis);
                    None
                }
                _ => None,
            }
        };
        if let Some(batch) = batch {
            self.store(token, batch).await;
        }
    }

    /// Checkpoints in a task of the user's own, after the call has returned.
    fn checkpoint_late(&self, token: &str, batch: Batch, millis: u64) {
        let (delegate, token) = (self.clone(), token.to_owned());
        self.sim.cover(Sometimes::LateCheckpoint);
        let task = async move {
            delegate.runtime.sleep(Duration::from_millis(millis)).await;
            delegate.store(&token, batch).await;
        };
        drop(self.sim.exec.spawn(self.process, "late checkpoint", Box::pin(task)));
    }

    async fn store(&self, token: &str, batch: Batch) {
        let Batch { context, session, last } = batch;
        self.sim.deliveries.lock().claim(self.process, token, session, last, &mut self.sim.oracle.lock());
        let stored = context.checkpoint().await;
        if stored.is_err() {
            self.sim.cover(Sometimes::RefusedCheckpoint);
        }
        let result = if stored.is_ok() { "stored" } else { "refused" };
        self.sim.log(format_args!("{} checkpoint of lease {token}: {result}", self.name));
    }
}
