//! Child processes of the demonstration: a server, and hosts that tell what they do. They end with their stdin, so that none
//! outlives the demonstration, however that ends.

use std::{path::Path, process::Stdio};

use changefeed::runtime::Runtime;
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{config, exit::Result};

/// A process of this program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    fn start(args: &[&str]) -> Result<(Self, Lines<BufReader<ChildStdout>>)> {
        let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        let mut command = Command::new(program);
        // A Ctrl-C is for the demonstration, which then stops the others in order. A config file of this folder is meant for
        // other servers.
        command.args(args).process_group(0).kill_on_drop(true).env(config::VARIABLE, "");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("start `changefeed {}`: {error}", args.join(" ")))?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().ok_or("a child has no stdout")?;
        Ok((Self { child, stdin }, BufReader::new(stdout).lines()))
    }

    /// Starts a server on a free port of loopback; its endpoint.
    pub(crate) async fn server(folder: &Path) -> Result<(Self, String)> {
        let folder = folder.to_str().ok_or("the path of the folder is not UTF-8")?;
        let args = ["serve", "--store", folder, "--listen", "127.0.0.1:0", "--until-stdin-closes", "--log", "error"];
        let (mut process, mut lines) = Self::start(&args)?;
        let ready = lines.next_line().await?.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        match ready.as_ref().and_then(|ready| ready.get("endpoint")?.as_str()) {
            Some(endpoint) => Ok((process, endpoint.to_owned())),
            None => Err(format!("the server does not start: {}", process.complaint().await).into()),
        }
    }

    /// Starts a host on the server at `endpoint`; what it tells comes as lines.
    pub(crate) fn host(name: &str, endpoint: &str) -> Result<(Self, Lines<BufReader<ChildStdout>>)> {
        Self::start(&["demo-host", name, "--store", endpoint])
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    /// What it said on stderr.
    pub(crate) async fn complaint(&mut self) -> String {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            // Whatever could be read is better than nothing.
            let _ = stderr.read_to_string(&mut said).await;
        }
        said.trim().to_owned()
    }

    /// Ends it by SIGKILL, in the middle of whatever it does.
    pub(crate) async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to stop and waits for it; one that takes too long is killed.
    pub(crate) async fn stop(mut self, runtime: &dyn Runtime) -> Result<()> {
        drop(self.stdin.take());
        let ended = tokio::select! {
            biased;
            ended = self.child.wait() => Some(ended?),
            () = runtime.sleep(std::time::Duration::from_secs(20)) => None,
        };
        match ended {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("a process ended with {status}: {}", self.complaint().await).into()),
            None => Err("a process does not stop: it is killed".into()),
        }
    }
}
