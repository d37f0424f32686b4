//! `changefeed run`: a host with a ready-made delegate.

mod check;
mod copy;
mod exec;
pub(crate) mod exec_guard;
mod found;
mod joined;
mod options;
mod pipe;
mod stderr_tail;
mod trace_context;
mod webhook;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use changefeed::{
    AcceptsMode, AdminEndpoint, BatchResult, Context, DelegateError, Estimator, LagWatch, LeaseTiming, Processor,
    ProcessorBuilder, RawChanges,
};
use changefeed_core::Container;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::{
    copy::{Copy, Target},
    exec::Exec,
    found::Found,
    webhook::Webhook,
};
use crate::{
    args::{DelegateArgs, Moment, RunArgs},
    change_line::{Form, lines},
    count::count_of,
    exit::{EndRequests, Exit, Printed, Result, print_off_thread, say},
    log,
    metrics::{
        endpoint::Endpoint,
        probe::{Probe, Questions},
    },
    processor_stores::ProcessorStores,
    progress::Indicator,
    redact::redacted,
    store::Store,
    store_health::stopped,
};

/// Runs until a signal, or the end that the arguments ask for.
pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    log::of_host(args.log.parse()?);
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = tokio.block_on(host(args));
    // A call that does not end keeps its thread, not this process.
    tokio.shutdown_background();
    ended
}

async fn host(args: &RunArgs) -> Result<Exit> {
    // Signals count from the first moment: nothing that is begun may be cut off by one.
    let requests = EndRequests::listen()?;
    let work = async {
        if args.check {
            return tokio::select! {
                checked = check::check(args) => checked,
                () = requests.reached(1) => Ok(Exit::Interrupted),
            };
        }
        stoppable(args, &requests).await
    };
    tokio::select! {
        biased;
        ended = Box::pin(work) => ended,
        () = requests.reached(2) => {
            say("ended at once, as asked twice: other hosts get the leases of this one when these have expired");
            Ok(Exit::Interrupted)
        }
    }
}

/// Runs the host; the first request to end stops it in good order.
async fn stoppable(args: &RunArgs, requests: &EndRequests) -> Result<Exit> {
    Chosen::of(&args.delegate)?;
    let (probe, questions) = Probe::new();
    let opened = tokio::select! {
        biased;
        opened = Box::pin(Opened::open(args, &probe)) => opened?,
        () = requests.reached(1) => {
            let store = redacted(&args.processor.store.store);
            say(&format!("stopped while opening the store {store}: no lease was acquired"));
            return Ok(if args.once { Exit::Interrupted } else { Exit::Good });
        }
    };
    let observed = Observed { probe: &probe, questions, stores: &opened.stores };
    let working = work(args, &opened.processor, &opened.delegate, observed, requests);
    let all = opened.stores.stores().chain(&opened.own_store);
    let ended = tokio::select! {
        biased;
        // A stop in good order would write, which is refused.
        error = stopped(all) => return Err(error),
        ended = Box::pin(working) => ended,
    };
    probe.stopping();
    opened.close().await?;
    ended
}

/// A host and everything that it needs.
struct Opened {
    processor: Processor,
    delegate: Arc<Delegate>,
    endpoint: Option<Endpoint>,
    admin: Option<AdminEndpoint>,
    stores: ProcessorStores,
    /// The store that the delegate has opened for itself.
    own_store: Option<Store>,
}

impl Opened {
    async fn open(args: &RunArgs, probe: &Probe) -> Result<Self> {
        // Before the stores are opened, which record from then on.
        let endpoint = match args.metrics.metrics {
            Some(address) => Some(Endpoint::start(&args.metrics, address, probe.clone()).await?),
            None => None,
        };
        let Found { stores, dead_letters, target } = Found::open_patiently(args).await?;
        let stores = stores.or_create_leases(&args.processor).await?;
        let dead_letters = match (&args.options.dead_letters, dead_letters) {
            (Some(name), None) => Some(stores.store.create_dead_letters(name).await?),
            (_, found) => found,
        };
        let (delegate, own_store) = Delegate::open(args, target, &stores).await?;
        let timing = LeaseTiming::for_container(&stores.leases);
        let builder = options::apply(&args.options, &stores.name, &stores.monitored, &stores.leases, timing);
        let processor = build(args, builder, dead_letters.as_ref(), &delegate)?;
        let admin = stores.store.offer_admin_endpoint();
        // Last: nothing is announced that is then refused.
        joined::announce(&stores);
        announce_start(&stores, args.options.from).await;
        Ok(Self { processor, delegate, endpoint, admin, stores, own_store })
    }

    async fn close(self) -> Result<()> {
        drop((self.processor, self.delegate, self.endpoint));
        if let Some(admin) = self.admin {
            admin.close().await;
        }
        self.stores.close().await?;
        match self.own_store {
            Some(store) => store.close().await,
            None => Ok(()),
        }
    }
}

/// Says where a processor begins that starts for the first time: so does one whose name or lease container is mistyped. For
/// others it says that --from does not move them.
async fn announce_start(stores: &ProcessorStores, from: Option<Moment>) {
    // A store that refuses this is no reason not to start: the host repeats its requests.
    let Ok(known) = changefeed::processors(&stores.monitored, &stores.leases).await else { return };
    let name = &stores.name;
    if known.contains(name) {
        if from.is_some() {
            tracing::info!(
                processor = name,
                "not the first start: --from does not count, the processor goes on where it was; `changefeed seek {name}` \
                 moves it"
            );
        }
        return;
    }
    let place = match from {
        Some(Moment::Beginning) => "from the beginning",
        Some(Moment::Now) | None => "from now on, without the changes before (--from beginning delivers them)",
        Some(Moment::Time(_)) => "from the time of --from on",
    };
    let others = known.join(", ");
    tracing::info!(processor = name, others, "first start: delivers {place}");
}

/// For so long a call of `--exec` may go on after its command was killed.
const EXEC_GRACE: Duration = Duration::from_secs(5);

/// Builds the processor; errors name options of the command.
fn build(
    args: &RunArgs,
    builder: ProcessorBuilder,
    dead_letters: Option<&Container>,
    delegate: &Arc<Delegate>,
) -> Result<Processor> {
    let mut builder = builder.lease_metrics(args.metrics.lease_metrics);
    if let (Some(_), Some(limit)) = (&args.delegate.exec, args.options.delegate_timeout) {
        // The command is ended at the limit, with an error that has the end of its stderr. This is for what remains of it.
        builder = builder.delegate_timeout(limit + EXEC_GRACE).slow_after(args.options.slow_after.unwrap_or(limit / 2));
    }
    if let Some(container) = dead_letters {
        builder = builder.dead_letter(options::dead_letter(&args.options, container));
    }
    match args.options.all_versions {
        true => with_delegate(builder.all_versions(), delegate),
        false => with_delegate(builder, delegate),
    }
}

fn with_delegate<M>(builder: ProcessorBuilder<M>, delegate: &Arc<Delegate>) -> Result<Processor>
where
    RawChanges: AcceptsMode<M>,
{
    let delegate = Arc::clone(delegate);
    let built = builder.build(move |changes: RawChanges, context: Context| {
        let delegate = Arc::clone(&delegate);
        async move { delegate.call(changes, context).await }
    });
    built.map_err(options::with_option_names)
}

/// What others may see of the host while it works.
struct Observed<'a> {
    probe: &'a Probe,
    questions: Questions,
    stores: &'a ProcessorStores,
}

impl Observed<'_> {
    /// The host has started: it is ready, and its lag is measured if anybody may read it.
    fn started(&self, args: &RunArgs) -> Option<LagWatch> {
        let ProcessorStores { name, monitored, leases, .. } = self.stores;
        self.probe.started(monitored, leases);
        args.metrics.metrics?;
        let estimator = Estimator::new(name, monitored, leases).lease_metrics(args.metrics.lease_metrics);
        Some(estimator.watch(args.metrics.lag_interval))
    }
}

async fn work(
    args: &RunArgs,
    processor: &Processor,
    delegate: &Delegate,
    mut observed: Observed<'_>,
    requests: &EndRequests,
) -> Result<Exit> {
    let mut stop = std::pin::pin!(async {
        tokio::select! {
            () = delegate.closed() => {}
            () = requests.reached(1) => {}
        }
    });
    let mut waiting = None;
    if args.once {
        let _lag = observed.started(args);
        let announced = async {
            stop.await;
            waiting = announce_stop(args, requests, delegate);
        };
        let caught_up = tokio::select! {
            caught_up = processor.run_until_caught_up_unless(announced) => caught_up?,
            never = watch(delegate, observed.stores) => match never {},
        };
        drop(waiting);
        if caught_up {
            return Ok(Exit::Good);
        }
        delegate.check_printed()?;
        if requests.any() {
            say("stopped before it had caught up: it goes on from there, and no lease is kept");
            return Ok(Exit::Interrupted);
        }
        say("stopped before it had caught up, since stdout is closed: the next run delivers the rest");
        return Ok(Exit::Unhealthy);
    }
    let Some(running) = processor.start_unless(stop.as_mut()).await? else {
        say("stopped while the host was starting: no lease is kept");
        return Ok(Exit::Good);
    };
    let _lag = observed.started(args);
    let mut watch = std::pin::pin!(watch(delegate, observed.stores));
    loop {
        tokio::select! {
            never = watch.as_mut() => match never {},
            ended = running.join() => return Ok(ended.map(|()| Exit::Good)?),
            () = stop.as_mut() => break,
            () = observed.questions.answer(|| running.health()) => {}
        }
    }
    observed.probe.stopping();
    waiting = announce_stop(args, requests, delegate);
    running.stop().await?;
    drop(waiting);
    delegate.check_printed()?;
    Ok(Exit::Good)
}

/// How long a stop waits for running calls unless `--stop-deadline` says otherwise, as in the library.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// Says what a signal waits for, if it does not end the host at once. Whoever closes stdout is not there to read it.
fn announce_stop(args: &RunArgs, requests: &EndRequests, delegate: &Delegate) -> Option<Indicator> {
    let calls = delegate.running.load(Ordering::Acquire);
    if calls == 0 || !requests.any() {
        return None;
    }
    let limit = humantime::format_duration(args.options.stop_deadline.unwrap_or(STOP_DEADLINE));
    let calls = count_of(calls, "running call");
    say(&format!("stopping: waiting up to {limit} for {calls}; a second signal ends this host at once"));
    Some(Indicator::waiting("waiting for running calls"))
}

/// Shows progress and tells of a store that comes and goes while the host works. Never ends.
async fn watch(delegate: &Delegate, stores: &ProcessorStores) -> Infallible {
    tokio::select! {
        never = delegate.measure(stores) => never,
        never = joined::watch(stores) => never,
    }
}

/// Which delegate the arguments ask for. What is typed counts before what the config file says.
enum Chosen<'a> {
    Print,
    Exec(&'a str),
    Webhook(&'a str),
    Copy(&'a str),
}

impl<'a> Chosen<'a> {
    fn of(args: &'a DelegateArgs) -> Result<Self> {
        Ok(match (&args.exec, &args.webhook, &args.copy_to) {
            _ if args.print => Self::Print,
            (Some(command), ..) => Self::Exec(command),
            (None, Some(url), _) => Self::Webhook(url),
            (None, None, Some(place)) => Self::Copy(place),
            (None, None, None) => {
                return Err("say what happens to changes: pass --print, --exec, --webhook or --copy-to".into());
            }
        })
    }
}

/// What happens to each batch.
struct Delegate {
    kind: Kind,
    /// Fires when nothing more can be printed.
    closed: Notify,
    /// Why nothing can be printed, unless the reader of stdout has gone.
    failure: Mutex<Option<String>>,
    /// Calls under way.
    running: AtomicU64,
}

/// A call under way, also if it is dropped before its end.
struct Running<'a>(&'a AtomicU64);

impl<'a> Running<'a> {
    fn begin(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

enum Kind {
    Print(Form),
    Exec(Exec),
    Webhook(Box<Webhook>),
    Copy(Copy),
}

impl Delegate {
    /// The delegate that the arguments ask for, and the store that it opened for itself.
    async fn open(
        run: &RunArgs,
        target: Option<Target>,
        stores: &ProcessorStores,
    ) -> Result<(Arc<Self>, Option<Store>)> {
        let (args, processor) = (&run.delegate, stores.name.as_str());
        let kind = match Chosen::of(args)? {
            Chosen::Print => Kind::Print(Form::on_stdout(args.json)),
            Chosen::Exec(command) => {
                Kind::Exec(Exec::new(command, args.results, run.options.delegate_timeout, processor)?)
            }
            Chosen::Webhook(url) => Kind::Webhook(Box::new(Webhook::new(url, args, processor)?)),
            Chosen::Copy(_) => {
                let (copy, store) =
                    Copy::open(target.expect("invariant: a copy has a target"), stores, args.copy_other_source).await?;
                return Ok((Self::of(Kind::Copy(copy)), store));
            }
        };
        Ok((Self::of(kind), None))
    }

    fn of(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, closed: Notify::new(), failure: Mutex::default(), running: AtomicU64::new(0) })
    }

    async fn call(&self, changes: RawChanges, context: Context) -> std::result::Result<BatchResult, DelegateError> {
        let _running = Running::begin(&self.running);
        let form = match &self.kind {
            Kind::Exec(exec) => return exec.call(&changes, &context).await,
            Kind::Webhook(webhook) => return webhook.call(&changes, &context).await,
            Kind::Copy(copy) => return copy.call(&changes).await,
            Kind::Print(form) => *form,
        };
        let text = lines(&changes, form, Some(context.lease().as_str()))?;
        match print_off_thread(text).await {
            Ok(Printed::Whole) => return Ok(BatchResult::Done),
            Ok(Printed::NobodyReads) => {}
            Err(error) => *self.failure.lock() = Some(error.to_string()),
        }
        self.closed.notify_one();
        // No further attempt before the host stops: it would fail, too, and count towards a dead letter.
        context.cancelled().await;
        Err(DelegateError::new("stdout is closed"))
    }

    /// Shows how much is left, where the delegate shows its progress. Never ends.
    async fn measure(&self, stores: &ProcessorStores) -> Infallible {
        match &self.kind {
            Kind::Copy(copy) => copy.measure(stores).await,
            _ => std::future::pending().await,
        }
    }

    /// Waits until nothing more can be printed.
    async fn closed(&self) {
        self.closed.notified().await;
    }

    /// The error if stdout cannot be written; a reader that has gone is none.
    fn check_printed(&self) -> Result<()> {
        self.failure.lock().take().map_or(Ok(()), |error| Err(error.into()))
    }
}
