//! The runtime of a simulated host: a clock with drift and offset, tasks on the simulated executor, seeded randomness.

use std::{fmt, sync::Arc, time::Duration};

use changefeed::runtime::{BoxFuture, Runtime};
use changefeed_core::Timestamp;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use crate::{
    exec::{Exec, ProcessId},
    planted::Seam,
    rng::Rng,
};

/// The wall clock at the beginning of a run, in milliseconds since the epoch.
pub const EPOCH_MILLIS: u64 = 1_760_000_000_000;

/// The true wall clock after so many microseconds.
pub fn wall_at(micros: u64) -> Timestamp {
    Timestamp::from_millis(EPOCH_MILLIS + micros / 1000)
}

/// How far the clocks of one machine are off. They outlive its processes.
#[derive(Debug)]
pub struct Clocks {
    /// Parts per million that the clock runs fast, or slow if negative.
    pub drift_ppm: i64,
    /// Milliseconds that the wall clock is ahead.
    pub offset_millis: Mutex<i64>,
    /// For how long the machine has been suspended, in microseconds.
    pub suspended: Mutex<u64>,
}

/// The runtime of one process.
pub struct SimRuntime {
    exec: Exec,
    process: ProcessId,
    clocks: Arc<Clocks>,
    rng: Mutex<Rng>,
    started: u64,
    seam: Option<Seam>,
}

impl SimRuntime {
    /// The runtime of `process` on a machine with these clocks, with a planted bug of the clock if `seam` is one.
    pub fn new(exec: &Exec, process: ProcessId, clocks: &Arc<Clocks>, rng: Rng, seam: Option<Seam>) -> Self {
        let (exec, clocks, rng) = (exec.clone(), Arc::clone(clocks), Mutex::new(rng));
        let started = exec.now();
        Self { exec, process, clocks, rng, started, seam }
    }

    /// True time converted to the time of this machine, or back.
    fn stretched(&self, micros: u64, sign: i64) -> u64 {
        let correction = i128::from(micros) * i128::from(self.clocks.drift_ppm * sign) / 1_000_000;
        u64::try_from((i128::from(micros) + correction).max(0)).unwrap_or(u64::MAX / 4)
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimRuntime(process {})", self.process)
    }
}

impl Runtime for SimRuntime {
    fn monotonic(&self) -> Duration {
        self.exec.count_clock_read();
        if self.seam == Some(Seam::ClockFollowsWallClock) {
            return Duration::from_millis(self.wall().as_millis());
        }
        let slept = if self.seam == Some(Seam::ClockIgnoresSleep) { *self.clocks.suspended.lock() } else { 0 };
        let elapsed = (self.exec.now() - self.started).saturating_sub(slept);
        // Not from 0, so that code which takes 0 for "never" is found out.
        Duration::from_secs(1000) + Duration::from_micros(self.stretched(elapsed, 1))
    }

    fn wall(&self) -> Timestamp {
        let offset = *self.clocks.offset_millis.lock();
        let now = wall_at(self.exec.now());
        let by = Duration::from_millis(offset.unsigned_abs());
        if offset < 0 { now.saturating_sub(by) } else { now.saturating_add(by) }
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.exec.count_clock_read();
        let micros = u64::try_from(duration.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX / 4).min(u64::MAX / 4);
        // One more for the rounding: a sleep until a moment must not end before it.
        let rounding = u64::from(micros > 0 && self.clocks.drift_ppm != 0);
        Box::pin(self.exec.sleep(Duration::from_micros(self.stretched(micros, -1) + rounding)))
    }

    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> JoinHandle<()> {
        self.exec.spawn(self.process, name, task)
    }

    fn random(&self) -> u64 {
        self.rng.lock().number()
    }
}
