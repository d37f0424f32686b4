//! All versions and deletes: every write of an item is delivered, with the item before and after it.
//!
//! Run it with `cargo run --release -p changefeed --example all_versions`.
#![allow(clippy::print_stdout, reason = "an example shows what happens")]

use std::time::Duration;

use changefeed::{Context, Processor, Versions, core::Operation, embedded::Engine};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Account {
    id: String,
    balance: i64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bank = Engine::in_memory()?.database("bank");
    let accounts = bank.container("accounts").all_versions(Duration::from_secs(3600)).create().await?;
    let leases = bank.container("leases").create().await?;

    let (news, mut inbox) = mpsc::unbounded_channel();
    let processor = Processor::builder("audit", &accounts, &leases).all_versions().build(
        move |versions: Versions<Account>, _: Context| {
            let news = news.clone();
            async move {
                for version in versions {
                    let balance = |account: Option<Account>| account.map(|account| account.balance);
                    news.send((version.operation, balance(version.previous), balance(version.current)))?;
                }
                Ok(())
            }
        },
    )?;
    // From here on nothing is missed.
    let running = processor.start().await?;

    let account = |balance| Account { id: "savings".to_owned(), balance };
    accounts.create(&account(100)).await?;
    accounts.replace(&account(80)).await?;
    accounts.replace(&account(0)).await?;
    accounts.delete("savings", "savings").await?;

    for expected in [
        (Operation::Create, None, Some(100)),
        (Operation::Replace, Some(100), Some(80)),
        (Operation::Replace, Some(80), Some(0)),
        (Operation::Delete, Some(0), None),
    ] {
        let seen = inbox.recv().await.ok_or("the processor ended")?;
        println!("{:?}: {:?} -> {:?}", seen.0, seen.1, seen.2);
        assert_eq!(seen, expected);
    }
    Ok(running.stop().await?)
}
