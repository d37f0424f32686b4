//! Wake-ups: one long request to the server for all readers that wait, in whatever container.
//!
//! A task runs while readers wait. It sends what is waited for, and asks again and again which of it may have news.
//! When the connection is lost it begins another watch with everything that is still waited for, which replaces the one
//! before on the server. Callers may poll
//! rarely, since they are woken: for as long as that is not possible, readers are woken every few seconds without news.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use changefeed_core::{ErrorKind, Result};
use changefeed_protocol::{Target, Wait, WatchCall, WatchId, WatchReply, encode};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch as channel},
    task::JoinSet,
};

use crate::{
    backoff::pause_after,
    poll_length::PollLength,
    timer::{instant, pause, within},
    transport::Transport,
};

/// How much later than it should the answer to a poll may come.
const LATE: Duration = Duration::from_secs(15);

/// How long a watch without readers is kept: those that read a page come back at once. Less than the minute after which
/// the server may forget a watch.
const KEPT: Duration = Duration::from_secs(30);

/// How many waits a request holds: far below the 4 MiB that the server accepts, also with the longest names.
const WAITS: usize = 1000;

/// How often the log says that the server has too many clients.
const WARN_AGAIN: Duration = Duration::from_secs(60);

/// How long after a server said that it has no wake-ups it is asked again: it may have been replaced by a newer one.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// How long readers wait without news while the server does not wake them.
const WITHOUT_WAKE_UPS: Duration = Duration::from_secs(5);

/// Wakes readers.
#[derive(Debug)]
pub(crate) struct Watcher {
    transport: Arc<Transport>,
    readers: Arc<Readers>,
    task: Mutex<JoinSet<()>>,
}

impl Watcher {
    pub(crate) fn new(transport: Arc<Transport>) -> Self {
        let readers = Arc::new(Readers { client: fastrand::u32(..), ..Readers::default() });
        Self { transport, readers, task: Mutex::new(JoinSet::new()) }
    }

    /// Returns when there may be news for `wait`; after a few seconds if the server does not tell.
    pub(crate) async fn wait(&self, wait: Wait) {
        let (reader, news) = self.readers.add(wait);
        self.ensure_task();
        let news = async {
            if news.await.is_err() {
                // The server has no wake-ups.
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = news => {}
            () = self.readers.interrupted() => {}
        }
        drop(reader);
    }

    fn ensure_task(&self) {
        let mut task = self.task.lock();
        while task.try_join_next().is_some() {}
        if task.is_empty() {
            task.spawn(run(Arc::clone(&self.transport), Arc::clone(&self.readers)));
        }
    }
}

/// All waiting readers.
#[derive(Debug, Default)]
struct Readers {
    /// Tells this client from the other clients of the server.
    client: u32,
    state: Mutex<State>,
    /// Notified when there is something to send.
    added: Notify,
    /// Whether the server wakes readers, as far as this is known.
    connected: channel::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// How many watches have begun.
    watches: u32,
    waiting: BTreeMap<u64, (Wait, oneshot::Sender<()>)>,
    /// To be sent.
    add: Vec<u64>,
    cancel: Vec<u64>,
    /// The server has no such call: readers poll, and are not sent.
    unsupported: bool,
}

/// Waits that were added, and ids of those that were withdrawn.
type Changes = (Vec<Wait>, Vec<u64>);

/// One that waits; withdrawn when dropped.
struct Reader<'a> {
    readers: &'a Readers,
    id: u64,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.state.lock();
        // One that was woken is not waited for on the server either.
        if state.waiting.remove(&self.id).is_some() {
            state.cancel.push(self.id);
        }
    }
}

impl Readers {
    fn add(&self, mut wait: Wait) -> (Reader<'_>, oneshot::Receiver<()>) {
        let (wake, news) = oneshot::channel();
        let mut state = self.state.lock();
        let id = state.next;
        (wait.id, state.next) = (id, id + 1);
        if !state.unsupported {
            state.waiting.insert(id, (wait, wake));
            state.add.push(id);
            self.added.notify_one();
        }
        (Reader { readers: self, id }, news)
    }

    /// Names a watch that begins, to which everything that is waited for is to be sent; none if no reader waits.
    fn begin(&self) -> Option<WatchId> {
        let mut state = self.state.lock();
        (state.add, state.cancel) = (state.waiting.keys().copied().collect(), Vec::new());
        if state.add.is_empty() {
            return None;
        }
        state.watches = state.watches.wrapping_add(1);
        Some(WatchId { client: self.client, number: state.watches })
    }

    /// What was added and withdrawn since it was last asked, as far as a request holds it.
    fn changes(&self) -> Changes {
        let mut state = self.state.lock();
        let rest = state.add.len().min(WAITS);
        let rest = state.add.split_off(rest);
        let add = mem::replace(&mut state.add, rest);
        let add = add.iter().filter_map(|id| state.waiting.get(id).map(|(wait, _)| wait.clone())).collect();
        (add, mem::take(&mut state.cancel))
    }

    fn has_additions(&self) -> bool {
        !self.state.lock().add.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.state.lock().waiting.is_empty()
    }

    fn wake(&self, fired: &[u64]) {
        let mut state = self.state.lock();
        for id in fired {
            if let Some((_, wake)) = state.waiting.remove(id) {
                // A reader that has gone needs no news.
                let _ = wake.send(());
            }
        }
    }

    fn set_connected(&self, connected: bool) {
        self.connected.send_if_modified(|before| mem::replace(before, connected) != connected);
    }

    /// Returns when wake-ups have been interrupted for a few seconds.
    async fn interrupted(&self) {
        let mut connected = self.connected.subscribe();
        loop {
            // The sender is part of `self`, so that waiting for it never fails.
            let _ = connected.wait_for(|connected| !connected).await;
            tokio::select! {
                biased;
                _ = connected.wait_for(|connected| *connected) => {}
                () = pause(WITHOUT_WAKE_UPS) => return,
            }
        }
    }

    fn set_unsupported(&self, unsupported: bool) {
        let mut state = self.state.lock();
        state.unsupported = unsupported;
        state.waiting.clear();
    }
}

/// The task: one watch after the other, for as long as readers wait.
async fn run(transport: Arc<Transport>, readers: Arc<Readers>) {
    let (mut failures, mut length) = (0, PollLength::default());
    let mut warned: Option<tokio::time::Instant> = None;
    loop {
        let Some(watch) = readers.begin() else {
            readers.added.notified().await;
            continue;
        };
        let watch = Watch { transport: &transport, readers: &readers, watch };
        let ended = watch.run(&mut failures, &mut length).await;
        readers.set_connected(false);
        match ended {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                tracing::warn!(%error, "no wake-ups: changes are found by polling");
                readers.set_unsupported(true);
                pause(ASK_AGAIN).await;
                readers.set_unsupported(false);
            }
            Err(error) => {
                failures += 1;
                if error.kind() == ErrorKind::Throttled && warned.is_none_or(|at| at.elapsed() >= WARN_AGAIN) {
                    warned = Some(instant());
                    tracing::warn!(%error, "the server refuses wake-ups: changes are found by polling meanwhile");
                }
                tracing::debug!(%error, failures, "wake-ups are interrupted");
                pause(pause_after(failures, error.retry_after(), fastrand::f64())).await;
            }
        }
    }
}

/// One watch.
struct Watch<'a> {
    transport: &'a Transport,
    readers: &'a Readers,
    watch: WatchId,
}

impl Watch<'_> {
    /// Runs until no reader has waited for a while or a call fails. A poll that is answered ends a row of failures.
    async fn run(&self, failures: &mut u32, length: &mut PollLength) -> Result<()> {
        self.send(true, self.readers.changes()).await?;
        // After a failure only the answer to a poll proves that the way is open for long requests, too.
        if *failures == 0 {
            self.readers.set_connected(true);
        }
        loop {
            let mut poll = std::pin::pin!(self.poll(self.readers.changes(), length));
            let reply = loop {
                if !self.readers.has_additions() {
                    tokio::select! {
                        biased;
                        reply = poll.as_mut() => break reply?,
                        () = self.readers.added.notified() => continue,
                    }
                }
                // The poll goes on while further readers are sent; those that come meanwhile are sent together.
                let mut sent = std::pin::pin!(self.send(false, self.readers.changes()));
                let early = tokio::select! {
                    biased;
                    reply = poll.as_mut() => Some(reply?),
                    sent = sent.as_mut() => {
                        sent?;
                        None
                    }
                };
                if let Some(reply) = early {
                    self.readers.wake(&reply.fired);
                    sent.await?;
                    break WatchReply { fired: Vec::new() };
                }
            };
            *failures = 0;
            self.readers.set_connected(true);
            self.readers.wake(&reply.fired);
            while self.readers.is_empty() {
                if within(KEPT, self.readers.added.notified()).await.is_none() {
                    return Ok(());
                }
            }
        }
    }

    /// Sends what has changed.
    async fn send(&self, begin: bool, (add, cancel): Changes) -> Result<()> {
        let call = WatchCall { watch: self.watch, begin, add, cancel, poll: false };
        let body = encode(&call);
        let limits = self.transport.limits(body.len());
        self.transport.call_once::<WatchReply>(&Target::Watch, body, limits, None).await.map(drop)
    }

    /// Asks what has news. What has changed since the last call travels along.
    async fn poll(&self, (add, cancel): Changes, length: &mut PollLength) -> Result<WatchReply> {
        let body = encode(&WatchCall { watch: self.watch, begin: false, add, cancel, poll: true });
        let (wait, began) = (length.get(), instant());
        let limits = self.transport.limits(body.len()).later(wait + LATE);
        let reply = self.transport.call_once(&Target::Watch, body, limits, Some(wait)).await;
        match &reply {
            Ok(_) => length.answered(began.elapsed()),
            Err(error) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout) => {
                length.failed(began.elapsed());
            }
            Err(_) => {}
        }
        reply
    }
}
