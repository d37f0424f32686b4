//! The guard of `run --exec`: a process that kills commands whose host was killed. It learns of each process group that
//! begins and ends through its stdin, which ends with the host.

use std::{
    collections::BTreeSet,
    io::{self, BufRead as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::{
    config,
    exit::{Exit, Result},
};

/// The host's end.
#[derive(Debug)]
pub(super) struct ExecGuard {
    child: Child,
    stdin: Mutex<Option<ChildStdin>>,
}

impl ExecGuard {
    /// Starts the guard. It has a process group of its own: what ends the host's must not end it.
    pub(super) fn start() -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| format!("find this program: {error}"))?;
        let mut command = Command::new(program);
        command
            .arg("exec-guard")
            .env(config::VARIABLE, "")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = command.spawn().map_err(|error| format!("start the guard of --exec: {error}"))?;
        let stdin = Mutex::new(child.stdin.take());
        Ok(Self { child, stdin })
    }

    pub(super) fn begun(&self, group: Pid) {
        self.tell('+', group);
    }

    pub(super) fn ended(&self, group: Pid) {
        self.tell('-', group);
    }

    fn tell(&self, sign: char, group: Pid) {
        let line = format!("{sign}{}\n", group.as_raw_nonzero());
        if let Some(stdin) = &mut *self.stdin.lock().unwrap_or_else(PoisonError::into_inner)
            && let Err(error) = stdin.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "the guard of --exec has gone: commands outlive this host if it is killed");
        }
    }
}

impl Drop for ExecGuard {
    fn drop(&mut self) {
        drop(self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take());
        // It has nothing left to do and ends at once.
        drop(self.child.wait());
    }
}

/// `changefeed exec-guard`: the process itself.
pub(crate) fn run() -> Result<Exit> {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        match line.split_at_checked(1).and_then(|(sign, number)| Some((sign, Pid::from_raw(number.parse().ok()?)?))) {
            Some(("+", group)) => drop(groups.insert(group.as_raw_nonzero())),
            Some(("-", group)) => drop(groups.remove(&group.as_raw_nonzero())),
            // Half a line: the host was killed while it wrote.
            _ => {}
        }
    }
    for group in groups.into_iter().filter_map(|group| Pid::from_raw(group.get())) {
        // One that has ended meanwhile needs nothing.
        let _ = kill_process_group(group, Signal::KILL);
    }
    Ok(Exit::Good)
}
