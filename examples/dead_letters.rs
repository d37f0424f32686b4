//! Dead letters: items that cannot be handled are written to a container with their error, the rest proceeds; later they
//! are redriven.
//!
//! Run it with `cargo run --release -p changefeed --example dead_letters`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use changefeed::{
    Backoff, Changes, Context, DeadLetter, DeadLetters, DelegateError, Notification, Processor, core::StartFrom,
    embedded::Engine,
};
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;

#[derive(Deserialize)]
struct Order {
    id: String,
    total: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shop = Engine::in_memory()?.database("shop");
    let orders = shop.container("orders").create().await?;
    let leases = shop.container("leases").create().await?;
    let rejected = shop.container("rejected").create().await?;
    // "broken" does not parse; "large" needs the credit service, which is down.
    for (id, total) in [("small", json!(5)), ("broken", json!("five")), ("large", json!(5000)), ("last", json!(7))] {
        orders.create(&json!({"id": id, "total": total})).await?;
    }

    let credit_works = Arc::new(AtomicBool::new(false));
    let (news, mut inbox) = mpsc::unbounded_channel();
    let (handled, dead, credit) = (news.clone(), news, Arc::clone(&credit_works));
    let processor = Processor::builder("billing", &orders, &leases)
        .start_from(StartFrom::Beginning)
        .retry(Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) })
        .dead_letter(DeadLetter::to(&rejected).after_attempts(3))
        .on_notification(move |notification| {
            if let Notification::DeadLettered { item, reason, .. } = notification {
                println!("{item} is a dead letter: {reason}");
                drop(dead.send(format!("{item} dead")));
            }
        })
        .build(move |changes: Changes<Order>, _: Context| {
            let (handled, credit) = (handled.clone(), Arc::clone(&credit));
            async move {
                for (index, order) in changes.iter().enumerate() {
                    if order.total > 1000.0 && !credit.load(Ordering::SeqCst) {
                        return Err(DelegateError::new("the credit service does not answer").at(index));
                    }
                    handled.send(order.id.clone())?;
                }
                Ok(())
            }
        })?;
    let running = processor.start().await?;
    // Once "last" has succeeded the two failures before it are not an outage, and become dead letters.
    for expected in ["small", "last", "broken dead", "large dead"] {
        assert_eq!(inbox.recv().await.as_deref(), Some(expected));
    }

    credit_works.store(true, Ordering::SeqCst);
    let letters = DeadLetters::new(&rejected);
    let all = letters.list().await?;
    let large = all.iter().find(|letter| letter.item_id == "large").ok_or("no letter for large")?;
    let redriven = letters.redrive().letter(&large.id).to_container(&orders).await?;
    println!("redriven: {:?}", redriven.done);
    assert_eq!(inbox.recv().await.as_deref(), Some("large"));
    assert_eq!(letters.summary().await?.total, 1, "the broken one stays until somebody looks at it");
    Ok(running.stop().await?)
}
