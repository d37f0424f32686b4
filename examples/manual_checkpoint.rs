//! Manual checkpoints: orders are collected and shipped in parcels; progress is stored when a parcel has left. After a
//! crash only the orders that had not left yet come again.
//!
//! Run it with `cargo run --release -p changefeed --example manual_checkpoint`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::sync::Arc;

use changefeed::{
    Changes, ManualContext, Processor, Running,
    core::{Container, StartFrom},
    embedded::Engine,
};
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, mpsc};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
}

/// A host that ships parcels of 8 orders, and tells which orders it got.
async fn host(orders: &Container, leases: &Container, got: mpsc::UnboundedSender<String>) -> Result<Running> {
    let parcel = Arc::new(Mutex::new(Vec::new()));
    let processor = Processor::builder("packer", orders, leases)
        .instance_name("worker-1")
        .start_from(StartFrom::Beginning)
        .manual_checkpoints()
        .max_items(4)
        .build(move |changes: Changes<Order>, ctx: ManualContext| {
            let (parcel, got) = (Arc::clone(&parcel), got.clone());
            async move {
                let mut parcel = parcel.lock().await;
                for order in changes {
                    got.send(order.id.clone())?;
                    parcel.push(order.id);
                }
                if parcel.len() >= 8 {
                    println!("a parcel leaves: {}", parcel.join(" "));
                    parcel.clear();
                    // This batch and everything before it will not come again.
                    ctx.checkpoint().await?;
                }
                Ok(())
            }
        })?;
    Ok(processor.start().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").create().await?;
    let leases = shop.container("leases").create().await?;
    for number in 1..=10 {
        orders.create(&Order { id: format!("o{number:02}") }).await?;
    }

    let (got, mut inbox) = mpsc::unbounded_channel();
    let running = host(&orders, &leases, got).await?;
    for _ in 0..10 {
        inbox.recv().await.ok_or("the processor ended")?;
    }
    // Dropping a host ends it at once, as a crash would: two orders lie in a parcel that never left.
    drop(running);

    let (got, mut inbox) = mpsc::unbounded_channel();
    let running = host(&orders, &leases, got).await?;
    let again = [inbox.recv().await, inbox.recv().await];
    println!("after the crash these come again: {again:?}");
    assert_eq!(again, [Some("o09".to_owned()), Some("o10".to_owned())]);
    running.stop().await?;
    assert!(inbox.try_recv().is_err(), "nothing else comes again");
    Ok(())
}
