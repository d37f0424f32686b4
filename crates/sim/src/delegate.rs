//! The delegate of simulated hosts: takes its time, fails as the scenario says, and has every call checked.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed::{Context, DelegateError, Outcome, RawChanges, Verdict, runtime::Runtime};
use changefeed_core::Change;
use parking_lot::Mutex;

use crate::{
    checks::deliveries::Call, exec::ProcessId, hosts, reach::Sometimes, scenario::CheckpointPlan,
    workload::item_number, world::World,
};

/// What delegates remember of each lease: how many batches, and the last context.
pub type Memory = Arc<Mutex<BTreeMap<String, (u32, Option<Context>)>>>;

/// The delegate of one process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Delegate {
    /// The world.
    pub world: Arc<World>,
    /// The process that it runs in.
    pub process: ProcessId,
    /// The machine.
    pub host: usize,
    /// The name of the process.
    pub name: Arc<str>,
    /// The surroundings of the process.
    pub runtime: Arc<dyn Runtime>,
    /// Per lease: calls since the last checkpoint of the user, and the context of the last call.
    pub memory: Memory,
}

/// What a call is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    Fail,
    Blame(usize),
    Hopeless(usize),
    Each,
    Panic,
    Never,
}

/// Ends a call in the books, also if it is dropped.
struct Entry<'a> {
    delegate: &'a Delegate,
    token: &'a str,
    failed: bool,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.delegate.world.deliveries.lock().end(self.delegate.process, self.token, self.failed);
    }
}

impl Delegate {
    /// Handles a batch.
    ///
    /// # Errors
    /// When the scenario wants it.
    pub async fn call(self, changes: RawChanges, context: Context) -> Result<Verdict, DelegateError> {
        let token = context.lease().as_str().to_owned();
        let Some(numbers) = self.begin(&changes, &context, &token) else {
            return std::future::pending().await;
        };
        let mut entry = Entry { delegate: &self, token: &token, failed: true };
        let (mood, pause) = self.mood(&numbers);
        self.world.log(format_args!(
            "{} calls {} changes {}..={} of lease {token}, attempt {}, {mood:?}",
            self.name,
            changes.len(),
            context.first_lsn(),
            context.last_lsn(),
            context.attempt()
        ));
        self.runtime.sleep(pause).await;
        self.die_of_killer(&numbers).await;
        let poison = |at: &usize| self.world.truth.lock().get(*at).is_some_and(|change| change.poison);
        let done: Vec<usize> = match mood {
            Mood::Well => numbers,
            Mood::Blame(item) | Mood::Hopeless(item) => numbers.into_iter().take(item).collect(),
            Mood::Fail => Vec::new(),
            Mood::Each => return Ok(self.each(&numbers, &mut entry, poison)),
            Mood::Panic => {
                self.world.reached(Sometimes::Panicked);
                panic!("injected: the delegate panics");
            }
            Mood::Never => {
                self.world.reached(Sometimes::TimedOut);
                return std::future::pending().await;
            }
        };
        self.world.deliveries.lock().handled(self.process, &token, &done, &mut self.world.truth.lock());
        match mood {
            Mood::Well => {
                entry.failed = false;
                self.checkpoint(&token, &context, done.len()).await;
                Ok(Verdict::Done)
            }
            Mood::Blame(item) => Err(DelegateError::new("injected: one item fails").at(item)),
            Mood::Hopeless(item) => Err(DelegateError::new("injected: one item is hopeless").at(item).hopeless()),
            _ => Err(DelegateError::new("injected: the batch fails")),
        }
    }

    fn begin(&self, changes: &[Change], context: &Context, token: &str) -> Option<Vec<usize>> {
        let world = &self.world;
        let places: Vec<(u64, u32)> =
            changes.iter().map(|change| (change.lsn.get(), item_number(&change.id).unwrap_or(u32::MAX))).collect();
        let call = Call {
            process: self.process,
            token,
            range: context.range(),
            changes: &places,
            decided: world.exec.running_since(),
            expiration: world.scenario.processor.expiration * 1000,
            automatic: !world.scenario.is_manual(),
            planned_only: world.scenario.is_planned_only(),
        };
        let mut reached = |what| world.reached(what);
        let begun = world.deliveries.lock().begin(&call, &mut world.truth.lock(), &world.ledger.lock(), &mut reached);
        match begun {
            Ok(numbers) => Some(numbers),
            Err((check, what)) => {
                world.violated(check, what);
                None
            }
        }
    }

    fn mood(&self, numbers: &[usize]) -> (Mood, Duration) {
        let plan = &self.world.scenario.delegate;
        let chaos = *self.world.chaos.lock();
        let truth = self.world.truth.lock();
        let poison = numbers.iter().position(|at| truth.get(*at).is_some_and(|change| change.poison));
        drop(truth);
        let expiration = self.world.scenario.processor.expiration * 1000;
        self.world.draw(&format!("delegate {}", self.name), |rng| {
            let mut pause = rng.between(plan.shortest * 1000, plan.longest * 1000);
            if chaos && rng.chance(plan.slow_per_mille) {
                pause += rng.below(expiration);
            }
            let any = usize::try_from(rng.below(numbers.len().max(1) as u64)).unwrap_or_default();
            let dice = rng.below(1000);
            let style = rng.below(5);
            let mood = match poison {
                Some(item) => [Mood::Fail, Mood::Blame(item), Mood::Hopeless(item), Mood::Each, Mood::Panic]
                    .get(usize::try_from(style).unwrap_or_default())
                    .copied()
                    .unwrap_or(Mood::Fail),
                None if chaos => {
                    let mut left = dice;
                    let moods = [
                        (plan.fail_per_mille, Mood::Fail),
                        (plan.blame_per_mille, Mood::Blame(any)),
                        (plan.each_per_mille, Mood::Each),
                        (plan.panic_per_mille, Mood::Panic),
                        (plan.never_per_mille, Mood::Never),
                    ];
                    let mut chosen = Mood::Well;
                    for (per_mille, mood) in moods {
                        if left < per_mille {
                            chosen = mood;
                            break;
                        }
                        left -= per_mille;
                    }
                    chosen
                }
                None => Mood::Well,
            };
            (mood, Duration::from_micros(pause))
        })
    }

    /// An outcome for each item: poison is dead, some others have to be tried again.
    fn each(&self, numbers: &[usize], entry: &mut Entry<'_>, poison: impl Fn(&usize) -> bool) -> Verdict {
        let letters = self.world.scenario.processor.dead_letter_after.is_some();
        let mut done = Vec::new();
        let mut outcomes = Vec::new();
        for at in numbers {
            let again = self.world.draw(&format!("delegate {}", self.name), |rng| rng.chance(300));
            outcomes.push(if poison(at) && letters {
                Outcome::DeadLetter { reason: "injected: poison".to_owned() }
            } else if poison(at) || again {
                self.world.truth.lock().update(*at, |change| change.asked += 1);
                Outcome::Retry { after: Duration::from_millis(50) }
            } else {
                done.push(*at);
                Outcome::Done
            });
        }
        entry.failed = done.len() < numbers.len();
        self.world.deliveries.lock().handled(self.process, entry.token, &done, &mut self.world.truth.lock());
        Verdict::Each(outcomes)
    }

    async fn die_of_killer(&self, numbers: &[usize]) {
        if !self.meets_killer(numbers) {
            return;
        }
        self.world.log(format_args!("{} dies of an item", self.name));
        hosts::die(&self.world, self.host, self.process);
        std::future::pending().await
    }

    fn meets_killer(&self, numbers: &[usize]) -> bool {
        let mut truth = self.world.truth.lock();
        let killer = numbers.iter().copied().find(|at| truth.get(*at).is_some_and(|change| change.killer));
        if let Some(killer) = killer {
            truth.update(killer, |change| change.deaths += 1);
        }
        killer.is_some()
    }

    /// The user's own checkpoints.
    async fn checkpoint(&self, token: &str, context: &Context, handled: usize) {
        let plan = self.world.scenario.processor.checkpoint;
        let (of, keep) = {
            let mut memory = self.memory.lock();
            let (calls, last) = memory.entry(token.to_owned()).or_default();
            *calls += 1;
            match plan {
                CheckpointPlan::Automatic => return,
                CheckpointPlan::Manual(every) if *calls < every => return,
                CheckpointPlan::Manual(_) => {
                    *calls = 0;
                    (context.clone(), 0)
                }
                CheckpointPlan::Lagging => match last.replace(context.clone()) {
                    Some(last) => (last, handled),
                    None => return,
                },
            }
        };
        self.world.deliveries.lock().claim(self.process, token, keep, &mut self.world.truth.lock());
        let stored = of.checkpoint().await;
        self.world.log(format_args!(
            "{} checkpoint of lease {token}: {}",
            self.name,
            if stored.is_ok() { "stored" } else { "lost" }
        ));
    }
}
