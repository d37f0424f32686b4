//! What everything on one host shares.

use std::{fmt, sync::Arc};

use changefeed_core::{Container, ContainerIdentity, Mode};
use parking_lot::Mutex;

use super::{
    document::StartPositions, listing::Listing, prefix::LeaseToken, session::LiveSession, signals::Signals,
    state::Settings, store::LeaseStore, writer::Identity,
};
use crate::{
    delegate::Delegate, delivery::dead_letter::DeadLetter, limits::HostLimits, notifier::Notifier, options::Options,
    runtime::Runtime, store::reopened::ReplacedCount,
};

/// What everything on one host shares.
pub(crate) struct HostContext {
    pub(crate) name: Arc<str>,
    /// The log span of this host.
    pub(crate) span: tracing::Span,
    pub(crate) instance: Arc<str>,
    pub(crate) identity: Arc<Identity>,
    /// Ends when nothing acts for this host any more.
    pub(crate) session: LiveSession,
    pub(crate) monitored: Container,
    pub(crate) monitored_identity: Arc<ContainerIdentity>,
    pub(crate) store: Arc<LeaseStore>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) options: Options,
    pub(crate) settings: Arc<Settings>,
    pub(crate) mode: Mode,
    pub(crate) delegate: Arc<dyn Delegate>,
    pub(crate) dead_letter: Option<DeadLetter>,
    pub(crate) limits: HostLimits,
    pub(crate) notifier: Notifier,
    pub(crate) start_positions: KnownStartPositions,
    /// Held while a batch is delivered in isolation: otherwise a crash would count against batches of several leases.
    pub(crate) isolation: Arc<tokio::sync::Mutex<()>>,
    pub(crate) signals: Signals,
    pub(crate) stop_report: StopReport,
    pub(crate) paused: LastPaused,
}

impl fmt::Debug for HostContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostContext({} on {})", self.name, self.instance)
    }
}

/// Where each range began, as `.info` said when it was read last: an operator may move it. Once the lease container is lost,
/// nobody else knows.
#[derive(Debug)]
pub(crate) struct KnownStartPositions(Mutex<Arc<StartPositions>>);

impl KnownStartPositions {
    pub(crate) fn new(positions: StartPositions) -> Self {
        Self(Mutex::new(Arc::new(positions)))
    }

    pub(crate) fn get(&self) -> Arc<StartPositions> {
        Arc::clone(&self.0.lock())
    }

    pub(crate) fn set(&self, positions: StartPositions) {
        *self.0.lock() = Arc::new(positions);
    }
}

/// Whether an operator had paused the whole processor when its leases were listed last: what is known of it once the lease
/// container is lost. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LastPaused {
    /// Whether all leases were paused, and how often the container had been replaced before they were listed.
    listed: Arc<Mutex<(bool, u64)>>,
    replaced: ReplacedCount,
}

impl LastPaused {
    /// Nothing is known yet of the leases in a container that counts how often it is replaced.
    pub(crate) fn new(replaced: ReplacedCount) -> Self {
        Self { listed: Arc::default(), replaced }
    }

    /// How often the lease container was replaced so far: to be asked before leases are listed.
    pub(crate) fn replaced(&self) -> u64 {
        self.replaced.get()
    }

    /// Takes note of a listing; one without leases says nothing.
    pub(crate) fn listed(&self, listing: &Listing, replaced: u64) {
        if let Some(paused) = listing.all_paused() {
            *self.listed.lock() = (paused, replaced);
        }
    }

    /// Whether leases are paused that are created because there are none. A pause is lost with the container; in the same
    /// container an operator has deleted the leases, and the pause with them.
    pub(crate) fn outlives_leases(&self) -> bool {
        let (paused, replaced) = *self.listed.lock();
        paused && self.replaced.get() > replaced
    }

    /// Whether leases are paused that are created while `listing` shows the others.
    pub(crate) fn beside(&self, listing: &Listing) -> bool {
        listing.all_paused().unwrap_or_else(|| self.outlives_leases())
    }
}

/// What the stop deadline has interrupted. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopReport(Arc<Mutex<Vec<String>>>);

impl StopReport {
    /// Adds what a lease was doing.
    pub(crate) fn add(&self, lease: &LeaseToken, what: &str) {
        self.0.lock().push(format!("lease {lease}: {what}"));
    }

    /// Adds what the host itself was doing.
    pub(crate) fn add_host(&self, what: &str) {
        self.0.lock().push(what.to_owned());
    }

    /// The interrupted work, as a sentence; `None` if there was none.
    pub(crate) fn sentence(&self) -> Option<String> {
        let mut lines = self.0.lock().clone();
        lines.sort();
        let more = lines.len().saturating_sub(5);
        lines.truncate(5);
        let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
        (!lines.is_empty()).then(|| lines.join("; ") + &rest)
    }
}
