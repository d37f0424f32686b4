//! The writer: places and updates orders, and enters what the store acknowledged into the ledger.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use changefeed::{
    core::{Container, Result},
    runtime::Runtime,
};
use tokio::{sync::watch, task::JoinSet};

use super::ledger::{Order, SharedLedger};

/// Writes under way at once: they share the disk's syncs.
const AT_ONCE: usize = 16;

/// How often the writer looks how much is due.
const TICK: Duration = Duration::from_millis(20);

/// Customers, and with them partition keys: enough that every range has its share.
const CUSTOMERS: u64 = 500;

/// One change in so many is an update of an order, the others are new orders.
const UPDATE_EVERY: u64 = 5;

/// Writes orders. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) orders: Container,
    pub(crate) ledger: SharedLedger,
    pub(crate) dice: Dice,
    pub(crate) placed: Arc<AtomicU64>,
}

impl Writer {
    /// Writes `rate` changes a second, fewer if the disk is slower, until `stop` is set.
    pub(crate) async fn run(
        &self,
        rate: f64,
        runtime: Arc<dyn Runtime>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<()> {
        let mut last = runtime.monotonic();
        loop {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                () = runtime.sleep(TICK) => {}
            }
            let now = runtime.monotonic();
            // What a slow disk has delayed for long is not made up for.
            let due = now.saturating_sub(last).min(TICK * 5).as_secs_f64() * rate;
            last = now;
            self.many(due.round() as usize, Self::next).await?;
        }
    }

    /// Places this many new orders, as fast as the disk can. No updates: they would hide what a crash delivers again.
    pub(crate) async fn rush(&self, count: usize) -> Result<()> {
        self.many(count, Self::place).await
    }

    async fn many(&self, count: usize, next: fn(&Self) -> Order) -> Result<()> {
        let mut writing = JoinSet::new();
        for _ in 0..count {
            while writing.len() >= AT_ONCE {
                finish(writing.join_next().await)?;
            }
            let (writer, order) = (self.clone(), next(self));
            writing.spawn(async move { writer.write(&order).await });
        }
        while !writing.is_empty() {
            finish(writing.join_next().await)?;
        }
        Ok(())
    }

    /// Writes an order, and enters it into the ledger once it is on disk.
    pub(crate) async fn write(&self, order: &Order) -> Result<()> {
        self.orders.upsert(order).await?;
        self.ledger.lock().written(order);
        Ok(())
    }

    /// A new order, or an update of one that was handled.
    fn next(&self) -> Order {
        let chance = self.dice.roll();
        let update = chance.is_multiple_of(UPDATE_EVERY).then(|| self.ledger.lock().update(self.dice.roll())).flatten();
        update.unwrap_or_else(|| self.place())
    }

    /// A new order.
    fn place(&self) -> Order {
        Order {
            id: format!("order-{}", self.placed.fetch_add(1, Ordering::Relaxed) + 1),
            customer: format!("customer-{}", self.dice.roll() % CUSTOMERS),
            version: 1,
            amount: 100 + i64::try_from(self.dice.roll() % 100_000).unwrap_or_default(),
        }
    }
}

fn finish(written: Option<std::result::Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    match written {
        Some(Ok(result)) => result,
        // A write that panicked was not acknowledged: it is not in the ledger.
        Some(Err(_)) | None => Ok(()),
    }
}

/// Random numbers that follow from a seed. Cheap to clone; clones share the sequence.
#[derive(Clone, Debug)]
pub(crate) struct Dice(Arc<Mutex<fastrand::Rng>>);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    pub(crate) fn roll(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u64(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let rolls = |seed| (0..5).map(|_| Dice::new(seed).roll()).collect::<Vec<_>>();
        assert_eq!(rolls(1), rolls(1));
        assert_ne!(rolls(1), rolls(2));
    }
}
