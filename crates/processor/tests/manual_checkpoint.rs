//! Manual checkpoints: progress is what the delegate said, no more and no less.

mod shop;

use std::time::Duration;

use changefeed::{Changes, Checkpoint, Context, Running};
use shop::{Order, Seen, Shop, pass, until};

impl Shop {
    /// A host that takes ten orders at a time and checkpoints after each batch that ends with one of `at`.
    async fn manual_host(&self, instance: &str, seen: &Seen, at: &'static [u64]) -> Running {
        let seen = seen.clone();
        let delegate = move |changes: Changes<Order>, ctx: Context| {
            let seen = seen.clone();
            async move {
                seen.add(&changes, &ctx);
                if at.contains(&ctx.last_lsn().get()) {
                    ctx.checkpoint().await?;
                }
                Ok(())
            }
        };
        let processor = self.processor(instance).checkpoint(Checkpoint::Manual).max_items(10);
        processor.build(delegate).expect("build").start().await.expect("start")
    }
}

fn items(seen: &Seen) -> Vec<String> {
    seen.lock().iter().map(|order| order.id.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_delivery_begins_at_the_last_checkpoint() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..50, 1).await;
    let running = shop.manual_host("worker-1", &seen, &[20, 30]).await;
    until("delivery", || seen.len() == 50).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"30\"", "idle renewals store nothing");
    drop(running);
    seen.take();
    let running = shop.manual_host("worker-2", &seen, &[]).await;
    until("delivery from the checkpoint", || seen.len() >= 20).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(items(&seen), (30..50).map(|item| format!("o{item}")).collect::<Vec<_>>());
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"30\"", "a stop stores no more either");
}

#[tokio::test(start_paused = true)]
async fn without_any_checkpoint_everything_comes_again_from_the_start() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..50, 1).await;
    let running = shop.manual_host("worker-1", &seen, &[]).await;
    until("delivery", || seen.len() == 50).await;
    running.stop().await.expect("stop");
    let running = shop.manual_host("worker-1", &seen, &[]).await;
    until("delivery again", || seen.len() == 100).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 2));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_may_come_later_and_never_goes_backwards() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..30, 1).await;
    let (sender, mut contexts) = tokio::sync::mpsc::unbounded_channel();
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        kept.add(&changes, &ctx);
        drop(sender.send(ctx));
        async { Ok(()) }
    };
    let processor = shop.processor("worker-1").checkpoint(Checkpoint::Manual).max_items(10);
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 30).await;
    let mut batches = Vec::new();
    while let Ok(context) = contexts.try_recv() {
        batches.push(context);
    }
    batches[1].checkpoint().await.expect("second batch");
    batches[0].checkpoint().await.expect("first batch, too late");
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"20\"");
    running.stop().await.expect("stop");
    let error = batches[2].checkpoint().await.expect_err("the lease is not ours any more");
    assert_eq!(error.kind(), changefeed::core::ErrorKind::PreconditionFailed);
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"20\"");
}

#[tokio::test(start_paused = true)]
async fn an_automatic_checkpoint_after_a_crash_repeats_at_most_the_batch_that_ran() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..50, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 50).await;
    pass(Duration::from_secs(1)).await;
    drop(running);
    let running = shop.host("worker-2", &seen).await;
    shop.write(50..60, 1).await;
    until("delivery", || seen.len() >= 60).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), 60);
    running.stop().await.expect("stop");
}
