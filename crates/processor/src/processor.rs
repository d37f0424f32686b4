//! The processor: what users build, start and stop.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Mode, Result, StartFrom};
use tokio::{
    sync::{broadcast, watch},
    task::JoinHandle,
};

use crate::{
    backoff::Backoff,
    context::Context,
    dead_letter::DeadLetter,
    delegate::{AllVersions, Closure, Delegate, DelegateError, Fits, Latest, Verdict},
    deliver::told,
    host::{Host, Shared, Stopper, new_session},
    lease::{
        bootstrap::Bootstrap,
        ownership::Identity,
        prefix::{LeasePrefix, LeaseToken},
        store::LeaseStore,
        timing::LeaseTiming,
    },
    notification::{Failure, Notification, Notifier},
    options::{Checkpoint, Options},
    patience::{Limits, Patient, Stubborn},
    runtime::{Runtime, TokioRuntime},
    worker::Orders,
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
    /// Begins a processor: its name, what it processes, and where its leases are. Processors with different names see
    /// every change each; hosts of one name share the work.
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

    /// Starts a host: makes sure that the leases exist, and begins to take its share of them. From the moment this
    /// returns for the first time, no change is lost. A store that is busy or away is given some seconds.
    ///
    /// # Errors
    /// `InvalidArgument` if the lease container or its leases do not fit, and those of the stores.
    pub async fn start(self) -> Result<Running> {
        let runtime = self.runtime.unwrap_or_else(TokioRuntime::new);
        let mut options = self.options;
        let patience = options.timing.request();
        let leases = Patient::container(&self.leases, &runtime, Limits::same(patience));
        let limits = Limits { requests: options.read_timeout, ranges: patience };
        let monitored = Patient::container(&self.monitored, &runtime, limits);
        if let Some(letters) = &mut options.dead_letter {
            letters.container = Patient::container(&letters.container, &runtime, Limits::same(options.read_timeout));
        }
        let prefix = LeasePrefix::new(&self.name, monitored.identity())?;
        // Later a refused request is tried again in the next cycle; here it would fail the start.
        let bootstrap = Bootstrap {
            store: &LeaseStore::new(Stubborn::container(&leases, &runtime), prefix.clone())?,
            monitored: &Stubborn::container(&monitored, &runtime),
            runtime: &runtime,
            start: &options.start,
            mode: self.mode,
        };
        let store = Arc::new(LeaseStore::new(leases, prefix)?);
        let session = new_session(&*runtime);
        let anchors = bootstrap.run().await?;
        let stop_deadline = options.stop_deadline;
        let shared = Arc::new(Shared {
            name: Arc::clone(&self.name),
            instance: self.instance.as_str().into(),
            identity: Identity { instance: self.instance, session },
            monitored,
            store,
            runtime: Arc::clone(&runtime),
            options,
            mode: self.mode,
            delegate: self.delegate,
            notifier: self.notifier.clone(),
            anchors,
            alone: tokio::sync::Mutex::new(()),
        });
        let (stopping, stopping_seen) = watch::channel(false);
        let (hurry, hurry_seen) = watch::channel(false);
        let (_, reconsider) = watch::channel(false);
        let orders = Orders { stopping: stopping_seen, hurry: hurry_seen, reconsider };
        let (done, finished) = watch::channel(false);
        let host = Host::new(shared, orders);
        let task = async move {
            host.run().await;
            done.send_replace(true);
        };
        let task = runtime.spawn(&format!("host[{}]", self.name), Box::pin(task));
        let stopper = Stopper { stopping, hurry };
        Ok(Running { task, stopper, finished, runtime, notifier: self.notifier, stop_deadline })
    }
}

impl fmt::Debug for Processor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Processor({} on {}, {:?})", self.name, self.instance, self.options)
    }
}

/// A host at work. Dropping it ends it at once, as a crash would; [`Running::stop`] ends it in good order.
pub struct Running {
    task: JoinHandle<()>,
    stopper: Stopper,
    finished: watch::Receiver<bool>,
    runtime: Arc<dyn Runtime>,
    notifier: Notifier,
    stop_deadline: Duration,
}

impl Running {
    /// What the host tells about itself, from now on.
    pub fn notifications(&self) -> broadcast::Receiver<Notification> {
        self.notifier.subscribe()
    }

    /// Finishes running batches, stores progress, gives all leases up. Returns within the stop deadline, whatever the
    /// delegate does.
    ///
    /// # Errors
    /// `Timeout` if a delegate did not finish: its batch will be delivered again.
    pub async fn stop(mut self) -> Result<()> {
        self.stopper.stopping.send_replace(true);
        if self.finished_within(self.stop_deadline.mul_f64(GRACE)).await {
            return Ok(());
        }
        self.stopper.hurry.send_replace(true);
        self.finished_within(self.stop_deadline.mul_f64(1.0 - GRACE)).await;
        let message =
            format!("a delegate did not finish within {:?}: its batch will be delivered again", self.stop_deadline);
        Err(Error::new(ErrorKind::Timeout, message))
    }

    async fn finished_within(&mut self, limit: Duration) -> bool {
        let sleep = self.runtime.sleep(limit);
        tokio::select! {
            biased;
            () = told(&mut self.finished) => true,
            () = sleep => false,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.hurry.send_replace(true);
        self.task.abort();
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
    /// The name of this host, different from all others' of the processor. Default: drawn at start, so that leases of
    /// an earlier run have to expire before they are taken again.
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Where a processor that was never started before begins. Default: now.
    pub fn start_from(mut self, start: StartFrom) -> Self {
        self.options.start = start;
        self
    }

    /// How often leases are balanced and renewed, and when they expire. Default: 13, 17 and 60 s; 1, 2.5 and 8 s if the
    /// leases are in the same process.
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.options.timing = timing;
        self
    }

    /// How often a feed without news is asked, where the store does not wake us. Default: 5 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// How many changes a batch has at most; a transaction is never cut. Default: 1,000.
    pub fn max_items(mut self, max_items: usize) -> Self {
        self.options.max_items = max_items;
        self
    }

    /// When progress is stored. Default: after each batch that was handled.
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.options.checkpoint = checkpoint;
        self
    }

    /// Pauses between tries of a batch that failed. Default: 200 ms, doubled up to 30 s.
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.options.retry = backoff;
        self
    }

    /// Where items go that the delegate cannot handle. Default: nowhere, a batch is tried for ever.
    pub fn dead_letter(mut self, dead_letter: DeadLetter) -> Self {
        self.options.dead_letter = Some(dead_letter);
        self
    }

    /// How long a delegate call may take. Default: no limit.
    pub fn delegate_timeout(mut self, timeout: Duration) -> Self {
        self.options.delegate_timeout = Some(timeout);
        self
    }

    /// How long a delegate call runs before [`Notification::Slow`] tells of it, and again whenever that time has
    /// doubled. Default: half of the delegate timeout, 30 s without one.
    pub fn slow_after(mut self, time: Duration) -> Self {
        self.options.slow_after = Some(time);
        self
    }

    /// How long [`Running::stop`] may take. Default: 30 s.
    pub fn stop_deadline(mut self, deadline: Duration) -> Self {
        self.options.stop_deadline = deadline;
        self
    }

    /// How many leases this host owns at most. Default: no limit.
    pub fn max_leases(mut self, max_leases: usize) -> Self {
        self.options.max_leases = Some(max_leases);
        self
    }

    /// Called for everything that happens on the host. Must return quickly. Default: nothing.
    pub fn on_notification(mut self, callback: impl Fn(&Notification) + Send + Sync + 'static) -> Self {
        self.callbacks.push(Arc::new(callback));
        self
    }

    /// Called when a lease becomes ours, before its first batch. Default: nothing.
    pub fn on_lease_acquired(self, callback: impl Fn(&LeaseToken) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::LeaseAcquired(lease) = notification {
                callback(lease);
            }
        })
    }

    /// Called when a lease is no longer ours. Default: nothing.
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

    /// Where time, tasks and chance come from: for simulations. Default: tokio and the operating system.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Finishes the processor with its delegate.
    ///
    /// # Errors
    /// `InvalidArgument` for options that make no sense; the message names the fix.
    pub fn build<F, I, Fut, V>(self, delegate: F) -> Result<Processor>
    where
        F: Fn(I, Context) -> Fut + Send + Sync + 'static,
        I: Fits<M>,
        Fut: Future<Output = Result<V, DelegateError>> + Send + 'static,
        V: Into<Verdict> + 'static,
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
