//! Machines that sleep: a host whose clock counts the sleep neither works on what it lost nor robs who stayed awake.

mod shop;

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use changefeed::{
    Running,
    core::{Container, Timestamp},
    runtime::{BoxFuture, Runtime},
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Notifications, Seen, Shop, faulty, pass, until, until_async};
use tokio::sync::watch;

/// A machine that can be suspended: its requests wait until it is awake again, and its clock counts the time.
#[derive(Clone)]
struct Machine {
    inner: Arc<dyn Runtime>,
    slept: Arc<Mutex<Duration>>,
    awake: Arc<watch::Sender<bool>>,
}

impl Machine {
    fn new(shop: &Shop) -> Self {
        Self { inner: shop.runtime(), slept: Arc::default(), awake: Arc::new(watch::Sender::new(true)) }
    }

    /// The shop as this machine reaches it.
    fn reaches(&self, shop: &Shop) -> Shop {
        let through = |container: &Container| {
            let awake = Arc::clone(&self.awake);
            faulty(container, move |_: &Call<'_>| {
                let mut awake = awake.subscribe();
                Fault::Latency(Box::pin(async move { drop(awake.wait_for(|awake| *awake).await) }))
            })
        };
        Shop { orders: through(&shop.orders), leases: through(&shop.leases), ..shop.clone() }
    }

    async fn start(&self, shop: &Shop, seen: &Seen) -> Running {
        let shop = self.reaches(shop);
        shop::start(shop.processor("worker-1").runtime(Arc::new(self.clone())), seen).await
    }

    /// Sleeps for an hour, of which the others see ten seconds.
    async fn sleep(&self) {
        self.awake.send_replace(false);
        pass(Duration::from_secs(10)).await;
        *self.slept.lock().expect("lock") += Duration::from_secs(3590);
    }

    fn wake(&self) {
        self.awake.send_replace(true);
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Machine")
    }
}

impl Runtime for Machine {
    fn monotonic(&self) -> Duration {
        self.inner.monotonic() + *self.slept.lock().expect("lock")
    }

    fn wall(&self) -> Timestamp {
        self.inner.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.inner.sleep(duration)
    }

    fn spawn(&self, name: &str, task: BoxFuture<'static, ()>) -> tokio::task::JoinHandle<()> {
        self.inner.spawn(name, task)
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_slept_past_its_lease_starts_no_call_for_it() {
    let shop = Shop::new(1).await;
    let (seen, machine) = (Seen::default(), Machine::new(&shop));
    shop.write(0..10, 1).await;
    let running = machine.start(&shop, &seen).await;
    until("delivery", || seen.len() == 10).await;
    pass(Duration::from_secs(5)).await;
    machine.sleep().await;
    shop.dotnet_acquires("0", "dotnet").await;
    shop.write(10..20, 1).await;
    machine.wake();
    pass(Duration::from_secs(5)).await;
    assert_eq!(seen.len(), 10);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_slept_and_lost_nothing_goes_on() {
    let shop = Shop::new(1).await;
    let (seen, machine) = (Seen::default(), Machine::new(&shop));
    shop.write(0..10, 1).await;
    let running = machine.start(&shop, &seen).await;
    until("delivery", || seen.len() == 10).await;
    pass(Duration::from_secs(5)).await;
    machine.sleep().await;
    shop.write(10..20, 1).await;
    machine.wake();
    until("delivery goes on", || seen.len() == 20).await;
    running.stop().await.expect("stop");
    assert!(seen.counts().values().all(|count| *count == 1));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_slept_does_not_steal_from_a_host_that_stayed_awake() {
    let shop = Shop::new(2).await;
    let (machine, notifications) = (Machine::new(&shop), Notifications::default());
    let asleep = machine.start(&shop, &Seen::default()).await;
    let awake = shop::start(shop.processor("worker-2").on_notification(notifications.listen()), &Seen::default()).await;
    let shared = || async {
        let owners: Vec<String> = shop.owners().await.into_iter().flatten().collect();
        owners.contains(&"worker-1".to_owned()) && owners.contains(&"worker-2".to_owned())
    };
    until_async("the leases are shared", shared).await;
    pass(Duration::from_secs(10)).await;
    machine.sleep().await;
    machine.wake();
    pass(Duration::from_secs(60)).await;
    assert!(!notifications.text().contains("Lost"), "{}", notifications.text());
    asleep.stop().await.expect("stop");
    awake.stop().await.expect("stop");
}
