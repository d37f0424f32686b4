//! Hosts that are dropped: they end at once, as a crash would, whatever their delegates have kept.

mod shop;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{Changes, Context, ManualContext, core::ErrorKind};
use shop::{Gate, Order, Seen, Shop, pass, until};

/// Contexts that a delegate has kept beyond its call.
type Kept = Arc<Mutex<Vec<Context>>>;

#[tokio::test(start_paused = true)]
async fn a_dropped_host_stops_renewing_although_its_contexts_live_on() {
    let shop = Shop::new(2).await;
    let (kept, seen) = (Kept::default(), Seen::default());
    shop.write(0..10, 1).await;
    let contexts = Arc::clone(&kept);
    let delegate = move |_: Changes<Order>, ctx: Context| {
        contexts.lock().expect("lock").push(ctx);
        async { Ok(()) }
    };
    let dropped = shop.processor("worker-1").build(delegate).expect("build").start().await.expect("start");
    until("delivery", || kept.lock().expect("lock").len() == 2).await;
    pass(Duration::from_secs(1)).await;
    drop(dropped);
    let running = shop.host("worker-2", &seen).await;
    shop.write(10..30, 1).await;
    until("the other host takes over", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert!(!kept.lock().expect("lock").is_empty(), "they are still alive");
}

#[tokio::test(start_paused = true)]
async fn a_context_of_a_dropped_host_cannot_checkpoint() {
    let shop = Shop::new(1).await;
    let (kept, seen) = (Arc::new(Mutex::new(Vec::<ManualContext>::new())), Seen::default());
    shop.write(0..10, 1).await;
    let contexts = Arc::clone(&kept);
    let delegate = move |_: Changes<Order>, ctx: ManualContext| {
        contexts.lock().expect("lock").push(ctx);
        async { Ok(()) }
    };
    let dropped = shop.processor("worker-1").manual_checkpoints().build(delegate).expect("build");
    let dropped = dropped.start().await.expect("start");
    until("delivery", || kept.lock().expect("lock").len() == 1).await;
    drop(dropped);
    pass(Duration::from_millis(100)).await;
    let context = kept.lock().expect("lock")[0].clone();
    let error = context.checkpoint().await.expect_err("the host is gone");
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
    let running = shop.host("worker-2", &seen).await;
    until("everything is delivered again", || seen.len() == 10).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_running_call_ends_with_its_host_although_a_task_keeps_its_context() {
    let shop = Shop::new(1).await;
    let (kept, seen, gate) = (Kept::default(), Seen::default(), Gate::closed());
    shop.write(0..10, 1).await;
    let (contexts, held) = (Arc::clone(&kept), gate.clone());
    let delegate = move |_: Changes<Order>, ctx: Context| {
        contexts.lock().expect("lock").push(ctx);
        let gate = held.clone();
        async move {
            gate.pass().await;
            Ok(())
        }
    };
    let dropped = shop.processor("worker-1").build(delegate).expect("build").start().await.expect("start");
    until("a call begins", || kept.lock().expect("lock").len() == 1).await;
    drop(dropped);
    gate.open();
    let running = shop.host("worker-2", &seen).await;
    until("the other host takes over", || seen.len() == 10).await;
    running.stop().await.expect("stop");
}
