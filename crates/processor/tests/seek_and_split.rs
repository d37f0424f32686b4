//! Seeks beside splits, retries that cannot be missed, and what kept a stop.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, DelegateError, ItemResult, Scope, SeekTo,
    core::{ErrorKind, Write},
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Notifications, Order, Seen, Shop, faulty, pass, until};

/// Whether a call creates a document, or deletes one.
fn creates_or_deletes(call: &Call<'_>) -> bool {
    let counts = |write: &Write| matches!(write, Write::Create { .. } | Write::Delete { .. });
    matches!(call, Call::Write(batch) if batch.writes.iter().any(counts))
}

/// A host replaces the lease of a range that was split: it creates two leases and deletes one. An operator seeks to the
/// beginning right before the write with this number is done.
async fn a_seek_before_write(number: u32) {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..100, 1).await;
    let (armed, writes, operator) = (Arc::new(AtomicBool::new(false)), AtomicU32::new(0), shop.clone());
    let (state, sought) = (Arc::clone(&armed), Arc::new(AtomicBool::new(false)));
    let done = Arc::clone(&sought);
    let leases = faulty(&shop.leases, move |call: &Call<'_>| {
        let counted = state.load(Ordering::SeqCst) && creates_or_deletes(call);
        if !counted || writes.fetch_add(1, Ordering::SeqCst) != number {
            return Fault::None;
        }
        let (operator, done) = (operator.clone(), Arc::clone(&done));
        Fault::Latency(Box::pin(async move {
            operator.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
            done.store(true, Ordering::SeqCst);
        }))
    });
    let host = Shop { leases, ..shop.clone() };
    let running = shop::start(host.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    until("delivery", || seen.len() == 100).await;
    pass(Duration::from_secs(5)).await;
    seen.take();
    armed.store(true, Ordering::SeqCst);
    shop.split(0).await;
    until("the seek", || sought.load(Ordering::SeqCst)).await;
    until("everything is delivered again", || seen.counts().len() == 100).await;
    shop.write(0..100, 2).await;
    until("delivery goes on", || seen.counts().len() == 200).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await.len(), 2, "{}", notifications.text());
}

#[tokio::test(start_paused = true)]
async fn a_seek_before_the_first_child_of_a_split_is_created_is_not_undone() {
    a_seek_before_write(0).await;
}

#[tokio::test(start_paused = true)]
async fn a_seek_between_the_children_of_a_split_is_not_undone() {
    a_seek_before_write(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_seek_before_the_parent_of_a_split_is_deleted_is_not_undone() {
    a_seek_before_write(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_range_that_is_gone_by_one_answer_and_there_by_another_is_retried_with_pauses_and_reported() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    let (confused, reads) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
    let (state, count) = (Arc::clone(&confused), Arc::clone(&reads));
    let orders = faulty(&shop.orders, move |call: &Call<'_>| match call {
        Call::ReadChanges(_) if state.load(Ordering::SeqCst) => {
            count.fetch_add(1, Ordering::SeqCst);
            Fault::Error(ErrorKind::RangeGone)
        }
        _ => Fault::None,
    });
    let host = Shop { orders, ..shop };
    let running = shop::start(host.processor("worker-1").on_notification(notifications.listen()), &seen).await;
    pass(Duration::from_secs(120)).await;
    let reads = reads.load(Ordering::SeqCst);
    assert!((2..120).contains(&reads), "tried again, with growing pauses: {reads} reads in 120 s");
    assert!(notifications.failures(|_| true) > 0, "reported: {}", notifications.text());
    confused.store(false, Ordering::SeqCst);
    until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_waits_for_the_lease_store_says_so() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let hung = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&hung);
    let leases = faulty(&shop.leases, move |call: &Call<'_>| {
        if call.is_write() && state.load(Ordering::SeqCst) { Fault::NeverReturns } else { Fault::None }
    });
    let host = Shop { leases, ..shop };
    let running = shop::start(host.processor("worker-1").stop_deadline(Duration::from_secs(2)), &seen).await;
    until("delivery", || seen.len() == 10).await;
    pass(Duration::from_secs(1)).await;
    hung.store(true, Ordering::SeqCst);
    let error = running.stop().await.expect_err("the lease cannot be released");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let message = error.message();
    assert!(message.contains("lease 0") && !message.contains("delegate"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_waits_for_a_dead_letter_says_so() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let tried = Arc::new(AtomicBool::new(false));
    let state = Arc::clone(&tried);
    let rejected = faulty(&shop.rejected, move |call: &Call<'_>| {
        state.fetch_or(call.is_write(), Ordering::SeqCst);
        if call.is_write() { Fault::NeverReturns } else { Fault::None }
    });
    let dead = |changes: Changes<Order>, _: Context| async move {
        Ok(vec![ItemResult::DeadLetter { reason: "no address".to_owned() }; changes.len()])
    };
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&rejected));
    let processor = processor.stop_deadline(Duration::from_secs(2)).build(dead).expect("build");
    let running = processor.start().await.expect("start");
    until("a dead letter is tried", || tried.load(Ordering::SeqCst)).await;
    let error = running.stop().await.expect_err("the dead letter cannot be written");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let message = error.message();
    assert!(message.contains("dead letter") && !message.contains("delegate did not"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_waits_for_a_delegate_names_its_lease() {
    let shop = Shop::new(2).await;
    let calls = Arc::new(AtomicU32::new(0));
    let range = shop.ranges().await[1].range.clone();
    let item = (0..50).find(|item| shop::is_in(&shop.orders, &shop::order(*item, 1), &range)).expect("an order");
    shop.write(item..item + 1, 1).await;
    let count = Arc::clone(&calls);
    let endless = move |_: Changes<Order>, _: Context| {
        count.fetch_add(1, Ordering::SeqCst);
        std::future::pending::<Result<(), DelegateError>>()
    };
    let processor = shop.processor("worker-1").stop_deadline(Duration::from_secs(2)).build(endless).expect("build");
    let running = processor.start().await.expect("start");
    until("a call begins", || calls.load(Ordering::SeqCst) == 1).await;
    let error = running.stop().await.expect_err("a call that never ends");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    let message = error.message();
    assert!(message.contains("delegate") && message.contains("lease 1"), "{message}");
}
