//! Shutdown: a host withdraws its requests before it ends.

mod shop;

use changefeed::{Changes, Context, DelegateError, LeaseTiming};
use serde_json::Value;
use shop::{Order, Seen, Shop, until_async};

/// Who asks for a lease, in all leases.
async fn requests(shop: &Shop) -> Vec<String> {
    let asked = |document: &Value| document["properties"]["cf.hand-over"].as_str().map(str::to_owned);
    shop.lease_documents().await.values().filter_map(asked).collect()
}

#[tokio::test(start_paused = true)]
async fn a_host_that_stops_withdraws_its_requests() {
    let shop = Shop::new(4).await;
    shop.write(0..40, 1).await;
    let endless = |_: Changes<Order>, _: Context| std::future::pending::<Result<(), DelegateError>>();
    let busy = shop.processor("worker-1").lease_timing(LeaseTiming::REMOTE).build(endless);
    let busy = busy.expect("build").start().await.expect("start");
    until_async("owners", || async {
        shop.lease_documents().await.values().filter(|document| document["Owner"] == "worker-1").count() == 4
    })
    .await;
    let idle = shop.processor("worker-2").lease_timing(LeaseTiming::REMOTE);
    let idle = shop::start(idle, &Seen::default()).await;
    until_async("requests", || async { requests(&shop).await == ["worker-2", "worker-2"] }).await;
    idle.stop().await.expect("stop");
    assert_eq!(requests(&shop).await, Vec::<String>::new());
    drop(busy);
}
