//! L7: what stops a lease from moving is reported. A store that panics and a read that hangs must lead to an error
//! notification of the host within a bound.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{exec::ProcessId, simulation::Simulation};

/// A panic of a store is reported within this time, in microseconds.
const PANIC_REPORTED: u64 = 90_000_000;

/// A read that never returns is reported within this time: the read timeout of 65 s, a drift of five percent, and
/// some time to notify.
const HANG_REPORTED: u64 = 80_000_000;

/// What hosts have reported.
#[derive(Debug, Default)]
pub struct Reports {
    /// When each process last reported an error.
    errors: BTreeMap<ProcessId, u64>,
    /// Since when all reads of a range by a process hang.
    hung: BTreeMap<(ProcessId, String), u64>,
}

impl Reports {
    /// A host reported an error.
    pub fn error(&mut self, process: ProcessId, now: u64) {
        self.errors.insert(process, now);
    }

    fn has_error_since(&self, process: ProcessId, moment: u64) -> bool {
        self.errors.get(&process).is_some_and(|at| *at >= moment)
    }

    /// A read of a range returned.
    pub fn read_returned(&mut self, process: ProcessId, range: &str) {
        self.hung.remove(&(process, range.to_owned()));
    }
}

/// A store panics in a call of a process: the host must report it.
pub fn store_panics(sim: &Arc<Simulation>, process: ProcessId, host: usize) {
    let begun = sim.exec.now();
    after(sim, PANIC_REPORTED, move |sim| {
        if !sim.hosts.lock().ran_through(host, process, begun) {
            return;
        }
        if !sim.reports.lock().has_error_since(process, begun) {
            sim.violated("L7", format!("a store panicked in a call of process {process}, and nothing was reported"));
        }
    });
}

/// A read of the feed will never return: the host must report it, as long as the lease stays its own and no call runs,
/// which makes the read one ahead.
pub fn read_hangs(sim: &Arc<Simulation>, process: ProcessId, host: usize, range: String) {
    let now = sim.exec.now();
    let begun = *sim.reports.lock().hung.entry((process, range.clone())).or_insert(now);
    if begun < now {
        return;
    }
    after(sim, HANG_REPORTED, move |sim| {
        let still = sim.reports.lock().hung.get(&(process, range.clone())) == Some(&begun);
        if !still || !sim.hosts.lock().ran_through(host, process, begun) {
            return;
        }
        let held = {
            let leases = sim.leases.lock();
            let of_range =
                |lease: &&crate::checks::lease::Lease| lease.range.as_ref().is_some_and(|own| own.to_string() == range);
            let lease = leases.leases().find(of_range);
            lease.is_some_and(|lease| {
                let ended = leases.ownerships.end_of(process, &lease.document.token).is_some_and(|(at, _)| at >= begun);
                let ahead = sim.deliveries.lock().running_since(process, &lease.document.token).is_some();
                lease.holder == Some(process) && !ended && !ahead && lease.paused.is_none()
            })
        };
        if held && !sim.reports.lock().has_error_since(process, begun) {
            let message = format!("reads of range {range} by process {process} hang, and nothing was reported");
            sim.violated("L7", message);
        }
    });
}

fn after(sim: &Arc<Simulation>, micros: u64, check: impl FnOnce(&Arc<Simulation>) + Send + 'static) {
    let sim = Arc::clone(sim);
    sim.clone().exec.detach("report check", async move {
        sim.exec.sleep(Duration::from_micros(micros)).await;
        check(&sim);
    });
}
