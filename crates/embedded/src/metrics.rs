//! Metrics of a store, through the `metrics` facade: a program exports them with the recorder that it installs before it
//! opens the store. Recorded for each group of commits, never for single writes. `docs/metrics.md` lists all names.

use std::{
    fmt,
    time::{Duration, Instant},
};

use metrics::{Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge};
use parking_lot::Mutex;

const COMMIT_SECONDS: &str = "changefeed_store_commit_seconds";
const COMMIT_WRITES: &str = "changefeed_store_commit_writes";
const SYNC_SECONDS: &str = "changefeed_store_sync_seconds";
const COMPACTION_SECONDS: &str = "changefeed_store_compaction_seconds";
const WRITES: &str = "changefeed_store_writes_total";
const WRITTEN_BYTES: &str = "changefeed_store_written_bytes_total";
const FAILED_SYNCS: &str = "changefeed_store_failed_syncs_total";
const COMPACTIONS: &str = "changefeed_store_compactions_total";
const FREED_BYTES: &str = "changefeed_store_compaction_freed_bytes_total";
const FAILURES: &str = "changefeed_store_failures_total";
const LOG_BYTES: &str = "changefeed_store_log_bytes";
const DEAD_BYTES: &str = "changefeed_store_log_dead_bytes";
const SEGMENTS: &str = "changefeed_store_log_segments";
const STOPPED: &str = "changefeed_store_stopped";

/// Something that may fail and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    Roll,
    Prepare,
    Compaction,
}

/// The metrics of one store. Those of several stores in one process add up.
pub(crate) struct StoreMetrics {
    commit_seconds: Histogram,
    commit_writes: Histogram,
    sync_seconds: Histogram,
    compaction_seconds: Histogram,
    writes: Counter,
    written_bytes: Counter,
    failed_syncs: Counter,
    compactions: Counter,
    freed_bytes: Counter,
    failures: [(Task, Counter); 3],
    log_bytes: Level,
    dead_bytes: Level,
    segments: Level,
    stopped: Level,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        describe();
        let failure = |task, value: &'static str| (task, counter!(FAILURES, "task" => value));
        Self {
            commit_seconds: metrics::histogram!(COMMIT_SECONDS),
            commit_writes: metrics::histogram!(COMMIT_WRITES),
            sync_seconds: metrics::histogram!(SYNC_SECONDS),
            compaction_seconds: metrics::histogram!(COMPACTION_SECONDS),
            writes: counter!(WRITES),
            written_bytes: counter!(WRITTEN_BYTES),
            failed_syncs: counter!(FAILED_SYNCS),
            compactions: counter!(COMPACTIONS),
            freed_bytes: counter!(FREED_BYTES),
            failures: [
                failure(Task::Roll, "begin_segment"),
                failure(Task::Prepare, "prepare_segment"),
                failure(Task::Compaction, "compaction"),
            ],
            log_bytes: Level::new(gauge!(LOG_BYTES)),
            dead_bytes: Level::new(gauge!(DEAD_BYTES)),
            segments: Level::new(gauge!(SEGMENTS)),
            stopped: Level::new(gauge!(STOPPED)),
        }
    }
}

impl StoreMetrics {
    /// A group of writes is durable and visible.
    pub(crate) fn committed(&self, writes: usize, bytes: usize, took: Duration) {
        self.commit_seconds.record(took.as_secs_f64());
        self.commit_writes.record(float(writes as u64));
        self.writes.increment(writes as u64);
        self.written_bytes.increment(bytes as u64);
    }

    /// The log was synced, or that failed.
    pub(crate) fn synced(&self, ended: &std::io::Result<()>, took: Duration) {
        match ended {
            Ok(()) => self.sync_seconds.record(took.as_secs_f64()),
            Err(_) => self.failed_syncs.increment(1),
        }
    }

    /// Segments were rewritten without dead records.
    pub(crate) fn compacted(&self, freed: u64, took: Duration) {
        self.compaction_seconds.record(took.as_secs_f64());
        self.compactions.increment(1);
        self.freed_bytes.increment(freed);
    }

    /// Something failed that is tried again.
    pub(crate) fn failed(&self, task: Task) {
        if let Some((_, counter)) = self.failures.iter().find(|(known, _)| *known == task) {
            counter.increment(1);
        }
    }

    /// The store stopped itself.
    pub(crate) fn stopped(&self) {
        self.stopped.set(1);
    }

    /// How large the log is now.
    pub(crate) fn log(&self, segments: usize, bytes: u64, dead: u64) {
        self.segments.set(segments as u64);
        self.log_bytes.set(bytes);
        self.dead_bytes.set(dead);
    }
}

impl fmt::Debug for StoreMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreMetrics")
    }
}

/// A gauge that moves by differences and takes its part back at the end, so that stores in one process add up.
struct Level {
    gauge: Gauge,
    last: Mutex<u64>,
}

impl Level {
    fn new(gauge: Gauge) -> Self {
        // So that it is there before the first difference.
        gauge.increment(0.0);
        Self { gauge, last: Mutex::new(0) }
    }

    fn set(&self, value: u64) {
        let mut last = self.last.lock();
        self.gauge.increment(float(value) - float(*last));
        *last = value;
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Measures durations for metrics. Nothing else depends on them, so that a simulation repeats all the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "for metrics only")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are floats")]
fn float(number: u64) -> f64 {
    number as f64
}

fn describe() {
    describe_histogram!(COMMIT_SECONDS, "From the beginning of a commit until it was durable and visible.");
    describe_histogram!(COMMIT_WRITES, "Writes in a group that was committed together.");
    describe_histogram!(SYNC_SECONDS, "Duration of syncs of the log.");
    describe_histogram!(COMPACTION_SECONDS, "Duration of compactions.");
    describe_counter!(WRITES, "Writes and transactions that were committed.");
    describe_counter!(WRITTEN_BYTES, "Bytes appended to the log by commits.");
    describe_counter!(FAILED_SYNCS, "Syncs of the log that failed: the store stops itself then.");
    describe_counter!(COMPACTIONS, "Compactions that have succeeded.");
    describe_counter!(FREED_BYTES, "Bytes of the log that compactions have freed.");
    describe_counter!(FAILURES, "Failures that are tried again, by task: a full disk shows here.");
    describe_gauge!(LOG_BYTES, "Bytes in the log.");
    describe_gauge!(DEAD_BYTES, "Bytes in the log that compaction can free.");
    describe_gauge!(SEGMENTS, "Segment files of the log.");
    describe_gauge!(STOPPED, "Stores that stopped themselves after a failed write or sync.");
}
