//! Dead letters: only failed items, with everything needed to understand them, and their way back.

mod shop;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, DeadLetters, DelegateError, ItemResult, Notification, Running,
    core::{Container, ErrorKind, Operation},
};
use serde_json::{Value, json};
use shop::{Notifications, Order, Seen, Shop, until};

/// Orders with this version are poison.
const POISON: u64 = 666;

#[derive(Debug)]
struct SmtpDown;

impl std::fmt::Display for SmtpDown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("send the mail")
    }
}

impl std::error::Error for SmtpDown {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        static CAUSE: std::fmt::Error = std::fmt::Error;
        Some(&CAUSE)
    }
}

impl Shop {
    /// A host whose delegate fails for poison, until it is healed.
    async fn rejecting_host(&self, seen: &Seen, notifications: &Notifications, healed: &Arc<AtomicBool>) -> Running {
        let (seen, healed) = (seen.clone(), Arc::clone(healed));
        let rejecting = move |changes: Changes<Order>, ctx: Context| {
            let (seen, healed) = (seen.clone(), Arc::clone(&healed));
            async move {
                if changes.iter().any(|order| order.version == POISON) && !healed.load(Ordering::SeqCst) {
                    return Err(DelegateError::from(SmtpDown));
                }
                seen.add(&changes, &ctx);
                Ok(())
            }
        };
        let processor = self.processor("worker-1").on_notification(notifications.listen());
        let processor = processor.dead_letter(DeadLetter::to(&self.rejected).after_attempts(3));
        processor.build(rejecting).expect("build").start().await.expect("start")
    }

    /// Two poisonous orders among a hundred, one range; ends when the host has dead-lettered them and handled the rest.
    async fn with_letters(healed: &Arc<AtomicBool>) -> (Self, Running, Seen) {
        let shop = Self::new(1).await;
        let (seen, notifications) = (Seen::default(), Notifications::default());
        shop.write(0..100, 1).await;
        shop.write(13..14, POISON).await;
        shop.write(64..65, POISON).await;
        let running = shop.rejecting_host(&seen, &notifications, healed).await;
        until("delivery of the rest", || seen.len() == 98).await;
        let dead_lettered = |notification: &Notification| matches!(notification, Notification::DeadLettered { item, .. } if item == "o64");
        until("the dead letter", || notifications.any(dead_lettered)).await;
        (shop, running, seen)
    }
}

#[tokio::test(start_paused = true)]
async fn only_failed_items_become_dead_letters_and_the_rest_is_delivered() {
    let healed = Arc::default();
    let (shop, running, seen) = Shop::with_letters(&healed).await;
    assert!(seen.counts().values().all(|count| *count == 1), "bisecting delivers nothing twice with success");
    let letters = shop.letters().list().await.expect("list");
    let mut items: Vec<&str> = letters.iter().map(|letter| letter.item_id.as_str()).collect();
    items.sort_unstable();
    assert_eq!(items, ["o13", "o64"]);
    let letter = letters.iter().find(|letter| letter.item_id == "o13").expect("o13");
    assert_eq!((letter.processor.as_str(), letter.lease.as_str(), letter.lsn), ("mailer", "0", 102));
    assert_eq!(letter.container, shop.orders.identity().container.to_string());
    assert_eq!(letter.item_key, Some("c13".into()));
    let stored: Value = serde_json::to_value(letter).expect("json");
    assert_eq!(stored["itemKey"], r#"["c13"]"#, "as requests to Azure Cosmos DB have it");
    assert_eq!((letter.instance.as_str(), letter.attempts, letter.operation.as_str()), ("worker-1", 3, "write"));
    assert_eq!(letter.errors, ["send the mail", &std::fmt::Error.to_string()]);
    assert_eq!(letter.failed_at, shop.clock.now().as_millis());
    let change = letter.change().expect("change");
    assert_eq!(change.operation, Operation::Write);
    assert_eq!(change.parse::<Order>().expect("order").expect("an item"), shop::order(13, POISON));
    shop.write(0..100, 2).await;
    until("the lease goes on", || seen.len() == 198).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn letters_are_paged_counted_and_thrown_away() {
    let healed = Arc::default();
    let (shop, running, _) = Shop::with_letters(&healed).await;
    running.stop().await.expect("stop");
    shop.rejected.create(&json!({"id": "mailer.unrecognised"})).await.expect("create");
    let letters = shop.letters();
    let (mut found, mut unrecognised, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let page = letters.page(after.as_deref(), 1).await.expect("page");
        found.extend(page.letters.into_iter().map(|letter| letter.id));
        unrecognised.extend(page.unrecognised);
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!((found.len(), unrecognised.as_slice()), (2, ["mailer.unrecognised".to_owned()].as_slice()));
    let summary = letters.summary().await.expect("summary");
    assert_eq!(summary.total, 2);
    assert_eq!(summary.by_error.into_iter().collect::<Vec<_>>(), [("send the mail".to_owned(), 2)]);
    assert_eq!(DeadLetters::new(&shop.rejected).processor("other").summary().await.expect("summary").total, 0);
    letters.delete(&found[0]).await.expect("delete");
    assert_eq!(letters.get(&found[0]).await.expect_err("gone").kind(), ErrorKind::ItemNotFound);
    assert_eq!(letters.get(&found[1]).await.expect("get").id, found[1]);
}

#[tokio::test(start_paused = true)]
async fn a_letter_goes_back_into_the_container_and_flows_again() {
    let healed = Arc::default();
    let (shop, running, seen) = Shop::with_letters(&healed).await;
    healed.store(true, Ordering::SeqCst);
    let planned = shop.letters().redrive().dry_run().to_container(&shop.orders).await.expect("dry run");
    assert_eq!((planned.done.len(), planned.skipped.len()), (2, 0));
    assert_eq!(shop.letters().summary().await.expect("summary").total, 2, "a dry run does nothing");
    let redriven = shop.letters().redrive().to_container(&shop.orders).await.expect("redrive");
    assert_eq!(redriven, planned);
    until("delivery", || seen.len() == 100).await;
    let counts = seen.counts();
    assert_eq!((counts[&("o13".to_owned(), POISON)], counts[&("o64".to_owned(), POISON)]), (1, 1));
    assert_eq!(shop.letters().summary().await.expect("summary").total, 0);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_letter_does_not_overwrite_a_newer_version_unless_asked_to() {
    let healed = Arc::default();
    let (shop, running, _) = Shop::with_letters(&healed).await;
    running.stop().await.expect("stop");
    shop.write(13..14, 7).await;
    shop.orders.delete("c14", "o64").await.expect("delete");
    let redriven = shop.letters().redrive().to_container(&shop.orders).await.expect("redrive");
    let reasons: Vec<(&str, &str)> =
        redriven.skipped.iter().map(|kept| (kept.item.as_str(), kept.reason.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("o13", "the item has changed since: overwrite it, or throw the letter away"),
            ("o64", "the item was deleted since: overwrite it, or throw the letter away"),
        ]
    );
    assert_eq!(shop.orders.read::<Order>("c13", "o13").await.expect("read").version, 7);
    let wrong = shop.letters().redrive().to_container(&shop.leases).await.expect("redrive");
    assert!(wrong.skipped.iter().all(|kept| kept.reason.ends_with("not from leases")), "{wrong:?}");
    let redriven = shop.letters().redrive().overwrite().to_container(&shop.orders).await.expect("redrive");
    assert_eq!(redriven.done.len(), 2);
    assert_eq!(shop.orders.read::<Order>("c13", "o13").await.expect("read").version, POISON);
    assert_eq!(shop.orders.read::<Order>("c14", "o64").await.expect("read").version, POISON);
}

#[tokio::test(start_paused = true)]
async fn a_letter_goes_to_a_delegate_and_stays_if_that_fails() {
    let healed = Arc::default();
    let (shop, running, _) = Shop::with_letters(&healed).await;
    running.stop().await.expect("stop");
    let mut given = Vec::new();
    let redriven = shop.letters().redrive().to_delegate(|change| {
        given.push(change.id.to_string());
        let good = given.len() == 1;
        async move { if good { Ok(()) } else { Err(DelegateError::new("still down")) } }
    });
    let redriven = redriven.await.expect("redrive");
    assert_eq!(given, ["o13", "o64"], "oldest first");
    assert_eq!(redriven.done.len(), 1);
    assert_eq!((redriven.skipped[0].item.as_str(), redriven.skipped[0].reason.as_str()), ("o64", "still down"));
    let left = shop.letters().list().await.expect("list");
    assert_eq!(left.len(), 1);
    assert_eq!((left[0].attempts, left[0].errors.as_slice()), (4, ["still down".to_owned()].as_slice()));
    let unknown = shop.letters().redrive().letter("nobody").to_delegate(|_| async { Ok(()) }).await;
    assert_eq!(unknown.expect_err("unknown").kind(), ErrorKind::ItemNotFound);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_keeps_to_its_rate_and_limit() {
    let healed = Arc::default();
    let (shop, running, _) = Shop::with_letters(&healed).await;
    running.stop().await.expect("stop");
    let begun = tokio::time::Instant::now();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let redrive = shop.letters().redrive().per_second(0.5);
    let redrive = redrive.on_progress(move |done, total| report.lock().expect("lock").push((done, total)));
    let redriven = redrive.to_delegate(|_| async { Err(DelegateError::new("no")) });
    assert_eq!(redriven.await.expect("redrive").skipped.len(), 2);
    assert_eq!(*reported.lock().expect("lock"), [(0, 2), (1, 2), (2, 2)]);
    let took = begun.elapsed();
    assert!((Duration::from_secs(2)..Duration::from_secs(3)).contains(&took), "{took:?}");
    let redriven = shop.letters().redrive().limit(1).to_delegate(|_| async { Ok(()) }).await.expect("redrive");
    assert_eq!((redriven.done.len(), shop.letters().summary().await.expect("summary").total), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_does_not_parse_is_one_bad_item() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    shop.orders.create(&json!({"id": "odd", "customer": "c1", "version": "one"})).await.expect("create");
    shop.write(10..20, 1).await;
    let running = shop.rejecting_host(&seen, &notifications, &Arc::default()).await;
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    let letters = shop.letters().list().await.expect("list");
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].item_id.as_str(), letters[0].attempts), ("odd", 1), "trying again would not help");
    assert!(letters[0].errors[0].starts_with("item odd does not fit"), "{:?}", letters[0].errors);
    assert_eq!(seen.counts().len(), 20);
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn results_decide_item_by_item() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..30, 1).await;
    let kept = seen.clone();
    let judging = move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            let result = |order: &Order| match order.id.as_str() {
                "o3" => ItemResult::DeadLetter { reason: "no address".to_owned() },
                "o4" => ItemResult::Skip,
                "o5" if ctx.attempt() < 3 => ItemResult::Retry { after: Duration::from_secs(1) },
                _ => {
                    seen.lock().push(order.clone());
                    ItemResult::Done
                }
            };
            Ok(changes.iter().map(result).collect::<Vec<_>>())
        }
    };
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected));
    let running = processor.build(judging).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 28).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1), "what is done is not delivered again");
    assert_eq!(seen.lock().last().expect("last").id, "o5");
    let letters = shop.letters().list().await.expect("list");
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].item_id.as_str(), letters[0].errors[0].as_str()), ("o3", "no address"));
}

#[tokio::test(start_paused = true)]
async fn results_that_cannot_be_applied_lose_no_item() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..30, 1).await;
    let kept = seen.clone();
    let judging = move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            let result = |order: &Order| match order.id.as_str() {
                "o3" | "o9" if ctx.attempt() < 3 => ItemResult::Retry { after: Duration::from_secs(1) },
                "o5" if ctx.attempt() < 7 => ItemResult::DeadLetter { reason: "no address".to_owned() },
                _ => {
                    seen.lock().push(order.clone());
                    ItemResult::Done
                }
            };
            // Without a result for the last ten.
            Ok(changes.iter().take(20).map(result).collect::<Vec<_>>())
        }
    };
    let processor = shop.processor("worker-1").on_notification(notifications.listen());
    let running = processor.build(judging).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 30).await;
    assert!(seen.counts().values().all(|count| *count == 1), "{:?}", seen.counts());
    assert!(notifications.text().contains("no dead-letter container is set: no address"), "{}", notifications.text());
    let stalled = |n: &Notification| matches!(n, Notification::Stalled { attempts: 6, .. });
    assert!(notifications.any(stalled), "{}", notifications.text());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_does_not_parse_is_dead_lettered_beside_results_for_the_others() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    shop.orders.create(&json!({"id": "odd", "customer": "c1", "version": "one"})).await.expect("create");
    shop.write(10..20, 1).await;
    let kept = seen.clone();
    let judging = move |changes: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            // One result too few at the first try.
            let decided = if ctx.attempt() == 1 && changes.len() > 1 { changes.len() - 1 } else { changes.len() };
            seen.lock().extend(changes.iter().take(decided).cloned());
            Ok(vec![ItemResult::Done; decided])
        }
    };
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected));
    let running = processor.build(judging).expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1), "{:?}", seen.counts());
    let letters = shop.letters().list().await.expect("list");
    assert_eq!(letters.iter().map(|letter| letter.item_id.as_str()).collect::<Vec<_>>(), ["odd"]);
}

#[tokio::test(start_paused = true)]
async fn an_item_too_large_for_a_letter_is_dead_lettered_without_its_body() {
    let shop = Shop::new(1).await;
    let filler = "x".repeat(2 * 1024 * 1024 - 200);
    shop.orders
        .create(&json!({"id": "fat", "customer": "c", "version": POISON, "filler": filler}))
        .await
        .expect("create");
    shop.write(0..3, 1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop.rejecting_host(&seen, &notifications, &Arc::default()).await;
    until("delivery of the rest", || seen.len() == 3).await;
    running.stop().await.expect("stop");
    let letters = shop.letters().list().await.expect("list");
    assert!(letters[0].cut && letters[0].current.is_none());
    let redriven = shop.letters().redrive().to_container(&shop.orders).await.expect("redrive");
    assert!(redriven.skipped[0].reason.contains("was too large to keep the item"), "{redriven:?}");
}

#[tokio::test(start_paused = true)]
async fn an_error_of_any_length_leaves_room_for_the_item() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected).after_attempts(1));
    let processor = processor.build(move |changes: Changes<Order>, ctx: Context| {
        let fails = changes.iter().any(|order| order.id == "o0");
        if !fails {
            kept.add(&changes, &ctx);
        }
        async move { if fails { Err::<(), _>(format!("begin {} end", "ü".repeat(3 << 20)).into()) } else { Ok(()) } }
    });
    shop.write(0..3, 1).await;
    let running = processor.expect("build").start().await.expect("start");
    until("delivery of the rest", || seen.len() == 2).await;
    running.stop().await.expect("stop");
    let letters = shop.letters().list().await.expect("list");
    let text = letters[0].errors.join(" ");
    assert!(text.contains("begin ü") && text.contains("ü end") && text.len() < 40 << 10, "{} bytes", text.len());
    assert!(!letters[0].cut);
}

#[tokio::test(start_paused = true)]
async fn letters_live_in_a_container_with_any_partition_key() {
    let shop = Shop::new(1).await;
    let database = shop.engine.database("shop");
    let rejected: Container =
        database.container("by-processor").partition_key("/processor").create().await.expect("create");
    let shop = Shop { rejected, ..shop };
    let (seen, notifications, healed) = (Seen::default(), Notifications::default(), Arc::default());
    shop.write(0..5, 1).await;
    shop.write(2..3, POISON).await;
    let running = shop.rejecting_host(&seen, &notifications, &healed).await;
    until("delivery", || seen.len() == 4).await;
    until("the dead letter", || {
        notifications.any(|notification| matches!(notification, Notification::DeadLettered { .. }))
    })
    .await;
    healed.store(true, Ordering::SeqCst);
    assert_eq!(shop.letters().redrive().to_container(&shop.orders).await.expect("redrive").done.len(), 1);
    until("delivery", || seen.len() == 5).await;
    assert!(shop.rejected.list("").await.expect("list").is_empty());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_container_a_batch_is_retried_without_limit_and_reported() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write(0..3, 1).await;
    let failing = |_: Changes<Value>, _: Context| async { Err::<(), _>(DelegateError::new("down")) };
    let processor = shop.processor("worker-1").on_notification(notifications.listen());
    let running = processor.build(failing).expect("build").start().await.expect("start");
    let stalled = |n: &Notification| matches!(n, Notification::Stalled { attempts: 6, reason, .. } if reason == "down");
    until("a stall is reported", || notifications.any(stalled)).await;
    running.stop().await.expect("stop");
}
