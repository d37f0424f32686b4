//! A failover between regions that lost writes: an older copy of the folder takes over at the same address, so that the
//! position of the lease is ahead of its feed.

use std::{
    io::Write,
    sync::{Arc, LazyLock, Mutex},
};

use changefeed::remote::EMULATOR_KEY;

use crate::{shop::until, stage::Stage};

/// All that this process logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

static LOG: LazyLock<Log> = LazyLock::new(|| {
    let log = Log::default();
    let own = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
    drop(tracing::subscriber::set_global_default(subscriber.with_writer(move || own.clone()).finish()));
    log
});

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn says(&self, parts: &[&str]) -> bool {
        let log = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        log.lines().any(|line| parts.iter().all(|part| line.contains(part)))
    }
}

/// Five orders in both regions, fifteen more in the one that is lost, all delivered.
async fn shop_with_a_region_that_is_behind() -> Stage {
    let mut stage = Stage::new().await;
    stage.write(EMULATOR_KEY, 0..5).await;
    stage.replicate();
    stage.write(EMULATOR_KEY, 5..20).await;
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_lives_through_a_failover_delivers_what_is_written_after_it() {
    let log = LOG.clone();
    let mut stage = shop_with_a_region_that_is_behind().await;
    let running = stage.host(&stage.connect().await).await;
    until("delivery", || stage.seen.distinct() == 20).await;
    stage.fail_over();
    stage.write(EMULATOR_KEY, 100..103).await;
    for number in 100..103 {
        stage.delivers(number).await;
    }
    let parts = ["the position is ahead of the feed", "container=orders", "range=-FF", "position=21", "newest_lsn="];
    until("the warning", || log.says(&parts)).await;
    stage.write(EMULATOR_KEY, 103..104).await;
    stage.delivers(103).await;
    running.stop().await.unwrap();
    assert_eq!(stage.position().await, "\"10\"", "the lease is back where the feed is");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_starts_after_a_failover_delivers_what_was_written_since() {
    let mut stage = shop_with_a_region_that_is_behind().await;
    let running = stage.host(&stage.connect().await).await;
    until("delivery", || stage.seen.distinct() == 20).await;
    running.stop().await.unwrap();
    assert_eq!(stage.position().await, "\"21\"");
    stage.fail_over();
    stage.write(EMULATOR_KEY, 100..103).await;
    let running = stage.host(&stage.connect().await).await;
    for number in 100..103 {
        stage.delivers(number).await;
    }
    running.stop().await.unwrap();
    assert_eq!(stage.position().await, "\"9\"");
}
