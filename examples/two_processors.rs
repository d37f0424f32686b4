//! Two processors on one container: each sees every change, from where it wants to begin. Errors are those of anyhow, items
//! must have exactly the members of their type.
//!
//! Run it with `cargo run --release -p changefeed --example two_processors`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]
#![allow(clippy::disallowed_methods, reason = "a program of its own, with the time of the day")]

use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use changefeed::{Changes, Context, Processor, core::StartFrom, embedded::Engine};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    id: String,
    customer: String,
    cents: u64,
}

fn order(id: &str, cents: u64) -> Order {
    Order { id: id.to_owned(), customer: "ada".to_owned(), cents }
}

/// What a mail server might do.
fn mail(order: &Order) -> Result<String> {
    ensure!(order.customer.is_ascii(), "{} has no address", order.customer);
    Ok(format!("to {}: your order of {}.{:02} is on its way", order.customer, order.cents / 100, order.cents % 100))
}

#[tokio::main]
async fn main() -> Result<()> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").partition_key("/customer").open_or_create().await?;
    let leases = shop.container("leases").open_or_create().await?;

    orders.create(&order("yesterday", 1000)).await?;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let today = SystemTime::now();
    orders.create(&order("morning", 250)).await?;
    orders.create(&order("evening", 425)).await?;

    // Mails are for orders of today.
    let (mailed, mut mails) = mpsc::unbounded_channel();
    let mailer = Processor::builder("mailer", &orders, &leases).instance_name("worker-1").start_from(today).build(
        move |orders: Changes<Order>, _ctx: Context| {
            let mailed = mailed.clone();
            async move {
                for (order, info) in orders.with_info() {
                    let text = mail(order).with_context(|| format!("mail change {}", info.change_id()))?;
                    mailed.send(text)?;
                }
                Ok(())
            }
        },
    )?;

    // The books have all orders. The lease container is the same: leases carry the name of their processor.
    let (booked, mut bookings) = mpsc::unbounded_channel();
    let bookkeeper = Processor::builder("bookkeeper", &orders, &leases)
        .instance_name("worker-1")
        .start_from(StartFrom::Beginning)
        .build(move |orders: Changes<Order>, _ctx: Context| {
            let booked = booked.clone();
            async move {
                for order in orders {
                    booked.send(order.cents)?;
                }
                Ok(())
            }
        })?;

    let (first, second) = (mailer.start().await?, bookkeeper.start().await?);
    for expected in ["to ada: your order of 2.50 is on its way", "to ada: your order of 4.25 is on its way"] {
        let mail = mails.recv().await.context("the mailer ended")?;
        println!("{mail}");
        ensure!(mail == expected, "expected {expected}");
    }
    let mut total = 0;
    for _ in 0..3 {
        total += bookings.recv().await.context("the bookkeeper ended")?;
    }
    println!("three orders over {} in the books", total as f64 / 100.0);
    ensure!(total == 1675, "the books are wrong: {total}");
    first.stop().await?;
    second.stop().await?;
    Ok(())
}
