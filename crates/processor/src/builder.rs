//! Building a processor: its options and its delegate.

use std::{fmt, future::Future, marker::PhantomData, sync::Arc, time::Duration};

use changefeed_core::{Container, Error, ErrorKind, Mode, Result, StartFrom};
use parking_lot::Mutex;

use crate::{
    backoff::Backoff,
    delegate::{
        AcceptsMode, AllVersions, AutomaticCheckpoints, CheckpointMode, Closure, DelegateError, IntoBatchResult,
        Latest, ManualCheckpoints,
    },
    delivery::dead_letter::DeadLetter,
    lease::{
        prefix::{LeasePrefix, LeaseToken},
        session::Session,
        store::LeaseStore,
        timing::LeaseTiming,
    },
    metrics::requests::StoreRole,
    notification::{ErrorReport, Notification},
    notifier::{AsyncCallback, Callback},
    options::{Checkpoint, Options, default_poll_interval},
    processor::Processor,
    runtime::{Runtime, TokioRuntime},
    store::{reopened::ReopenedBackend, replacement::Replacements},
};

impl Processor {
    /// Builds a processor from its name, the monitored container and the lease container. Processors with different names
    /// each see every change; hosts of one name share the leases.
    pub fn builder(name: impl Into<String>, monitored: &Container, leases: &Container) -> ProcessorBuilder<Latest> {
        let timing = LeaseTiming::for_container(leases);
        let poll_interval = default_poll_interval(monitored);
        ProcessorBuilder {
            name: name.into(),
            instance: None,
            monitored: monitored.clone(),
            leases: leases.clone(),
            mode: Mode::LatestVersion,
            options: Options { timing, poll_interval, ..Options::default() },
            callbacks: Vec::new(),
            async_callbacks: Vec::new(),
            runtime: None,
            _types: PhantomData,
        }
    }
}

/// A processor being built. Its types say what the delegate gets: `M`, [`Latest`] versions or [`AllVersions`]; `C`, the
/// context of [`AutomaticCheckpoints`] or that of [`ManualCheckpoints`].
///
/// ```
/// use std::time::Duration;
///
/// use changefeed::{Changes, Checkpoint, Context, DeadLetter, Notification, Processor, core::Container};
///
/// # #[derive(serde::Deserialize)]
/// # struct Order { total: f64 }
/// # fn build(orders: &Container, leases: &Container, rejected: &Container) -> changefeed::core::Result<Processor> {
/// Processor::builder("mailer", orders, leases)
///     .instance_name("worker-1")
///     .checkpoint(Checkpoint::Every(Duration::from_secs(5)))
///     .dead_letter(DeadLetter::to(rejected))
///     .delegate_timeout(Duration::from_secs(60))
///     .max_concurrent_calls(8)
///     .on_notification(|notification| {
///         if let Notification::Stalled { lease, reason, .. } = notification {
///             eprintln!("lease {lease} does not move: {reason}");
///         }
///     })
///     .build(|orders: Changes<Order>, _ctx: Context| async move {
///         println!("{} orders", orders.len());
///         Ok(())
///     })
/// # }
/// ```
#[must_use = "nothing happens before `build`"]
pub struct ProcessorBuilder<M = Latest, C = AutomaticCheckpoints> {
    name: String,
    instance: Option<String>,
    monitored: Container,
    leases: Container,
    mode: Mode,
    options: Options,
    callbacks: Vec<Callback>,
    async_callbacks: Vec<AsyncCallback>,
    runtime: Option<Arc<dyn Runtime>>,
    _types: PhantomData<fn() -> (M, C)>,
}

impl<C> ProcessorBuilder<Latest, C> {
    /// Delivers every version and every delete, to a delegate that takes `Versions<T>`. The monitored container must
    /// keep versions. Default: newest versions only.
    pub fn all_versions(mut self) -> ProcessorBuilder<AllVersions, C> {
        self.mode = Mode::AllVersions;
        self.retyped()
    }
}

impl<M> ProcessorBuilder<M> {
    /// Sets when progress is stored. Default: after each batch.
    pub fn checkpoint(mut self, checkpoint: Checkpoint) -> Self {
        self.options.checkpoint = checkpoint;
        self
    }

    /// Leaves it to the delegate when progress is stored: it takes a [`ManualContext`](crate::ManualContext) and calls its
    /// `checkpoint`. Default: progress is stored automatically, see [`ProcessorBuilder::checkpoint`].
    pub fn manual_checkpoints(mut self) -> ProcessorBuilder<M, ManualCheckpoints> {
        self.options.manual_checkpoints = true;
        self.retyped()
    }
}

impl<M, C> ProcessorBuilder<M, C> {
    /// Sets the name of this host, unique within the processor. Default: random, so that leases of an earlier process
    /// have to expire before they are acquired again.
    pub fn instance_name(mut self, name: impl Into<String>) -> Self {
        self.instance = Some(name.into());
        self
    }

    /// Sets where a processor begins that was never started before: a [`StartFrom`], a
    /// [`Timestamp`](changefeed_core::Timestamp), a [`SystemTime`](std::time::SystemTime) or a
    /// [`Continuation`](changefeed_core::Continuation). Default: now.
    ///
    /// Beside hosts of the .NET SDK, and after them, it must be what those were told: a lease that they created says where it
    /// begins only after its first change. Those of hosts that began at now begin five minutes before they were created.
    pub fn start_from<S>(mut self, start: S) -> Self
    where
        S: Into<StartFrom>, // a `StartFrom`, `Timestamp`, `SystemTime` or `Continuation`
    {
        self.options.start = start.into();
        self
    }

    /// Sets how often leases are balanced and renewed, and when they expire. Default: 1, 20 and 60 s if the lease
    /// container is in the same process; 2, 3 and 10 s if it is behind a changefeed server; 13, 17 and 60 s otherwise.
    pub fn lease_timing(mut self, timing: LeaseTiming) -> Self {
        self.options.timing = timing;
        self
    }

    /// Sets how often an idle feed is polled: where the store has wake-ups, in case one is lost. Default: 60 s if the
    /// monitored container has wake-ups, otherwise 5 s. A changefeed server that cannot be reached for wake-ups counts
    /// as having none: feeds are then read every 5 s.
    pub fn poll_interval(mut self, interval: Duration) -> Self {
        self.options.poll_interval = interval;
        self
    }

    /// Sets the maximum number of changes in a batch; a transaction is never cut. Default: 1,000.
    pub fn max_items(mut self, max_items: usize) -> Self {
        self.options.max_items = max_items;
        self
    }

    /// Sets the back-off between attempts of a batch that failed. Default: 200 ms, doubled up to 30 s.
    pub fn retry(mut self, backoff: Backoff) -> Self {
        self.options.retry = backoff;
        self
    }

    /// Sets the back-off between attempts of requests to the stores that failed: reads of the feed and dead letters. A
    /// store that names a longer time is waited for. Default: 100 ms, doubled up to 10 s.
    pub fn store_retry(mut self, backoff: Backoff) -> Self {
        self.options.store_retry = backoff;
        self
    }

    /// Sets after how many failed attempts of a batch in a row [`Notification::Stalled`] is sent, and again whenever
    /// their number has doubled. Default: 3.
    pub fn stalled_after(mut self, attempts: u32) -> Self {
        self.options.stalled_after = attempts;
        self
    }

    /// Sets the container for items that the delegate cannot handle. Default: none; a batch is retried without limit.
    pub fn dead_letter(mut self, dead_letter: DeadLetter) -> Self {
        self.options.dead_letter = Some(dead_letter);
        self
    }

    /// Sets how long a delegate call may take; then it is dropped, which is a failed attempt. A call that blocks its
    /// thread cannot be dropped: its lease is given up. Default: no limit; the lease is renewed for as long as the call
    /// runs.
    pub fn delegate_timeout(mut self, timeout: Duration) -> Self {
        self.options.delegate_timeout = Some(timeout);
        self
    }

    /// Sets how long a delegate call runs before [`Notification::Slow`] is sent, and again whenever that time has
    /// doubled. Default: half of the delegate timeout, 30 s without one.
    pub fn slow_after(mut self, time: Duration) -> Self {
        self.options.slow_after = Some(time);
        self
    }

    /// Sets how long [`Running::stop`](crate::Running::stop) may take. For as long the delegate calls are waited for that run
    /// when the monitored container was deleted and created again. Default: 30 s.
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

    /// Sets how long a start keeps retrying, with back-off, while a store is unavailable or throttled; then
    /// [`Processor::start`] returns the error of the store. A store that names a time to wait is waited for, within this
    /// limit. A request under way is not interrupted. [`Processor::run_until_caught_up`] retries its listings of leases for
    /// as long. A host that runs retries without limit. Zero retries nothing. Default: 10 s.
    pub fn start_timeout(mut self, timeout: Duration) -> Self {
        self.options.start_timeout = timeout;
        self
    }

    /// Sets how long a read of the feed may take; then it fails, is reported and repeated. Default: 65 s.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.options.read_timeout = timeout;
        self
    }

    /// Sets the maximum number of leases that this host owns. Default: no limit.
    pub fn max_leases(mut self, max_leases: usize) -> Self {
        self.options.max_leases = Some(max_leases);
        self
    }

    /// Sets the maximum number of delegate calls of this host that run at the same time; leases get their turn in
    /// order. Each lease has one call at a time in any case. Default: no other limit.
    pub fn max_concurrent_calls(mut self, calls: usize) -> Self {
        self.options.max_concurrent_calls = Some(calls);
        self
    }

    /// Sets the maximum number of bytes of changes that this host holds in memory, over all leases: what was read
    /// ahead, is being delivered or waits for a retry, counted as the store returned it. Before a page is read, 4 MiB
    /// are set aside for it, so that a limit of 64 MiB allows for 16 reads at a time. A page that is larger than the
    /// limit is read alone; if the batches of some leases keep failing, their pages may use up the limit, and the
    /// others go on one page at a time. Default: no limit.
    pub fn max_bytes_in_flight(mut self, bytes: usize) -> Self {
        self.options.max_bytes_in_flight = Some(bytes);
        self
    }

    /// Sets the maximum number of request units that this host spends per second, on average, as the monitored
    /// container, the lease container and the dead-letter container charge them. Reads of the feed wait while the host
    /// has spent more; requests for leases and dead letters count but never wait, so that no lease expires. Units are
    /// saved for one second. Stores that do not charge, such as the embedded one, are not slowed down. Default: no
    /// limit.
    pub fn max_request_units_per_second(mut self, units: f64) -> Self {
        self.options.max_request_units_per_second = Some(units);
        self
    }

    /// Adds a callback for every notification, called in the task where it arises. Must return quickly. Default:
    /// nothing.
    pub fn on_notification(mut self, callback: impl Fn(&Notification) + Send + Sync + 'static) -> Self {
        self.callbacks.push(Arc::new(callback));
        self
    }

    /// Adds an async callback for every notification, called in a task of its own: one after the other, in order. A
    /// callback that is further behind than [`notification_capacity`](Self::notification_capacity) gets
    /// [`Notification::Missed`]. [`Running::stop`](crate::Running::stop) waits for it, within the stop deadline.
    /// Default: nothing.
    pub fn on_notification_async<F, Fut>(mut self, callback: F) -> Self
    where
        F: Fn(Notification) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.async_callbacks.push(Arc::new(move |notification| Box::pin(callback(notification))));
        self
    }

    /// Sets how many notifications are kept for a stream or an async callback that is behind; rounded up to a power of
    /// two. What it misses is counted in [`Notification::Missed`]. Default: 1,024.
    pub fn notification_capacity(mut self, capacity: usize) -> Self {
        self.options.notification_capacity = capacity;
        self
    }

    /// Sets whether each lease has metrics of its own, with the label `lease`, beside those of the whole processor.
    /// With thousands of leases that is many series. Default: off.
    pub fn lease_metrics(mut self, wanted: bool) -> Self {
        self.options.lease_metrics = wanted;
        self
    }

    /// Adds a callback, called when a lease was acquired, before its first batch. Default: nothing.
    pub fn on_lease_acquired(self, callback: impl Fn(&LeaseToken) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::LeaseAcquired(lease) = notification {
                callback(lease);
            }
        })
    }

    /// Adds a callback, called when a lease is no longer owned. Default: nothing.
    pub fn on_lease_released(self, callback: impl Fn(&LeaseToken) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::LeaseReleased(lease, _) = notification {
                callback(lease);
            }
        })
    }

    /// Adds a callback, called when something fails, with the error and, as far as it has them, lease, LSNs and
    /// attempt. Default: nothing.
    pub fn on_error(self, callback: impl Fn(&ErrorReport) + Send + Sync + 'static) -> Self {
        self.on_notification(move |notification| {
            if let Notification::Error(report) = notification {
                callback(report);
            }
        })
    }

    /// Sets clock, task spawning and randomness: for simulations. Default: tokio and the operating system.
    #[doc(hidden)]
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Finishes the processor with its delegate: an async function or closure that takes the changes and a context. `?`
    /// works in it on errors that are `Send` and `Sync`, `anyhow::Error` included.
    ///
    /// | if the compiler says | then |
    /// |---|---|
    /// | `expected … to be a future that resolves to Result<_, DelegateError>, but it resolves to Result<_, …>` | the function returns another error type: pass it as [`delegate_fn(handle)`](crate::delegate_fn) |
    /// | `mismatched types … expected DelegateError, found anyhow::Error`, at `bail!`, `ensure!` or `Err(…)` | write `Err(anyhow!(…))?` or `return Err(anyhow!(…).into())`, or use [`delegate_fn`](crate::delegate_fn) |
    /// | `type mismatch in closure arguments … expected Context, found ManualContext` | call [`manual_checkpoints`](Self::manual_checkpoints) before `build` |
    /// | `type mismatch in closure arguments … expected ManualContext, found Context` | the delegate of a processor with manual checkpoints takes a [`ManualContext`](crate::ManualContext) |
    /// | `type annotations needed` | name the types of both parameters: `\|orders: Changes<Order>, ctx: Context\|` |
    ///
    /// # Errors
    /// `InvalidArgument` for options that make no sense, and if two of the monitored container, the lease container and
    /// the dead-letter container are the same one; the message names the fix.
    pub fn build<F, I, Fut, R>(mut self, delegate: F) -> Result<Processor>
    where
        // The compiler shows these lines, with their comments, to a user whose delegate does not fit.
        F: Fn(I, C::Context) -> Fut + Send + Sync + 'static, // `Context`; `ManualContext` after `.manual_checkpoints()`
        I: AcceptsMode<M>,
        C: CheckpointMode,
        Fut: Future<Output = Result<R, DelegateError>> + Send + 'static, // another error: `build(delegate_fn(handle))`
        R: IntoBatchResult + 'static,
    {
        self.options.check(self.mode)?;
        check_containers(&self.monitored, &self.leases, self.options.dead_letter.as_ref())?;
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
            None => {
                format!("host-{}", Session::new(None, self.runtime.clone().unwrap_or_else(TokioRuntime::new).random()))
            }
        };
        let runtime = self.runtime.clone().unwrap_or_else(TokioRuntime::new);
        let replacements = Replacements::new(&runtime, self.options.read_timeout);
        let (leases, leases_replaced) = ReopenedBackend::container(&self.leases, StoreRole::Leases, &replacements);
        if let Some(letters) = &mut self.options.dead_letter {
            (letters.container, _) =
                ReopenedBackend::container(&letters.container, StoreRole::DeadLetters, &replacements);
        }
        Ok(Processor {
            name: self.name.into(),
            instance,
            monitored: Arc::new(Mutex::new(self.monitored)),
            leases,
            leases_replaced,
            mode: self.mode,
            options: self.options,
            delegate: Arc::new(Closure::<F, I, C>(delegate, PhantomData)),
            callbacks: self.callbacks,
            async_callbacks: self.async_callbacks,
            runtime: self.runtime,
            last: Default::default(),
            has_started: Default::default(),
        })
    }

    fn retyped<M2, C2>(self) -> ProcessorBuilder<M2, C2> {
        ProcessorBuilder {
            name: self.name,
            instance: self.instance,
            monitored: self.monitored,
            leases: self.leases,
            mode: self.mode,
            options: self.options,
            callbacks: self.callbacks,
            async_callbacks: self.async_callbacks,
            runtime: self.runtime,
            _types: PhantomData,
        }
    }
}

/// Refuses one container in two roles: what the processor writes there would be delivered as changes, or be mixed with
/// items of another kind.
fn check_containers(monitored: &Container, leases: &Container, dead_letter: Option<&DeadLetter>) -> Result<()> {
    let refuse = |container: &Container, problem: &str| {
        let name = &container.identity().container_name;
        Err(Error::new(ErrorKind::InvalidArgument, format!("{name} {problem}")))
    };
    if is_same(monitored, leases) {
        return refuse(
            leases,
            "is both the monitored container and the lease container, and each write of a lease would be delivered as a \
             change: pass another container for the leases",
        );
    }
    match dead_letter.map(|dead_letter| &dead_letter.container) {
        Some(letters) if is_same(letters, monitored) => refuse(
            letters,
            "is both the monitored container and the dead-letter container, and each dead letter would be delivered as a \
             change: pass another container for the dead letters",
        ),
        Some(letters) if is_same(letters, leases) => refuse(
            letters,
            "is both the lease container and the dead-letter container: pass another container for the dead letters",
        ),
        _ => Ok(()),
    }
}

fn is_same(one: &Container, other: &Container) -> bool {
    let (one, other) = (one.identity(), other.identity());
    one.store == other.store && one.container == other.container
}

impl<M, C> fmt::Debug for ProcessorBuilder<M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProcessorBuilder({}, {:?})", self.name, self.options)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_table_of_options_has_every_setter() {
        let (page, source) = (include_str!("lib.rs"), include_str!("builder.rs"));
        let (source, _) = source.split_once("#[cfg(test)]").expect("tests");
        let setters: Vec<&str> = source
            .split("\n    pub fn ")
            .skip(1)
            .filter_map(|text| text.split(['(', '<']).next())
            .filter(|name| !["builder", "build", "runtime"].contains(name))
            .collect();
        assert!(setters.len() > 25, "{setters:?}");
        for name in setters {
            let link = format!("[`{name}`](ProcessorBuilder::{name})");
            let row = page.lines().find(|line| line.starts_with("//! | [`") && line.contains(&link));
            assert!(row.is_some(), "the table of options in lib.rs lacks a row for {name}: default and advice");
        }
    }
}
