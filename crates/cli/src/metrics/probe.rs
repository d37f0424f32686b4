//! What `/healthz` and `/readyz` of `run` say about the host in this process.

use std::{sync::Arc, time::Duration};

use changefeed::{Health, HostState, LeaseHealth, OwnedLease};
use changefeed_core::{Container, ErrorKind, Result};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use crate::clock;

/// How long a store may take to answer before the host counts as not ready.
const PATIENCE: Duration = Duration::from_secs(2);

/// The most queries that wait for an answer; further ones get the answer that the host is busy.
const QUESTIONS: usize = 16;

/// How far the host has come.
#[derive(Clone, Default)]
enum Phase {
    #[default]
    Starting,
    /// It runs on these containers.
    Running([Container; 2]),
    Stopping,
}

/// What the endpoint knows of the host. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Probe {
    phase: Arc<Mutex<Phase>>,
    questions: mpsc::Sender<oneshot::Sender<Health>>,
}

/// Where the host gets the questions about its health.
pub(crate) struct Questions(mpsc::Receiver<oneshot::Sender<Health>>);

impl Questions {
    /// Answers the next question; never ends if there can be none any more.
    pub(crate) async fn answer(&mut self, health: impl Fn() -> Health) {
        match self.0.recv().await {
            Some(reply) => drop(reply.send(health())),
            None => std::future::pending().await,
        }
    }
}

impl Probe {
    pub(crate) fn new() -> (Self, Questions) {
        let (questions, receiver) = mpsc::channel(QUESTIONS);
        (Self { phase: Arc::default(), questions }, Questions(receiver))
    }

    /// The host has started.
    pub(crate) fn started(&self, monitored: &Container, leases: &Container) {
        *self.phase.lock() = Phase::Running([monitored.clone(), leases.clone()]);
    }

    /// The host ends; nothing may hold its containers any more.
    pub(crate) fn stopping(&self) {
        *self.phase.lock() = Phase::Stopping;
    }

    /// Whether the process is well, and the answer to `/healthz`.
    pub(crate) async fn health(&self) -> (bool, Value) {
        let phase = self.phase.lock().clone();
        match phase {
            Phase::Starting => (true, shown("starting", &[])),
            Phase::Stopping => (true, shown("stopping", &[])),
            Phase::Running(_) => match self.ask().await {
                None => (true, shown("ok", &[])),
                Some(health) => describe(&health),
            },
        }
    }

    /// Whether the host has started and its stores answer, and the answer to `/readyz`.
    pub(crate) async fn readiness(&self) -> (bool, Value) {
        let phase = self.phase.lock().clone();
        let mut containers = match phase {
            Phase::Starting => return (false, shown("starting", &[])),
            Phase::Stopping => return (false, shown("stopping", &[])),
            Phase::Running(containers) => containers,
        };
        let mut problems = Vec::new();
        for container in &mut containers {
            match clock::within(PATIENCE, answers(container)).await {
                None => problems.push(format!("the store of {} does not answer", container.identity().container_name)),
                Some(Err(error)) => {
                    problems.push(format!("the store of {}: {}", container.identity().container_name, error.kind()));
                }
                Some(Ok(())) => {}
            }
        }
        let mut phase = self.phase.lock();
        if let Phase::Running(_) = &*phase {
            *phase = Phase::Running(containers);
        }
        drop(phase);
        (problems.is_empty(), shown(if problems.is_empty() { "ready" } else { "not ready" }, &problems))
    }

    /// The health of the host; none if it is not asked, as in a run with `--once`.
    async fn ask(&self) -> Option<Health> {
        let (reply, answer) = oneshot::channel();
        self.questions.try_send(reply).ok()?;
        clock::within(PATIENCE, answer).await?.ok()
    }
}

/// Whether the store of a container answers. The host follows a container that was deleted and created again.
async fn answers(container: &mut Container) -> Result<()> {
    match container.feed_ranges().await {
        Err(error) if error.kind() == ErrorKind::ContainerNotFound => match changefeed::replacement(container).await? {
            Some(found) => {
                *container = found;
                Ok(())
            }
            None => Err(error),
        },
        answered => answered.map(drop),
    }
}

/// A host that is stuck is degraded, not dead: starting it again would not help. Errors of delegates may hold data and
/// are not shown, since nobody has to show a key here.
fn describe(health: &Health) -> (bool, Value) {
    if let HostState::Died(_) | HostState::Stopped = health.host {
        return (false, shown("stopped", &["the host has ended".to_owned()]));
    }
    let problems: Vec<String> = health.leases.iter().filter_map(problem).collect();
    (true, shown(if problems.is_empty() { "ok" } else { "degraded" }, &problems))
}

fn problem(lease: &OwnedLease) -> Option<String> {
    let token = &lease.lease;
    match &lease.health {
        LeaseHealth::Stalled { attempts, .. } => Some(format!("lease {token}: its batch has failed {attempts} times")),
        LeaseHealth::Outage { .. } => Some(format!("lease {token}: items fail one after the other")),
        LeaseHealth::Slow { running } => {
            Some(format!("lease {token}: a call has been running for {} s", running.as_secs()))
        }
        _ if !lease.is_stuck() => None,
        _ if lease.feed_failures > lease.dead_letter_failures => {
            Some(format!("lease {token}: its feed could not be read {} times", lease.feed_failures))
        }
        _ => Some(format!("lease {token}: a dead letter could not be written {} times", lease.dead_letter_failures)),
    }
}

fn shown(status: &str, problems: &[String]) -> Value {
    json!({ "status": status, "problems": problems })
}
