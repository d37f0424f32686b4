//! Options: what they change, and settings that contradict each other.

mod shop;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use changefeed::{
    Backoff, Changes, Checkpoint, Context, DeadLetter, DelegateError, Failure, LeaseTiming, ManualContext,
    Notification, Processor,
    core::{ErrorKind, TimeToLive, Timestamp},
};
use changefeed_testkit::faulty::{Call, Fault};
use serde_json::Value;
use shop::{Notifications, Order, Seen, Shop, checkpoint, faulty, pass, start, until, until_async};

#[tokio::test(start_paused = true)]
async fn checkpoints_are_written_at_most_once_in_their_interval_and_at_a_stop() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    let every = Checkpoint::Every(Duration::from_secs(10));
    let builder = shop.processor("worker-1").lease_timing(LeaseTiming::REMOTE).checkpoint(every);
    let running = start(builder, &seen).await;
    until("a lease", || running.owned_leases().len() == 1).await;
    let stored = || async { checkpoint(&shop.lease_documents().await["0"]) };
    shop.write(0..1, 1).await;
    until("delivery", || seen.len() == 1).await;
    until_async("a checkpoint", || async { stored().await == 1 }).await;
    // Batches of the next seconds share one write.
    let begun = tokio::time::Instant::now();
    for item in 1..5 {
        shop.write(item..item + 1, 1).await;
        pass(Duration::from_secs(1)).await;
        assert_eq!((seen.len() as u64, stored().await), (item + 1, 1), "delivered, not stored");
    }
    until_async("a checkpoint", || async { stored().await == 5 }).await;
    assert!(begun.elapsed() <= Duration::from_secs(11), "{:?}", begun.elapsed());
    shop.write(5..6, 1).await;
    until("delivery", || seen.len() == 6).await;
    running.stop().await.expect("stop");
    assert_eq!(stored().await, 6, "a stop stores everything");
}

#[tokio::test]
async fn an_interval_of_no_length_is_refused() {
    let shop = Shop::new(1).await;
    let builder = shop.processor("worker-1").checkpoint(Checkpoint::Every(Duration::ZERO));
    let error = builder.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("use Checkpoint::Automatic"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_reported_as_stalled_when_the_user_wants_it() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    for after in [1, 5] {
        let notifications = Notifications::default();
        let builder = shop.processor("worker-1").stalled_after(after).on_notification(notifications.listen());
        let processor =
            builder.build(|_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("never")) });
        let running = processor.expect("build").start().await.expect("start");
        let failed = || notifications.failures(|failure| matches!(failure, Failure::Delegate(_)));
        until("six attempts", || failed() >= 6).await;
        running.stop().await.expect("stop");
        let stalled = |attempts: u32| {
            notifications.any(|one| matches!(one, Notification::Stalled { attempts: at, .. } if *at == attempts))
        };
        assert_eq!(
            [1, 2, 3, 4, 5].map(stalled),
            if after == 1 { [true, true, false, true, false] } else { [false, false, false, false, true] }
        );
        shop.control().reset().apply().await.expect("reset");
    }
}

#[tokio::test(start_paused = true)]
async fn failed_reads_are_repeated_after_the_pause_of_the_user() {
    let shop = Shop::new(1).await;
    shop.write(0..1, 1).await;
    let fails = |call: &Call<'_>| match call {
        Call::ReadChanges(_) => Fault::Error(ErrorKind::Unavailable),
        _ => Fault::None,
    };
    let broken = Shop { orders: faulty(&shop.orders, fails), ..shop };
    // A pause is spread by half in both directions: 60 s have 40 to 120 pauses of one second, two to six of 20 s.
    for (pause, failures) in [(1, 40..=121), (20, 2..=7)] {
        let (notifications, pause) = (Notifications::default(), Duration::from_secs(pause));
        let builder = broken.processor("worker-1").on_notification(notifications.listen());
        let builder = builder.store_retry(Backoff { first: pause, longest: pause });
        let running = start(builder, &Seen::default()).await;
        pass(Duration::from_secs(60)).await;
        running.stop().await.expect("stop");
        let failed = notifications.failures(|failure| matches!(failure, Failure::Feed(_)));
        assert!(failures.contains(&failed), "{pause:?}: {failed}");
        broken.control().reset().apply().await.expect("reset");
    }
}

#[tokio::test]
async fn pauses_and_counts_of_nothing_are_refused() {
    let shop = Shop::new(1).await;
    let builder = || shop.processor("worker-1");
    let none = Backoff { first: Duration::ZERO, longest: Duration::from_secs(1) };
    let reversed = Backoff { first: Duration::from_secs(2), longest: Duration::from_secs(1) };
    let refused = [
        (builder().retry(none), "retry: the first pause must be longer than 0"),
        (builder().store_retry(reversed), "store_retry: the first pause must be longer than 0 and at most the longest"),
        (builder().stalled_after(0), "stalled_after must be at least 1"),
        (builder().notification_capacity(0), "notification_capacity must be at least 1"),
        (builder().notification_capacity(usize::MAX), "notification_capacity must be"),
    ];
    for (builder, sentence) in refused {
        let error = builder.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect_err("refused");
        assert!(error.to_string().contains(sentence), "{error}");
    }
}

#[tokio::test]
async fn manual_checkpoints_and_an_interval_contradict_each_other() {
    let shop = Shop::new(1).await;
    let every = Checkpoint::Every(Duration::from_secs(10));
    let builder = shop.processor("worker-1").checkpoint(every).manual_checkpoints();
    let error = builder.build(|_: Changes<Order>, _: ManualContext| async { Ok(()) }).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("remove Checkpoint::Every"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn dead_letters_live_for_as_long_as_they_should() {
    let shop = Shop::new(1).await;
    let rejected = shop.engine.database("shop").container("short").time_to_live(TimeToLive::ItemsOnly);
    let rejected = rejected.create().await.expect("create");
    shop.write(0..1, 1).await;
    let letters = DeadLetter::to(&rejected).after_attempts(1).time_to_live(Duration::from_secs(3600));
    let processor = shop
        .processor("worker-1")
        .dead_letter(letters)
        .build(|_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("never")) });
    let running = processor.expect("build").start().await.expect("start");
    until_async("a dead letter", || async { rejected.list("").await.expect("list").len() == 1 }).await;
    running.stop().await.expect("stop");
    let letter: Value = rejected.list("").await.expect("list")[0].parse().expect("json");
    assert_eq!(letter["ttl"], 3600);
    shop.clock.advance(Duration::from_secs(3601));
    assert!(rejected.list("").await.expect("list").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_processor_starts_at_a_system_time() {
    let shop = Shop::new(1).await;
    shop.write(0..5, 1).await;
    shop.clock.advance(Duration::from_secs(60));
    let moment: SystemTime = UNIX_EPOCH + Duration::from_millis(shop.clock.now().as_millis());
    assert_eq!(Timestamp::from(moment), shop.clock.now());
    shop.clock.advance(Duration::from_secs(60));
    shop.write(5..8, 1).await;
    let seen = Seen::default();
    let running = start(shop.processor("worker-1").start_from(moment), &seen).await;
    until("delivery", || seen.len() == 3).await;
    assert_eq!(seen.ids(), ["o5", "o6", "o7"]);
    running.stop().await.expect("stop");
}

#[tokio::test]
async fn a_container_with_other_settings_is_not_opened() {
    let shop = Shop::new(2).await;
    let database = shop.engine.database("shop");
    let orders = || database.container("orders");
    // What is not named is not compared.
    orders().partition_key("/customer").open_or_create().await.expect("the same");
    orders().partition_key("/customer").ranges(2).open_or_create().await.expect("the same ranges");
    let asked = orders().partition_key("/country").ranges(3).time_to_live(TimeToLive::Seconds(60));
    let error = asked.all_versions(Duration::from_secs(600)).open_or_create().await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let text = error.to_string();
    for part in [
        "container shop/orders exists with other settings",
        "partition key /customer, not /country",
        "time to live off, not 60 s",
        "all versions off, not kept for 600s",
        "ranges 2, not 3",
        "ask for the settings that it has",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // A container that was split since has more ranges than it was created with.
    shop.split(0).await;
    orders().partition_key("/customer").ranges(2).open_or_create().await.expect("split since");
}

#[tokio::test]
async fn a_lease_container_that_deletes_items_is_refused_until_it_is_changed() {
    let shop = Shop::new(1).await;
    let catalog = shop.engine.catalog();
    let set = async |time_to_live| {
        let listed = catalog.list_containers("shop").await.expect("list");
        let mut spec = listed.into_iter().find(|info| info.spec.name == "leases").expect("leases").spec;
        spec.time_to_live = time_to_live;
        catalog.replace_container("shop", spec).await.expect("replace");
    };
    set(TimeToLive::Seconds(3600)).await;
    let processor = shop.processor("a").build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect("build");
    for refused in [processor.check().await.err(), processor.start().await.err()] {
        let error = refused.expect("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        let text = error.to_string();
        assert!(
            text.contains("container shop/leases deletes items after 3600 s (defaultTtl), leases among them"),
            "{text}"
        );
        assert!(text.contains("set its defaultTtl to -1 or turn it off"), "{text}");
    }
    assert_eq!(shop.leases.list("").await.expect("list"), [], "nothing was written");
    set(TimeToLive::ItemsOnly).await;
    processor.check().await.expect("check");
    processor.start().await.expect("start").stop().await.expect("stop");
}

#[tokio::test]
async fn two_processors_of_one_program_share_a_lease_container() {
    let shop = Shop::new(1).await;
    let build = |name: &str| {
        let builder = Processor::builder(name, &shop.orders, &shop.leases);
        builder.build(|_: Changes<Order>, _: Context| async { Ok(()) }).expect("build")
    };
    let (mailer, biller) = (build("mailer"), build("biller"));
    let running = [mailer.start().await.expect("start"), biller.start().await.expect("start")];
    for running in running {
        running.stop().await.expect("stop");
    }
}
