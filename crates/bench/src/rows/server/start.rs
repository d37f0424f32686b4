//! How long a server takes to be ready, and what it weighs when idle. A child process, as users start it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};

use changefeed_embedded::Engine;
use changefeed_server::Server;

use super::{Context, Experiment, Goal, Row};
use crate::{
    Result, load,
    measure::{Measurement, Round},
    process,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[
        Row { name: "server_ready", unit: "ms", baseline: "peer_emulator", goal: Some(Goal::ValueBelow(200.0)) },
        Row { name: "server_idle_memory", unit: "MB", baseline: "peer_emulator", goal: Some(Goal::ValueBelow(20.0)) },
    ],
    run: start,
};

/// The one peer that could be measured, on another day: npm's `@vercel/cosmosdb-server` 1.0.1.
const PEER_READY_MILLIS: f64 = 1400.0;
const PEER_MEGABYTES: f64 = 79.0;

fn start(context: &Context) -> Result<Vec<Measurement>> {
    let folder = context.place.folder("server_start")?;
    let measured: Vec<[f64; 2]> =
        (0..context.scale.rounds).map(|round| once(&folder.join(format!("store-{round}")))).collect::<Result<_>>()?;
    let rounds = |which: usize, baseline| -> Vec<Round<f64>> {
        measured.iter().map(|round| Round { baseline, subject: round[which] }).collect()
    };
    let note = "a new folder; the peer was measured apart";
    Ok(vec![
        Measurement::of("server_ready", &rounds(0, PEER_READY_MILLIS), |value| *value).note(note),
        Measurement::of("server_idle_memory", &rounds(1, PEER_MEGABYTES), |value| *value).note(note),
    ])
}

/// Milliseconds until ready, megabytes when idle.
fn once(folder: &Path) -> Result<[f64; 2]> {
    let begin = Instant::now();
    let mut child =
        Command::new(env::current_exe()?).arg("--serve-child").arg(folder).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let ready = begin.elapsed().as_secs_f64() * 1000.0;
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
    child.kill()?;
    child.wait()?;
    if !line.starts_with("ready") {
        return Err("the child was never ready".into());
    }
    let bytes = process::resident_bytes_of(&status?)?;
    Ok([ready, bytes as f64 / 1e6])
}

/// What the child process does: serves a new store, and says so.
pub(crate) fn serve_until_killed(folder: &Path) -> Result<()> {
    load::runtime()?.block_on(async {
        let engine = Engine::open(folder)?;
        let mut server = Server::builder(engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await?;
        writeln!(std::io::stdout(), "ready {}", server.endpoint())?;
        server.failed().await;
        Err("the server stopped by itself".into())
    })
}
