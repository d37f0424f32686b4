//! What many writes leave behind: bytes on disk, and the time to open again after a clean end and after a crash.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use changefeed_embedded::Durability;
use tokio::runtime::Runtime;

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result,
    args::Scale,
    documents::{self, BODY_BYTES, Documents},
    load::{self, FILL_WRITERS},
    measure::{self, Measurement, Round},
    place, raw,
    store::Store,
};

pub(crate) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        rows: &[
            Row {
                name: "disk_bytes_per_item",
                unit: "bytes",
                baseline: "live_body_bytes",
                goal: Some(Goal::RatioAtMost(1.5)),
            },
            Row { name: "reopen", unit: "s", baseline: "folder_read", goal: Some(Goal::ValueBelow(1.0)) },
        ],
        run: clean,
    },
    Experiment {
        rows: &[Row {
            name: "reopen_after_crash",
            unit: "s",
            baseline: "folder_read",
            goal: Some(Goal::ValueBelow(1.0)),
        }],
        run: crash,
    },
];

/// What the child says when it has written all it was asked to.
const FILLED: &str = "filled";

fn clean(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("reopen")?;
    let path = folder.join("store");
    let scale = &context.scale;
    let (bytes, rate, settling) = runtime.block_on(async {
        let store = Store::open(&path, Durability::Relaxed, 1).await?;
        let rate = fill(&store, scale).await?;
        let start = Instant::now();
        store.engine.settle().await?;
        let settling = start.elapsed();
        let bytes = store.engine.disk_bytes()?;
        store.engine.close().await?;
        Result::Ok((bytes, rate, settling))
    })?;
    let reopened = measure::interleaved(scale.rounds, |_| read_folder(&path), |_| reopen(&runtime, &path))?;
    let per_item = bytes as f64 / scale.lifecycle_items as f64;
    let space = [Round { baseline: BODY_BYTES as f64, subject: per_item }];
    let writes = writes(scale);
    Ok(vec![
        Measurement::of("disk_bytes_per_item", &space, |bytes| *bytes).note(format!(
            "{writes}, {:.0} k relaxed writes/s, settled in {:.1} s",
            rate / 1e3,
            settling.as_secs_f64()
        )),
        Measurement::of("reopen", &reopened, |seconds| *seconds)
            .note(format!("{writes}, until the first item is read")),
    ])
}

fn crash(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("crash")?;
    let path = folder.join("crashed");
    let child = Command::new(env::current_exe()?)
        .arg("--crash-child")
        .arg(&path)
        .args(context.scale.flag)
        .stdout(Stdio::piped())
        .spawn()?;
    kill_when_filled(child)?;
    // Opening repairs, so each round opens a copy of its own.
    let copy = folder.join("copy");
    let reopened = measure::interleaved(
        context.scale.rounds,
        |_| read_folder(&path),
        |_| {
            place::copy(&path, &copy)?;
            let seconds = reopen(&runtime, &copy)?;
            fs::remove_dir_all(&copy)?;
            Ok(seconds)
        },
    )?;
    let note = format!("{}, killed while it wrote on", writes(&context.scale));
    Ok(vec![Measurement::of("reopen_after_crash", &reopened, |seconds| *seconds).note(note)])
}

/// What the child process of `reopen_after_crash` does.
pub(crate) fn fill_until_killed(folder: &Path, scale: &Scale) -> Result<()> {
    load::runtime()?.block_on(async {
        let store = Store::open(folder, Durability::Relaxed, 1).await?;
        fill(&store, scale).await?;
        writeln!(std::io::stdout(), "{FILLED}")?;
        loop {
            fill(&store, scale).await?;
        }
    })
}

/// Ends the child in the middle of its writes, as a crash would.
fn kill_when_filled(mut child: Child) -> Result<()> {
    let stdout = child.stdout.take().ok_or("the child has no output")?;
    let mut line = String::new();
    let read = BufReader::new(stdout).read_line(&mut line);
    child.kill()?;
    let status = child.wait()?;
    read?;
    if line.trim_end() == FILLED { Ok(()) } else { Err(format!("the child ended early: {status}").into()) }
}

async fn fill(store: &Store, scale: &Scale) -> Result<f64> {
    load::fill(store.writer(), &Documents::new(scale.lifecycle_items), FILL_WRITERS, scale.lifecycle_writes).await
}

/// Seconds until the first item of a closed store can be read.
fn reopen(runtime: &Runtime, folder: &Path) -> Result<f64> {
    runtime.block_on(async {
        let start = Instant::now();
        let store = Store::open(folder, Durability::Durable, 1).await?;
        store.container.read_item(documents::partition_key(0), &documents::id(0)).await?;
        let seconds = start.elapsed().as_secs_f64();
        store.engine.close().await?;
        Ok(seconds)
    })
}

/// Seconds to read all that is in the folder.
fn read_folder(folder: &Path) -> Result<f64> {
    let start = Instant::now();
    raw::read_folder(folder)?;
    Ok(start.elapsed().as_secs_f64())
}

fn writes(scale: &Scale) -> String {
    format!("{} k writes over {} k items", scale.lifecycle_writes / 1000, scale.lifecycle_items / 1000)
}
