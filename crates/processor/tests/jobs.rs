//! Jobs that live shortly: they run until they have caught up.

mod shop;

use std::time::Duration;

use changefeed::{Changes, Context, LeaseTiming, Processor, lease::prefix::LeasePrefix};
use serde_json::json;
use shop::{Gate, Order, Seen, Shop, pass, start, until};
use tokio::time::Instant;

/// A job that notes what it was given, with the timing of remote lease containers: leases expire after 60 s.
fn job(shop: &Shop, instance: &str, seen: &Seen) -> Processor {
    let seen = seen.clone();
    let builder = shop.processor(instance).lease_timing(LeaseTiming::REMOTE);
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        seen.add(&changes, &ctx);
        async { Ok(()) }
    });
    processor.expect("build")
}

/// A host that acquires all leases, begins to handle something and is killed.
async fn killed_predecessor(shop: &Shop) {
    let (gate, seen) = (Gate::closed(), Seen::default());
    let kept = seen.clone();
    let builder = shop.processor("job-1").lease_timing(LeaseTiming::REMOTE);
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        let gate = gate.clone();
        kept.add(&changes, &ctx);
        async move {
            gate.pass().await;
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("calls on all leases", || running.owned_leases().len() == 2 && seen.len() == 20).await;
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_job_delivers_everything_and_ends_without_leases() {
    let shop = Shop::new(4).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    let job = job(&shop, "job-1", &seen);
    job.run_until_caught_up().await.expect("first run");
    assert_eq!(seen.take().len(), 100);
    assert!(shop.is_released().await);
    job.run_until_caught_up().await.expect("a run without changes");
    assert_eq!(seen.len(), 0);
    shop.write(100..120, 1).await;
    job.run_until_caught_up().await.expect("another run");
    assert_eq!(seen.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_job_ends_beside_a_lease_that_cannot_be_read() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let job = job(&shop, "job-1", &seen);
    shop.write(0..20, 1).await;
    job.run_until_caught_up().await.expect("first run");
    shop.edit_lease("0", |lease| lease["ContinuationToken"] = 7.into()).await;
    seen.take();
    shop.write(0..20, 2).await;
    let ran = job.run_until_caught_up_unless(pass(Duration::from_secs(600))).await;
    assert!(ran.expect("a run beside the broken lease"), "it ends by itself");
    assert!((1..20).contains(&seen.len()), "only what the other lease has: {}", seen.len());
}

#[tokio::test(start_paused = true)]
async fn a_job_takes_over_at_once_what_has_expired_by_the_clock_of_the_store() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    killed_predecessor(&shop).await;
    // The store's clock moves on while no host watches.
    shop.clock.advance(Duration::from_secs(120));
    let (seen, begun) = (Seen::default(), Instant::now());
    job(&shop, "job-2", &seen).run_until_caught_up().await.expect("run");
    assert_eq!(seen.len(), 20);
    assert!(begun.elapsed() < Duration::from_secs(30), "it watched the predecessor for {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_job_waits_while_its_predecessor_may_be_alive() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    killed_predecessor(&shop).await;
    shop.clock.advance(Duration::from_secs(30));
    let (seen, begun) = (Seen::default(), Instant::now());
    job(&shop, "job-2", &seen).run_until_caught_up().await.expect("run");
    assert_eq!(seen.len(), 20);
    // 30 of the 60 seconds had passed; a second is the precision of the clock of a store.
    assert!(begun.elapsed() >= Duration::from_secs(29), "it took over after {:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_job_leaves_the_leases_of_a_living_host_to_it() {
    let shop = Shop::new(2).await;
    let (resident, own) = (Seen::default(), Seen::default());
    let running = start(shop.processor("resident").lease_timing(LeaseTiming::REMOTE), &resident).await;
    until("two leases", || running.owned_leases().len() == 2).await;
    shop.write(0..20, 1).await;
    job(&shop, "job-1", &own).run_until_caught_up().await.expect("run");
    until("delivery", || resident.len() + own.len() >= 20).await;
    assert_eq!(resident.len() + own.len(), 20, "nothing is delivered twice");
    assert!(!running.is_finished());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_stopped_keeps_no_lease_and_goes_on_later() {
    let shop = Shop::new(2).await;
    shop.write(0..20, 1).await;
    let (gate, calls) = (Gate::closed(), Seen::default());
    let (passed, kept) = (gate.clone(), calls.clone());
    let builder = shop.processor("job-1").lease_timing(LeaseTiming::REMOTE);
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        let gate = passed.clone();
        kept.add(&changes, &ctx);
        async move {
            gate.pass().await;
            Ok(())
        }
    });
    let processor = processor.expect("build");
    let asked = async {
        until("calls on all leases", || calls.len() == 20).await;
        gate.open();
        shop.write(20..40, 1).await;
    };
    assert!(!processor.run_until_caught_up_unless(asked).await.expect("run"), "it had more to do");
    assert!(shop.is_released().await);
    let rest = Seen::default();
    assert!(job(&shop, "job-2", &rest).run_until_caught_up_unless(std::future::pending()).await.expect("run"));
    assert_eq!(calls.len() + rest.len(), 40, "what the first has delivered is stored");
}

#[tokio::test(start_paused = true)]
async fn a_start_is_not_begun_if_it_is_not_wanted() {
    let shop = Shop::new(2).await;
    let processor = job(&shop, "job-1", &Seen::default());
    assert!(processor.start_unless(async {}).await.expect("start").is_none());
    assert!(shop.leases.list("").await.expect("list").is_empty());
    let running = processor.start_unless(std::future::pending()).await.expect("start").expect("a host");
    until("leases", || running.owned_leases().len() == 2).await;
    running.stop().await.expect("stop");
}

impl Shop {
    /// Leaves a lock as a host does that dies while it creates the leases; its id.
    async fn lock(&self) -> String {
        let id = LeasePrefix::new("mailer", self.orders.identity()).expect("prefix").lock_id();
        self.leases.create(&json!({ "id": id })).await.expect("create");
        id
    }

    async fn document_ids(&self) -> Vec<String> {
        self.leases.list("").await.expect("list").iter().map(|item| item.id.to_string()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_not_wanted_any_more_leaves_no_lock_and_no_lease_behind() {
    let shop = Shop::new(2).await;
    let lock = shop.lock().await;
    let processor = job(&shop, "job-1", &Seen::default());
    // Soon after the stop: the pauses between looks at the lock grow, up to what a start under way is given.
    let other = async {
        pass(Duration::from_millis(1100)).await;
        shop.leases.delete(lock.as_str(), &lock).await.expect("delete");
    };
    let starting = processor.start_unless(pass(Duration::from_secs(1)));
    let (started, ()) = tokio::join!(starting, other);
    assert!(started.expect("start").is_none());
    let documents = shop.document_ids().await;
    assert!(documents.len() > 2 && !documents.contains(&lock), "the leases were created: {documents:?}");
    assert!(shop.is_released().await);
}

#[tokio::test(start_paused = true)]
async fn a_start_that_waits_for_the_lock_of_another_ends_within_seconds() {
    let shop = Shop::new(2).await;
    let lock = shop.lock().await;
    let processor = job(&shop, "job-1", &Seen::default());
    let begun = Instant::now();
    assert!(processor.start_unless(pass(Duration::from_secs(3))).await.expect("start").is_none());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(shop.document_ids().await, [lock], "only that of the other host");
}
