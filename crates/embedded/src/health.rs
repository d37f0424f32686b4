//! What is wrong with a store that goes on, and why it stopped if it did.

use std::{collections::BTreeMap, fmt};

use changefeed_core::{Error, ErrorKind};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The condition of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store stopped itself; it refuses everything until it is opened again.
    pub stopped: Option<String>,
    /// What failed last time and is tried again: beginning a segment, preparing one, compaction.
    pub problems: Vec<String>,
}

/// Something that may fail and is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Task {
    Roll,
    Prepare,
    Compaction,
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
                let cause = describe(error);
                if problems.get(&task) != Some(&cause) {
                    tracing::warn!(%task, %cause, "failed, will be tried again");
                    problems.insert(task, cause);
                }
            }
        }
    }

    pub(crate) fn health(&self) -> Health {
        let problems = self.problems.lock();
        let problems = problems.iter().map(|(task, cause)| format!("{task}: {cause}")).collect();
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
