//! Explain: each stall has its sentence, found from outside.

mod shop;

use std::{sync::Arc, time::Duration};

use changefeed::{
    Cause, Changes, Context, Control, DeadLetter, DelegateError, Explain, Explanation, LeaseTiming, Scope,
    core::{Container, ErrorKind},
};
use changefeed_testkit::faulty::{Call, Fault, Faulty};
use shop::{Order, Seen, Shop, until_async};

impl Shop {
    fn explain(&self) -> Explain {
        Explain::new("mailer", &self.orders, &self.leases).lease_timing(shop::TIMING).runtime(self.runtime())
    }

    async fn explanation(&self) -> Explanation {
        self.explain().leases().await.expect("explain").remove(0)
    }

    async fn until_cause(&self, cause: Cause) -> Explanation {
        until_async(&format!("{cause:?}"), || async { self.explanation().await.cause == cause }).await;
        self.explanation().await
    }
}

#[tokio::test(start_paused = true)]
async fn from_no_data_to_caught_up() {
    let shop = Shop::new(1).await;
    assert_eq!(shop.explain().leases().await.expect_err("not started").kind(), ErrorKind::ItemNotFound);
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    until_async("an owner", || async { shop.explanation().await.owner.is_some() }).await;
    let explanation = shop.explanation().await;
    assert_eq!(explanation.cause, Cause::NoData);
    assert_eq!(explanation.sentence, "no data: the container has never had a change; worker-1 waits");
    shop.write(0..3, 1).await;
    let explanation = shop.until_cause(Cause::CaughtUp).await;
    assert_eq!((explanation.lease.as_str(), explanation.owner.as_deref()), ("0", Some("worker-1")));
    running.stop().await.expect("stop");
    let explanation = shop.explanation().await;
    assert_eq!(explanation.cause, Cause::CaughtUp, "nothing waits: no host is needed");
    assert_eq!(explanation.sentence, "caught up; no host owns it: the next host takes it");
    shop.write(0..3, 2).await;
    let explanation = shop.until_cause(Cause::Unowned).await;
    assert!(explanation.sentence.starts_with("no host owns it, 3 changes behind"), "{}", explanation.sentence);
}

#[tokio::test(start_paused = true)]
async fn a_failing_delegate_is_quoted() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    let failing = |_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("smtp is down")) };
    let running = shop.processor("worker-1").build(failing).expect("build").start().await.expect("start");
    let explanation = shop.until_cause(Cause::Retrying).await;
    let expected = "3 changes behind, the first is o0 at lsn ";
    assert!(explanation.sentence.starts_with(expected), "{}", explanation.sentence);
    assert!(explanation.sentence.contains("; the delegate on worker-1 fails, retry "), "{}", explanation.sentence);
    assert!(explanation.sentence.ends_with(": smtp is down"), "{}", explanation.sentence);
    assert_eq!(explanation.dead_letter_after, None);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_failing_delegate_says_after_how_many_attempts_items_become_dead_letters() {
    let shop = Shop::new(1).await;
    shop.write(0..20, 1).await;
    let failing = |_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("smtp is down")) };
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected));
    let running = processor.build(failing).expect("build").start().await.expect("start");
    assert_eq!(shop.until_cause(Cause::Retrying).await.dead_letter_after, Some(5));
    let outage = shop.until_cause(Cause::Outage).await;
    assert_eq!(outage.dead_letter_after, None);
    assert!(outage.sentence.contains("; all items fail on worker-1, an outage was detected "), "{}", outage.sentence);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_delegate_that_does_not_return_shows_over_two_looks() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    let endless = |_: Changes<Order>, _: Context| std::future::pending::<Result<(), DelegateError>>();
    let running = shop.processor("worker-1").build(endless).expect("build").start().await.expect("start");
    shop.until_cause(Cause::Working).await;
    let watched = shop.explain().observe(Duration::from_secs(5)).leases().await.expect("explain").remove(0);
    assert_eq!(watched.cause, Cause::DelegateRunning);
    let expected = "3 changes behind; worker-1 is alive but stored no progress for 5 s: its delegate is still running";
    assert_eq!(watched.sentence, expected);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_slow_shows_even_if_another_host_waits_for_the_lease() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    let endless = |_: Changes<Order>, _: Context| std::future::pending::<Result<(), DelegateError>>();
    let processor = shop.processor("worker-1").slow_after(Duration::from_secs(4)).build(endless).expect("build");
    let running = processor.start().await.expect("start");
    let slow = shop.until_cause(Cause::SlowDelegate).await;
    assert!(slow.sentence.ends_with(" changes behind; a delegate call on worker-1 runs for more than 4 s"), "{slow:?}");
    // Another host asks for one of the two: a hand-over waits for the call, too.
    let requester = shop.host("worker-2", &Seen::default()).await;
    let asked_for = async || {
        let explained = shop.explain().leases().await.expect("explain").into_iter();
        explained.filter(|lease| lease.sentence.ends_with("; worker-2 asked for it and waits")).collect::<Vec<_>>()
    };
    until_async("a request", || async { !asked_for().await.is_empty() }).await;
    assert!(asked_for().await.iter().all(|lease| lease.cause == Cause::SlowDelegate));
    drop((running, requester));
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_found_by_watching_and_by_the_clock() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    shop.write(0..3, 1).await;
    shop.until_cause(Cause::CaughtUp).await;
    drop(running);
    let watched = shop.explain().observe(Duration::from_secs(5)).leases().await.expect("explain").remove(0);
    assert_eq!(watched.cause, Cause::OwnerSilent);
    assert!(watched.sentence.starts_with("owner worker-1 has been silent for 5 s while we watched"), "{watched:?}");
    shop.clock.advance(Duration::from_secs(40));
    let explanation = shop.explanation().await;
    assert_eq!(explanation.cause, Cause::OwnerSilent);
    assert!(explanation.sentence.contains("by the clock of this machine"), "{}", explanation.sentence);
    let promised = shop.explain().lease_timing(LeaseTiming::REMOTE).leases().await.expect("explain").remove(0);
    assert_eq!(promised.cause, Cause::OwnerSilent, "what the owner promised counts");
}

#[tokio::test(start_paused = true)]
async fn throttling_is_called_by_its_name() {
    let shop = Shop::new(1).await;
    let plan = |call: &Call<'_>| match call {
        Call::ReadChanges(request) if request.max_items > 1 => Fault::Throttled,
        _ => Fault::None,
    };
    let throttled = Container::new(Arc::new(Faulty::new(Arc::clone(shop.orders.backend()), plan)));
    let shop = Shop { orders: throttled, ..shop };
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    let explanation = shop.until_cause(Cause::Throttled).await;
    assert!(explanation.sentence.contains("the store throttles worker-1"), "{}", explanation.sentence);
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn splits_pauses_and_broken_documents_are_explained() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    shop.write(0..10, 1).await;
    shop::until("delivery", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    shop.split(0).await;
    Control::new("mailer", &shop.orders, &shop.leases)
        .pause(Scope::Lease("1".parse().expect("token")))
        .await
        .expect("pause");
    let all = shop.explain().leases().await.expect("explain");
    let causes: Vec<Cause> = all.iter().map(|explanation| explanation.cause).collect();
    assert_eq!(causes, [Cause::SplitPending, Cause::Paused]);
    let mut broken = shop.lease_documents().await["0"].clone();
    broken["ContinuationToken"] = 7.into();
    shop.leases.upsert(&broken).await.expect("upsert");
    let explanation = shop.explanation().await;
    assert_eq!((explanation.lease.as_str(), explanation.cause), ("0", Cause::Broken));
    assert!(explanation.sentence.contains("ContinuationToken is not a string"), "{}", explanation.sentence);
}
