//! Rolling deployments and autoscaling under long delegate calls: planned moves deliver nothing twice and are no crashes.

mod shop;

use std::{collections::VecDeque, time::Duration};

use changefeed::{DeadLetter, Running, core::ErrorKind};
use shop::{Calls, Shop, pass, start_slow, until, until_async};

impl Shop {
    /// A host whose calls take `time`, in seconds. Two crashes in a call would be enough for a dead letter.
    async fn slow_host(&self, instance: &str, time: u64, stop_deadline: u64, calls: &Calls) -> Running {
        let processor = self.processor(instance).stop_deadline(Duration::from_secs(stop_deadline));
        let processor = processor.dead_letter(DeadLetter::to(&self.rejected).after_attempts(2));
        start_slow(processor, self.runtime(), Duration::from_secs(time), calls).await
    }
}

fn are_given_once(calls: &Calls) -> bool {
    calls.given().values().all(|count| *count == 1)
}

fn are_first_attempts(calls: &Calls) -> bool {
    calls.all().iter().all(|call| call.attempt == 1)
}

#[tokio::test(start_paused = true)]
async fn a_living_owner_is_waited_for_however_long_its_call_takes() {
    let shop = Shop::new(2).await;
    let calls = Calls::default();
    shop.write(0..10, 1).await;
    let slow = |instance| start_slow(shop.processor(instance), shop.runtime(), Duration::from_secs(150), &calls);
    let first = slow("worker-1").await;
    until("both calls begin", || calls.len() == 2).await;
    let second = slow("worker-2").await;
    until("the calls end", || calls.handled().len() == 10).await;
    until_async("the leases are shared", || async {
        let owners: Vec<String> = shop.owners().await.into_iter().flatten().collect();
        owners.contains(&"worker-1".to_owned()) && owners.contains(&"worker-2".to_owned())
    })
    .await;
    assert!(are_given_once(&calls) && are_first_attempts(&calls), "{:#?}", calls.all());
    drop((first, second));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_grows_and_shrinks_under_long_calls_delivers_nothing_twice() {
    let shop = Shop::new(2).await;
    let calls = Calls::default();
    let mut fleet = VecDeque::new();
    for round in 0..12 {
        shop.write(round * 10..round * 10 + 10, 1).await;
        fleet.push_back(shop.slow_host(&format!("worker-{round}"), 20, 30, &calls).await);
        pass(Duration::from_secs(10)).await;
        if fleet.len() > 2 {
            let oldest = fleet.pop_front().expect("a host");
            oldest.stop().await.expect("a call of 20 s ends within the stop deadline");
        }
    }
    until("everything is handled", || calls.handled().len() == 120).await;
    for host in fleet {
        host.stop().await.expect("stop");
    }
    assert!(are_given_once(&calls), "{:?}", calls.given());
    assert!(are_first_attempts(&calls), "nobody crashed: {:#?}", calls.all());
    assert_eq!(shop.dead_lettered().await, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn calls_that_a_stop_deadline_cuts_are_reported_and_do_not_count_as_crashes() {
    let shop = Shop::new(2).await;
    let calls = Calls::default();
    shop.write(0..40, 1).await;
    let mut old: Option<Running> = None;
    let mut cut = 0;
    for round in 0..12 {
        let new = shop.slow_host(&format!("worker-{round}"), 60, 2, &calls).await;
        pass(Duration::from_secs(9)).await;
        if let Some(old) = old.replace(new)
            && let Err(error) = old.stop().await
        {
            assert_eq!(error.kind(), ErrorKind::Timeout);
            cut += 1;
        }
        pass(Duration::from_secs(3)).await;
    }
    assert!(cut >= 4, "stops that cut a call say so: {cut}");
    let last = old.expect("a host");
    until("the last host handles everything", || calls.handled().len() == 40).await;
    assert!(are_first_attempts(&calls), "nobody crashed: {:#?}", calls.all());
    assert_eq!(shop.dead_lettered().await, Vec::<String>::new());
    drop(last);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_crashes_in_a_call_counts_as_a_crash() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..10, 1).await;
    let crashed = shop.slow_host("worker-1", 20, 30, &calls).await;
    until("a call begins", || calls.len() == 1).await;
    drop(crashed);
    let running = shop.slow_host("worker-2", 20, 30, &calls).await;
    until("another call begins", || calls.len() == 2).await;
    assert_eq!(calls.all()[1].attempt, 2);
    drop(running);
}
