//! What a server asks of its store beside databases and containers: whether it is well, and whether its files are.

use std::fmt;

use changefeed_core::Result;
use hyper::StatusCode;
use serde_json::json;

use crate::exchange::Reply;

/// The path under which anybody may ask whether the server is well, without a key.
pub(crate) const HEALTH_PATH: &str = "/healthz";

/// The condition of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why the store refuses everything.
    pub stopped: Option<String>,
    /// What fails at the moment and is tried again.
    pub problems: Vec<String>,
}

/// The part of a store that is not about databases. The program that knows the store plugs it in.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// How the store is. Called often: must be quick.
    fn health(&self) -> Health;

    /// Reads everything that is stored, also what no reader needs any more, and returns how many bytes were good. May
    /// block.
    ///
    /// # Errors
    /// What is damaged, and what to do about it.
    fn verify(&self) -> Result<u64>;
}

/// The answer to a question about health: 200 also for a store with problems that it can live with.
pub(crate) fn health(storage: Option<&dyn Storage>) -> Reply {
    let Health { stopped, mut problems } = storage.map(Storage::health).unwrap_or_default();
    let (status, word) = match (&stopped, problems.is_empty()) {
        (Some(_), _) => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
        (None, false) => (StatusCode::OK, "degraded"),
        (None, true) => (StatusCode::OK, "ok"),
    };
    problems.extend(stopped);
    Reply::json(status, &json!({ "status": word, "problems": problems }))
}
