//! Manual checkpoints: progress is what the delegate said, no more and no less.

mod shop;

use std::time::Duration;

use changefeed::{Changes, DeadLetter, ItemResult, ManualContext, Running};
use serde_json::json;
use shop::{Notifications, Order, Seen, Shop, checkpoint, pass, until};

impl Shop {
    /// A host that takes ten orders at a time and checkpoints after each batch that ends with one of `at`.
    async fn manual_host(&self, instance: &str, seen: &Seen, at: &'static [u64]) -> Running {
        let seen = seen.clone();
        let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
            let seen = seen.clone();
            async move {
                seen.add(&changes, &ctx);
                if at.contains(&ctx.last_lsn().get()) {
                    ctx.checkpoint().await?;
                }
                Ok(())
            }
        };
        let processor = self.processor(instance).manual_checkpoints().max_items(10);
        processor.build(delegate).expect("build").start().await.expect("start")
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_delivery_begins_at_the_last_checkpoint() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..50, 1).await;
    let running = shop.manual_host("worker-1", &seen, &[21, 31]).await;
    until("delivery", || seen.len() == 50).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"31\"", "idle renewals store nothing");
    drop(running);
    seen.take();
    let running = shop.manual_host("worker-2", &seen, &[]).await;
    until("delivery from the checkpoint", || seen.len() >= 20).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.ids(), (30..50).map(|item| format!("o{item}")).collect::<Vec<_>>());
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"31\"", "a stop stores no more either");
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
    let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
        kept.add(&changes, &ctx);
        drop(sender.send(ctx));
        async { Ok(()) }
    };
    let processor = shop.processor("worker-1").manual_checkpoints().max_items(10);
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 30).await;
    let mut batches = Vec::new();
    while let Ok(context) = contexts.try_recv() {
        batches.push(context);
    }
    batches[1].checkpoint().await.expect("second batch");
    batches[0].checkpoint().await.expect("first batch, too late");
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"21\"");
    running.stop().await.expect("stop");
    let error = batches[2].checkpoint().await.expect_err("the lease is not ours any more");
    assert_eq!(error.kind(), changefeed::core::ErrorKind::PreconditionFailed);
    assert_eq!(shop.lease_documents().await["0"]["ContinuationToken"], "\"21\"");
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

/// Seven changes in one page; the fourth does not parse as an order.
async fn shop_with_an_odd_item() -> Shop {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    shop.orders.create(&json!({"id": "odd", "customer": "c1", "version": "one"})).await.expect("create");
    shop.write(3..6, 1).await;
    shop
}

/// The host crashes, the odd item is repaired, and another host takes over: it must be given all that nobody was given.
async fn is_given_the_rest_after_a_crash(shop: &Shop, running: Running, seen: &Seen) {
    let stored = checkpoint(&shop.lease_documents().await["0"]);
    assert!(stored <= 3, "the checkpoint {stored} passes items that no delegate was given");
    drop(running);
    shop.orders.upsert(&json!({"id": "odd", "customer": "c1", "version": 2})).await.expect("upsert");
    let running = shop.manual_host("worker-2", seen, &[]).await;
    let owed = ["o3", "o4", "o5", "odd"];
    until("delivery of the rest", || owed.iter().all(|item| seen.ids().iter().any(|id| id == item))).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_never_passes_an_item_that_the_delegate_was_not_given() {
    let shop = shop_with_an_odd_item().await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
        let seen = kept.clone();
        async move {
            seen.add(&changes, &ctx);
            ctx.checkpoint().await?;
            Ok(())
        }
    };
    let processor = shop.processor("worker-1").manual_checkpoints().on_notification(notifications.listen());
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("the odd item is reported", || notifications.errors("item odd does not fit") > 0).await;
    assert_eq!(seen.ids(), ["o0", "o1", "o2"]);
    is_given_the_rest_after_a_crash(&shop, running, &seen).await;
}

#[tokio::test(start_paused = true)]
async fn nor_does_one_beside_results_for_each_item() {
    let shop = shop_with_an_odd_item().await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
        let seen = kept.clone();
        async move {
            seen.add(&changes, &ctx);
            ctx.checkpoint().await?;
            Ok(vec![ItemResult::Done; changes.len()])
        }
    };
    let processor = shop.processor("worker-1").manual_checkpoints().on_notification(notifications.listen());
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("the odd item is reported", || notifications.errors("item odd does not fit") > 0).await;
    is_given_the_rest_after_a_crash(&shop, running, &seen).await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_is_called_later_passes_no_item_either() {
    let shop = shop_with_an_odd_item().await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let (sender, mut contexts) = tokio::sync::mpsc::unbounded_channel();
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
        kept.add(&changes, &ctx);
        drop(sender.send(ctx));
        async { Ok(()) }
    };
    let processor = shop.processor("worker-1").manual_checkpoints().on_notification(notifications.listen());
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("the odd item is reported", || notifications.errors("item odd does not fit") > 0).await;
    contexts.try_recv().expect("a context").checkpoint().await.expect("checkpoint");
    is_given_the_rest_after_a_crash(&shop, running, &seen).await;
}

#[tokio::test(start_paused = true)]
async fn once_the_odd_item_is_a_dead_letter_a_checkpoint_passes_it() {
    let shop = shop_with_an_odd_item().await;
    let seen = Seen::default();
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: ManualContext| {
        let seen = kept.clone();
        async move {
            seen.add(&changes, &ctx);
            ctx.checkpoint().await?;
            Ok(())
        }
    };
    let processor = shop.processor("worker-1").manual_checkpoints();
    let processor = processor.dead_letter(DeadLetter::to(&shop.rejected));
    let running = processor.build(delegate).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 6).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.dead_lettered().await, ["odd"]);
    assert_eq!(checkpoint(&shop.lease_documents().await["0"]), 7);
}
