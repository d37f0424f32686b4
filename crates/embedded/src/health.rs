//! What is wrong with a store that goes on, and why it stopped if it did.

use std::{collections::BTreeMap, fmt};

use changefeed_core::{Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::metrics::{StoreMetrics, Task};

/// The condition of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store stopped itself; it refuses everything until it is opened again.
    pub stopped: Option<String>,
    /// What failed last time and is tried again: beginning a segment, preparing one, compaction. And damage in records that
    /// newer ones have replaced, until compaction has removed it.
    pub problems: Vec<String>,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Roll => "begin a new segment",
            Self::Prepare => "prepare the next segment",
            Self::Compaction => "compaction",
        })
    }
}

/// Where failures are reported.
#[derive(Debug, Default)]
pub(crate) struct HealthReport {
    stopped: watch::Sender<Option<String>>,
    problems: Mutex<BTreeMap<Task, String>>,
    /// Damage that does no harm.
    damage: Mutex<Vec<String>>,
    /// What the store measures.
    pub(crate) metrics: StoreMetrics,
}

impl HealthReport {
    /// Notes that the store stopped itself.
    pub(crate) fn stop(&self, cause: &str) {
        tracing::error!(cause, "the store stopped itself: open it again");
        self.stopped.send_if_modified(|stopped| {
            let is_first = stopped.is_none();
            stopped.get_or_insert_with(|| cause.to_owned());
            is_first
        });
        self.metrics.stopped();
    }

    /// Notes the outcome of something that is tried again after a failure. The same failure is logged once.
    pub(crate) fn note<T>(&self, task: Task, outcome: &Result<T, Error>) {
        let mut problems = self.problems.lock();
        match outcome {
            Ok(_) => {
                if problems.remove(&task).is_some() {
                    tracing::info!(%task, "works again");
                }
            }
            Err(error) => {
                self.metrics.failed(task);
                let cause = describe(error);
                if problems.get(&task) != Some(&cause) {
                    tracing::warn!(%task, %cause, "failed, will be tried again");
                    problems.insert(task, cause);
                }
            }
        }
    }

    /// Notes that a record is damaged that a newer one has replaced.
    pub(crate) fn harmless_damage(&self, error: &Error) {
        let cause = error.message();
        tracing::warn!(cause, "a record is damaged that a newer one has replaced: compaction will remove it");
        self.damage.lock().push(cause.to_owned());
    }

    /// Notes that compaction has removed all damage.
    pub(crate) fn damage_is_gone(&self) {
        if !std::mem::take(&mut *self.damage.lock()).is_empty() {
            tracing::info!("compaction has removed all damaged records");
        }
    }

    pub(crate) fn health(&self) -> Health {
        let problems = self.problems.lock();
        let failed = problems.iter().map(|(task, cause)| format!("{task}: {cause}"));
        let damage = self.damage.lock();
        let problems = failed.chain(damage.iter().map(|cause| format!("replaced data: {cause}"))).collect();
        Health { stopped: self.stopped.borrow().clone(), problems }
    }

    /// Returns when the store has stopped itself, with the cause.
    pub(crate) async fn stopped(&self) -> Error {
        let mut receiver = self.stopped.subscribe();
        let cause = match receiver.wait_for(Option::is_some).await {
            Ok(cause) => cause.clone().unwrap_or_default(),
            Err(_) => String::new(),
        };
        Error::new(ErrorKind::Closed, format!("the store stopped itself ({cause}): open it again"))
    }
}

/// An error with its causes.
fn describe(error: &Error) -> String {
    let mut text = error.message().to_owned();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
