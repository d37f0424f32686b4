//! The processor: what users build, start and stop.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Mode, Result, StartFrom};
use tokio::sync::broadcast;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    backoff::Backoff,
    delegate::{AcceptsMode, AllVersions, BatchResult, Closure, Context, Delegate, DelegateError, Latest},
    delivery::dead_letter::DeadLetter,
    host::{Host, bootstrap::Bootstrap},
    lease::{
        account_host,
        host_context::{HostContext, StopReport},
        prefix::{LeasePrefix, LeaseToken},
        signals::Signals,
        store::LeaseStore,
        timing::LeaseTiming,
        writer::Identity,
    },
    notification::{Failure, Notification, Notifier},
    options::{Checkpoint, Options},
    runtime::{Runtime, TokioRuntime},
    store::{
        retry::RetryBackend,
        timeout::{Limits, TimeoutBackend},
    },
};

/// Of the stop deadline, this share is for finishing in good order; the rest is for giving up what does not finish.
const GRACE: f64 = 0.8;

/// A change feed processor, ready to be started.
pub struct Processor {
    name: Arc<str>,
    instance: String,
    monitored: Container,
    leases: Container,
    mode: Mode,
    options: Options,
    delegate: Arc<dyn Delegate>,
    notifier: Notifier,
    runtime: Option<Arc<dyn Runtime>>,
}

impl Processor {
    /// Builds a processor from its name, the monitored container and the lease container. Processors with different names
    /// each see every change; hosts of one name share the leases.
    pub fn builder(name: impl Into<String>, monitored: &Container, leases: &Container) -> ProcessorBuilder<Latest> {
        let timing = LeaseTiming::for_container(leases);
        ProcessorBuilder {
            name: name.into(),
            instance: None,
            monitored: monitored.clone(),
            leases: leases.clone(),
            mode: Mode::LatestVersion,
            options: Options { timing, ..Options::default() },
            callbacks: Vec::new(),
            runtime: None,
            _mode: PhantomData,
        }
    }

    /// Starts a host: creates the leases if there are none, and begins to acquire its share of them. From the moment this
    /// first returns, no change is lost. Requests that a store refuses are repeated for some seconds.
    ///
    /// # Errors
    /// `InvalidArgument` if the lease container or its leases do not fit, and those of the stores.
    pub async fn start(self) -> Result<Running> {
        let runtime = self.runtime.unwrap_or_else(TokioRuntime::new);
        let options = self.options;
        let limit = options.timing.request();
        let leases = TimeoutBackend::container(&self.leases, &runtime, Limits::same(limit), &self.notifier);
        let limits = Limits { requests: options.read_timeout, ranges: limit };
        let monitored = TimeoutBackend::container(&self.monitored, &runtime, limits, &self.notifier);
        let dead_letter = options.dead_letter.clone().map(|letters| {
            let limits = Limits::same(options.read_timeout);
            DeadLetter {
                container: TimeoutBackend::container(&letters.container, &runtime, limits, &self.notifier),
                ..letters
            }
        });
        let prefix = LeasePrefix::new(&self.name, monitored.identity())?;
        // Later a refused request is repeated in the next cycle; here it would fail the start.
        let bootstrap = Bootstrap {
            store: &LeaseStore::new(RetryBackend::container(&leases, &runtime), prefix.clone())?,
            monitored: &RetryBackend::container(&monitored, &runtime),
            runtime: &runtime,
            start: &options.start,
            mode: self.mode,
        };
        let store = Arc::new(LeaseStore::new(leases, prefix)?);
        let session = new_session(&*runtime);
        account_host::check(&self.name, monitored.identity(), bootstrap.store).await?;
        let start_positions = bootstrap.run().await?;
        let (stop_deadline, signals, stop_report) = (options.stop_deadline, Signals::default(), StopReport::default());
        let context = Arc::new(HostContext {
            name: Arc::clone(&self.name),
            instance: self.instance.as_str().into(),
            identity: Arc::new(Identity { instance: self.instance, session, expiration: options.timing.expiration }),
            monitored_identity: Arc::new(monitored.identity().clone()),
            monitored,
            store,
            runtime: Arc::clone(&runtime),
            settings: Arc::new(options.settings()),
            options,
            mode: self.mode,
            delegate: self.delegate,
            dead_letter,
            notifier: self.notifier.clone(),
            start_positions,
            isolation: Arc::default(),
            signals: signals.clone(),
            stop_report: stop_report.clone(),
        });
        let finished = CancellationToken::new();
        let (host, done) = (Host::new(context), finished.clone());
        let task = async move {
            host.run().await;
            done.cancel();
        };
        let task = AbortOnDropHandle::new(runtime.spawn(&format!("host[{}]", self.name), Box::pin(task)));
        Ok(Running { _task: task, signals, finished, runtime, notifier: self.notifier, stop_deadline, stop_report })
    }
}

/// A session id that no other process has.
fn new_session(runtime: &dyn Runtime) -> String {
    format!("{:016x}", runtime.random())
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processor({} on {}, {:?})", self.name, self.instance, self.options)
    }
}

/// A host that runs. Dropping it ends it at once, as a crash would: nothing is renewed any more, and other hosts take its
/// leases over when they have expired. [`Running::stop`] ends it in good order.
#[must_use = "dropping it ends the host at once"]
pub struct Running {
    _task: AbortOnDropHandle<()>,
    signals: Signals,
    finished: CancellationToken,
    runtime: Arc<dyn Runtime>,
    notifier: Notifier,
    stop_deadline: Duration,
    stop_report: StopReport,
}

impl Running {
    /// Returns the notifications of the host, from now on.
    pub fn notifications(&self) -> broadcast::Receiver<Notification> {
        self.notifier.subscribe()
    }

    /// Finishes running batches, stores progress, releases all leases. Returns within the stop deadline, whatever the
    /// delegate does.
    ///
    /// # Errors
    /// `Timeout` if something did not finish; the message says what. A batch that was cut will be delivered again.
    pub async fn stop(self) -> Result<()> {
        self.signals.stop.cancel();
        if self.finished_within(self.stop_deadline.mul_f64(GRACE)).await {
            return Ok(());
        }
        self.signals.abort.cancel();
        self.finished_within(self.stop_deadline.mul_f64(1.0 - GRACE)).await;
        let what = self.stop_report.sentence().unwrap_or_else(|| "the host did not answer".to_owned());
        let message = format!("stop did not finish within {:?}: {what}", self.stop_deadline);
        Err(Error::new(ErrorKind::Timeout, message))
    }

    async fn finished_within(&self, limit: Duration) -> bool {
        let sleep = self.runtime.sleep(limit);
        tokio::select! {
            biased;
            () = self.finished.cancelled() => true,
            () = sleep => false,
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Running")
    }
}

type Callback = Arc<dyn Fn(&Notification) + Send + Sync>;

/// A processor being built. `M` is what its delegate gets: [`Latest`] versions or [`AllVersions`].
#[must_use = "nothing happens before `build`"]
pub struct ProcessorBuilder<M> {
    name: String,
    instance: Option<String>,
    monitored: Container,
    leases: Container,
    mode: Mode,
    options: Options,
    callbacks: Vec<Callback>,
    runtime: Option<Arc<dyn Runtime>>,
    _mode: PhantomData<fn() -> M>,
}

impl ProcessorBuilder<Latest> {
    /// Delivers every version and every delete, to a delegate that takes `Versions<T>`. The monitored container must
    /// keep versions. Default: newest versions only.
    pub fn all_versions(self) -> ProcessorBuilder<AllVersions> {
        ProcessorBuilder {
            name: self.name,
            instance: self.instance,
            monitored: self.monitored,
            leases: self.leases,
            mode: Mode::AllVersions,
            options: self.options,
            callbacks: self.callbacks,
            runtime: self.runtime,
            _mode: PhantomData,
        }
    }
}

impl<M> ProcessorBuilder<M> {
    /// The name of this host, unique within the processor. Default: random, so that leases of an earlier process have to
    /// expire before they are acquired again.
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Where a processor begins that was never started before. Default: now.
    pub fn start_from(mut self, start: StartFrom) -> Self {
        self.options.start = start;
        self
    }

    /// How often leases are balanced and renewed, and when they expire. Default: 13, 17 and 60 s; 1, 2.5 and 8 s if the
    /// lease container is in the same process.
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.options.timing = timing;
        self
    }

    /// How often an idle feed is polled, where the store has no wake-ups. Default: 5 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How many changes a batch has at most; a transaction is never cut. Default: 1,000.
    pub fn max_items(mut self, max_items: usize) -> Self {
        self.options.max_items = max_items;
        self
    }

    /// When progress is stored. Default: after each batch.
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.options.checkpoint = checkpoint;
        self
    }

    /// Back-off between attempts of a batch that failed. Default: 200 ms, doubled up to 30 s.
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.options.retry = backoff;
        self
    }

    /// The container for items that the delegate cannot handle. Default: none; a batch is retried without limit.
    pub fn dead_letter(mut self, dead_letter: DeadLetter) -> Self {
        self.options.dead_letter = Some(dead_letter);
        self
    }

    /// How long a delegate call may take; then it is dropped, which is a failed attempt. A call that blocks its thread
    /// cannot be dropped: its lease is given up. Default: no limit; the lease is renewed for as long as the call runs.
    pub fn delegate_timeout(mut self, timeout: Duration) -> Self {
        self.options.delegate_timeout = Some(timeout);
        self
    }

    /// How long a delegate call runs before [`Notification::Slow`] is sent, and again whenever that time has doubled. Default: half of the delegate timeout, 30 s without one.
    pub fn slow_after(mut self, time: Duration) -> Self {
        self.options.slow_after = Some(time);
        self
    }

    /// How long [`Running::stop`] may take. Default: 30 s.
    pub fn stop_deadline(mut self, deadline: Duration) -> Self {
        self.options.stop_deadline = deadline;
        self
    }

    /// Takes a lease from a host of this library that is alive but has not answered a request for it within `deadline`,
    /// because its delegate call takes so long. The batch is then delivered twice. Default: never; the owner is waited for.
    pub fn steal_after(mut self, deadline: Duration) -> Self {
        self.options.steal_after = Some(deadline);
        self
    }

    /// How long a read of the feed may take; then it fails, is reported and repeated. Default: 65 s.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.options.read_timeout = timeout;
        self
    }

    /// How many leases this host owns at most. Default: no limit.
    pub fn max_leases(mut self, max_leases: usize) -> Self {
        self.options.max_leases = Some(max_leases);
        self
    }

    /// Called for every notification. Must return quickly. Default: nothing.
    pub fn on_notification(mut self, callback: impl Fn(&Notification) + Send + Sync + 'static) -> Self {
        self.callbacks.push(Arc::new(callback));
        self
    }

    /// Called when a lease was acquired, before its first batch. Default: nothing.
    pub fn on_lease_acquired(self, callback: impl Fn(&LeaseToken) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::LeaseAcquired(lease) = notification {
                callback(lease);
            }
        })
    }

    /// Called when a lease is no longer owned. Default: nothing.
    pub fn on_lease_released(self, callback: impl Fn(&LeaseToken) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::LeaseReleased(lease, _) = notification {
                callback(lease);
            }
        })
    }

    /// Called when something fails; the lease is named if there is one. Default: nothing.
    pub fn on_error(self, callback: impl Fn(Option<&LeaseToken>, &Failure) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::Error(lease, failure) = notification {
                callback(lease.as_ref(), failure);
            }
        })
    }

    /// Clock, task spawning and randomness: for simulations. Default: tokio and the operating system.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Finishes the processor with its delegate.
    ///
    /// # Errors
    /// `InvalidArgument` for options that make no sense; the message names the fix.
    pub fn build<F, I, Fut, R>(self, delegate: F) -> Result<Processor>
    where
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        I: AcceptsMode<M>,
        Fut: Future<Output = Result<R, DelegateError>> + Send + 'static,
        R: Into<BatchResult> + 'static,
    {
        self.options.check(self.mode)?;
        LeasePrefix::new(&self.name, self.monitored.identity())?;
        LeaseStore::new(self.leases.clone(), LeasePrefix::new(&self.name, self.monitored.identity())?)?;
        let instance = match self.instance {
            Some(name) if name.trim().is_empty() => {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    "the instance name is empty: leave it out or name the host",
                ));
            }
            Some(name) => name,
            None => format!("host-{}", new_session(&*self.runtime.clone().unwrap_or_else(TokioRuntime::new))),
        };
        Ok(Processor {
            name: self.name.into(),
            instance,
            monitored: self.monitored,
            leases: self.leases,
            mode: self.mode,
            options: self.options,
            delegate: Arc::new(Closure(delegate, PhantomData)),
            notifier: Notifier::new(self.callbacks),
            runtime: self.runtime,
        })
    }
}

impl<M> fmt::Debug for ProcessorBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessorBuilder({}, {:?})", self.name, self.options)
    }
}
