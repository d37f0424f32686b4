//! The estimator, over the network: with stores that tell the LSN of each change.

use changefeed::Estimator;

use crate::shop::{Seen, Shop, until};

#[tokio::test]
async fn the_estimator_counts_what_is_behind() {
    let (shop, seen) = (Shop::new(3).await, Seen::default());
    shop.host("a", &seen).await.stop().await.unwrap();
    shop.write(0..70, 1).await;
    let estimator = Estimator::new("mailer", &shop.orders, &shop.leases);
    assert_eq!(estimator.lag().await.unwrap().changes, 70);
    let running = shop.host("a", &seen).await;
    until("delivery", || seen.len() >= 70).await;
    running.stop().await.unwrap();
    assert_eq!(estimator.lag().await.unwrap().changes, 0);
}
