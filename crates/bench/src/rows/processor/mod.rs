//! The processor: delivery against a bare feed read, balancing of leases, requests to the lease container.

mod balance;
pub(in crate::rows) mod delivery;
mod fleet;
pub(in crate::rows) mod latency;
mod many_ranges;
mod memory;
mod requests;
mod size;

use std::time::{Duration, Instant};

use changefeed::{Context, DelegateError, Notification, Processor, ProcessorBuilder, RawChanges};
use tokio::time;

pub(crate) use self::memory::say_memory_of_leases;
use super::{Experiment, Goal, Row};
use crate::Result;

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    delivery::EXPERIMENT,
    delivery::METRICS,
    latency::EXPERIMENT,
    balance::REBALANCE,
    balance::TAKEOVER,
    requests::PER_CHECKPOINT,
    requests::IDLE,
    fleet::PLANNING,
    fleet::COLD_START,
    size::EXPERIMENT,
    memory::EXPERIMENT,
];

/// What has not happened within this time never happens.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at whether something has happened: short against the seconds that are measured so.
const LOOK: Duration = Duration::from_millis(2);

/// Waits until `condition` holds, at most `PATIENCE`; returns the time since `start`.
async fn until(start: Instant, what: &str, mut condition: impl FnMut() -> bool) -> Result<Duration> {
    let begun = Instant::now();
    while !condition() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what} did not happen within {PATIENCE:?}").into());
        }
        time::sleep(LOOK).await;
    }
    Ok(start.elapsed())
}

/// Finishes a processor with a delegate that never fails and returns at once.
fn counting<M>(
    builder: ProcessorBuilder<M>,
    delegate: impl Fn(RawChanges, Context) + Send + Sync + 'static,
) -> Result<Processor>
where
    RawChanges: changefeed::AcceptsMode<M>,
{
    let delegate = move |changes: RawChanges, context: Context| {
        delegate(changes, context);
        async { Ok::<(), DelegateError>(()) }
    };
    Ok(builder.build(delegate)?)
}

/// Whether a lease has delivered all that there was.
fn is_caught_up(notification: &Notification) -> bool {
    matches!(notification, Notification::CaughtUp(_))
}
