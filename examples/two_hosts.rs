//! Two hosts share the work of one processor: a second one joins, then the first one leaves, and no order is handled
//! twice.
//!
//! Run it with `cargo run --release -p changefeed --example two_hosts`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::collections::BTreeMap;

use changefeed::{
    Changes, Context, Processor, Running,
    core::{Container, StartFrom},
    embedded::Engine,
};
use serde_json::{Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A host that tells `acquired` for each lease it gets, and `handled` its name for each order.
async fn host(
    name: &'static str,
    (orders, leases): (&Container, &Container),
    acquired: UnboundedSender<()>,
    handled: UnboundedSender<&'static str>,
) -> Result<Running> {
    let processor = Processor::builder("mailer", orders, leases)
        .instance_name(name)
        .start_from(StartFrom::Beginning)
        .on_lease_acquired(move |lease| {
            println!("{name} has lease {lease}");
            let _ = acquired.send(());
        })
        .build(move |changes: Changes<Value>, _: Context| {
            let sent = changes.iter().try_for_each(|_| handled.send(name));
            async move { Ok(sent?) }
        })?;
    Ok(processor.start().await?)
}

/// Writes 100 orders and waits for them; how many each host has handled.
async fn a_hundred(
    round: u32,
    orders: &Container,
    handled: &mut UnboundedReceiver<&'static str>,
) -> Result<BTreeMap<&'static str, u32>> {
    for number in 0..100 {
        orders.create(&json!({"id": format!("{round}-{number}")})).await?;
    }
    let mut counts = BTreeMap::new();
    for _ in 0..100 {
        *counts.entry(handled.recv().await.ok_or("the hosts ended")?).or_default() += 1;
    }
    println!("round {round}: {counts:?}");
    Ok(counts)
}

#[tokio::main]
async fn main() -> Result<()> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").ranges(4).create().await?;
    let leases = shop.container("leases").create().await?;
    let (reported, mut handled) = mpsc::unbounded_channel();

    let (acquired, _) = mpsc::unbounded_channel();
    let first = host("worker-1", (&orders, &leases), acquired, reported.clone()).await?;
    assert_eq!(a_hundred(1, &orders, &mut handled).await?, BTreeMap::from([("worker-1", 100)]));

    let (acquired, mut share) = mpsc::unbounded_channel();
    let second = host("worker-2", (&orders, &leases), acquired, reported).await?;
    assert_eq!([share.recv().await, share.recv().await], [Some(()), Some(())]);
    assert_eq!(a_hundred(2, &orders, &mut handled).await?.len(), 2);

    // A host that stops hands everything over.
    first.stop().await?;
    assert_eq!(a_hundred(3, &orders, &mut handled).await?, BTreeMap::from([("worker-2", 100)]));
    second.stop().await?;
    assert!(handled.try_recv().is_err(), "nothing was handled twice");
    Ok(())
}
