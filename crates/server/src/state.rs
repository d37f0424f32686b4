//! The state that all connections and handlers share.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Catalog, Clock};
use parking_lot::RwLock;

use crate::{
    auth::Keys,
    containers::container_cache::ContainerCache,
    faults::Faults,
    handlers::{
        contract::watch::Watches, metrics::Render, open_backups::OpenBackups, query::kept::KeptQueries,
        workers::Workers,
    },
    metrics::ServerMetrics,
    net::{activity::ActivityIds, auth_throttle::AuthThrottle, limits::Limits, memory::MemoryBudget},
    storage::Storage,
};

/// Everything that requests are answered with.
#[derive(Debug)]
pub(crate) struct ServerState {
    pub(crate) catalog: Arc<dyn Catalog>,
    pub(crate) containers: ContainerCache,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: RwLock<Keys>,
    /// The id of the account.
    pub(crate) account: String,
    /// The number of ranges of a new container; none if it follows from its throughput.
    pub(crate) ranges: Option<usize>,
    /// The retention of all-versions mode in containers whose policy names none.
    pub(crate) retention: Option<Duration>,
    pub(crate) faults: Faults,
    pub(crate) faults_allowed: bool,
    pub(crate) watches: Watches,
    /// Host names of the server in addition to localhost.
    pub(crate) account_hosts: Vec<String>,
    pub(crate) storage: Option<Arc<dyn Storage>>,
    pub(crate) backups: OpenBackups,
    pub(crate) workers: Workers,
    pub(crate) kept_queries: KeptQueries,
    pub(crate) limits: Limits,
    pub(crate) auth_throttle: AuthThrottle,
    pub(crate) activity_ids: ActivityIds,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) metrics: ServerMetrics,
    pub(crate) render_metrics: Option<Render>,
}
