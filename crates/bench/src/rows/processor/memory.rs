//! What an owned lease weighs that has nothing to do. A child process measures: memory that earlier experiments have
//! given back would be used again, and no growth seen.

use std::{
    env,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use changefeed::Processor;
use changefeed_embedded::Durability;
use tokio::time;

use super::{Experiment, Row, counting, is_caught_up, until};
use crate::{
    Result,
    args::Scale,
    load,
    measure::{Measurement, Round},
    process,
    rows::Context,
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[Row { name: "memory_per_lease", unit: "KiB", baseline: "lease_document", goal: None }],
    run: memory,
};

const LEASES: usize = 1000;

fn memory(context: &Context) -> Result<Vec<Measurement>> {
    let folder = context.place.folder("memory")?;
    let rounds = (0..context.scale.slow_rounds).map(|round| {
        let child = Command::new(env::current_exe()?)
            .arg("--memory-child")
            .arg(folder.join(format!("store-{round}")))
            .args(context.scale.flag)
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8(child.stdout)?;
        let numbers = text.trim().split_once(' ').ok_or_else(|| format!("the child failed: {}", child.status))?;
        Ok(Round { baseline: numbers.1.parse()?, subject: numbers.0.parse::<f64>()? })
    });
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    let note = format!("{LEASES} leases of a store on disk, all renewed at least once; the store's index included");
    Ok(vec![Measurement::of("memory_per_lease", &rounds, |kibibytes| *kibibytes).note(note)])
}

/// What the child process of `memory_per_lease` does: says the growth of memory for each lease, and the size of a lease
/// document, in KiB.
pub(crate) fn say_memory_of_leases(folder: &Path, scale: &Scale) -> Result<()> {
    let [growth, document] = load::runtime()?.block_on(own_leases(folder, scale.idle_leases * 5 / 4))?;
    writeln!(std::io::stdout(), "{growth} {document}")?;
    Ok(())
}

async fn own_leases(folder: &Path, watched: Duration) -> Result<[f64; 2]> {
    let store = Store::open(folder, Durability::Relaxed, LEASES).await?;
    let leases = store.leases().await?;
    let caught_up = Arc::new(AtomicU64::default());
    let counter = Arc::clone(&caught_up);
    let builder = Processor::builder("memory", &store.container, &leases).on_notification(move |notification| {
        counter.fetch_add(u64::from(is_caught_up(notification)), Ordering::Relaxed);
    });
    let processor = counting(builder, |_, _| {})?;
    let before = process::resident_bytes()?;
    let running = processor.start().await?;
    until(Instant::now(), "a quiet start", || caught_up.load(Ordering::Relaxed) >= LEASES as u64).await?;
    time::sleep(watched).await;
    let after = process::resident_bytes()?;
    let items = leases.list("").await?;
    let bytes = items.iter().map(|item| item.body.len()).max().unwrap_or_default();
    running.stop().await?;
    store.engine.close().await?;
    Ok([after.saturating_sub(before) as f64 / LEASES as f64 / 1024.0, bytes as f64 / 1024.0])
}
