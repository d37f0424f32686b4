//! Prepares the host of a processor: when it starts, and again for a monitored container that was created again.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Container, Mode, Result, StartFrom};
use tokio::sync::Notify;

use crate::{
    delegate::Delegate,
    delivery::dead_letter::DeadLetter,
    host::bootstrap::Bootstrap,
    lease::{
        host_context::{HostContext, StopReport},
        prefix::LeasePrefix,
        session::Session,
        signals::Signals,
        store::LeaseStore,
        writer::Identity,
    },
    limits::HostLimits,
    metrics::requests::StoreRole,
    notifier::Notifier,
    options::Options,
    runtime::Runtime,
    store::{
        charged::{ChargedBackend, Waits},
        retry::RetryBackend,
        timeout::{Limits, TimeoutBackend},
    },
};

/// For so long a start repeats a single request: it may be one under the bootstrap lock, which becomes stale. Then all of the
/// bootstrap is repeated.
pub(crate) const REQUEST_RETRY: Duration = Duration::from_secs(3);

/// When leases of an owner that does not renew them are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// After watching them for the expiration interval.
    AfterExpiration,
    /// As soon as they have expired by the store's clock.
    ByStoreTime,
}

/// What a host is made of, apart from the container that it monitors.
pub(crate) struct Launch {
    pub(crate) name: Arc<str>,
    pub(crate) instance: String,
    pub(crate) leases: Container,
    pub(crate) mode: Mode,
    pub(crate) options: Options,
    pub(crate) delegate: Arc<dyn Delegate>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) notifier: Notifier,
    pub(crate) span: tracing::Span,
    /// Those of the user.
    pub(crate) signals: Signals,
    pub(crate) stop_report: StopReport,
}

/// A host that is ready to run.
pub(crate) struct Prepared {
    pub(crate) context: Arc<HostContext>,
    /// The container that it monitors.
    pub(crate) monitored: Container,
    /// Is notified when that container is not found.
    pub(crate) missing: Arc<Notify>,
}

impl Launch {
    /// Makes sure that the leases exist, with `start` for those that do not, and prepares a host for them.
    ///
    /// # Errors
    /// `InvalidArgument` if the lease container or its leases do not fit, and those of the stores.
    pub(crate) async fn prepare(
        &self,
        monitored: &Container,
        start: StartFrom,
        takeover: Takeover,
    ) -> Result<Prepared> {
        let Self { runtime, notifier, .. } = self;
        let options = Options { start, ..self.options.clone() };
        let limit = options.timing.request();
        let host_limits = HostLimits::new(&options, runtime);
        let charged =
            |container, waits| ChargedBackend::container(container, host_limits.request_units.as_ref(), waits);
        let leases = TimeoutBackend::new(&self.leases, runtime, Limits::same(limit), notifier, StoreRole::Leases);
        let leases = charged(leases.into_container(), Waits::Nothing);
        let limits = Limits { requests: options.read_timeout, ranges: limit };
        let feed = TimeoutBackend::new(monitored, runtime, limits, notifier, StoreRole::Monitored);
        let missing = feed.missing();
        let feed = charged(feed.into_container(), Waits::FeedReads);
        let dead_letter = options.dead_letter.clone().map(|letters| {
            let (limits, role) = (Limits::same(options.read_timeout), StoreRole::DeadLetters);
            let container = TimeoutBackend::new(&letters.container, runtime, limits, notifier, role);
            DeadLetter { container: charged(container.into_container(), Waits::Nothing), ..letters }
        });
        let prefix = LeasePrefix::new(&self.name, feed.identity())?;
        // Later a refused request is repeated in the next cycle; here it would fail the start.
        let retry = options.start_timeout.min(REQUEST_RETRY);
        let bootstrap = Bootstrap {
            name: &self.name,
            store: &LeaseStore::new(RetryBackend::container(&leases, runtime, retry), prefix.clone())?,
            monitored: &RetryBackend::container(&feed, runtime, retry),
            runtime,
            start: &options.start,
            mode: self.mode,
        };
        let process = runtime.process().filter(|_| leases.capabilities().in_process);
        let session = Session::new(process, runtime.random());
        let store = LeaseStore::new(leases, prefix)?.of_process(session.process());
        let start_positions = bootstrap.run_within(options.start_timeout).await?;
        let store = match takeover {
            Takeover::AfterExpiration => store,
            Takeover::ByStoreTime => store.with_store_time().await?,
        };
        let context = Arc::new(HostContext {
            name: Arc::clone(&self.name),
            instance: self.instance.as_str().into(),
            session: session.begin(),
            identity: Arc::new(Identity {
                instance: self.instance.clone(),
                session: session.to_string(),
                expiration: options.timing.expiration,
            }),
            span: self.span.clone(),
            monitored_identity: Arc::new(feed.identity().clone()),
            monitored: feed,
            store: Arc::new(store),
            runtime: Arc::clone(runtime),
            settings: Arc::new(options.settings()),
            options,
            mode: self.mode,
            delegate: Arc::clone(&self.delegate),
            dead_letter,
            limits: host_limits,
            notifier: notifier.clone(),
            start_positions,
            isolation: Arc::default(),
            signals: self.signals.child(),
            stop_report: self.stop_report.clone(),
        });
        Ok(Prepared { context, monitored: monitored.clone(), missing })
    }
}
