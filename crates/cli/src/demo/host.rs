//! A host of the demonstration, in a process of its own: `changefeed demo-host`.

use std::{io::Read as _, sync::Arc, time::Duration};

use changefeed::{
    Backoff, Changes, Context, DeadLetter, DelegateError, Processor,
    core::StartFrom,
    remote::{EMULATOR_KEY, Server},
    runtime::{Runtime, TokioRuntime},
};
use tokio::sync::oneshot;

use super::{
    host_event::HostEvent,
    ledger::Order,
    stage::{ATTEMPTS, DATABASE, DEAD_LETTERS, LEASES, ORDERS, TIMING},
};
use crate::{
    args::DemoHostArgs,
    exit::{Exit, Printed, Result, print},
};

/// What handling one order takes: slow enough that a rush makes a queue.
const WORK: Duration = Duration::from_millis(3);

/// Changes in a batch at most.
const BATCH: usize = 50;

/// Runs until stdin is closed, which also happens when the demonstration itself is killed.
pub(crate) fn run(args: &DemoHostArgs) -> Result<Exit> {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = tokio.block_on(host(args));
    tokio.shutdown_background();
    ended
}

async fn host(args: &DemoHostArgs) -> Result<Exit> {
    let closed = stdin_closed()?;
    let shop = Server::connect(&args.store, EMULATOR_KEY)?.database(DATABASE);
    let orders = shop.container(ORDERS).open().await?;
    let leases = shop.container(LEASES).open().await?;
    let letters = shop.container(DEAD_LETTERS).open().await?;
    let runtime = TokioRuntime::new();
    let processor = Processor::builder("shop", &orders, &leases)
        .instance_name(&args.name)
        .start_from(StartFrom::Beginning)
        .lease_timing(TIMING)
        .max_items(BATCH)
        .retry(Backoff { first: Duration::from_millis(400), longest: Duration::from_secs(2) })
        .dead_letter(DeadLetter::to(&letters).after_attempts(ATTEMPTS))
        .stop_deadline(Duration::from_secs(5))
        .on_notification(|notification| HostEvent::of(notification).iter().for_each(tell))
        .build(move |orders: Changes<Order>, context: Context| {
            let runtime = Arc::clone(&runtime);
            async move { handle(&*runtime, orders, context).await }
        })?;
    let running = processor.start().await?;
    tell(&HostEvent::Started);
    // Nobody sends anything: the other end is dropped.
    let _ = closed.await;
    running.stop().await?;
    Ok(Exit::Good)
}

/// Handles orders one by one, up to the first that cannot be handled. Each is reported before the batch counts as done.
async fn handle(
    runtime: &dyn Runtime,
    orders: Changes<Order>,
    context: Context,
) -> std::result::Result<(), DelegateError> {
    let mut handled = 0;
    let mut outcome = Ok(());
    for (index, order) in orders.iter().enumerate() {
        runtime.sleep(WORK).await;
        if order.amount < 0 {
            let reason = "its amount is negative".to_owned();
            tell(&HostEvent::Refused { item: order.id.clone(), attempt: context.attempt(), reason: reason.clone() });
            outcome = Err(DelegateError::new(reason).at(index));
            break;
        }
        tell(&HostEvent::Handled { order: order.clone() });
        handled += 1;
    }
    tell(&HostEvent::BatchDone { handled });
    outcome
}

fn tell(event: &HostEvent) {
    let line = serde_json::to_string(event).map(|line| line + "\n");
    let told = line.map_err(Into::into).and_then(|line| print(&line));
    if !matches!(told, Ok(Printed::Whole)) {
        // Work that nobody hears of must not count: the demonstration has gone.
        std::process::exit(2);
    }
}

/// Completes when stdin has ended.
pub(crate) fn stdin_closed() -> Result<oneshot::Receiver<()>> {
    let (closed, when_closed) = oneshot::channel::<()>();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        drop(closed);
    })?;
    Ok(when_closed)
}
