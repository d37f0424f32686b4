//! How long a server takes to be ready, and what it weighs when idle. A child process, as users start it.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    net::SocketAddr,
    path::Path,
    process::{self as os_process, Command, Stdio},
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
    let child = Child::start(folder)?;
    let ready = begin.elapsed().as_secs_f64() * 1000.0;
    let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
    Ok([ready, process::resident_bytes_of(&status)? as f64 / 1e6])
}

/// A server in a process of its own, killed when dropped.
pub(super) struct Child {
    process: os_process::Child,
    pub(super) address: SocketAddr,
}

impl Child {
    /// Starts a server on the store in `folder` and waits until it is ready.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut process = command.arg("--serve-child").arg(folder).stdout(Stdio::piped()).spawn()?;
        let stdout = process.stdout.take();
        // From here on the process ends with this value, whatever happens.
        let mut child = Self { process, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let endpoint = line.strip_prefix("ready http://").ok_or("the child was never ready")?;
        child.address = endpoint.trim_end().trim_end_matches('/').parse()?;
        Ok(child)
    }

    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Err(error) = self.process.kill().and_then(|()| self.process.wait()) {
            eprintln!("warning: the server's process could not be ended: {error}");
        }
    }
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
