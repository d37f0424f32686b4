//! Delegates that fail, and items that nobody can handle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{Backoff, Changes, Context, DeadLetter, DeadLetters, DelegateError, ManualContext, RawChanges};
use serde_json::Value;

use crate::shop::{Seen, Shop, until};

const SOON: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_millis(200) };

#[tokio::test]
async fn a_batch_that_fails_is_delivered_again() {
    let (shop, seen, calls) = (Shop::new(1).await, Seen::default(), Arc::new(AtomicU32::new(0)));
    shop.write(0..10, 1).await;
    let (own, counter) = (seen.clone(), Arc::clone(&calls));
    let processor = shop.builder("a").retry(SOON).build(move |changes: RawChanges, context: Context| {
        let fails = counter.fetch_add(1, Ordering::Relaxed) < 3;
        if !fails {
            own.note(&changes, &context);
        }
        async move { if fails { Err(DelegateError::new("not yet")) } else { Ok(()) } }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery", || seen.len() >= 10).await;
    running.stop().await.unwrap();
    assert_eq!(seen.len(), 10);
}

#[tokio::test]
async fn a_panic_is_a_failure_like_any_other() {
    let (shop, seen, calls) = (Shop::new(1).await, Seen::default(), Arc::new(AtomicU32::new(0)));
    shop.write(0..5, 1).await;
    let (own, counter) = (seen.clone(), Arc::clone(&calls));
    let processor = shop.builder("a").retry(SOON).build(move |changes: RawChanges, context: Context| {
        let first = counter.fetch_add(1, Ordering::Relaxed) == 0;
        let own = own.clone();
        async move {
            assert!(!first, "the first call panics");
            own.note(&changes, &context);
            Ok(())
        }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery", || seen.len() >= 5).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_call_that_takes_too_long_is_a_failed_attempt() {
    let (shop, seen, calls) = (Shop::new(1).await, Seen::default(), Arc::new(AtomicU32::new(0)));
    shop.write(0..5, 1).await;
    let (own, counter) = (seen.clone(), Arc::clone(&calls));
    let processor = shop.builder("a").retry(SOON).delegate_timeout(Duration::from_millis(200));
    let processor = processor.build(move |changes: RawChanges, context: Context| {
        let first = counter.fetch_add(1, Ordering::Relaxed) == 0;
        let own = own.clone();
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            own.note(&changes, &context);
            Ok(())
        }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery", || seen.len() >= 5).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_item_that_fails_again_and_again_becomes_a_dead_letter_and_can_be_redriven() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    let rejected = shop.create_container("rejected").await;
    shop.write(0..10, 1).await;
    let own = seen.clone();
    let processor = shop.builder("a").retry(SOON).dead_letter(DeadLetter::to(&rejected).after_attempts(2));
    let processor = processor.build(move |changes: RawChanges, context: Context| {
        let poison = changes.iter().position(|change| change.id.as_str() == "4");
        // Everything before the item that fails is done.
        own.note(&changes.slice(0..poison.unwrap_or(changes.len())), &context);
        async move { poison.map_or(Ok(()), |index| Err(DelegateError::new("poison").at(index))) }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery of the others", || seen.distinct() >= 9).await;
    let letters = DeadLetters::new(&rejected);
    let mut total = 0;
    while total == 0 {
        total = letters.summary().await.unwrap().total;
    }
    running.stop().await.unwrap();
    assert_eq!(letters.list().await.unwrap()[0].item_id, "4");
    let redriven = letters.redrive().to_delegate(|_| async { Ok(()) }).await.unwrap();
    assert_eq!((redriven.done.len(), letters.summary().await.unwrap().total), (1, 0));
}

#[tokio::test]
async fn what_was_not_checkpointed_by_hand_comes_again() {
    let (shop, first) = (Shop::new(1).await, Seen::default());
    shop.write(0..20, 1).await;
    let own = first.clone();
    let processor = shop.builder("a").manual_checkpoints().max_items(10);
    let processor = processor.build(move |changes: RawChanges, context: ManualContext| {
        let own = own.clone();
        async move {
            own.note(&changes, &context);
            if own.len() == 10 {
                context.checkpoint().await?;
            }
            Ok(())
        }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery", || first.len() >= 20).await;
    running.stop().await.unwrap();
    let second = Seen::default();
    let running = shop.host("a", &second).await;
    until("delivery", || second.len() >= 10).await;
    running.stop().await.unwrap();
    assert_eq!(second.ids(), first.ids()[10..]);
}

#[tokio::test]
async fn an_item_that_does_not_parse_is_one_bad_item() {
    let shop = Shop::new(1).await;
    let rejected = shop.create_container("rejected").await;
    shop.write(0..3, 1).await;
    shop.orders.upsert(&serde_json::json!({"id": "x", "customer": "c1", "n": "many"})).await.unwrap();
    shop.write(3..6, 1).await;
    #[derive(serde::Deserialize)]
    struct Order {
        #[expect(dead_code, reason = "what counts is that it parses")]
        n: u32,
    }
    let handled = Arc::new(AtomicU32::new(0));
    let own = Arc::clone(&handled);
    let processor = shop.builder("a").retry(SOON).dead_letter(DeadLetter::to(&rejected).after_attempts(2));
    let processor = processor.build(move |changes: Changes<Order>, _: Context| {
        own.fetch_add(u32::try_from(changes.len()).unwrap_or(0), Ordering::Relaxed);
        async { Ok(()) }
    });
    let running = processor.unwrap().start().await.unwrap();
    until("delivery of the others", || handled.load(Ordering::Relaxed) >= 6).await;
    let letters = DeadLetters::new(&rejected);
    while letters.summary().await.unwrap().total == 0 {}
    running.stop().await.unwrap();
    assert_eq!(letters.list().await.unwrap()[0].item_id, "x");
    let _: Value = shop.orders.read("c1", "x").await.unwrap();
}
