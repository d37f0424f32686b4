//! `run --exec`: a command for each batch, with the changes on its stdin.

use std::{collections::BTreeMap, io, process::Stdio, time::Duration};

use changefeed::{BatchResult, Context, DelegateError, ItemResult, RawChanges};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{ChildStdin, ChildStdout, Command},
};

use super::{exec_guard::ExecGuard, stderr_tail::StderrTail};
use crate::{
    change_line::{Form, lines},
    clock::within,
};

/// A command says at most so much about one batch: a page of changes holds no more.
const MOST_RESULTS: u64 = 16 << 20;

/// A command, and whether its output is read.
#[derive(Debug)]
pub(super) struct Exec {
    command: String,
    reads_results: bool,
    /// How long it may take. The end of its stderr is part of the error then, which a timeout of the processor would not know.
    timeout: Option<Duration>,
    processor: String,
    guard: ExecGuard,
}

impl Exec {
    pub(super) fn new(
        command: &str,
        reads_results: bool,
        timeout: Option<Duration>,
        processor: &str,
    ) -> crate::exit::Result<Self> {
        let (command, processor) = (command.to_owned(), processor.to_owned());
        Ok(Self { command, reads_results, timeout, processor, guard: ExecGuard::start()? })
    }

    /// Runs the command on a batch. When this is dropped, or the host is killed, all processes of the command are killed.
    pub(super) async fn call(&self, changes: &RawChanges, context: &Context) -> Result<BatchResult, DelegateError> {
        let input = lines(changes, Form::Json, Some(context.lease().as_str()))?;
        let mut child = Command::new("sh")
            .arg("-c")
            .arg(&self.command)
            .env_remove("CHANGEFEED_KEY")
            .env("CHANGEFEED_PROCESSOR", &self.processor)
            .env("CHANGEFEED_INSTANCE", context.instance())
            .env("CHANGEFEED_LEASE", context.lease().as_str())
            .env("CHANGEFEED_ATTEMPT", context.attempt().to_string())
            .stdin(Stdio::piped())
            .stdout(if self.reads_results { Stdio::piped() } else { Stdio::inherit() })
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| DelegateError::new(format!("start `sh -c {:?}`: {error}", self.command)))?;
        let group = Group::of(child.id(), &self.guard);
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stderr = child.stderr.take().map(StderrTail::of);
        let work = async { tokio::join!(feed(stdin, input.as_bytes()), results(stdout), child.wait()) };
        let ended = match self.timeout {
            Some(limit) => within(limit, work).await,
            None => Some(work.await),
        };
        match ended {
            Some(_) => group.has_ended(),
            None => drop(group),
        }
        let stderr = match stderr {
            Some(stderr) => stderr.line().await,
            None => String::new(),
        };
        let why = if stderr.is_empty() { stderr } else { format!(": {stderr}") };
        let Some((written, said, status)) = ended else {
            let limit = humantime::format_duration(self.timeout.unwrap_or_default());
            return Err(DelegateError::new(format!("the command did not end within {limit}{why}")));
        };
        let status = status?;
        if !status.success() {
            return Err(DelegateError::new(format!("the command ended with {status}{why}")));
        }
        written.map_err(|error| DelegateError::new(format!("write to the command: {error}")))?;
        match said? {
            Some(text) => each(changes, &text),
            None => Ok(BatchResult::Done),
        }
    }
}

/// Writes the batch. A command need not read all of it.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    match stdin.write_all(input).await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

async fn results(stdout: Option<ChildStdout>) -> Result<Option<String>, DelegateError> {
    let Some(stdout) = stdout else { return Ok(None) };
    let mut bytes = Vec::new();
    stdout.take(MOST_RESULTS + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > MOST_RESULTS {
        return Err(DelegateError::new("the command printed more than 16 MiB of results"));
    }
    let text = String::from_utf8(bytes).map_err(|_| DelegateError::new("the command's results are not UTF-8"))?;
    Ok(Some(text))
}

/// What a command says about one change.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    change_id: String,
    result: Word,
    after: Option<String>,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Done,
    Skip,
    Retry,
    DeadLetter,
}

/// The result of each change. Those that are not mentioned are done.
fn each(changes: &RawChanges, text: &str) -> Result<BatchResult, DelegateError> {
    let places: BTreeMap<String, usize> =
        changes.with_info().enumerate().map(|(place, (_, info))| (info.change_id(), place)).collect();
    let mut results = vec![ItemResult::Done; changes.len()];
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let said: Said = serde_json::from_str(line).map_err(|error| {
            DelegateError::new(format!("with --results each line of stdout must be a result, but {line:?}: {error}"))
        })?;
        let result = places.get(&said.change_id).and_then(|place| results.get_mut(*place)).ok_or_else(|| {
            DelegateError::new(format!("the command gave a result for {:?}, which is not in the batch", said.change_id))
        })?;
        *result = said.into_result()?;
    }
    Ok(BatchResult::Each(results))
}

impl Said {
    fn into_result(self) -> Result<ItemResult, DelegateError> {
        Ok(match self.result {
            Word::Done => ItemResult::Done,
            Word::Skip => ItemResult::Skip,
            Word::Retry => {
                let after = self.after.as_deref().unwrap_or("1s");
                let after = humantime::parse_duration(after)
                    .map_err(|error| DelegateError::new(format!("\"after\": {after:?}: {error}")))?;
                ItemResult::Retry { after }
            }
            Word::DeadLetter => ItemResult::DeadLetter {
                reason: self.reason.unwrap_or_else(|| "the command gave no reason".to_owned()),
            },
        })
    }
}

/// The processes of a command, killed when this is dropped before they have ended.
struct Group<'a> {
    id: Option<Pid>,
    guard: &'a ExecGuard,
    ended: bool,
}

impl<'a> Group<'a> {
    fn of(leader: Option<u32>, guard: &'a ExecGuard) -> Self {
        let id = leader.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        id.into_iter().for_each(|id| guard.begun(id));
        Self { id, guard, ended: false }
    }

    fn has_ended(mut self) {
        self.ended = true;
    }
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        let Some(group) = self.id else { return };
        if !self.ended {
            // If it has ended meanwhile there is nobody to kill.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.guard.ended(group);
    }
}
