//! Operators: pause, resume, seek and reset through the library's `Control`, over the same network as hosts.

use std::{sync::Arc, time::Duration};

use changefeed::{Control, LeaseTiming, LeaseToken, Scope, SeekTo, runtime::Runtime};
use changefeed_core::{Container, Continuation, Error};
use parking_lot::Mutex;

use crate::{
    checks::takeover::{Process, ProcessKind},
    coverage::Sometimes,
    exec::ProcessId,
    host::PROCESSOR,
    rng::Rng,
    runtime::{Clocks, SimRuntime, wall_at},
    scenario::{OperatorCommand, SeekTarget, Store},
    simulation::Simulation,
    store::SimStore,
};

/// A command is tried so often before the operator gives up.
const TRIES: u32 = 20;

/// Between two tries.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// Performs a command; `left` limits how long a pause lasts, in microseconds.
pub async fn perform(sim: &Arc<Simulation>, number: u64, command: OperatorCommand, left: u64) {
    let operator = Operator::new(sim, &format!("operator {number}"));
    match command {
        OperatorCommand::Pause { pick, length } => {
            let Some(scope) = operator.scope(pick) else { return };
            operator.pause(&scope, true).await;
            sim.exec.sleep(Duration::from_micros((length * 1000).min(left))).await;
            operator.pause(&scope, false).await;
        }
        OperatorCommand::Seek { pick, to } => operator.seek(pick, to).await,
        OperatorCommand::Reset => operator.reset().await,
    }
}

/// Resumes all leases: what an operator does who has lost track.
pub async fn resume_all(sim: &Arc<Simulation>) {
    Operator::new(sim, "last operator").pause(&Scope::All, false).await;
}

struct Operator {
    sim: Arc<Simulation>,
    process: ProcessId,
    control: Control,
}

impl Operator {
    fn new(sim: &Arc<Simulation>, name: &str) -> Self {
        let process = sim.exec.process();
        let facts = Process { name: name.to_owned(), kind: ProcessKind::Operator, expiration: 0, acquire: 0, renew: 0 };
        sim.leases.lock().register(process, facts);
        let label: Arc<str> = name.into();
        let rng = Arc::new(Mutex::new(Rng::new(sim.scenario.seed, &format!("network {name}"))));
        let container =
            |store| Container::new(Arc::new(SimStore::new(sim, process, usize::MAX, &label, store, Arc::clone(&rng))));
        let clocks = Arc::new(Clocks { drift_ppm: 0, offset_millis: Mutex::new(0), suspended: Mutex::new(0) });
        let random = Rng::new(sim.scenario.seed, name);
        let runtime: Arc<dyn Runtime> = Arc::new(SimRuntime::new(&sim.exec, process, &clocks, random, None));
        let timing = sim.scenario.slowest_timing();
        let millis = Duration::from_millis;
        let control = Control::new(PROCESSOR, &container(Store::Feed), &container(Store::Leases))
            .lease_timing(LeaseTiming {
                acquire: millis(timing.acquire),
                renew: millis(timing.renew),
                expiration: millis(timing.expiration),
            })
            .runtime(runtime);
        Self { sim: Arc::clone(sim), process, control }
    }

    fn scope(&self, pick: Option<u64>) -> Option<Scope> {
        let Some(pick) = pick else { return Some(Scope::All) };
        let leases = self.sim.leases.lock();
        let token: LeaseToken = leases.pick(pick)?.document.token.parse().ok()?;
        Some(Scope::Lease(token))
    }

    async fn pause(&self, scope: &Scope, paused: bool) {
        for _ in 0..TRIES {
            let done =
                if paused { self.control.pause(scope.clone()).await } else { self.control.resume(scope.clone()).await };
            match done {
                Ok(leases) => {
                    let verb = if paused { "paused" } else { "resumed" };
                    return self.sim.log(format_args!("process {} {verb} {leases:?}", self.process));
                }
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn seek(&self, pick: Option<u64>, to: SeekTarget) {
        for _ in 0..TRIES {
            let Some(scope) = self.scope(pick) else { return };
            match self.control.seek(self.target(to, &scope), scope).apply().await {
                Ok(moved) => return self.sim.log(format_args!("process {} moved {moved:?}", self.process)),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn reset(&self) {
        for _ in 0..TRIES {
            match self.control.reset().forced().apply().await {
                Ok(leases) => return self.sim.log(format_args!("process {} reset {leases:?}", self.process)),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    fn target(&self, to: SeekTarget, scope: &Scope) -> SeekTo {
        let part = |per_mille: u64, whole: u64| whole * per_mille / 1000;
        match to {
            SeekTarget::Beginning => SeekTo::Beginning,
            SeekTarget::Now => SeekTo::Now,
            SeekTarget::Time(per_mille) => SeekTo::Time(wall_at(part(per_mille, self.sim.exec.now()))),
            SeekTarget::Continuation(per_mille) => {
                // Ranges count for themselves: the position must lie before the end of all of them.
                let lsn = part(per_mille, self.least_end(scope));
                SeekTo::Continuation(Continuation::from_token(format!("\"{lsn}\"")))
            }
        }
    }

    /// Of the newest LSNs in the ranges of the leases, the least.
    fn least_end(&self, scope: &Scope) -> u64 {
        let (leases, oracle) = (self.sim.leases.lock(), self.sim.oracle.lock());
        let is_meant = |token: &str| match scope {
            Scope::Lease(only) => only.to_string() == token,
            _ => true,
        };
        let meant = leases.leases().filter(|lease| is_meant(&lease.document.token));
        let ends = meant.filter_map(|lease| Some(oracle.newest_position(lease.range.as_ref()?)));
        ends.min().unwrap_or(0)
    }

    async fn failed(&self, error: &Error) {
        self.sim.cover(Sometimes::CommandFailed);
        self.sim.log(format_args!("a command of process {} failed: {error:?}", self.process));
        self.sim.exec.sleep(BETWEEN_TRIES).await;
    }
}
