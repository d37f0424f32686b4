//! What a host hears of its lease container: others' moves, not its own checkpoints.

mod shop;

use std::{sync::Arc, time::Duration};

use changefeed::lease::{
    document::LeaseDocument,
    news::{Heard, News},
    observation::Observations,
    prefix::{LeasePrefix, LeaseToken},
    store::LeaseStore,
};
use serde_json::json;
use shop::{Seen, Shop};

const SESSION: &str = "0123456789abcdef";

/// A listener that knows two leases, 0 of our session, 1 of another, and has been told about everything so far.
async fn listening(shop: &Shop) -> (Arc<LeaseStore>, News) {
    let prefix = LeasePrefix::new("mailer", shop.orders.identity()).expect("prefix");
    let store = Arc::new(LeaseStore::new(shop.leases.clone(), prefix).expect("store"));
    let running = shop.host("other", &Seen::default()).await;
    running.stop().await.expect("stop");
    change(&store, "0", |lease| {
        lease.owner = Some("me".to_owned());
        lease.set_session(Some(SESSION));
    })
    .await;
    change(&store, "1", |lease| {
        lease.owner = Some("other".to_owned());
        lease.set_session(Some("theirs"));
    })
    .await;
    let mut news = News::new(&store);
    news.begin().await;
    news.know(&store.list().await.expect("list"));
    (store, news)
}

async fn change(store: &LeaseStore, token: &str, change: impl Fn(&mut LeaseDocument)) {
    let listing = store.list().await.expect("list");
    let lease = listing.find(&token.parse::<LeaseToken>().expect("token")).expect("lease");
    let mut document = lease.document.clone();
    change(&mut document);
    store.replace(&document, &lease.etag).await.expect("replace");
}

async fn heard(shop: &Shop, news: &mut News) -> Heard {
    let page = news.next(&shop.runtime(), Duration::from_millis(1)).await;
    let (mut observations, now) = (Observations::default(), shop.runtime().monotonic());
    news.take(page, |token| token.as_str() == "0", SESSION, &mut observations, now)
}

#[tokio::test(start_paused = true)]
async fn own_checkpoints_and_renewals_of_others_are_no_news() {
    let shop = Shop::new(2).await;
    let (store, mut news) = listening(&shop).await;
    change(&store, "0", |lease| lease.continuation = Some("\"7\"".to_owned())).await;
    change(&store, "1", |lease| lease.touch(shop.clock.now())).await;
    shop.leases.upsert(&json!({"id": "somebody else's"})).await.expect("upsert");
    assert_eq!(heard(&shop, &mut news).await, Heard::Nothing { read: 3 });
}

#[tokio::test(start_paused = true)]
async fn requests_releases_grants_pauses_and_new_leases_are_news() {
    let shop = Shop::new(2).await;
    let (store, mut news) = listening(&shop).await;
    type Change = fn(&mut LeaseDocument);
    let changes: [(&str, Change); 4] = [
        ("0", |lease| lease.set_hand_over(Some("other"))),
        ("0", |lease| lease.set_paused(true)),
        ("1", |lease| lease.owner = None),
        ("1", |lease| lease.owner = Some("me".to_owned())),
    ];
    for (at, (token, what)) in changes.into_iter().enumerate() {
        change(&store, token, what).await;
        assert_eq!(heard(&shop, &mut news).await, Heard::Something, "{at}");
    }
    let id = format!("{}new", store.prefix().leases());
    let lease = json!({"id": id, "version": 0, "LeaseToken": "new", "properties": {}});
    shop.leases.create(&lease).await.expect("create");
    assert_eq!(heard(&shop, &mut news).await, Heard::Something);
    shop.leases.upsert(&json!({"id": id, "LeaseToken": 7})).await.expect("upsert");
    assert_eq!(heard(&shop, &mut news).await, Heard::Something, "a document that cannot be read");
}
