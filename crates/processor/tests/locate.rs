//! Where one item stands, before and after its delivery, and across a split.

mod shop;

use changefeed::{ItemLocation, Locate, Progress, core::ErrorKind};
use shop::{Seen, Shop};

impl Shop {
    async fn locate(&self, item: u64) -> ItemLocation {
        let order = shop::order(item, 0);
        let locate = Locate::new("mailer", &self.orders, &self.leases);
        locate.item(order.customer.as_str(), &order.id).await.expect("locate")
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_is_handled_until_it_changes_again() {
    let shop = Shop::new(4).await;
    let seen = Seen::default();
    shop.write(0..60, 1).await;
    shop.catch_up(&seen, 60).await;
    let handled = shop.locate(7).await;
    assert_eq!((handled.progress, handled.owner.as_deref()), (Progress::Passed, None));

    // Item 57 has the partition key of item 7, and changes first.
    shop.write(57..58, 2).await;
    shop.write(7..8, 2).await;
    let waiting = shop.locate(7).await;
    assert_eq!(waiting.progress, Progress::Waiting { after: 1 });
    assert_eq!(shop.locate(57).await.progress, Progress::Waiting { after: 0 });
    assert_eq!(shop.locate(8).await.progress, Progress::Passed, "others are where they were");
    assert!(waiting.lsn > handled.lsn);
    assert_eq!(waiting.lease, handled.lease);

    shop.split(0).await;
    assert_eq!(shop.locate(7).await.progress, Progress::Waiting { after: 1 }, "nobody has replaced the lease yet");
    shop.catch_up(&seen, 62).await;
    assert_eq!(shop.locate(7).await.progress, Progress::Passed);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_there_is_named() {
    let shop = Shop::new(1).await;
    let locate = Locate::new("mailer", &shop.orders, &shop.leases);
    shop.write(0..1, 1).await;
    let order = shop::order(0, 1);
    let error = locate.item(order.customer.as_str(), &order.id).await.expect_err("never started");
    assert!(error.message().contains("it was never started"), "{error}");
    let error = locate.item("nobody", &order.id).await.expect_err("no such item");
    assert_eq!(error.kind(), ErrorKind::ItemNotFound);
}
