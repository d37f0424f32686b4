//! The scenario: its steps, and the condition that each waits for.

use std::{sync::Arc, time::Duration};

use changefeed::runtime::Runtime;
use tokio::sync::{mpsc, watch};

use super::{
    ledger::Order,
    narrator::{Event, Scene},
    stage::{RANGES, RATE, Stage, TIMING},
    terminal::grouped,
};
use crate::exit::Result;

/// What the events themselves need, mostly for leases to expire; the rest of the time is spread between them.
const EVENTS_TAKE: Duration = Duration::from_millis(5500);

/// How many pauses the scenario has.
const PAUSES: u32 = 5;

/// The shortest pause: long enough for the work to go on visibly.
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);

/// Longer than any step takes on a healthy machine; after it the scenario continues, and the ledger shows the result.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many new orders the rush brings.
const RUSH: usize = 1200;

/// The host dies when it has handled this many orders of unfinished batches: most of them will be delivered again.
const IN_HAND: usize = 15;

/// The range that splits.
const SPLIT: u64 = 2;

/// The pause between events in a scenario of about `length`.
fn pause_of(length: Duration) -> Duration {
    (length.saturating_sub(EVENTS_TAKE) / PAUSES).max(SHORTEST_PAUSE)
}

/// The steps of the demonstration, and what they need.
pub(crate) struct Scenario {
    runtime: Arc<dyn Runtime>,
    events: mpsc::UnboundedSender<Event>,
    scene: watch::Receiver<Scene>,
    pause: Duration,
}

impl Scenario {
    /// A scenario of about `length`.
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        events: mpsc::UnboundedSender<Event>,
        scene: watch::Receiver<Scene>,
        length: Duration,
    ) -> Self {
        Self { runtime, events, scene, pause: pause_of(length) }
    }

    /// Runs all steps but the last.
    pub(crate) async fn run(&mut self, stage: &mut Stage) -> Result<()> {
        self.three_hosts_start(stage).await?;
        self.one_dies(stage).await?;
        self.two_join(stage).await?;
        self.a_range_splits(stage).await?;
        self.an_item_is_poison(stage).await
    }

    async fn three_hosts_start(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("1. Three hosts share the work");
        self.say(&format!(
            "a container with {RANGES} ranges; a writer places and updates orders, {RATE} changes a second"
        ));
        stage.start_writer();
        for host in ["ada", "bob", "cleo"] {
            stage.start_host(host).await?;
        }
        self.until(|scene| scene.is_balanced(RANGES)).await;
        self.say("each host has its share: each change goes to one of them, in order for each customer");
        self.rest().await;
        Ok(())
    }

    async fn one_dies(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("2. A host dies without warning");
        self.say(&format!("a rush of {} new orders; ada gets SIGKILL in the middle of it", grouped(RUSH as u64)));
        let before = stage.duplicates();
        self.kill_in_a_rush(stage, "ada").await?;
        self.say(&format!("its leases expire {} s after its last renewal", TIMING.expiration.as_secs()));
        self.until(|scene| scene.is_covered(RANGES) && scene.catching_up.is_empty()).await;
        self.settle(stage).await;
        let again = stage.duplicates() - before;
        self.say(&match again {
            0 => "no change was delivered twice: ada had just stored its progress".to_owned(),
            _ => {
                format!("{} delivered twice: ada had handled them, but died before it stored its progress", were(again))
            }
        });
        self.rest().await;
        Ok(())
    }

    /// Writes as fast as the disk can, and ends the host as soon as it is in the middle of something.
    async fn kill_in_a_rush(&self, stage: &mut Stage, host: &'static str) -> Result<()> {
        let writer = stage.writer.clone();
        let rush = writer.rush(RUSH);
        tokio::pin!(rush);
        let limit = self.runtime.monotonic() + PATIENCE;
        let (mut rushed, mut died) = (false, false);
        while !(rushed && died) {
            tokio::select! {
                biased;
                () = self.runtime.sleep(Duration::from_millis(1)), if !died => {
                    if stage.in_hand(host) >= IN_HAND || self.runtime.monotonic() >= limit {
                        stage.kill(host).await?;
                        died = true;
                    }
                }
                written = &mut rush, if !rushed => {
                    written?;
                    rushed = true;
                }
            }
        }
        Ok(())
    }

    async fn two_join(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("3. Two hosts join");
        self.say("dan and eve request their share; owners finish their batch, store progress and hand over");
        let before = stage.duplicates();
        for host in ["dan", "eve"] {
            stage.start_host(host).await?;
        }
        self.until(|scene| scene.is_balanced(RANGES)).await;
        let again = stage.duplicates() - before;
        self.say(&format!("balanced again; {} delivered twice by these moves", were(again)));
        self.rest().await;
        Ok(())
    }

    async fn a_range_splits(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("4. A range splits");
        let before = stage.duplicates();
        let children = stage.split(SPLIT).await?;
        self.say(&format!("the store splits range {SPLIT} into ranges {}", children.join(" and ")));
        self.until(|scene| scene.splits == 1 && scene.is_balanced(RANGES + 1)).await;
        let again = stage.duplicates() - before;
        self.say(&format!("{} ranges now; {} delivered twice by the split", RANGES + 1, were(again)));
        self.rest().await;
        Ok(())
    }

    async fn an_item_is_poison(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("5. An item is poison");
        let (id, customer) = ("poison-1".to_owned(), "customer-1".to_owned());
        self.say("the writer places poison-1, an order that no host can handle");
        stage.writer.write(&Order { id, customer, version: 1, amount: -100 }).await?;
        self.until(|scene| scene.dead_letters == 1).await;
        self.rest().await;
        Ok(())
    }

    /// The last step, also after Ctrl-C: waits for everything that was written, then stops the hosts.
    pub(crate) async fn finish(&mut self, stage: &mut Stage) -> Result<()> {
        self.chapter("6. The end");
        stage.stop_writer().await?;
        self.say("the writer stops; the hosts handle what is left");
        self.settle(stage).await;
        stage.stop_hosts().await?;
        self.say("all hosts have stored their progress, released their leases and stopped");
        stage.count_dead_letters().await
    }

    /// Waits until hardly anything is under way, or nothing moves any more. While the writer writes, a little always is.
    async fn settle(&mut self, stage: &Stage) {
        let (mut least, mut since) = (usize::MAX, self.runtime.monotonic());
        loop {
            let open = stage.writer.ledger.lock().open().saturating_sub(self.scene.borrow().dead_letters);
            let now = self.runtime.monotonic();
            if open < least {
                (least, since) = (open, now);
            }
            if open <= stage.usually_open() || now.saturating_sub(since) >= PATIENCE {
                return;
            }
            self.runtime.sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until(&mut self, condition: impl Fn(&Scene) -> bool) {
        let limit = self.runtime.sleep(PATIENCE);
        let in_time = tokio::select! {
            biased;
            seen = self.scene.wait_for(condition) => seen.is_ok(),
            () = limit => false,
        };
        if !in_time {
            self.say("this takes longer than it should; going on all the same");
        }
    }

    async fn rest(&self) {
        self.runtime.sleep(self.pause).await;
    }

    fn chapter(&self, title: &str) {
        drop(self.events.send(Event::Chapter(title.to_owned())));
    }

    fn say(&self, text: &str) {
        drop(self.events.send(Event::Say(text.to_owned())));
    }
}

fn were(changes: u64) -> String {
    match changes {
        1 => "1 change was".to_owned(),
        _ => format!("{} changes were", grouped(changes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_fill_the_time_that_seconds_allows() {
        let pause = |seconds| pause_of(Duration::from_secs(seconds));
        assert_eq!([pause(1), pause(8), pause(30)].map(|pause| pause.as_millis()), [200, 500, 4900]);
    }
}
