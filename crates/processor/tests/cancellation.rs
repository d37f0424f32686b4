//! `Context::cancelled`: it fires at stop, pause, hand-over and loss, and what the delegate returns then still counts
//! unless the lease is lost.

mod shop;

use std::time::Duration;

use changefeed::{Changes, Context, Notification, ProcessorBuilder, Running, Scope};
use shop::{Calls, Notifications, Order, Seen, Shop, checkpoint, pass, until, until_async};

/// Starts a host whose calls end when they are cancelled.
async fn start_cooperative(builder: ProcessorBuilder<changefeed::Latest>, calls: &Calls) -> Running {
    let calls = calls.clone();
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        let calls = calls.clone();
        async move {
            let call = calls.begin(&changes, &ctx);
            ctx.cancelled().await;
            assert!(ctx.is_cancelled());
            calls.finish(call);
            Ok(())
        }
    };
    builder.build(delegate).expect("build").start().await.expect("start")
}

fn finished(calls: &Calls) -> usize {
    calls.all().iter().filter(|call| call.finished).count()
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_a_stop_and_what_the_call_did_is_stored() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..3, 1).await;
    let running = start_cooperative(shop.processor("worker-1"), &calls).await;
    until("a call begins", || calls.len() == 1).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!(finished(&calls), 0, "nothing cancels it before");
    let begun = tokio::time::Instant::now();
    running.stop().await.expect("stop");
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(finished(&calls), 1);
    assert_eq!(checkpoint(&shop.lease_documents().await["0"]), 3);
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_a_pause_and_what_the_call_did_is_stored() {
    let shop = Shop::new(1).await;
    let (calls, seen) = (Calls::default(), Seen::default());
    shop.write(0..3, 1).await;
    let running = start_cooperative(shop.processor("worker-1"), &calls).await;
    until("a call begins", || calls.len() == 1).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("it is cancelled", || finished(&calls) == 1).await;
    until_async("release", || shop.is_released()).await;
    assert_eq!(checkpoint(&shop.lease_documents().await["0"]), 3);
    running.stop().await.expect("stop");
    shop.control().resume(Scope::All).await.expect("resume");
    shop.write(3..6, 1).await;
    let running = shop.host("worker-2", &seen).await;
    until("delivery of the rest", || seen.ids() == ["o3", "o4", "o5"]).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_a_hand_over_for_that_lease_alone_and_what_the_call_did_is_stored() {
    let shop = Shop::new(2).await;
    let (calls, seen, notifications) = (Calls::default(), Seen::default(), Notifications::default());
    shop.write(0..50, 1).await;
    let processor = shop.processor("worker-1").on_notification(notifications.listen());
    let running = start_cooperative(processor, &calls).await;
    until("both calls begin", || calls.len() == 2).await;
    let other = shop.host("worker-2", &seen).await;
    let handed_over = |n: &Notification| matches!(n, Notification::HandedOver { to, .. } if to == "worker-2");
    until("a hand-over", || notifications.any(handed_over)).await;
    pass(Duration::from_secs(10)).await;
    assert_eq!((calls.len(), finished(&calls)), (2, 1), "the other call goes on");
    assert_eq!(seen.len(), 0, "nothing is delivered again");
    running.stop().await.expect("stop");
    assert_eq!(finished(&calls), 2);
    other.stop().await.expect("stop");
    assert!(calls.given().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn it_fires_at_a_loss_and_what_the_call_did_is_not_stored() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..3, 1).await;
    let running = start_cooperative(shop.processor("worker-1"), &calls).await;
    until("a call begins", || calls.len() == 1).await;
    shop.dotnet_acquires("0", "dotnet").await;
    until("it is cancelled", || finished(&calls) == 1).await;
    pass(Duration::from_secs(2)).await;
    let document = &shop.lease_documents().await["0"];
    assert_eq!((document["Owner"].as_str(), checkpoint(document)), (Some("dotnet"), 0));
    running.stop().await.expect("stop");
}
