//! What is wrong with a store itself: a store in this process that stopped ends the command, and of others it is asked.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use changefeed_embedded::Engine;
use serde_json::Value;

use crate::{
    args::ProcessorArgs,
    exit::{Error, Result},
    processor_stores::ProcessorStores,
    redact::redacted,
    store::{MEMORY, Store},
};

/// How long a server may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the stores of a processor say of themselves: leases may seem stuck for no other reason.
#[derive(Debug, Default)]
pub(crate) struct StoreProblems {
    /// One for each problem.
    pub(crate) sentences: Vec<String>,
    /// Whether a store has stopped: nothing else helps then than to start its process again.
    pub(crate) has_stopped: bool,
}

impl StoreProblems {
    /// Asks the stores; that of the leases may be another one.
    pub(crate) async fn of(args: &ProcessorArgs, on: &ProcessorStores) -> Self {
        let names = [Some(&args.store.store), args.lease_store.as_ref()];
        let mut problems = Self::default();
        for (store, name) in on.stores().zip(names.into_iter().flatten()) {
            problems.ask(store, &redacted(name)).await;
        }
        problems
    }

    /// A store in this process is left out: it ends the command by itself. So is a server that does not answer, since
    /// everything else fails then with a better sentence.
    async fn ask(&mut self, store: &Store, name: &str) {
        let Ok(server) = store.server() else { return };
        let answer = server.admin_call("GET", "health", Vec::new(), PATIENCE).await;
        let health: Value = answer.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        let mut problems: Vec<&str> =
            health["problems"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // Why it stopped comes last.
        if health["status"] == "stopped"
            && let Some(cause) = problems.pop()
        {
            self.has_stopped = true;
            self.sentences.push(format!(
                "store {name}: stopped after a failed write: {cause}: repair the cause, then restart the process that has it \
                 open; what was acknowledged is there"
            ));
        }
        let sentence = |problem| format!("store {name}: {problem}; it goes on by itself once that is repaired");
        self.sentences.extend(problems.into_iter().map(sentence));
    }
}

/// Does the work of a command, and gives up with the cause if a store that this process has open stops itself meanwhile:
/// living on would refuse every write, and hide that from whoever restarts processes.
pub(crate) async fn unless_stopped<'a, T>(
    stores: impl IntoIterator<Item = &'a Store>,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::select! {
        biased;
        error = stopped(stores) => Err(error),
        done = work => done,
    }
}

/// Returns when one of the stores that this process has open has stopped itself, with the cause.
pub(crate) async fn stopped<'a>(stores: impl IntoIterator<Item = &'a Store>) -> Error {
    let engines = stores.into_iter().filter_map(Store::engine);
    let mut all: Vec<_> = engines.map(|engine| Box::pin(stopped_engine(engine))).collect();
    let first = |context: &mut Context<'_>| {
        let mut polled = all.iter_mut().map(|stopped| stopped.as_mut().poll(context));
        polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
    };
    std::future::poll_fn(first).await
}

async fn stopped_engine(engine: &Engine) -> Error {
    let error = engine.stopped().await;
    let cause = engine.health().stopped.unwrap_or_else(|| error.to_string());
    let place = engine.folder().map_or_else(|| MEMORY.to_owned(), |folder| folder.display().to_string());
    format!(
        "the store {place} stopped after a failed write: {cause}: repair the cause, then start this command again; what was \
         acknowledged is there"
    )
    .into()
}
