//! Pause takes effect whatever a lease is doing: also while its batch fails.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    BatchResult, Changes, Context, DeadLetter, DelegateError, ItemResult, Latest, Notification, ProcessorBuilder,
    Running, Scope, core::ErrorKind,
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Calls, Notifications, Order, Shop, faulty, pass, until, until_async};

/// What a delegate does with a batch while the service that it calls is down.
type WhileDown = fn(&Changes<Order>) -> Result<BatchResult, DelegateError>;

fn fails(_: &Changes<Order>) -> Result<BatchResult, DelegateError> {
    Err(DelegateError::new("smtp is down"))
}

async fn start(
    builder: ProcessorBuilder<Latest>,
    calls: &Calls,
    down: &Arc<AtomicBool>,
    while_down: WhileDown,
) -> Running {
    let (calls, down) = (calls.clone(), Arc::clone(down));
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        let call = calls.begin(&changes, &ctx);
        let result = match down.load(Ordering::SeqCst) {
            true => while_down(&changes),
            false => {
                calls.finish(call);
                Ok(BatchResult::Done)
            }
        };
        async move { result }
    };
    builder.build(delegate).expect("build").start().await.expect("start")
}

/// Pauses the processor: its lease must be released, and no call may follow. Then resumes it.
async fn pause_and_resume(shop: &Shop, calls: &Calls, heal: impl FnOnce()) {
    shop.control().pause(Scope::All).await.expect("pause");
    until_async("release", || shop.is_released()).await;
    let before = calls.len();
    pass(Duration::from_secs(600)).await;
    assert_eq!(calls.len(), before, "no call while paused");
    heal();
    shop.control().resume(Scope::All).await.expect("resume");
}

#[tokio::test(start_paused = true)]
async fn a_pause_takes_effect_while_a_batch_fails_and_the_attempts_are_kept() {
    let shop = Shop::new(1).await;
    let (calls, down) = (Calls::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..3, 1).await;
    let running = start(shop.processor("worker-1"), &calls, &down, fails).await;
    until("three attempts", || calls.len() == 3).await;
    pause_and_resume(&shop, &calls, || down.store(false, Ordering::SeqCst)).await;
    until("delivery", || calls.handled().len() == 3).await;
    let all = calls.all();
    let last = all.last().expect("a call");
    assert_eq!(last.attempt as usize, all.len(), "the count goes on where it was");
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn so_it_does_while_items_are_asked_for_again() {
    let shop = Shop::new(1).await;
    let (calls, down) = (Calls::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..3, 1).await;
    let again: WhileDown =
        |changes| Ok(vec![ItemResult::Retry { after: Duration::from_millis(500) }; changes.len()].into());
    let running = start(shop.processor("worker-1"), &calls, &down, again).await;
    until("some attempts", || calls.len() >= 5).await;
    pause_and_resume(&shop, &calls, || down.store(false, Ordering::SeqCst)).await;
    until("delivery", || calls.handled().len() == 3).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn so_it_does_during_an_outage() {
    let shop = Shop::new(1).await;
    let (calls, notifications, down) = (Calls::default(), Notifications::default(), Arc::new(AtomicBool::new(true)));
    shop.write(0..20, 1).await;
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected).after_attempts(2));
    let running = start(processor.on_notification(notifications.listen()), &calls, &down, fails).await;
    until("an outage", || notifications.any(|n| matches!(n, Notification::Outage { .. }))).await;
    pause_and_resume(&shop, &calls, || down.store(false, Ordering::SeqCst)).await;
    until("delivery", || calls.handled().len() == 20).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.dead_lettered().await, Vec::<String>::new());
}

/// A pause while the dead letter of an item cannot be written, because the calls to its container end like this.
async fn a_pause_while_dead_letters_fail(fault: fn() -> Fault) {
    let shop = Shop::new(1).await;
    let (calls, notifications) = (Calls::default(), Notifications::default());
    let (down, full) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(true)));
    let (state, tried) = (Arc::clone(&full), Arc::new(AtomicBool::new(false)));
    let seen = Arc::clone(&tried);
    let rejected =
        faulty(&shop.rejected, move |call: &Call<'_>| match call.is_write() && state.load(Ordering::SeqCst) {
            true => {
                seen.store(true, Ordering::SeqCst);
                fault()
            }
            false => Fault::None,
        });
    shop.write(0..3, 1).await;
    let policy = DeadLetter::to(&rejected).after_attempts(2);
    let processor = shop.processor("worker-1").dead_letter(policy).on_notification(notifications.listen());
    let one_is_dead: WhileDown = |changes| {
        let result = |order: &Order| match order.id.as_str() {
            "o1" => ItemResult::DeadLetter { reason: "no address".to_owned() },
            _ => ItemResult::Done,
        };
        Ok(changes.iter().map(result).collect::<Vec<_>>().into())
    };
    let running = start(processor, &calls, &down, one_is_dead).await;
    until("a dead letter is tried", || tried.load(Ordering::SeqCst)).await;
    pause_and_resume(&shop, &calls, || full.store(false, Ordering::SeqCst)).await;
    until_async("the dead letter", || async { shop.dead_lettered().await == ["o1"] }).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn so_it_does_while_a_dead_letter_cannot_be_written() {
    a_pause_while_dead_letters_fail(|| Fault::Error(ErrorKind::Unavailable)).await;
}

#[tokio::test(start_paused = true)]
async fn so_it_does_while_the_write_of_a_dead_letter_hangs() {
    a_pause_while_dead_letters_fail(|| Fault::NeverReturns).await;
}
