//! Containers that are deleted and created again under hosts that run: nobody has to restart anything.

mod shop;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, Estimator, Explain, Notification, Processor, Running, Scope, Versions,
    core::{ErrorKind, StartFrom, TimeToLive},
};
use shop::{Gate, Notifications, Order, Seen, Shop, pass, until, until_async};

#[tokio::test(start_paused = true)]
async fn a_monitored_container_that_is_created_again_is_delivered_from_its_beginning() {
    let mut shop = Shop::new(2).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    // From now on, in the first container: what is in the second one is newer than the processor.
    let running =
        shop::start(shop.processor("a").start_from(StartFrom::Now).on_notification(notifications.listen()), &seen)
            .await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    let old = shop.orders.clone();
    shop.recreate_orders(3).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.len() == 30).await;
    assert!(notifications.any(|one| matches!(one, Notification::ContainerReplaced { name } if name == "orders")));
    assert_eq!(old.feed_ranges().await.expect_err("gone").kind(), ErrorKind::ContainerNotFound);
    shop.write(0..5, 3).await;
    until("delivery", || seen.len() == 35).await;
    until_async("the old leases to go", || async { shop.lease_documents().await.len() == 3 }).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn hosts_without_a_lease_follow_as_well() {
    let mut shop = Shop::new(1).await;
    let (first, second) = (Seen::default(), Seen::default());
    let busy = shop.host("a", &first).await;
    until("the lease", || busy.owned_leases().len() == 1).await;
    let idle = shop.host("b", &second).await;
    shop.write(0..10, 1).await;
    until("delivery", || first.len() == 10).await;
    assert_eq!(idle.owned_leases(), []);
    shop.recreate_orders(1).await;
    shop.write(0..10, 2).await;
    until("delivery", || first.len() + second.len() == 20).await;
    // Let the one without a lease find out.
    pass(shop::TIMING.expiration * 3).await;
    let (owner, other, seen) = if busy.owned_leases().is_empty() { (idle, busy, first) } else { (busy, idle, second) };
    owner.stop().await.expect("stop");
    let before = seen.len();
    shop.write(0..10, 3).await;
    until("the other host to take over", || seen.len() >= before + 10).await;
    other.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_follow_together_deliver_every_change_of_the_new_container_once() {
    let mut shop = Shop::new(4).await;
    let seen = Seen::default();
    let mut hosts = Vec::new();
    for name in ["a", "b", "c"] {
        hosts.push(shop::start(shop.processor(name).start_from(StartFrom::Now), &seen).await);
    }
    until("a share of the leases for each", || hosts.iter().all(|host| !host.owned_leases().is_empty())).await;
    for version in 1..=3 {
        shop.recreate_orders(4).await;
        shop.write(0..100, version).await;
        until("delivery", || seen.counts().len() == 100 * usize::try_from(version).expect("small")).await;
    }
    pass(shop::TIMING.expiration).await;
    until("a share of the new leases", || hosts.iter().all(|host| !host.owned_leases().is_empty())).await;
    for host in hosts {
        host.stop().await.expect("stop");
    }
    assert!(seen.counts().values().all(|count| *count == 1), "{:?}", seen.counts());
}

#[tokio::test(start_paused = true)]
async fn a_container_that_comes_back_late_is_waited_for() {
    let mut shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop::start(shop.processor("a").on_notification(notifications.listen()), &seen).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    shop.engine.catalog().delete_container("shop", "orders").await.expect("delete");
    pass(Duration::from_secs(600)).await;
    assert!(!running.is_finished());
    assert!(!notifications.any(|one| matches!(one, Notification::ContainerReplaced { .. })), "nothing replaces it yet");
    let again = shop.engine.database("shop").container("orders").partition_key("/customer");
    shop.orders = again.create().await.expect("orders");
    shop.write(0..3, 2).await;
    until("delivery", || seen.len() == 6).await;
    // And once more.
    shop.recreate_orders(1).await;
    shop.write(0..3, 3).await;
    until("delivery", || seen.len() == 9).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_when_the_container_goes_is_finished_first() {
    let mut shop = Shop::new(1).await;
    let calls = shop::Calls::default();
    let running = shop::start_slow(shop.processor("a"), shop.runtime(), Duration::from_secs(5), &calls).await;
    shop.write(0..1, 1).await;
    until("a call", || calls.len() == 1).await;
    shop.recreate_orders(1).await;
    shop.write(0..1, 2).await;
    until("both calls", || calls.handled().len() == 2).await;
    running.stop().await.expect("stop");
    assert!(calls.given().values().all(|count| *count == 1), "{:?}", calls.given());
}

#[tokio::test(start_paused = true)]
async fn all_versions_of_the_new_container_are_delivered() {
    let shop = Shop::with_history().await;
    let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
    let own = Arc::clone(&seen);
    let processor = Processor::builder("audit", &shop.orders, &shop.leases)
        .all_versions()
        .lease_timing(shop::TIMING)
        .runtime(shop.runtime())
        .build(move |versions: Versions<Order>, _: Context| {
            own.lock().unwrap().extend(versions.iter().filter_map(|one| one.current.as_ref()).map(|one| one.version));
            async { Ok(()) }
        })
        .expect("build");
    let running = processor.start().await.expect("start");
    shop.write(0..1, 1).await;
    until("delivery", || seen.lock().unwrap().len() == 1).await;
    shop.engine.catalog().delete_container("shop", "history").await.expect("delete");
    let again = shop.engine.database("shop").container("history").partition_key("/customer");
    let orders = again.all_versions(Duration::from_secs(86_400)).create().await.expect("history");
    let shop = Shop { orders, ..shop };
    // Before the host has noticed, and after.
    shop.write(0..1, 2).await;
    shop.write(0..1, 3).await;
    until("delivery", || *seen.lock().unwrap() == [1, 2, 3]).await;
    shop.write(0..1, 4).await;
    until("delivery", || *seen.lock().unwrap() == [1, 2, 3, 4]).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_only_delivers_a_batch_again_notices_that_its_container_is_gone() {
    let mut shop = Shop::new(1).await;
    let (seen, attempts) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (own, tried) = (seen.clone(), Arc::clone(&attempts));
    let builder = shop.processor("a").poll_interval(Duration::from_secs(1));
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        tried.fetch_add(1, Ordering::Relaxed);
        let fails = changes.iter().any(|order| order.version == 1);
        if !fails {
            own.add(&changes, &ctx);
        }
        async move { if fails { Err::<(), _>("no".into()) } else { Ok(()) } }
    });
    let running = processor.expect("build").start().await.expect("start");
    shop.write(0..1, 1).await;
    until("attempts", || attempts.load(Ordering::Relaxed) > 1).await;
    // An operator gets rid of the item in this way.
    shop.recreate_orders(1).await;
    shop.write(0..1, 2).await;
    until("delivery", || seen.len() == 1).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_lease_container_that_is_created_again_gets_its_leases_again() {
    let mut shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    shop.recreate_leases().await;
    until_async("the leases", || async { shop.lease_documents().await.len() == 2 }).await;
    // The checkpoints went with the container: everything since the beginning comes again, and nothing is skipped.
    shop.write(10..20, 1).await;
    until("delivery", || seen.counts().len() == 20).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.counts().len() == 40).await;
    running.stop().await.expect("stop");
    assert!(shop.is_released().await);
}

#[tokio::test(start_paused = true)]
async fn a_paused_processor_stays_paused_if_its_lease_container_is_created_again() {
    let mut shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    pass(shop::TIMING.acquire * 2).await;
    shop.recreate_leases().await;
    until_async("the leases", || async { shop.lease_documents().await.len() == 2 }).await;
    shop.write(10..20, 1).await;
    pass(shop::TIMING.expiration * 2).await;
    assert_eq!(seen.len(), 10, "it is paused");
    assert_eq!(shop.control().resume(Scope::All).await.expect("resume").len(), 2);
    until("delivery", || seen.counts().len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_lease_container_that_is_created_again_with_other_settings_is_refused_until_it_fits() {
    let mut shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    let running = shop::start(shop.processor("a").on_notification(notifications.listen()), &seen).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    let catalog = shop.engine.catalog();
    let create = || shop.engine.database("shop").container("leases");
    for (settings, sentence) in [
        (
            create().partition_key("/owner"),
            "was deleted and created again with partition key /owner: create it with /id",
        ),
        (
            create().time_to_live(TimeToLive::Seconds(60)),
            "container shop/leases deletes items after 60 s (defaultTtl), leases among them",
        ),
    ] {
        catalog.delete_container("shop", "leases").await.expect("delete");
        let refused = settings.create().await.expect("leases");
        until("the sentence", || notifications.errors(sentence) > 0).await;
        assert_eq!(refused.list("").await.expect("list"), []);
    }
    shop.recreate_leases().await;
    shop.write(3..6, 1).await;
    until("delivery", || seen.counts().len() == 6).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_container_that_is_created_again_gets_the_next_dead_letter() {
    let mut shop = Shop::new(1).await;
    let letters = DeadLetter::to(&shop.rejected).after_attempts(1);
    let builder = shop.processor("a").dead_letter(letters);
    let processor = builder.build(|_: Changes<Order>, _: Context| async { Err::<(), _>("no".into()) }).expect("build");
    let running = processor.start().await.expect("start");
    shop.write(0..1, 1).await;
    until_async("a dead letter", || async { shop.dead_lettered().await.len() == 1 }).await;
    shop.engine.catalog().delete_container("shop", "rejected").await.expect("delete");
    shop.rejected = shop.engine.database("shop").container("rejected").create().await.expect("rejected");
    shop.write(1..2, 1).await;
    until_async("the next one", || async { shop.dead_lettered().await == ["o1"] }).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_host_looks_for_the_container_ends_it() {
    let mut shop = Shop::new(1).await;
    let seen = Seen::default();
    let processor = shop.processor("a").build({
        let seen = seen.clone();
        move |changes: Changes<Order>, ctx: Context| {
            seen.add(&changes, &ctx);
            async { Ok(()) }
        }
    });
    let processor = processor.expect("build");
    let running = processor.start().await.expect("start");
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    shop.recreate_orders(1).await;
    running.stop().await.expect("stop");
    shop.write(0..3, 2).await;
    // Whether the host had followed before it was stopped depends on the moment: a start follows as well.
    let running = processor.start().await.expect("start");
    until("delivery", || seen.len() == 6).await;
    running.stop().await.expect("stop");
}

/// Starts a host whose calls for the first version of orders in the first range wait at the gate.
async fn start_with_a_long_call(shop: &Shop, gate: &Gate, seen: &Seen, notifications: &Notifications) -> Running {
    let builder = shop.processor("a").stop_deadline(Duration::from_secs(10)).on_notification(notifications.listen());
    let (gate, own) = (gate.clone(), seen.clone());
    let processor = builder.build(move |changes: Changes<Order>, ctx: Context| {
        let (gate, own) = (gate.clone(), own.clone());
        async move {
            if ctx.lease().as_str() == "0" && changes.iter().any(|order| order.version == 1) {
                gate.pass().await;
            }
            own.add(&changes, &ctx);
            Ok(())
        }
    });
    processor.expect("build").start().await.expect("start")
}

/// The number of lease documents, those of deleted containers included.
async fn all_leases(shop: &Shop) -> usize {
    let items = shop.leases.list("mailer").await.expect("list");
    items.iter().filter(|item| item.id.contains("..")).count()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_holds_up_nothing_in_the_new_container() {
    let mut shop = Shop::new(2).await;
    let (gate, seen, notifications) = (Gate::closed(), Seen::default(), Notifications::default());
    let running = start_with_a_long_call(&shop, &gate, &seen, &notifications).await;
    shop.write(0..20, 1).await;
    until("the other lease", || !seen.lock().is_empty()).await;
    let first = seen.len();
    assert!(first < 20);
    shop.recreate_orders(2).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.len() == first + 20).await;
    let sentence = "calls for these leases of it still run: 0; they go on beside those for the new container";
    assert_eq!(notifications.errors(sentence), 1, "{}", notifications.text());
    assert_eq!((running.owned_leases().len(), all_leases(&shop).await), (2, 4));
    gate.open();
    until("the end of the call", || seen.len() == 40).await;
    until_async("the old leases to go", || async { all_leases(&shop).await == 2 }).await;
    assert_eq!(running.owned_leases().len(), 2, "those of the new container");
    shop.write(0..20, 3).await;
    until("delivery", || seen.len() == 60).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_in_a_deleted_container_is_named_when_the_processor_stops() {
    let mut shop = Shop::new(2).await;
    let (gate, seen, notifications) = (Gate::closed(), Seen::default(), Notifications::default());
    let running = start_with_a_long_call(&shop, &gate, &seen, &notifications).await;
    shop.write(0..20, 1).await;
    until("the other lease", || !seen.lock().is_empty()).await;
    let first = seen.len();
    shop.recreate_orders(2).await;
    shop.write(0..20, 2).await;
    until("delivery", || seen.len() == first + 20).await;
    let error = running.stop().await.expect_err("a call hangs");
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.message().contains("lease 0: a delegate call is running"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_being_stopped_does_not_begin_in_the_new_container() {
    let mut shop = Shop::new(1).await;
    let (calls, notifications) = (shop::Calls::default(), Notifications::default());
    let builder = shop.processor("a").on_notification(notifications.listen());
    let running = shop::start_slow(builder, shop.runtime(), Duration::from_secs(5), &calls).await;
    shop.write(0..1, 1).await;
    until("a call", || calls.len() == 1).await;
    let old: Vec<String> = shop.lease_documents().await.values().map(|lease| lease["id"].to_string()).collect();
    shop.recreate_orders(1).await;
    shop.write(0..1, 2).await;
    // The host says that it has noticed, and waits for the call.
    let replaced = |one: &Notification| matches!(one, Notification::ContainerReplaced { .. });
    until("the notification", || notifications.any(replaced)).await;
    assert_eq!(calls.handled().len(), 0);
    running.stop().await.expect("stop");
    assert_eq!(calls.len(), 1, "nothing of the new container was delivered");
    let now: Vec<String> = shop.lease_documents().await.values().map(|lease| lease["id"].to_string()).collect();
    assert_eq!(now, old);
}

#[tokio::test(start_paused = true)]
async fn a_processor_starts_again_in_the_container_that_its_host_has_followed() {
    let mut shop = Shop::new(1).await;
    let seen = Seen::default();
    let own = seen.clone();
    let processor = shop.processor("a").build(move |changes: Changes<Order>, ctx: Context| {
        own.add(&changes, &ctx);
        async { Ok(()) }
    });
    let processor = processor.expect("build");
    let running = processor.start().await.expect("start");
    shop.recreate_orders(1).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    running.stop().await.expect("stop");
    shop.write(0..3, 2).await;
    processor.run_until_caught_up().await.expect("run");
    assert_eq!(seen.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_ran_before_delivers_all_of_a_container_that_was_created_since() {
    let mut shop = Shop::new(1).await;
    let seen = Seen::default();
    let own = seen.clone();
    let processor =
        shop.processor("a").start_from(StartFrom::Now).build(move |changes: Changes<Order>, ctx: Context| {
            own.add(&changes, &ctx);
            async { Ok(()) }
        });
    let processor = processor.expect("build");
    // What is there before the first start is not asked for, in a container that was created again, either.
    shop.recreate_orders(1).await;
    shop.write(0..3, 1).await;
    processor.start().await.expect("start").stop().await.expect("stop");
    shop.recreate_orders(1).await;
    shop.write(0..3, 2).await;
    processor.run_until_caught_up().await.expect("run");
    assert!(seen.len() == 3 && seen.counts().keys().all(|(_, version)| *version == 2), "{:?}", seen.counts());
}

#[tokio::test(start_paused = true)]
async fn a_paused_processor_stays_paused_in_the_new_container() {
    let mut shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    shop.write(0..10, 1).await;
    until("delivery", || seen.len() == 10).await;
    shop.control().pause(Scope::All).await.expect("pause");
    until("the leases to be given up", || running.owned_leases().is_empty()).await;
    shop.recreate_orders(3).await;
    shop.write(0..10, 2).await;
    // Nothing reads, so nothing fails: it finds out by looking.
    until_async("the new leases", || async { shop.lease_documents().await.len() == 3 }).await;
    pass(shop::TIMING.expiration * 2).await;
    assert_eq!(seen.len(), 10, "it is paused");
    assert_eq!(shop.control().resume(Scope::All).await.expect("resume").len(), 3);
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_short_lived_job_is_not_done_while_leases_are_missing() {
    let mut shop = Shop::new(1).await;
    let (begun, seen) = (Arc::new(AtomicBool::new(false)), Seen::default());
    let (began, own, runtime) = (Arc::clone(&begun), seen.clone(), shop.runtime());
    let processor = shop.processor("a").max_items(5).build(move |changes: Changes<Order>, ctx: Context| {
        let (own, runtime) = (own.clone(), Arc::clone(&runtime));
        began.store(true, Ordering::Release);
        async move {
            // Nothing is written to the lease meanwhile: the job looks first.
            runtime.sleep(shop::TIMING.acquire * 2).await;
            own.add(&changes, &ctx);
            Ok(())
        }
    });
    let processor = processor.expect("build");
    shop.write(0..10, 1).await;
    let trouble = async {
        until("a call", || begun.load(Ordering::Acquire)).await;
        shop.recreate_leases().await;
    };
    let (ran, ()) = tokio::join!(processor.run_until_caught_up(), trouble);
    ran.expect("run");
    assert_eq!(seen.counts().len(), 10);
    assert_eq!(shop.lease_documents().await.len(), 1, "the lease is there again");
}

#[tokio::test(start_paused = true)]
async fn the_lag_is_measured_in_the_new_container() {
    let mut shop = Shop::new(1).await;
    let seen = Seen::default();
    let running = shop.host("a", &seen).await;
    let estimator = Estimator::new("mailer", &shop.orders, &shop.leases).runtime(shop.runtime());
    let mut lags = estimator.watch(Duration::from_secs(1));
    assert_eq!(lags.next().await.expect("lag").changes, 0);
    // Those who look were there before, too.
    let explain = Explain::new("mailer", &shop.orders, &shop.leases).runtime(shop.runtime());
    let control = shop.control();
    shop.recreate_orders(2).await;
    shop.write(0..3, 1).await;
    until("delivery", || seen.len() == 3).await;
    running.stop().await.expect("stop");
    shop.write(0..3, 2).await;
    loop {
        match lags.next().await {
            Ok(lag) if lag.leases.len() == 2 && lag.changes == 3 => break,
            Ok(_) | Err(_) => {}
        }
    }
    assert_eq!(estimator.lag().await.expect("lag").changes, 3);
    assert_eq!(explain.leases().await.expect("explain").len(), 2);
    assert_eq!(control.pause(Scope::All).await.expect("pause").len(), 2);
}
