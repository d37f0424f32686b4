//! Bad deployments: a type that fits nothing is an outage, and no outage ends in a mass of dead letters.

mod shop;

use std::time::Duration;

use changefeed::{
    Changes, Context, DeadLetter, DelegateError, ItemResult, Latest, Notification, ProcessorBuilder, Running,
};
use serde_json::{Value, json};
use shop::{Notifications, Order, Seen, Shop, pass, until};

/// At most so many items in a row become dead letters while nothing succeeds.
const IN_A_ROW: usize = 3;

impl Shop {
    /// Writes items whose version is a text, which does not parse as an order.
    async fn write_renamed(&self, items: std::ops::Range<u64>) {
        for item in items {
            let renamed = json!({"id": format!("o{item}"), "customer": "c", "version": "renamed"});
            self.orders.upsert(&renamed).await.expect("upsert");
        }
    }

    fn bad_deployment(&self, notifications: &Notifications) -> ProcessorBuilder<Latest> {
        let processor = self.processor("worker-1").dead_letter(DeadLetter::to(&self.rejected));
        processor.on_notification(notifications.listen())
    }

    /// The next deployment, whose type fits: it must be given everything that is not a dead letter.
    async fn good_deployment_is_given(&self, items: usize) {
        let (seen, letters) = (Calls::default(), self.dead_lettered().await.len());
        let kept = seen.clone();
        let delegate = move |changes: Changes<Value>, _: Context| {
            kept.lock().expect("lock").extend(changes.iter().map(|item| item["id"].to_string()));
            async { Ok(()) }
        };
        let running = self.processor("worker-2").build(delegate).expect("build").start().await.expect("start");
        until("delivery", || seen.lock().expect("lock").len() == items - letters).await;
        running.stop().await.expect("stop");
    }
}

type Calls = std::sync::Arc<std::sync::Mutex<std::collections::BTreeSet<String>>>;

async fn start_typed(builder: ProcessorBuilder<Latest>) -> Running {
    let delegate = |_: Changes<Order>, _: Context| async { Ok(()) };
    builder.build(delegate).expect("build").start().await.expect("start")
}

fn is_outage(notification: &Notification) -> bool {
    matches!(notification, Notification::Outage { .. })
}

#[tokio::test(start_paused = true)]
async fn a_type_that_fits_nothing_is_an_outage_and_no_mass_of_dead_letters() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write_renamed(0..500).await;
    let running = start_typed(shop.bad_deployment(&notifications)).await;
    pass(Duration::from_secs(600)).await;
    let letters = shop.dead_lettered().await;
    assert!(letters.len() <= IN_A_ROW, "{} dead letters", letters.len());
    assert!(notifications.any(is_outage), "{}", notifications.text());
    running.stop().await.expect("stop");
    shop.good_deployment_is_given(500).await;
}

#[tokio::test(start_paused = true)]
async fn so_it_is_if_pages_have_one_item_each() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write_renamed(0..20).await;
    let running = start_typed(shop.bad_deployment(&notifications).max_items(1)).await;
    pass(Duration::from_secs(600)).await;
    let letters = shop.dead_lettered().await;
    assert!(letters.len() <= IN_A_ROW, "{} dead letters", letters.len());
    assert!(notifications.any(is_outage), "{}", notifications.text());
    running.stop().await.expect("stop");
    shop.good_deployment_is_given(20).await;
}

#[tokio::test(start_paused = true)]
async fn so_it_is_beside_results_for_the_items_before() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    shop.write(1000..1010, 1).await;
    shop.write_renamed(0..100).await;
    let kept = seen.clone();
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        kept.add(&changes, &ctx);
        let results = vec![ItemResult::Done; changes.len()];
        async move { Ok(results) }
    };
    let running = shop.bad_deployment(&notifications).build(delegate).expect("build").start().await.expect("start");
    pass(Duration::from_secs(600)).await;
    let letters = shop.dead_lettered().await;
    assert!(letters.len() <= IN_A_ROW, "{} dead letters", letters.len());
    assert!(notifications.any(is_outage), "{}", notifications.text());
    assert_eq!(seen.counts().len(), 10);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn a_few_items_that_do_not_parse_among_others_become_dead_letters() {
    let shop = Shop::new(1).await;
    let (seen, notifications) = (Seen::default(), Notifications::default());
    for odd in [5_u64, 20, 35] {
        shop.write(odd * 100..odd * 100 + 10, 1).await;
        shop.write_renamed(odd..odd + 1).await;
    }
    shop.write(0..5, 1).await;
    let running = shop::start(shop.bad_deployment(&notifications), &seen).await;
    until("delivery", || seen.len() == 35).await;
    running.stop().await.expect("stop");
    assert_eq!(shop.dead_lettered().await, ["o20", "o35", "o5"]);
    assert!(!notifications.any(is_outage), "{}", notifications.text());
}

#[tokio::test(start_paused = true)]
async fn however_long_an_outage_lasts_nothing_is_dead_lettered_in_bulk() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write(0..50, 1).await;
    let failing = |_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("smtp is down")) };
    let policy = DeadLetter::to(&shop.rejected).after_attempts(3);
    let processor = shop.processor("worker-1").dead_letter(policy).on_notification(notifications.listen());
    let running = processor.build(failing).expect("build").start().await.expect("start");
    until("an outage", || notifications.any(is_outage)).await;
    pass(Duration::from_secs(60)).await;
    let reported = |n: &Notification| matches!(n, Notification::Outage { .. } | Notification::Stalled { .. });
    let before = notifications.count(reported);
    pass(Duration::from_secs(900)).await;
    let letters = shop.dead_lettered().await;
    assert!(letters.len() <= IN_A_ROW, "{} dead letters", letters.len());
    assert!(notifications.count(reported) > before, "the stall stays visible");
    running.stop().await.expect("stop");
    shop.good_deployment_is_given(50).await;
}

#[tokio::test(start_paused = true)]
async fn nor_is_it_however_long_a_bad_deployment_lasts() {
    let shop = Shop::new(1).await;
    let notifications = Notifications::default();
    shop.write_renamed(0..50).await;
    let policy = DeadLetter::to(&shop.rejected);
    let running =
        start_typed(shop.processor("worker-1").dead_letter(policy).on_notification(notifications.listen())).await;
    pass(Duration::from_secs(900)).await;
    let letters = shop.dead_lettered().await;
    assert!(letters.len() <= IN_A_ROW, "{} dead letters", letters.len());
    running.stop().await.expect("stop");
    shop.good_deployment_is_given(50).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_in_dead_letters_where_an_option_says_so() {
    let shop = Shop::new(1).await;
    shop.write(0..50, 1).await;
    let failing = |_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("smtp is down")) };
    let policy = DeadLetter::to(&shop.rejected).after_attempts(3).outage_ends_after(Duration::from_secs(60));
    let processor = shop.processor("worker-1").dead_letter(policy);
    let running = processor.build(failing).expect("build").start().await.expect("start");
    pass(Duration::from_secs(900)).await;
    assert_eq!(shop.dead_lettered().await.len(), 50);
    running.stop().await.expect("stop");
}

#[tokio::test(start_paused = true)]
async fn items_that_do_not_parse_are_dead_lettered_at_once_where_an_option_says_so() {
    let shop = Shop::new(1).await;
    shop.write_renamed(0..50).await;
    let policy = DeadLetter::to(&shop.rejected).unparsed_at_once();
    let running = start_typed(shop.processor("worker-1").dead_letter(policy)).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(shop.dead_lettered().await.len(), 50);
    running.stop().await.expect("stop");
}
