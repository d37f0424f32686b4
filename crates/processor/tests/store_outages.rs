//! A store that is away for longer than leases live, as a server is while it is restarted: owners that are alive keep their
//! leases and their progress, and an owner that died meanwhile is replaced.

mod shop;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::core::{Container, ErrorKind};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Calls, Notifications, Seen, Shop, TIMING, faulty, pass, start_slow, until, until_async};

/// A connection to the store that can be cut.
#[derive(Clone, Default)]
struct Connection(Arc<AtomicBool>);

impl Connection {
    /// The shop as it is reached through this connection.
    fn reaches(&self, shop: &Shop) -> Shop {
        let through = |container: &Container| {
            let cut = Arc::clone(&self.0);
            faulty(container, move |_: &Call<'_>| match cut.load(Ordering::SeqCst) {
                true => Fault::Error(ErrorKind::Unavailable),
                false => Fault::None,
            })
        };
        Shop { orders: through(&shop.orders), leases: through(&shop.leases), ..shop.clone() }
    }

    fn cut(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn mend(&self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Shop {
    async fn leases_of(&self, instance: &str) -> usize {
        self.owners().await.iter().filter(|owner| owner.as_deref() == Some(instance)).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_was_away_for_longer_than_leases_live_moves_no_lease_and_repeats_nothing() {
    let shop = Shop::new(4).await;
    let (store, calls, notifications) = (Connection::default(), Calls::default(), Notifications::default());
    let reached = store.reaches(&shop);
    let call = TIMING.expiration / 2;
    let host = |name: &str| {
        let builder = reached.processor(name).on_notification(notifications.listen());
        start_slow(builder, shop.runtime(), call, &calls)
    };
    let (one, two) = (host("worker-1").await, host("worker-2").await);
    until_async("the leases are shared", || async { shop.leases_of("worker-1").await == 2 }).await;
    until_async("the leases are shared", || async { shop.leases_of("worker-2").await == 2 }).await;
    // Wherever in the intervals of the hosts the outage begins, and whether calls are running or just over.
    for (round, moment) in (1..).zip([0_u64, 300, 700, 1100, 1900, 2400, 3100, 3900, 4100]) {
        shop.write(0..40, round).await;
        let before = calls.len();
        until("calls are running", || calls.len() >= before + 4).await;
        let owners = shop.owners().await;
        pass(Duration::from_millis(moment)).await;
        store.cut();
        pass(TIMING.expiration * 3).await;
        store.mend();
        let handled = || calls.handled().iter().filter(|(_, version)| *version == round).count() == 40;
        until("everything is handled", handled).await;
        pass(TIMING.expiration * 2).await;
        assert_eq!(shop.owners().await, owners, "{moment} ms: {}", notifications.text());
        let twice: Vec<_> = calls.given().into_iter().filter(|(_, times)| *times > 1).collect();
        assert_eq!(twice, [], "{moment} ms: {}", notifications.text());
    }
    one.stop().await.expect("stop");
    two.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_died_while_the_store_was_away_is_replaced_one_expiration_after_it_is_back() {
    let shop = Shop::new(4).await;
    let (dying, living, seen) = (Connection::default(), Connection::default(), Seen::default());
    let dead = dying.reaches(&shop).host("worker-1", &seen).await;
    let alive = living.reaches(&shop).host("worker-2", &seen).await;
    until_async("the leases are shared", || async { shop.leases_of("worker-2").await == 2 }).await;
    dying.cut();
    living.cut();
    pass(TIMING.expiration * 10).await;
    living.mend();
    // A cycle is spread by a quarter, and a failing host waits for at most one interval.
    pass(TIMING.expiration + TIMING.acquire * 3).await;
    assert_eq!(shop.leases_of("worker-2").await, 4);
    shop.write(0..10, 1).await;
    until("delivery goes on", || seen.len() == 10).await;
    alive.stop().await.expect("stop");
    drop(dead);
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_away_ends_by_its_deadline_and_keeps_trying_to_store_progress() {
    let shop = Shop::new(1).await;
    let (store, calls) = (Connection::default(), Calls::default());
    shop.write(0..5, 1).await;
    let deadline = TIMING.expiration * 4;
    let builder = store.reaches(&shop).processor("worker-1").stop_deadline(deadline);
    let running = start_slow(builder, shop.runtime(), Duration::from_secs(2), &calls).await;
    until("a call is running", || calls.len() == 1).await;
    store.cut();
    until("the call is over", || calls.handled().len() == 5).await;
    pass(TIMING.expiration * 2).await;
    let mut stopping = Box::pin(running.stop());
    tokio::select! {
        biased;
        stopped = &mut stopping => panic!("progress is worth waiting for: {stopped:?}"),
        () = pass(deadline / 2) => {}
    }
    store.mend();
    stopping.await.expect("stop");
    assert!(shop.is_released().await);
    shop.catch_up(&Seen::default(), 0).await;
    assert!(shop.lease_documents().await.values().all(|lease| shop::checkpoint(lease) >= 5));
}
