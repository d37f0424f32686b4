//! Quick start: your code receives the changed items of a container.
//!
//! Run it with `cargo run --release -p changefeed --example quickstart`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use changefeed::{Changes, Context, Processor, core::StartFrom, embedded::Engine};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    customer: String,
    total: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `Engine::open("./data")` keeps it on disk.
    let engine = Engine::in_memory()?;
    let shop = engine.database("shop");
    let orders = shop.container("orders").partition_key("/customer").ranges(4).create().await?;
    let leases = shop.container("leases").create().await?;

    let (handled, mut inbox) = mpsc::unbounded_channel();
    let processor = Processor::builder("mailer", &orders, &leases)
        .instance_name("worker-1")
        .start_from(StartFrom::Beginning)
        .build(move |changes: Changes<Order>, ctx: Context| {
            let handled = handled.clone();
            async move {
                for order in changes {
                    println!("lease {}: {} ordered {} for {:.2}", ctx.lease(), order.customer, order.id, order.total);
                    handled.send(order.id)?;
                }
                Ok(())
            }
        })?;
    let running = processor.start().await?;

    for (id, customer, total) in [("o1", "ada", 9.5), ("o2", "bob", 20.0), ("o3", "ada", 4.25)] {
        orders.upsert(&Order { id: id.to_owned(), customer: customer.to_owned(), total }).await?;
    }

    let mut seen = Vec::new();
    while seen.len() < 3 {
        seen.push(inbox.recv().await.ok_or("the processor ended")?);
    }
    // Finishes running batches, stores progress, gives the leases back.
    running.stop().await?;

    seen.sort();
    assert_eq!(seen, ["o1", "o2", "o3"]);
    println!("all 3 orders were handled");
    Ok(())
}
