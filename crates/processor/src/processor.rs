//! The processor: what users start.

use std::{
    fmt,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use changefeed_core::{Container, Error, ErrorKind, Mode, Result};
use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::Instrument;

use crate::{
    delegate::Delegate,
    host::bootstrap::Bootstrap,
    host_task::HostTask,
    launch::{Launch, Origin, Prepared, REQUEST_RETRY, START_GRACE, Takeover},
    lease::{
        host_context::{LastPaused, StopReport},
        prefix::LeasePrefix,
        signals::Signals,
        store::LeaseStore,
    },
    limits::HostLimits,
    metrics::{HostMetrics, health::HealthGauges},
    notifier::{AsyncCallback, Callback, Notifier},
    options::Options,
    running::Running,
    runtime::{BoxFuture, Runtime, TokioRuntime},
    store::{reopened::ReplacedCount, replacement::is_missing, retry::RetryBackend},
};

/// A change feed processor, ready to be started. See
/// [`ProcessorBuilder`](crate::ProcessorBuilder) for its options.
///
/// ```
/// use changefeed::{Changes, Context, Processor, core::StartFrom, embedded::Engine};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> changefeed::core::Result<()> {
/// let shop = Engine::in_memory()?.database("shop");
/// let orders = shop.container("orders").partition_key("/customer").create().await?;
/// let leases = shop.container("leases").create().await?;
/// let processor = Processor::builder("mailer", &orders, &leases)
///     .instance_name("worker-1")
///     .start_from(StartFrom::Beginning)
///     .build(|changes: Changes<serde_json::Value>, _ctx: Context| async move {
///         println!("{} changes", changes.len());
///         Ok(())
///     })?;
/// let running = processor.start().await?;
/// running.stop().await?;
/// let again = processor.start().await?;
/// again.stop().await
/// # }
/// ```
pub struct Processor {
    pub(crate) name: Arc<str>,
    pub(crate) instance: String,
    /// Another one once a host has followed it: see [`Notification::ContainerReplaced`](crate::Notification).
    pub(crate) monitored: Arc<Mutex<Container>>,
    pub(crate) leases: Container,
    pub(crate) leases_replaced: ReplacedCount,
    pub(crate) mode: Mode,
    pub(crate) options: Options,
    pub(crate) delegate: Arc<dyn Delegate>,
    pub(crate) callbacks: Vec<Callback>,
    pub(crate) async_callbacks: Vec<AsyncCallback>,
    pub(crate) runtime: Option<Arc<dyn Runtime>>,
    /// Fires when the host that was started last has ended.
    pub(crate) last: Mutex<Option<CancellationToken>>,
    /// Whether a host has been started: changes of a container that is created after that are never left out.
    pub(crate) has_started: AtomicBool,
}

impl Processor {
    /// Reads the leases and refuses what [`Processor::start`] would refuse: leases of another mode, of another store, of a
    /// later version. Writes nothing and starts nothing.
    ///
    /// # Errors
    /// As for [`Processor::start`].
    pub async fn check(&self) -> Result<()> {
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let monitored = self.monitored();
        let prefix = LeasePrefix::new(&self.name, monitored.identity())?;
        let retry = self.options.start_timeout.min(REQUEST_RETRY);
        let bootstrap = Bootstrap {
            name: &self.name,
            store: &LeaseStore::new(RetryBackend::container(&self.leases, &runtime, retry), prefix)?,
            monitored: &RetryBackend::container(&monitored, &runtime, retry),
            runtime: &runtime,
            start: &self.options.start,
            mode: self.mode,
            paused: false,
        };
        bootstrap.check().await
    }

    /// The monitored container as it is known now.
    pub(crate) fn monitored(&self) -> Container {
        self.monitored.lock().clone()
    }

    /// Starts a host: creates the leases if there are none, and begins to acquire its share of them. From the moment this
    /// first returns, no change is lost. Requests that a store refuses are repeated, see
    /// [`ProcessorBuilder::start_timeout`](crate::ProcessorBuilder::start_timeout).
    ///
    /// After a stop the processor can be started again. For several hosts in one process, build one processor for each.
    ///
    /// # Errors
    /// `InvalidArgument` if the lease container or its leases do not fit, or if the host that was started before still
    /// runs, and those of the stores.
    pub async fn start(&self) -> Result<Running> {
        self.start_host(Takeover::AfterExpiration).await
    }

    /// Starts a host as [`Processor::start`] does, unless `stop` ends first: then no host runs, and the result is none. A
    /// start under way is given five seconds to finish, so that it leaves no lock behind; its host is stopped.
    ///
    /// A start lasts long if a store does not answer, or if another host has begun to create the leases and is gone.
    ///
    /// ```
    /// # async fn example(processor: changefeed::Processor) -> changefeed::core::Result<()> {
    /// let stop = async { drop(tokio::signal::ctrl_c().await) };
    /// if let Some(running) = processor.start_unless(stop).await? {
    ///     running.stop().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As for [`Processor::start`], as long as `stop` has not ended.
    pub async fn start_unless(&self, stop: impl Future<Output = ()>) -> Result<Option<Running>> {
        self.start_host_unless(Takeover::AfterExpiration, pin!(stop)).await
    }

    pub(crate) async fn start_host_unless(
        &self,
        takeover: Takeover,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<Option<Running>> {
        if stop.as_mut().now_or_never().is_some() {
            return Ok(None);
        }
        let mut starting = self.start_host(takeover);
        tokio::select! {
            biased;
            () = stop => {}
            started = starting.as_mut() => return started.map(Some),
        }
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let started = tokio::select! {
            biased;
            started = starting => started.ok(),
            () = runtime.sleep(START_GRACE) => None,
        };
        if let Some(running) = started {
            running.stop().await?;
        }
        Ok(None)
    }

    /// Starts a host. Not async: whoever polls an async function compiles everything that it polls or spawns, and every
    /// program that starts a processor would compile the host again.
    pub(crate) fn start_host(&self, takeover: Takeover) -> BoxFuture<'_, Result<Running>> {
        Box::pin(self.begin_host(takeover))
    }

    async fn begin_host(&self, takeover: Takeover) -> Result<Running> {
        let ended = CancellationToken::new();
        let guard = ended.clone().drop_guard();
        {
            let mut last = self.last.lock();
            if last.as_ref().is_some_and(|last| !last.is_cancelled()) {
                let message = format!(
                    "processor {} already runs as {}: stop it first, or build another host with its own instance name",
                    self.name, self.instance
                );
                return Err(Error::new(ErrorKind::InvalidArgument, message));
            }
            *last = Some(ended);
        }
        let metrics = Arc::new(HostMetrics::new(&self.name, self.options.lease_metrics));
        let notifier = Notifier::new(&self.callbacks, self.options.notification_capacity, metrics);
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let span = tracing::info_span!("processor", processor = %self.name, instance = %self.instance);
        let (signals, stop_report) = (Signals::default(), StopReport::default());
        let launch = Launch {
            name: Arc::clone(&self.name),
            instance: self.instance.clone(),
            leases: self.leases.clone(),
            mode: self.mode,
            options: self.options.clone(),
            delegate: Arc::clone(&self.delegate),
            runtime: Arc::clone(&runtime),
            limits: HostLimits::new(&self.options, &runtime),
            notifier: notifier.clone(),
            span: span.clone(),
            signals: signals.clone(),
            stop_report: stop_report.clone(),
            paused: LastPaused::new(self.leases_replaced.clone()),
        };
        let callbacks = self.async_callbacks.iter().map(|callback| notifier.spawn(&*runtime, Arc::clone(callback)));
        let (callbacks, received): (Vec<_>, Vec<_>) = callbacks.unzip();
        let first = match self.prepare(&launch, takeover).instrument(span).await {
            Ok(prepared) => {
                self.has_started.store(true, Ordering::Release);
                prepared
            }
            Err(error) => {
                notifier.stopped();
                tokio::select! {
                    biased;
                    () = all_fired(&received) => {}
                    () = runtime.sleep(self.options.stop_deadline) => {}
                }
                return Err(error);
            }
        };
        let finished = CancellationToken::new();
        notifier.record().lock().begin(HealthGauges::new(&self.name));
        let task = HostTask { launch, monitored: Arc::clone(&self.monitored), received, finished: finished.clone() };
        let task = runtime.spawn(&format!("host[{}]", self.name), Box::pin(task.run(first)));
        Ok(Running {
            _task: AbortOnDropHandle::new(task),
            _callbacks: callbacks,
            _ended: guard,
            name: Arc::clone(&self.name),
            signals,
            finished,
            runtime,
            notifier,
            stop_deadline: self.options.stop_deadline,
            stop_report,
        })
    }

    /// Prepares a host, for the container that has the name of the monitored one now if that was deleted.
    async fn prepare(&self, launch: &Launch, takeover: Takeover) -> Result<Prepared> {
        let monitored = self.monitored();
        let error = match launch.prepare(&monitored, Origin::First, takeover).await {
            Err(error) if is_missing(error.kind()) => error,
            prepared => return prepared,
        };
        let found = match launch.replacement(&monitored).await {
            Ok(Some(found)) => found,
            // A missing container is better described by the request that did not find it.
            Ok(None) => return Err(error),
            Err(other) => return Err(if is_missing(other.kind()) { error } else { other }),
        };
        let has_started = self.has_started.load(Ordering::Acquire);
        let origin = if has_started { Origin::Replacement { paused: false } } else { Origin::First };
        let prepared = launch.prepare(&found, origin, takeover).await?;
        *self.monitored.lock() = found;
        Ok(prepared)
    }
}

async fn all_fired(tokens: &[CancellationToken]) {
    for token in tokens {
        token.cancelled().await;
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processor({} on {}, {:?})", self.name, self.instance, self.options)
    }
}
