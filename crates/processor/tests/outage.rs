//! Outages: a failing dependency dead-letters nothing.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, DeadLetters, DelegateError, ItemResult, Latest, Notification, ProcessorBuilder,
    Running,
};
use shop::{Notifications, Order, Seen, Shop, pass, until};

impl Shop {
    /// A host whose delegate fails for everything during the outage.
    async fn host_in_outage(&self, builder: ProcessorBuilder<Latest>, seen: &Seen, down: &Arc<AtomicBool>) -> Running {
        let (seen, down) = (seen.clone(), Arc::clone(down));
        let delegate = move |changes: Changes<Order>, ctx: Context| {
            let (seen, down) = (seen.clone(), Arc::clone(&down));
            async move {
                if down.load(Ordering::SeqCst) {
                    return Err(DelegateError::new("smtp is down"));
                }
                seen.add(&changes, &ctx);
                Ok(())
            }
        };
        builder.build(delegate).expect("build").start().await.expect("start")
    }

    fn letter_policy(&self) -> DeadLetter {
        DeadLetter::to(&self.rejected).after_attempts(3)
    }

    async fn dead_letters(&self) -> usize {
        DeadLetters::new(&self.rejected).summary().await.expect("summary").total as usize
    }
}

fn is_outage(notification: &Notification) -> bool {
    matches!(notification, Notification::Outage { reason, .. } if reason == "smtp is down")
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_outlasts_the_attempts_dead_letters_nothing() {
    let shop = Shop::new(1).await;
    let (seen, notifications, down) = (Seen::default(), Notifications::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..40, 1).await;
    let builder = shop.processor("worker-1").dead_letter(shop.letter_policy()).on_notification(notifications.listen());
    let running = shop.host_in_outage(builder, &seen, &down).await;
    until("an outage is reported", || notifications.any(is_outage)).await;
    pass(Duration::from_secs(600)).await;
    assert_eq!(shop.dead_letters().await, 0, "{}", notifications.text());
    down.store(false, Ordering::SeqCst);
    until("delivery", || seen.len() == 40).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1), "{:?}", seen.counts());
    assert_eq!(shop.dead_letters().await, 0);
}

#[tokio::test(start_paused = true)]
async fn single_items_are_dead_lettered_until_three_in_a_row_look_like_an_outage() {
    let shop = Shop::new(1).await;
    let (seen, notifications, down) = (Seen::default(), Notifications::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..6, 1).await;
    let builder = shop.processor("worker-1").dead_letter(shop.letter_policy()).on_notification(notifications.listen());
    let running = shop.host_in_outage(builder.max_items(1), &seen, &down).await;
    until("an outage is reported", || notifications.any(is_outage)).await;
    pass(Duration::from_secs(600)).await;
    assert_eq!(shop.dead_letters().await, 3);
    down.store(false, Ordering::SeqCst);
    until("delivery of the rest", || seen.len() == 3).await;
    // A success in between: the next single item is dead-lettered again.
    down.store(true, Ordering::SeqCst);
    shop.write(6..7, 1).await;
    shop::until_async("its dead letter", || async { shop.dead_letters().await == 4 }).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_asked_for_again_and_again_becomes_a_dead_letter() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let kept = seen.clone();
    let undecided = move |changes: Changes<Order>, _: Context| {
        let seen = kept.clone();
        async move {
            let result = |order: &Order| match order.id.as_str() {
                "o5" => ItemResult::Retry { after: Duration::from_secs(1) },
                _ => {
                    seen.lock().push(order.clone());
                    ItemResult::Done
                }
            };
            Ok(changes.iter().map(result).collect::<Vec<_>>())
        }
    };
    let processor = shop.processor("worker-1").dead_letter(shop.letter_policy());
    let running = processor.build(undecided).expect("build").start().await.expect("start");
    shop::until_async("its dead letter", || async { shop.dead_letters().await == 1 }).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.len(), 9);
    let letters = DeadLetters::new(&shop.rejected).list().await.expect("list");
    assert_eq!((letters[0].item_id.as_str(), letters[0].attempts), ("o5", 3));
    assert_eq!(letters[0].errors, ["the delegate asked for a retry 3 times"]);
}

#[tokio::test(start_paused = true)]
async fn failures_of_a_batch_do_not_count_against_an_item_that_is_asked_for_again_once() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..3, 1).await;
    let kept = seen.clone();
    let calls = Arc::new(AtomicUsize::new(0));
    let undecided = move |changes: Changes<Order>, _: Context| {
        let (seen, call) = (kept.clone(), calls.fetch_add(1, Ordering::SeqCst));
        async move {
            if call < 2 {
                return Err(DelegateError::new("the whole batch fails"));
            }
            let result = |order: &Order| match (order.id.as_str(), call) {
                ("o2", _) => ItemResult::DeadLetter { reason: "no address".to_owned() },
                (_, 2) => ItemResult::Retry { after: Duration::from_secs(1) },
                _ => {
                    seen.lock().push(order.clone());
                    ItemResult::Done
                }
            };
            Ok(changes.iter().map(result).collect::<Vec<_>>())
        }
    };
    let processor = shop.processor("worker-1").dead_letter(shop.letter_policy());
    let running = processor.build(undecided).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 2).await;
    running.stop().await.expect("stop");
    let letters = DeadLetters::new(&shop.rejected).list().await.expect("list");
    assert_eq!(letters.iter().map(|letter| letter.item_id.as_str()).collect::<Vec<_>>(), ["o2"]);
}

#[tokio::test(start_paused = true)]
async fn when_all_items_are_asked_for_again_it_is_an_outage() {
    let shop = Shop::new(1).await;
    let (seen, notifications, down) = (Seen::default(), Notifications::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..10, 1).await;
    let (kept, state) = (seen.clone(), Arc::clone(&down));
    let undecided = move |changes: Changes<Order>, ctx: Context| {
        let (seen, down) = (kept.clone(), state.load(Ordering::SeqCst));
        async move {
            if down {
                return Ok(vec![ItemResult::Retry { after: Duration::from_secs(1) }; changes.len()]);
            }
            seen.add(&changes, &ctx);
            Ok(vec![ItemResult::Done; changes.len()])
        }
    };
    let builder = shop.processor("worker-1").dead_letter(shop.letter_policy()).on_notification(notifications.listen());
    let running = builder.build(undecided).expect("build").start().await.expect("start");
    until("an outage is reported", || notifications.any(|n| matches!(n, Notification::Outage { .. }))).await;
    pass(Duration::from_secs(600)).await;
    assert_eq!(shop.dead_letters().await, 0);
    // It ends in a pause, when no item is held back: one that is would become a dead letter, since what comes
    // after it succeeds.
    let reported = || notifications.count(|n| matches!(n, Notification::Outage { .. }));
    let before = reported();
    until("it is reported again", || reported() > before).await;
    down.store(false, Ordering::SeqCst);
    until("delivery", || seen.len() == 10).await;
    assert_eq!(shop.dead_letters().await, 0);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_slow_delegate_is_reported_and_explains_its_lease() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write(0..3, 1).await;
    let gate = Arc::new(tokio::sync::Notify::new());
    let opened = Arc::clone(&gate);
    let slow = move |_: Changes<Order>, _: Context| {
        let gate = Arc::clone(&gate);
        async move {
            gate.notified().await;
            Ok(())
        }
    };
    let builder =
        shop.processor("worker-1").slow_after(Duration::from_secs(10)).on_notification(notifications.listen());
    let running = builder.build(slow).expect("build").start().await.expect("start");
    let reported = |after: u64| {
        let after = Duration::from_secs(after);
        move |n: &Notification| matches!(n, Notification::Slow { running, .. } if *running == after)
    };
    until("it is reported twice", || notifications.any(reported(10)) && notifications.any(reported(20))).await;
    let says = || async { shop.lease_documents().await["0"]["properties"]["cf.status"].as_str().map(str::to_owned) };
    let said = r#"{"state":"calling","seconds":20}"#;
    shop::until_async("the lease says so", || async { says().await.as_deref() == Some(said) }).await;
    opened.notify_one();
    shop::until_async("the lease says no more", || async { says().await.is_none() }).await;
    running.stop().await.expect("stop");
}
