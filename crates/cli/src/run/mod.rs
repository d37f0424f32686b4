//! `changefeed run`: a host with a ready-made delegate.

mod copy;
mod exec;
mod options;
mod webhook;

use std::{io::IsTerminal as _, sync::Arc};

use changefeed::{AcceptsMode, BatchResult, Context, DelegateError, Processor, ProcessorBuilder, RawChanges};
use changefeed_embedded::Engine;
use tokio::sync::Notify;
use tracing_subscriber::filter::LevelFilter;

use self::{copy::Copy, exec::Exec, webhook::Webhook};
use crate::{
    args::{DelegateArgs, ProcessorArgs, RunArgs},
    change_line::{Form, lines},
    exit::{Exit, Printed, Result, interrupted, print},
    store::{Missing, ProcessorStores},
};

/// Runs until a signal, or the end that the arguments ask for.
pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    let level: LevelFilter = args.log.parse()?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(colours).init();
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ended = tokio.block_on(host(args));
    // A call that does not end keeps its thread, not this process.
    tokio.shutdown_background();
    ended
}

async fn host(args: &RunArgs) -> Result<Exit> {
    if args.check {
        return check(args).await;
    }
    let stores = ProcessorStores::open_or_create_leases(&args.processor, Missing::Refused).await?;
    let mut builder = options::apply(&args.options, &stores.name, &stores.monitored, &stores.leases);
    if let Some(container) = &args.options.dead_letters {
        let container = stores.store.container_or_new(container, None, 1).await?;
        builder = builder.dead_letter(options::dead_letter(&args.options, &container));
    }
    let (delegate, copy_store) = match &args.delegate.copy_to {
        Some(place) => {
            let (copy, store) = Copy::open(place, &args.processor, &stores).await?;
            (Delegate::of(Kind::Copy(copy)), store)
        }
        None => (Delegate::new(&args.delegate, &stores.name)?, None),
    };
    let processor =
        if args.options.all_versions { build(builder.all_versions(), &delegate)? } else { build(builder, &delegate)? };
    let ended = work(args, &processor, &delegate).await;
    drop((processor, delegate));
    stores.close().await?;
    if let Some(store) = copy_store {
        store.close().await?;
    }
    ended
}

fn build<M>(builder: ProcessorBuilder<M>, delegate: &Arc<Delegate>) -> Result<Processor>
where
    RawChanges: AcceptsMode<M>,
{
    let delegate = Arc::clone(delegate);
    Ok(builder.build(move |changes: RawChanges, context: Context| {
        let delegate = Arc::clone(&delegate);
        async move { delegate.call(changes, context).await }
    })?)
}

async fn work(args: &RunArgs, processor: &Processor, delegate: &Delegate) -> Result<Exit> {
    if args.once {
        return tokio::select! {
            ended = processor.run_until_caught_up() => Ok(ended.map(|()| Exit::Good)?),
            () = delegate.nobody_reads() => Ok(Exit::Good),
            () = interrupted() => Ok(Exit::Interrupted),
        };
    }
    let running = processor.start().await?;
    tokio::select! {
        ended = running.join() => return Ok(ended.map(|()| Exit::Good)?),
        () = delegate.nobody_reads() => {}
        () = interrupted() => {}
    }
    running.stop().await?;
    Ok(Exit::Good)
}

/// Says what would run, and changes nothing.
async fn check(args: &RunArgs) -> Result<Exit> {
    let ProcessorArgs { name, container, leases, .. } = &args.processor;
    let (store, monitored, lease_container) = ProcessorStores::look(&args.processor).await?;
    let ranges = monitored.feed_ranges().await?.len();
    let known = match &lease_container {
        None => format!("{leases} would be made, and the processor begin at --from"),
        Some(found) if changefeed::processors(&monitored, found).await?.contains(name) => {
            "it has run before and goes on where it was".to_owned()
        }
        Some(_) => "it has never run and begins at --from".to_owned(),
    };
    let DelegateArgs { exec, webhook, copy_to, .. } = &args.delegate;
    let delegate = match (exec, webhook, copy_to) {
        (Some(command), ..) => format!("runs {command:?} for each batch"),
        (None, Some(url), _) => format!("sends each batch to {url}"),
        (None, None, Some(place)) => format!("copies to {place}"),
        (None, None, None) => "prints each change".to_owned(),
    };
    let stands_in = match &lease_container {
        Some(found) => found.clone(),
        None => Engine::in_memory()?.database(&leases.database).container(&leases.container).create().await?,
    };
    build(options::apply(&args.options, name, &monitored, &stands_in), &Delegate::new(&args.delegate, name)?)?;
    print(&format!("processor {name} on {container}, {ranges} ranges, leases in {leases}: {known}; {delegate}\n"))?;
    drop((monitored, lease_container));
    store.close().await?;
    Ok(Exit::Good)
}

/// What happens to each batch.
struct Delegate {
    kind: Kind,
    nobody_reads: Notify,
}

enum Kind {
    Print(Form),
    Exec(Exec),
    Webhook(Box<Webhook>),
    Copy(Copy),
}

impl Delegate {
    fn new(args: &DelegateArgs, processor: &str) -> Result<Arc<Self>> {
        let kind = match (&args.exec, &args.webhook) {
            (Some(command), _) => Kind::Exec(Exec::new(command, args.results, processor)),
            (None, Some(url)) => Kind::Webhook(Box::new(Webhook::new(url, args, processor)?)),
            (None, None) => Kind::Print(if args.json { Form::Json } else { Form::Plain }),
        };
        Ok(Self::of(kind))
    }

    fn of(kind: Kind) -> Arc<Self> {
        Arc::new(Self { kind, nobody_reads: Notify::new() })
    }

    async fn call(&self, changes: RawChanges, context: Context) -> std::result::Result<BatchResult, DelegateError> {
        let form = match &self.kind {
            Kind::Exec(exec) => return exec.call(&changes, &context).await,
            Kind::Webhook(webhook) => return webhook.call(&changes, &context).await,
            Kind::Copy(copy) => return copy.call(&changes).await,
            Kind::Print(form) => *form,
        };
        let text = lines(&changes, form, Some(context.lease().as_str()))?;
        // A reader that is slow must not keep a thread of the host.
        match tokio::task::spawn_blocking(move || print(&text)).await?? {
            Printed::Whole => Ok(BatchResult::Done),
            Printed::NobodyReads => {
                self.nobody_reads.notify_one();
                Err(DelegateError::new("nobody reads what is printed"))
            }
        }
    }

    /// Waits until the reader of stdout has gone.
    async fn nobody_reads(&self) {
        self.nobody_reads.notified().await;
    }
}
