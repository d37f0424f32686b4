//! The pull model: read changes at your own pace, without leases, and keep a bookmark.
//!
//! Run it with `cargo run --release -p changefeed --example pull`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use changefeed::{
    Bookmark, Pull,
    core::{Container, StartFrom},
    embedded::Engine,
};
use serde::{Deserialize, Serialize};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    customer: String,
}

async fn write(orders: &Container, numbers: std::ops::Range<u32>) -> Result<()> {
    for number in numbers {
        orders.create(&Order { id: format!("o{number}"), customer: format!("c{}", number % 7) }).await?;
    }
    Ok(())
}

/// Reads until there is nothing new.
async fn read(pull: &mut Pull) -> Result<usize> {
    let mut count = 0;
    loop {
        let page = pull.next_page().await?;
        if page.is_empty() {
            return Ok(count);
        }
        count += page.parse::<Order>()?.len();
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").partition_key("/customer").ranges(3).create().await?;
    write(&orders, 0..70).await?;

    let mut pull = Pull::container(&orders, StartFrom::Beginning).max_items(20);
    let first = read(&mut pull).await?;
    // A line of text: keep it wherever you like.
    let bookmark = pull.bookmark().to_string();
    println!("{first} orders; the bookmark is {bookmark}");

    write(&orders, 70..77).await?;
    let mut pull = Pull::resume(&orders, &bookmark.parse::<Bookmark>()?)?;
    let later = read(&mut pull).await?;
    println!("{later} orders since the bookmark");

    let mut one_customer = Pull::partition_key(&orders, "c3", StartFrom::Beginning)?;
    let of_c3 = read(&mut one_customer).await?;
    println!("{of_c3} orders of customer c3");

    assert_eq!((first, later, of_c3), (70, 7, 11));
    Ok(())
}
