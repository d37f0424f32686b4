//! Explanations, operator commands and the pull model, over the network.

use changefeed::{Bookmark, Control, Explain, Pull, Scope, SeekTo, core::StartFrom};

use crate::shop::{Seen, Shop, TIMING, pass, until};

#[tokio::test]
async fn every_lease_is_explained() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    until("both leases", || seen.leases() == 2).await;
    let explanations = Explain::new("mailer", &shop.orders, &shop.leases).lease_timing(TIMING).leases().await.unwrap();
    assert_eq!(explanations.len(), 2);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_paused_processor_delivers_nothing_until_it_is_resumed() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    until("both leases", || seen.leases() == 2).await;
    let control = Control::new("mailer", &shop.orders, &shop.leases).lease_timing(TIMING);
    assert_eq!(control.pause(Scope::All).await.unwrap().len(), 2);
    until("no leases", || seen.leases() == 0).await;
    shop.write(0..20, 1).await;
    pass(TIMING.acquire * 3).await;
    assert_eq!(seen.len(), 0);
    control.resume(Scope::All).await.unwrap();
    until("delivery", || seen.len() >= 20).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_seek_to_the_beginning_delivers_everything_again() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..40, 1).await;
    until("delivery", || seen.len() >= 40).await;
    let control = Control::new("mailer", &shop.orders, &shop.leases).lease_timing(TIMING);
    control.seek(SeekTo::Beginning, Scope::All).apply().await.unwrap();
    until("delivery once more", || seen.len() >= 80).await;
    running.stop().await.unwrap();
    assert_eq!(seen.distinct(), 40);
}

#[tokio::test]
async fn a_reset_processor_starts_as_if_it_had_never_run() {
    let (shop, seen) = (Shop::new(2).await, Seen::default());
    let running = shop.host("a", &seen).await;
    shop.write(0..40, 1).await;
    until("delivery", || seen.len() >= 40).await;
    running.stop().await.unwrap();
    Control::new("mailer", &shop.orders, &shop.leases).lease_timing(TIMING).reset().apply().await.unwrap();
    let running = shop.host("a", &seen).await;
    until("delivery once more", || seen.len() >= 80).await;
    running.stop().await.unwrap();
}

async fn read(pull: &mut Pull) -> usize {
    let mut count = 0;
    loop {
        let page = pull.next_page().await.unwrap();
        if page.is_empty() {
            return count;
        }
        count += page.changes.len();
    }
}

#[tokio::test]
async fn a_bookmark_of_the_pull_model_goes_on_across_a_split() {
    let shop = Shop::new(2).await;
    shop.write(0..70, 1).await;
    let mut pull = Pull::container(&shop.orders, StartFrom::Beginning).max_items(20);
    assert_eq!(read(&mut pull).await, 70);
    let bookmark = pull.bookmark().to_string();
    shop.split(0).await;
    shop.write(70..77, 1).await;
    let mut pull = Pull::resume(&shop.orders, &bookmark.parse::<Bookmark>().unwrap()).unwrap();
    assert_eq!(read(&mut pull).await, 7);
    let mut one = Pull::partition_key(&shop.orders, "c3", StartFrom::Beginning).unwrap();
    assert_eq!(read(&mut one).await, 11);
}

#[tokio::test]
async fn processors_of_a_container_are_listed() {
    let (shop, seen) = (Shop::new(1).await, Seen::default());
    shop.host("a", &seen).await.stop().await.unwrap();
    assert_eq!(changefeed::processors(&shop.orders, &shop.leases).await.unwrap(), ["mailer"]);
}
