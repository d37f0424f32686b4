//! The estimator: how far a processor is behind, with and without running hosts.
//!
//! Run it with `cargo run --release -p changefeed --example estimator`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use changefeed::{
    Changes, Context, Estimator, Processor, Running,
    core::{Container, StartFrom},
    embedded::Engine,
};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

async fn host(orders: &Container, leases: &Container) -> Result<Running> {
    let processor = Processor::builder("mailer", orders, leases)
        .instance_name("worker-1")
        .start_from(StartFrom::Beginning)
        .build(|_: Changes<Value>, _: Context| async { Ok(()) })?;
    Ok(processor.start().await?)
}

#[tokio::main]
async fn main() -> Result<()> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").ranges(3).create().await?;
    let leases = shop.container("leases").create().await?;
    // A processor that was never started has no lag; its first start makes the leases.
    host(&orders, &leases).await?.stop().await?;
    for number in 0..300 {
        orders.create(&json!({"id": format!("o{number}")})).await?;
    }

    let estimator = Estimator::new("mailer", &orders, &leases);
    let lag = estimator.lag().await?;
    for lease in &lag.leases {
        println!("lease {}: {} changes behind, {:?}", lease.lease, lease.changes, lease.state);
    }
    println!("no host runs: {} changes behind, the oldest for {:?}", lag.changes, lag.behind);
    assert_eq!(lag.changes, 300);

    let running = host(&orders, &leases).await?;
    let mut watch = estimator.watch(Duration::from_millis(50));
    loop {
        let lag = watch.next().await?;
        println!("a host runs: {} changes behind", lag.changes);
        if lag.changes == 0 {
            break;
        }
    }
    Ok(running.stop().await?)
}
