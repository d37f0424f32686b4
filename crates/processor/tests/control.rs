//! Seek, reset, pause and resume: fenced against hosts that run.

mod shop;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Changes, Context, Control, LeaseToken, Position, Processor, RawChanges, Running, Scope, SeekTo,
    core::{Continuation, ErrorKind, PhysicalRange, ReadChanges, StartFrom},
};
use shop::{Gate, Notifications, Order, Seen, Shop, pass, until, until_async};

fn token(text: &str) -> LeaseToken {
    text.parse().expect("a token")
}

#[tokio::test(start_paused = true)]
async fn a_seek_to_the_beginning_redelivers_everything_while_a_host_runs() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 100).await;
    let seek = shop.control().seek(SeekTo::Beginning, Scope::All);
    let planned = seek.dry_run().await.expect("dry run");
    assert!(planned.iter().all(|moved| moved.to == Position::Continuation("\"0\"".to_owned())), "{planned:?}");
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), 100, "a dry run moves nothing");
    seen.take();
    let moved = seek.apply().await.expect("seek");
    assert_eq!(moved.len(), 2);
    assert!(moved.iter().all(|moved| moved.owner.as_deref() == Some("worker-1")));
    until("second delivery", || seen.len() >= 100).await;
    pass(Duration::from_secs(5)).await;
    assert!(seen.counts().values().all(|count| *count == 1) && seen.len() == 100, "{:?}", seen.counts());
    shop.write(0..100, 2).await;
    until("delivery goes on", || seen.len() == 200).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_seek_to_a_time_and_to_a_continuation_skips_nothing_after_it() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..20, 1).await;
    shop.clock.advance(Duration::from_secs(60));
    let noon = shop.clock.now();
    shop.write(20..40, 1).await;
    let written = shop.orders.upsert(&shop::order(40, 1)).await.expect("upsert");
    shop.write(41..50, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 50).await;
    seen.take();
    shop.control().seek(SeekTo::Time(noon), Scope::All).apply().await.expect("seek");
    until("delivery from noon", || seen.len() >= 30).await;
    pass(Duration::from_secs(5)).await;
    let mut items: Vec<String> = seen.take().into_iter().map(|order| order.id).collect();
    items.sort();
    let mut expected: Vec<String> = (20..50).map(|item| format!("o{item}")).collect();
    expected.sort();
    assert_eq!(items, expected);
    // A position is one of its range.
    let ranges = shop.ranges().await;
    let is_in = |item: u64, range: &PhysicalRange| shop::is_in(&shop.orders, &shop::order(item, 1), &range.range);
    let range = ranges.iter().find(|range| is_in(40, range)).expect("its range");
    let later = (41..50).filter(|item| is_in(*item, range)).count();
    let after = Continuation::from_token(format!("\"{}\"", written.lsn));
    let scope = Scope::Lease(token(range.id.as_str()));
    shop.control().seek(SeekTo::Continuation(after), scope).apply().await.expect("seek");
    until("delivery after a position", || seen.len() >= later).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), later);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_seek_to_now_skips_what_waits_and_one_lease_can_be_moved_alone() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    until_async("ownership", || async { shop.owners().await.iter().all(Option::is_some) }).await;
    running.stop().await.expect("stop");
    shop.write(0..100, 1).await;
    let epoch = |document: &serde_json::Value| document["properties"]["cf.epoch"].as_str().and_then(|e| e.parse().ok());
    let before: Option<u64> = epoch(&shop.lease_documents().await["0"]);
    let moved = shop.control().seek(SeekTo::Now, Scope::Lease(token("0"))).apply().await.expect("seek");
    assert_eq!(moved.len(), 1);
    assert_eq!(epoch(&shop.lease_documents().await["0"]), before.map(|epoch| epoch + 1), "whoever had it is fenced");
    let skipped = shop.ranges().await[0].range.clone();
    let running = shop.host("worker-1", &seen).await;
    let expected = (0..100).filter(|item| !shop::is_in(&shop.orders, &shop::order(*item, 1), &skipped)).count();
    until("delivery", || seen.len() >= expected).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), expected);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_delivering_cannot_store_what_it_did_before_the_seek() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(0..10, 1).await;
    let (release, gate) = tokio::sync::watch::channel(false);
    let kept = seen.clone();
    let slow = move |changes: Changes<Order>, ctx: Context| {
        let (seen, mut gate) = (kept.clone(), gate.clone());
        async move {
            seen.add(&changes, &ctx);
            drop(gate.wait_for(|open| *open).await);
            Ok(())
        }
    };
    let processor = shop.processor("worker-1").on_notification(notifications.listen()).build(slow).expect("build");
    let running = processor.start().await.expect("start");
    until("delivery begins", || seen.len() == 10).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    pass(Duration::from_secs(3)).await;
    release.send_replace(true);
    until("second delivery", || seen.len() == 20).await;
    assert!(notifications.text().contains("Lost"), "{}", notifications.text());
    running.stop().await.expect("stop");
    let document = &shop.lease_documents().await["0"];
    assert_eq!(document["properties"]["cf.generation"], "1");
    assert_eq!(document["ContinuationToken"], "\"11\"");
}

/// Instance and epoch of each call that has begun, and how many have ended; calls wait at the gate.
async fn start_gated(
    shop: &Shop,
    instance: &'static str,
    gate: &Gate,
    begun: &Arc<Mutex<Vec<(&'static str, u64)>>>,
    cancelled: &Arc<AtomicBool>,
) -> Running {
    let (gate, begun, cancelled) = (gate.clone(), Arc::clone(begun), Arc::clone(cancelled));
    let delegate = move |_: Changes<Order>, ctx: Context| {
        let (gate, cancelled) = (gate.clone(), Arc::clone(&cancelled));
        begun.lock().expect("lock").push((instance, ctx.epoch()));
        async move {
            gate.pass().await;
            cancelled.fetch_or(ctx.is_cancelled(), Ordering::AcqRel);
            Ok(())
        }
    };
    shop.processor(instance).build(delegate).expect("build").start().await.expect("start")
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_at_a_seek_may_overlap_with_the_next_owner_under_a_lower_epoch() {
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    let (begun, cancelled) = (Arc::default(), Arc::<AtomicBool>::default());
    let (closed, open) = (Gate::closed(), Gate::closed());
    open.open();
    let first = start_gated(&shop, "worker-1", &closed, &begun, &cancelled).await;
    until("a call", || begun.lock().expect("lock").len() == 1).await;
    let second = start_gated(&shop, "worker-2", &open, &begun, &Arc::default()).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    until("a second call", || begun.lock().expect("lock").len() == 2).await;
    let epochs = begun.lock().expect("lock").clone();
    assert_eq!(epochs.iter().map(|(instance, _)| *instance).collect::<Vec<_>>(), ["worker-1", "worker-2"]);
    assert!(epochs[0].1 < epochs[1].1, "{epochs:?}: a sink can tell them apart");
    // Until the first owner has met the new one at its next renewal.
    pass(Duration::from_secs(60)).await;
    let before = shop.lease_documents().await["0"].clone();
    closed.open();
    until("the end of the first call", || cancelled.load(Ordering::Acquire)).await;
    pass(Duration::from_secs(5)).await;
    let after = shop.lease_documents().await["0"].clone();
    assert_eq!(after["ContinuationToken"], before["ContinuationToken"], "the first call stores nothing");
    first.stop().await.expect("stop");
    second.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_pause_before_a_seek_waits_for_running_calls() {
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    let begun = Arc::default();
    let (closed, open) = (Gate::closed(), Gate::closed());
    open.open();
    let first = start_gated(&shop, "worker-1", &closed, &begun, &Arc::default()).await;
    until("a call", || begun.lock().expect("lock").len() == 1).await;
    let second = start_gated(&shop, "worker-2", &open, &begun, &Arc::default()).await;
    shop.control().pause(Scope::All).await.expect("pause");
    pass(Duration::from_secs(60)).await;
    assert_eq!(shop.owners().await, [Some("worker-1".to_owned())], "its call still runs");
    closed.open();
    until_async("no owner", || async { shop.owners().await == [None] }).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    pass(Duration::from_secs(60)).await;
    assert_eq!(begun.lock().expect("lock").len(), 1, "a seek resumes nothing");
    shop.control().resume(Scope::All).await.expect("resume");
    until("delivery from the beginning", || begun.lock().expect("lock").len() == 2).await;
    first.stop().await.expect("stop");
    second.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_seek_survives_a_split_that_no_host_has_seen() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..100, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 100).await;
    running.stop().await.expect("stop");
    shop.split(0).await;
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    seen.take();
    let running = shop.host("worker-1", &seen).await;
    until("second delivery", || seen.len() >= 100).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!((seen.len(), seen.counts().len()), (100, 100));
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_position_that_does_not_exist_is_refused_before_anything_is_written() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..5, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 5).await;
    running.stop().await.expect("stop");
    let before = shop.lease_documents().await;
    for (position, kind) in [("\"99\"", ErrorKind::ContinuationBeyondEnd), ("x", ErrorKind::BadContinuation)] {
        let to = SeekTo::Continuation(Continuation::from_token(position));
        assert_eq!(shop.control().seek(to, Scope::All).apply().await.expect_err("refused").kind(), kind);
    }
    assert_eq!(shop.lease_documents().await, before);
}

#[tokio::test(start_paused = true)]
async fn unknown_processors_and_leases_are_named_with_those_that_exist() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.host("worker-1", &seen).await.stop().await.expect("stop");
    let other = Control::new("postman", &shop.orders, &shop.leases);
    let error = other.pause(Scope::All).await.expect_err("unknown");
    assert_eq!(error.kind(), ErrorKind::ItemNotFound);
    assert!(error.message().ends_with("existing processors are: mailer"), "{error}");
    let error = shop.control().pause(Scope::Lease(token("7"))).await.expect_err("unknown");
    assert_eq!(error.message(), "there is no lease 7: the leases are 0, 1");
    let names = changefeed::processors(&shop.orders, &shop.leases).await.expect("list");
    assert_eq!(names, ["mailer"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_stops_delivery_and_resume_goes_on_without_loss_or_repeat() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    let running = shop.host("worker-1", &seen).await;
    shop.write(0..50, 1).await;
    until("delivery", || seen.len() == 50).await;
    assert_eq!(shop.control().pause(Scope::All).await.expect("pause"), [token("0"), token("1")]);
    assert_eq!(shop.control().pause(Scope::All).await.expect("pause"), [], "paused already");
    until_async("release", || async { shop.owners().await.iter().all(Option::is_none) }).await;
    shop.write(0..50, 2).await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(seen.len(), 50, "nothing is delivered while paused");
    shop.control().resume(Scope::Lease(token("1"))).await.expect("resume");
    let range = shop.ranges().await[1].range.clone();
    let expected = (0..50).filter(|item| shop::is_in(&shop.orders, &shop::order(*item, 1), &range)).count();
    until("half of the delivery", || seen.len() == 50 + expected).await;
    shop.control().resume(Scope::All).await.expect("resume");
    until("the rest", || seen.len() == 100).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_pause_outlives_hosts_and_splits() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.host("worker-1", &seen).await.stop().await.expect("stop");
    shop.control().pause(Scope::All).await.expect("pause");
    shop.split(0).await;
    shop.write(0..20, 1).await;
    let running = shop.host("worker-2", &seen).await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(seen.len(), 0);
    shop.control().resume(Scope::All).await.expect("resume");
    until("delivery", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_refused_while_a_host_lives_and_forgets_everything_when_none_does() {
    let shop = Shop::new(2).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let running = shop.host("worker-1", &seen).await;
    until("delivery", || seen.len() == 10).await;
    let error = shop.control().reset().apply().await.expect_err("alive");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.message().contains("worker-1 is alive and owns lease"), "{error}");
    // A crash leaves the owner's name behind: the reset sees that nobody writes any more.
    drop(running);
    assert_eq!(shop.control().reset().dry_run().await.expect("dry run"), [token("0"), token("1")]);
    assert_eq!(shop.lease_documents().await.len(), 2);
    assert_eq!(shop.control().reset().apply().await.expect("reset"), [token("0"), token("1")]);
    assert!(shop.leases.list("").await.expect("list").is_empty());
    let running = shop.host("worker-1", &seen).await;
    until("delivery once more", || seen.len() == 20).await;
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn all_versions_processors_go_to_now_but_not_to_the_beginning() {
    let shop = Shop::with_history().await;
    let processor = Processor::builder("mailer", &shop.orders, &shop.leases).all_versions().runtime(shop.runtime());
    let running = processor.build(|_: RawChanges, _| async { Ok(()) }).expect("build").start().await.expect("start");
    running.stop().await.expect("stop");
    shop.write(0..3, 1).await;
    let error = shop.control().seek(SeekTo::Beginning, Scope::All).dry_run().await.expect_err("beginning");
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let moved = shop.control().seek(SeekTo::Now, Scope::All).apply().await.expect("now");
    for (moved, range) in moved.iter().zip(shop.ranges().await) {
        let now = ReadChanges::new(range.range, StartFrom::Now);
        let end = shop.orders.read_changes(now).await.expect("read").continuation.token().to_owned();
        assert_eq!(moved.to, Position::Continuation(end));
    }
}

/// Loses the document of the only lease.
async fn lose_lease(shop: &Shop) {
    let id = shop.lease_documents().await["0"]["id"].as_str().expect("id").to_owned();
    shop.leases.delete(id.as_str(), &id).await.expect("delete");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_after_a_seek_is_created_again_at_the_position_of_the_seek() {
    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let running = start_now(&shop, &seen).await;
    pass(Duration::from_secs(2)).await;
    running.stop().await.expect("stop");
    shop.control().seek(SeekTo::Beginning, Scope::All).apply().await.expect("seek");
    lose_lease(&shop).await;
    let running = start_now(&shop, &seen).await;
    until("delivery from the beginning", || seen.len() == 10).await;
    running.stop().await.expect("stop");
    shop.write(10..20, 1).await;
    shop.control().seek(SeekTo::Now, Scope::Lease(token("0"))).apply().await.expect("seek");
    lose_lease(&shop).await;
    let running = start_now(&shop, &seen).await;
    shop.write(20..25, 1).await;
    until("delivery of what is new", || seen.len() >= 15).await;
    pass(Duration::from_secs(5)).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.len(), 15, "what was skipped stays skipped");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_know_our_zero_begins_by_property() {
    use changefeed::lease::document::{LeaseDocument, StartPosition};

    let shop = Shop::new(1).await;
    let seen = Seen::default();
    shop.write(0..10, 1).await;
    let running = start_now(&shop, &seen).await;
    pass(Duration::from_secs(2)).await;
    running.stop().await.expect("stop");
    assert_eq!(seen.len(), 0, "it began now");
    let id = shop.lease_documents().await["0"]["id"].as_str().expect("id").to_owned();
    let item = shop.leases.read_item(id.as_str(), &id).await.expect("read");
    let mut document = LeaseDocument::parse(&item.body).expect("parse");
    document.set_start(&StartPosition::Beginning);
    let body: serde_json::Value = serde_json::from_slice(&document.to_json()).expect("json");
    shop.leases.upsert(&body).await.expect("upsert");
    let running = start_now(&shop, &seen).await;
    until("delivery from the beginning", || seen.len() == 10).await;
    running.stop().await.expect("stop");
}

async fn start_now(shop: &Shop, seen: &Seen) -> changefeed::Running {
    shop::start(shop.processor("worker-1").start_from(StartFrom::Now), seen).await
}

#[tokio::test(start_paused = true)]
async fn a_seek_has_a_higher_generation_than_all_seeks_before_it() {
    let shop = Shop::new(2).await;
    let running = shop.host("worker-1", &Seen::default()).await;
    until_async("leases", async || shop.lease_documents().await.len() == 2).await;
    running.stop().await.expect("stop");
    for lease in ["0", "0", "1"] {
        let seek = shop.control().seek(SeekTo::Beginning, Scope::Lease(token(lease)));
        seek.apply().await.expect("seek");
    }
    let leases = shop.lease_documents().await;
    let generation = |lease: &str| leases[lease]["properties"]["cf.generation"].as_str().map(str::to_owned);
    assert_eq!((generation("0"), generation("1")), (Some("2".to_owned()), Some("3".to_owned())), "{leases:?}");
}
