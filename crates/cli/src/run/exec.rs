//! `run --exec`: a command for each batch, with the changes on its stdin.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use changefeed::{BatchResult, Context, DelegateError, ItemResult, RawChanges};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use super::{exec_guard::ExecGuard, pipe::read_rest, stderr_tail::StderrTail, trace_context::TraceContext};
use crate::{
    change_line::{Form, lines},
    clock::within,
    redact::redacted,
};

/// A command says at most so much about one batch: a page of changes holds no more.
const MOST_RESULTS: usize = 16 << 20;

/// Becomes the command when a line comes on stdin, and never if the host is killed before the guard knows of it: stdin ends
/// then. A shell reads no further than that line.
const WHEN_TOLD: &str = r#"read -r told && exec sh -c "$1""#;

/// The variables with the trace context of a batch, as OpenTelemetry names them.
const TRACEPARENT: &str = "TRACEPARENT";
const TRACESTATE: &str = "TRACESTATE";

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
        let mut command = Command::new("sh");
        for name in secrets() {
            command.env_remove(name);
        }
        // Those of this process are of another trace.
        command.env_remove(TRACEPARENT).env_remove(TRACESTATE);
        if let Some(TraceContext { parent, state }) = TraceContext::of(changes) {
            command.env(TRACEPARENT, parent).envs(state.map(|state| (TRACESTATE, state)));
        }
        let mut child = command
            .args(["-c", WHEN_TOLD, "sh"])
            .arg(&self.command)
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
        let stdin = child.stdin.take();
        let stderr = child.stderr.take().map(StderrTail::of);
        let work = exchange(&mut child, stdin, input.as_bytes());
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
        let Some(Ended { written, said, status }) = ended else {
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

/// The variables of this process that may hold a secret, or the name of a file with secrets for others than the command.
fn secrets() -> Vec<OsString> {
    let is_secret = |name: &str, value: Option<&str>| {
        matches!(name, "CHANGEFEED_KEY" | "CHANGEFEED_WEBHOOK_SECRET_FILE")
            || name.starts_with("CHANGEFEED_") && value.is_none_or(|value| redacted(value) != value)
    };
    let all = std::env::vars_os();
    all.filter(|(name, value)| name.to_str().is_some_and(|name| is_secret(name, value.to_str())))
        .map(|(name, _)| name)
        .collect()
}

/// How a command has ended.
struct Ended {
    written: io::Result<()>,
    /// Its results; none if they are not wanted.
    said: Result<Option<String>, DelegateError>,
    status: io::Result<ExitStatus>,
}

/// Gives a command its batch, reads its results and waits for its end. A process that it leaves behind may keep its stdin
/// and stdout: neither is waited for then.
async fn exchange(child: &mut Child, stdin: Option<ChildStdin>, input: &[u8]) -> Ended {
    let stdout = child.stdout.take();
    let (mut feed, mut ended) = (pin!(feed(stdin, input)), pin!(results_and_end(child, stdout)));
    let mut written = None;
    loop {
        tokio::select! {
            biased;
            result = feed.as_mut(), if written.is_none() => written = Some(result),
            (said, status) = ended.as_mut() => return Ended { written: written.unwrap_or(Ok(())), said, status },
        }
    }
}

/// What a command prints until it ends, and how it ends.
async fn results_and_end(
    child: &mut Child,
    stdout: Option<ChildStdout>,
) -> (Result<Option<String>, DelegateError>, io::Result<ExitStatus>) {
    let Some(mut stdout) = stdout else { return (Ok(None), child.wait().await) };
    let mut bytes = Vec::new();
    let status = loop {
        tokio::select! {
            biased;
            read = stdout.read_buf(&mut bytes) => match read {
                Ok(0) => break child.wait().await,
                Ok(_) if bytes.len() <= MOST_RESULTS => {}
                Ok(_) => {
                    // It must not wait for somebody to read the rest.
                    drop(stdout);
                    let status = child.wait().await;
                    return (Err(DelegateError::new("the command printed more than 16 MiB of results")), status);
                }
                Err(error) => return (Err(error.into()), child.wait().await),
            },
            status = child.wait() => {
                if let Err(error) = read_rest(&stdout, &mut bytes, MOST_RESULTS) {
                    return (Err(error.into()), status);
                }
                break status;
            }
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| DelegateError::new("the command's results are not UTF-8"));
    (text.map(Some), status)
}

/// Starts the command and writes the batch. A command need not read all of it.
async fn feed(stdin: Option<ChildStdin>, input: &[u8]) -> io::Result<()> {
    let Some(mut stdin) = stdin else { return Ok(()) };
    stdin.write_all(b"\n").await?;
    match stdin.write_all(input).await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
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

#[cfg(test)]
mod tests {
    use std::{io::Write as _, process};

    use super::*;

    #[test]
    fn a_command_begins_when_it_is_told_to_and_not_at_the_end_of_a_host() {
        let said = |input: &[u8]| {
            let mut command = process::Command::new("sh");
            command.args(["-c", WHEN_TOLD, "sh", "echo \"$0: $(cat)\"; exit 7"]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(input).unwrap();
            let output = child.wait_with_output().unwrap();
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(said(b"\n{\"id\":1}\n"), (Some(7), "sh: {\"id\":1}\n".to_owned()));
        assert_eq!(said(b"").1, "", "killed before the guard knew");
    }
}
