//! Items that a delegate asks for again: together, not one by one.

mod shop;

use std::time::Duration;

use changefeed::{Changes, Context, DeadLetter, ItemResult, Latest, ProcessorBuilder, Running};
use shop::{Calls, Order, Shop, pass, until};

const LATER: ItemResult = ItemResult::Retry { after: Duration::from_millis(100) };

/// Starts a host that asks for the items that `again` names in its first call, and handles them in later ones.
async fn start(builder: ProcessorBuilder<Latest>, calls: &Calls, again: fn(usize) -> bool) -> Running {
    let calls = calls.clone();
    let delegate = move |changes: Changes<Order>, ctx: Context| {
        let first = calls.begin(&changes, &ctx) == 0;
        let result = |index: usize| if first && again(index) { LATER } else { ItemResult::Done };
        let results: Vec<ItemResult> = (0..changes.len()).map(result).collect();
        async move { Ok(results) }
    };
    builder.build(delegate).expect("build").start().await.expect("start")
}

fn sizes(calls: &Calls) -> Vec<usize> {
    calls.all().iter().map(|call| call.orders.len()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_asked_for_again_comes_as_one_batch_in_order() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..1000, 1).await;
    let running = start(shop.processor("worker-1"), &calls, |_| true).await;
    until("a second call", || calls.len() > 1).await;
    pass(Duration::from_secs(20)).await;
    running.stop().await.expect("stop");
    assert_eq!(sizes(&calls), [1000, 1000]);
    let [first, second] = [0, 1].map(|call| calls.all()[call].orders.clone());
    assert_eq!(first, second);
}

#[tokio::test(start_paused = true)]
async fn of_a_page_exactly_the_items_that_are_asked_for_come_again_as_one_batch() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..1000, 1).await;
    let running = start(shop.processor("worker-1"), &calls, |index| index % 3 == 0).await;
    until("a second call", || calls.len() > 1).await;
    pass(Duration::from_secs(20)).await;
    running.stop().await.expect("stop");
    assert_eq!(sizes(&calls), [1000, 334]);
    let first = calls.all()[0].orders.clone();
    let asked: Vec<Order> = first.into_iter().step_by(3).collect();
    assert_eq!(calls.all()[1].orders, asked);
}

#[tokio::test(start_paused = true)]
async fn so_they_do_where_dead_letters_are_kept() {
    let shop = Shop::new(1).await;
    let calls = Calls::default();
    shop.write(0..1000, 1).await;
    let processor = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected));
    let running = start(processor, &calls, |index| index % 2 == 1).await;
    until("a second call", || calls.len() > 1).await;
    pass(Duration::from_secs(20)).await;
    running.stop().await.expect("stop");
    assert_eq!(sizes(&calls), [1000, 500]);
    assert_eq!(shop.dead_lettered().await, Vec::<String>::new());
}
