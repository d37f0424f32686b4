//! A lease store in the process of its hosts: when that process or a host in it dies, its leases need not expire.

mod shop;

use std::{fmt, sync::Arc, time::Duration};

use changefeed::{
    LeaseTiming, Running,
    core::Timestamp,
    runtime::{BoxFuture, Runtime},
};
use shop::{Seen, Shop, pass, until, until_async};

/// The runtime of a host in a process with this number.
struct Process {
    inner: Arc<dyn Runtime>,
    number: Option<u64>,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Process({:?})", self.number)
    }
}

impl Runtime for Process {
    fn monotonic(&self) -> Duration {
        self.inner.monotonic()
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

    fn process(&self) -> Option<u64> {
        self.number
    }
}

async fn start(shop: &Shop, instance: &str, process: Option<u64>, seen: &Seen) -> Running {
    let runtime = Process { inner: shop.runtime(), number: process };
    let processor = shop.processor(instance).lease_timing(LeaseTiming::EMBEDDED).runtime(Arc::new(runtime));
    shop::start(processor, seen).await
}

/// How long a host of process `second` waits for the leases of a host of process `first` that was aborted.
async fn takeover(first: Option<u64>, second: Option<u64>) -> Duration {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    shop.write(0..20, 1).await;
    let killed = start(&shop, "worker-1", first, &seen).await;
    until("delivery", || seen.len() == 20).await;
    // Until checkpoints are stored: nothing is delivered again.
    pass(Duration::from_secs(1)).await;
    drop(killed);
    let begun = tokio::time::Instant::now();
    let running = start(&shop, "worker-2", second, &seen).await;
    taken_over(&shop).await;
    let waited = begun.elapsed();
    shop.write(20..40, 1).await;
    until("delivery goes on", || seen.len() == 40).await;
    running.stop().await.expect("stop");
    waited
}

async fn taken_over(shop: &Shop) {
    let taken = || async { shop.owners().await.iter().flatten().all(|owner| owner == "worker-2") };
    until_async("the leases are taken over", taken).await;
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_process_that_died_are_acquired_at_once() {
    let waited = takeover(Some(1), Some(2)).await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_host_that_was_dropped_are_acquired_at_once_in_the_same_process() {
    let waited = takeover(Some(1), Some(1)).await;
    assert!(waited < Duration::from_secs(1), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_host_notices_that_another_host_of_its_process_was_dropped() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let dropped = start(&shop, "worker-1", Some(1), &seen).await;
    let running = start(&shop, "worker-2", Some(1), &seen).await;
    let shared = || async { shop.owners().await.iter().flatten().any(|owner| owner == "worker-2") };
    until_async("the leases are shared", shared).await;
    // Long enough that nothing is left to do, short of the next listing of all leases.
    pass(Duration::from_secs(30)).await;
    let begun = tokio::time::Instant::now();
    drop(dropped);
    taken_over(&shop).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn leases_of_a_host_whose_process_is_not_known_must_expire() {
    for (first, second) in [(None, Some(2)), (Some(1), None)] {
        let waited = takeover(first, second).await;
        assert!(waited > Duration::from_secs(20), "{first:?}, {second:?}: {waited:?}");
    }
}
