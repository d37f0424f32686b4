//! Prepares the host of a processor: when it starts, and again for a monitored container that was created again.

use std::{sync::Arc, time::Duration};

use changefeed_core::{Container, Mode, Result, StartFrom};

use crate::{
    delegate::Delegate,
    delivery::dead_letter::DeadLetter,
    host::bootstrap::Bootstrap,
    lease::{
        feed_positions::FeedPositions,
        host_context::{HostContext, KnownStartPositions, LastPaused, StopReport},
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
        presence::Presence,
        replacement::Replacements,
        retry::RetryBackend,
        timeout::{Limits, TimeoutBackend},
    },
    tools::control::Control,
};

/// For so long a start repeats a single request: it may be one under the bootstrap lock, which becomes stale. Then all of the
/// bootstrap is repeated.
pub(crate) const REQUEST_RETRY: Duration = Duration::from_secs(3);

/// For so long a start that is not wanted any more may go on: leases are created under a lock that others wait for.
pub(crate) const START_GRACE: Duration = Duration::from_secs(5);

/// When leases of an owner that does not renew them are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Takeover {
    /// After watching them for the expiration interval.
    AfterExpiration,
    /// As soon as they have expired by the store's clock.
    ByStoreTime,
}

/// Where leases begin that do not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Where the user says: the processor starts.
    First,
    /// At the beginning: the container was created while the processor ran, and all that is in there came after its start.
    Replacement {
        /// Whether nobody may work on them until an operator resumes them.
        paused: bool,
    },
}

impl Origin {
    /// The position for a processor that begins at `start`.
    async fn start(self, monitored: &Container, start: &StartFrom, mode: Mode) -> Result<StartFrom> {
        if self == Self::First {
            return Ok(start.clone());
        }
        match (start, mode) {
            (StartFrom::Time(time), _) => Ok(StartFrom::Time(*time)),
            (_, Mode::AllVersions) => first_version(monitored).await,
            (StartFrom::Beginning | StartFrom::Now | StartFrom::Continuation(_), _) => Ok(StartFrom::Beginning),
        }
    }
}

/// Before the first version of a container, if its store reads all versions of all ranges from there.
async fn first_version(monitored: &Container) -> Result<StartFrom> {
    let feed = FeedPositions { monitored, mode: Mode::AllVersions };
    let mut first = StartFrom::Now;
    for physical in monitored.feed_ranges().await? {
        match feed.first_version(&physical.range).await? {
            Some(continuation) => first = StartFrom::Continuation(continuation),
            None => return Ok(StartFrom::Now),
        }
    }
    Ok(first)
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
    /// Of all hosts together: calls for a deleted container count, too.
    pub(crate) limits: HostLimits,
    pub(crate) notifier: Notifier,
    pub(crate) span: tracing::Span,
    /// Those of the user.
    pub(crate) signals: Signals,
    pub(crate) stop_report: StopReport,
    pub(crate) paused: LastPaused,
}

/// A host that is ready to run.
pub(crate) struct Prepared {
    pub(crate) context: Arc<HostContext>,
    /// The container that it monitors.
    pub(crate) monitored: Container,
    /// Whether that container is there.
    pub(crate) presence: Arc<Presence>,
}

impl Launch {
    /// The container that has the name of the monitored one now, if that was deleted; none if it is there.
    ///
    /// # Errors
    /// As for [`Replacements::of`].
    pub(crate) async fn replacement(&self, monitored: &Container) -> Result<Option<Container>> {
        self.replacements().of(monitored, StoreRole::Monitored).await
    }

    /// Finds containers that replace others.
    pub(crate) fn replacements(&self) -> Replacements {
        Replacements::new(&self.runtime, self.options.read_timeout)
    }

    /// Makes sure that the leases exist, with `origin` for those that do not, and prepares a host for them.
    ///
    /// # Errors
    /// `InvalidArgument` if the lease container or its leases do not fit, and those of the stores.
    pub(crate) async fn prepare(&self, monitored: &Container, origin: Origin, takeover: Takeover) -> Result<Prepared> {
        let Self { runtime, limits: host_limits, .. } = self;
        let (mut options, notifier) = (self.options.clone(), &self.notifier.of_host());
        let limit = options.timing.request();
        let charged =
            |container, waits| ChargedBackend::container(container, host_limits.request_units.as_ref(), waits);
        let leases = TimeoutBackend::new(&self.leases, runtime, Limits::same(limit), notifier, StoreRole::Leases);
        let leases = charged(leases.into_container(), Waits::Nothing);
        let limits = Limits { requests: options.read_timeout, ranges: limit };
        let feed = TimeoutBackend::new(monitored, runtime, limits, notifier, StoreRole::Monitored);
        let presence = feed.presence();
        let feed = charged(feed.into_container(), Waits::FeedReads);
        let dead_letter = options.dead_letter.clone().map(|letters| {
            let (limits, role) = (Limits::same(options.read_timeout), StoreRole::DeadLetters);
            let container = TimeoutBackend::new(&letters.container, runtime, limits, notifier, role);
            DeadLetter { container: charged(container.into_container(), Waits::Nothing), ..letters }
        });
        let prefix = LeasePrefix::new(&self.name, feed.identity())?;
        // Later a refused request is repeated in the next cycle; here it would fail the start.
        let retry = options.start_timeout.min(REQUEST_RETRY);
        let retried_feed = RetryBackend::container(&feed, runtime, retry);
        options.start = origin.start(&retried_feed, &options.start, self.mode).await?;
        let bootstrap = Bootstrap {
            name: &self.name,
            store: &LeaseStore::new(RetryBackend::container(&leases, runtime, retry), prefix.clone())?,
            monitored: &retried_feed,
            runtime,
            start: &options.start,
            mode: self.mode,
            paused: origin == Origin::Replacement { paused: true },
        };
        let process = runtime.process().filter(|_| leases.capabilities().in_process);
        let session = Session::new(process, runtime.random());
        let store = LeaseStore::new(leases.clone(), prefix)?.of_process(session.process());
        let mut start_positions = bootstrap.run_within(options.start_timeout).await?;
        if origin != Origin::First {
            // Another host may have created them, one that started for the first time on the new container and did not know
            // that the processor ran before.
            let control = Control::new(&self.name, &feed, &leases).runtime(Arc::clone(runtime));
            if control.rewind(&options.start).await? {
                start_positions = bootstrap.start_positions(&start_positions).await?.unwrap_or(start_positions);
            }
        }
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
            limits: host_limits.clone(),
            notifier: notifier.clone(),
            start_positions: KnownStartPositions::new(start_positions),
            isolation: Arc::default(),
            signals: self.signals.child(),
            stop_report: self.stop_report.clone(),
            paused: self.paused.clone(),
        });
        Ok(Prepared { context, monitored: monitored.clone(), presence })
    }
}
