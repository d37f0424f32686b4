//! What version a92fe1f has stored still works: leases, `.info`, `.lock` and dead letters, as files in `fixtures`.
//!
//! All files are about a container with one range, of whose fifty orders the first thirty were handled, unless a test
//! says otherwise. They were written by hosts of that version and are never changed.

mod shop;

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, DeadLetter, DelegateError, Estimator, Latest, Processor, ProcessorBuilder, RawChanges, Running,
    Scope,
    core::{Container, Operation, StartFrom},
};
use serde_json::{Value, value::RawValue};
use shop::{Calls, Order, Seen, Shop, order, pass, until};

/// Where the files were written: account host, database and containers of that store.
const ACCOUNT: &str = "localhost_AAAAAQ==";
const CONTAINERS: [&str; 2] = ["AAAAAYAAAAI=", "AAAAAYAAAAU="];

/// The documents of one folder, as if they had been written for this container.
fn fixtures(name: &str, monitored: &Container) -> Vec<Box<RawValue>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/a92fe1f").join(name);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("folder").map(|entry| entry.expect("entry").path()).collect();
    files.sort();
    let identity = monitored.identity();
    let account = format!("{}_{}", identity.account_host, identity.database);
    let read = |file: PathBuf| {
        let mut text = std::fs::read_to_string(file).expect("read").trim_end().replace(ACCOUNT, &account);
        for container in CONTAINERS {
            // The ids of leases end with it; dead letters have it as a member.
            for end in [".", "\""] {
                text = text.replace(&format!("{container}{end}"), &format!("{}{end}", identity.container));
            }
        }
        RawValue::from_string(one_later(&text)).expect("json")
    };
    files.into_iter().map(read).collect()
}

/// The same document with every position one later: the first change had LSN 1 in that store, and has 2 in this one.
/// Positions are numbers in escaped quotes, or stand before the id of an order.
fn one_later(text: &str) -> String {
    let mut moved = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        let (before, number) = rest.split_at(start);
        let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
        let (number, after) = number.split_at(end);
        moved.push_str(before);
        let is_position = before.ends_with("\\\"") && after.starts_with('\\') || after.starts_with(":o");
        match number.parse::<u64>() {
            Ok(position) if is_position => moved.push_str(&(position + 1).to_string()),
            _ => moved.push_str(number),
        }
        rest = after;
    }
    moved + rest
}

impl Shop {
    /// A shop of one range with fifty orders, and what hosts had stored after the first thirty.
    async fn of_previous_version(name: &str) -> Self {
        let shop = Self::new(1).await;
        shop.write(0..50, 1).await;
        shop.load(name).await;
        shop
    }

    async fn load(&self, name: &str) {
        for document in fixtures(name, &self.orders) {
            self.leases.create(&document).await.expect("create");
        }
    }

    /// Starts a host on what was stored; ends when it was given exactly these orders, in whatever order.
    async fn continues_with(&self, builder: ProcessorBuilder<Latest>, items: std::ops::Range<u64>) -> Running {
        let seen = Seen::default();
        let running = shop::start(builder, &seen).await;
        let count = items.clone().count();
        until("delivery", || seen.len() >= count).await;
        pass(Duration::from_secs(20)).await;
        assert_eq!(sorted(seen.ids()), ids(items));
        running
    }
}

fn ids(items: impl Iterator<Item = u64>) -> Vec<String> {
    sorted(items.map(|item| order(item, 1).id).collect())
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort_unstable();
    ids
}

#[tokio::test(start_paused = true)]
async fn leases_in_any_state_continue_at_their_checkpoint() {
    for name in ["free", "owned", "granted", "requested", "slow", "failing", "failed-then-stopped", "version-1"] {
        let shop = Shop::of_previous_version(name).await;
        let running = shop.continues_with(shop.processor("worker-2"), 30..50).await;
        shop.write(50..60, 1).await;
        running.stop().await.expect(name);
        assert!(shop.is_released().await, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_takes_leases_in_its_own_name_back_at_once() {
    for (name, instance) in [("owned", "worker-1"), ("granted", "worker-2")] {
        let shop = Shop::of_previous_version(name).await;
        let seen = Seen::default();
        let begun = tokio::time::Instant::now();
        let running = shop.host(instance, &seen).await;
        until("delivery", || seen.len() == 20).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{name}: {:?}", begun.elapsed());
        running.stop().await.expect("stop");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_never_checkpointed_begins_where_its_processor_began() {
    let shop = Shop::of_previous_version("owned-at-the-start").await;
    let builder = shop.processor("worker-2").start_from(StartFrom::Now);
    shop.continues_with(builder, 0..50).await.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn leases_keyed_by_partition_key_continue_at_their_checkpoint() {
    let shop = Shop::new(1).await;
    let leases = shop.engine.database("shop").container("graph").partition_key("/partitionKey").create().await;
    let shop = Shop { leases: leases.expect("leases"), ..shop };
    shop.write(0..50, 1).await;
    shop.load("partition-key").await;
    shop.continues_with(shop.processor("worker-2"), 30..50).await.stop().await.expect("stop");
    assert_eq!(shop.leases.list("").await.expect("list").len(), 2, "the lease and what says that it was made");
}

#[tokio::test(start_paused = true)]
async fn leases_of_hierarchical_keys_keep_their_shortened_ids() {
    let shop = Shop::new(1).await;
    let orders = shop.engine.database("shop").container("sessions");
    let orders = orders.hierarchical_partition_key(["/customer", "/id", "/version"]).create().await.expect("orders");
    let shop = Shop { orders, ..shop };
    shop.write(0..50, 1).await;
    shop.load("long-ids").await;
    let stored = || async {
        let items = shop.leases.list("").await.expect("list");
        items.into_iter().map(|item| item.id.to_string()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = stored().await;
    assert_eq!(before.len(), 4);
    let builder = Processor::builder("n".repeat(100), &shop.orders, &shop.leases).instance_name("worker-2");
    shop.continues_with(builder.runtime(shop.runtime()), 30..50).await.stop().await.expect("stop");
    assert_eq!(stored().await, before);
}

#[tokio::test(start_paused = true)]
async fn leases_of_all_versions_continue_at_their_checkpoint() {
    let shop = Shop::new(1).await;
    let orders = shop.engine.database("shop").container("history").partition_key("/customer");
    let orders = orders.all_versions(Duration::from_secs(86_400)).create().await.expect("orders");
    let shop = Shop { orders, ..shop };
    shop.write(0..25, 1).await;
    shop.write(0..25, 2).await;
    shop.load("all-versions").await;
    let count = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&count);
    let delegate = move |changes: RawChanges, _: Context| {
        counter.fetch_add(changes.len() as u32, Ordering::SeqCst);
        async { Ok(()) }
    };
    let builder = Processor::builder("mailer", &shop.orders, &shop.leases).instance_name("worker-2").all_versions();
    let processor = builder.runtime(shop.runtime()).build(delegate).expect("build");
    let running = processor.start().await.expect("start");
    until("delivery", || count.load(Ordering::SeqCst) >= 20).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(count.load(Ordering::SeqCst), 20);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_paused_lease_stays_paused_until_it_is_resumed() {
    let shop = Shop::of_previous_version("paused").await;
    let seen = Seen::default();
    let running = shop.host("worker-2", &seen).await;
    pass(Duration::from_secs(100)).await;
    assert_eq!(seen.len(), 0);
    shop.control().resume(Scope::All).await.expect("resume");
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_is_removed_and_its_children_continue() {
    let shop = Shop::new(1).await;
    shop.write(0..30, 1).await;
    shop.split(0).await;
    shop.load("gone").await;
    shop.write(30..50, 1).await;
    assert_eq!(shop.lease_documents().await.len(), 3);
    shop.continues_with(shop.processor("worker-2"), 30..50).await.stop().await.expect("stop");
    assert_eq!(shop.lease_documents().await.into_keys().collect::<Vec<_>>(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn leases_begin_where_an_operator_wanted() {
    let shop = Shop::of_previous_version("sought").await;
    shop.continues_with(shop.processor("worker-2"), 10..50).await.stop().await.expect("stop");

    let shop = Shop::of_previous_version("start-beginning").await;
    let builder = shop.processor("worker-2").start_from(StartFrom::Now);
    shop.continues_with(builder, 0..50).await.stop().await.expect("stop");

    let shop = Shop::new(1).await;
    shop.write(0..40, 1).await;
    shop.clock.advance(Duration::from_secs(60));
    shop.write(40..50, 1).await;
    shop.load("start-time").await;
    shop.continues_with(shop.processor("worker-2"), 40..50).await.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_created_again_where_its_processor_began() {
    let shop = Shop::of_previous_version("lost-lease").await;
    let builder = shop.processor("worker-2").start_from(StartFrom::Beginning);
    shop.continues_with(builder, 30..50).await.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_host_that_crashed_while_it_created_leases_is_taken_over() {
    let shop = Shop::of_previous_version("interrupted-bootstrap").await;
    shop.continues_with(shop.processor("worker-2"), 0..50).await.stop().await.expect("stop");
    let left = shop.leases.list("").await.expect("list");
    assert!(left.iter().all(|item| !item.id.to_string().ends_with(".lock")), "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn the_count_of_attempts_goes_on() {
    for name in ["failing", "failed-then-stopped"] {
        let shop = Shop::of_previous_version(name).await;
        let calls = Calls::default();
        let builder = shop.processor("worker-2");
        let running = shop::start_slow(builder, shop.runtime(), Duration::ZERO, &calls).await;
        until("delivery", || calls.handled().len() == 20).await;
        assert!(calls.all()[0].attempt > 3, "{name}: {:?}", calls.all()[0].attempt);
        running.stop().await.expect("stop");
    }
}

/// Continues where processes have crashed: the orders that are given to the delegate, and the dead letters that are made.
async fn after_crashes(name: &str) -> (Vec<String>, Vec<String>) {
    let shop = Shop::of_previous_version(name).await;
    let seen = Seen::default();
    let builder = shop.processor("worker-2").dead_letter(DeadLetter::to(&shop.rejected).after_attempts(2));
    let running = shop::start(builder, &seen).await;
    until("delivery", || seen.ids().contains(&"o49".to_owned())).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
    let lease = &shop.lease_documents().await["0"];
    assert_eq!((shop::checkpoint(lease), &lease["properties"]["cf.suspect"]), (50, &Value::Null));
    (sorted(seen.ids()), shop.dead_lettered().await)
}

#[tokio::test(start_paused = true)]
async fn an_item_that_crashed_one_process_in_isolation_is_tried_again() {
    assert_eq!(after_crashes("suspect-once").await, (ids(30..50), vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_crashed_two_processes_in_isolation_becomes_a_dead_letter() {
    assert_eq!(after_crashes("suspect-again").await, (ids(31..50), vec!["o30".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_a_dead_letter_already_is_skipped() {
    assert_eq!(after_crashes("suspect-buried").await, (ids(31..50), vec![]));
    // o32 has crashed two processes in isolation, too: whether a third one tries it is for the host to decide.
    let (given, letters) = after_crashes("suspect-buried-again").await;
    assert_eq!(sorted([given, letters].concat()), ids(31..50));
}

#[tokio::test(start_paused = true)]
async fn tools_understand_the_leases() {
    for name in ["free", "owned", "failing", "version-1", "paused"] {
        let shop = Shop::of_previous_version(name).await;
        let lag = Estimator::new("mailer", &shop.orders, &shop.leases).lag().await.expect("lag");
        assert_eq!(lag.changes, 20, "{name}");
        let names = changefeed::processors(&shop.orders, &shop.leases).await.expect("processors");
        assert_eq!(names, ["mailer"], "{name}");
    }
}

impl Shop {
    /// A shop with the items that became dead letters, and these letters.
    async fn with_old_letters() -> Self {
        let shop = Self::new(1).await;
        shop.write(0..10, 1).await;
        for letter in fixtures("dead-letters", &shop.orders) {
            shop.rejected.create(&letter).await.expect("create");
        }
        shop
    }
}

#[tokio::test(start_paused = true)]
async fn old_dead_letters_are_listed_with_all_they_say() {
    let shop = Shop::with_old_letters().await;
    let letters = shop.letters().list().await.expect("list");
    let said: Vec<(&str, u64, u32, u64)> =
        letters.iter().map(|letter| (letter.item_id.as_str(), letter.lsn, letter.attempts, letter.failed_at)).collect();
    let failed_at = 1_767_225_600_000;
    assert_eq!(said, [("o3", 4, 3, failed_at), ("odd", 11, 3, failed_at), ("fat", 17, 3, failed_at)]);
    assert_eq!(letters[1].errors[1], "invalid type: string \"one\", expected u64 at line 1 column 43");
    assert!(letters[2].cut && !letters[0].cut);
    assert!(letters.iter().all(|letter| letter.item_key.is_none()), "they do not say it");
    assert_eq!(letters[0].change().expect("change").parse::<Order>().expect("order"), Some(order(3, 1)));
    assert_eq!(shop.letters().summary().await.expect("summary").total, 3);
}

#[tokio::test(start_paused = true)]
async fn old_dead_letters_are_redriven_to_a_delegate() {
    let shop = Shop::with_old_letters().await;
    let redriven = shop.letters().redrive().to_delegate(|change| async move {
        match change.parse::<Order>() {
            Ok(_) => Ok(()),
            Err(error) => Err(DelegateError::from(error)),
        }
    });
    let redriven = redriven.await.expect("redrive");
    assert_eq!(redriven.done.len(), 1);
    let kept: Vec<&str> = redriven.skipped.iter().map(|kept| kept.item.as_str()).collect();
    assert_eq!(kept, ["odd", "fat"]);
    assert!(redriven.skipped[1].reason.contains("was too large to keep the item"), "{redriven:?}");
    let left = shop.letters().list().await.expect("list");
    assert_eq!(left.iter().map(|letter| letter.attempts).collect::<Vec<_>>(), [4, 3], "one attempt more");
}

#[tokio::test(start_paused = true)]
async fn old_dead_letters_are_redriven_to_their_container() {
    let shop = Shop::with_old_letters().await;
    let redriven = shop.letters().redrive().overwrite().to_container(&shop.orders).await.expect("redrive");
    assert_eq!((redriven.done.len(), redriven.skipped.len()), (2, 1), "{redriven:?}");
    assert_eq!(shop.dead_lettered().await, ["fat"]);
    let seen = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&seen);
    let delegate = move |changes: Changes<Value>, _: Context| {
        counter.fetch_add(changes.len() as u32, Ordering::SeqCst);
        async { Ok(()) }
    };
    let running = shop.processor("worker-2").build(delegate).expect("build").start().await.expect("start");
    until("they flow again", || seen.load(Ordering::SeqCst) == 11).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn old_dead_letters_of_all_versions_have_their_images() {
    let shop = Shop::new(1).await;
    for letter in fixtures("dead-letters-all-versions", &shop.orders) {
        shop.rejected.create(&letter).await.expect("create");
    }
    let mut changes = Vec::new();
    let redriven = shop.letters().redrive().to_delegate(|change| {
        changes.push((change.operation, change.current.is_some(), change.previous.is_some()));
        async { Ok(()) }
    });
    assert_eq!(redriven.await.expect("redrive").done.len(), 3);
    let expected =
        [(Operation::Create, true, false), (Operation::Replace, true, true), (Operation::Delete, false, true)];
    assert_eq!(changes, expected);
    assert_eq!(shop.dead_lettered().await, Vec::<String>::new());
}
