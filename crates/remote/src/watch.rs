//! Wake-ups: one long request to the server for all readers that wait, in whatever container.
//!
//! A task runs while readers wait. It sends what is waited for, and asks again and again which of it may have news.
//! When the connection is lost it begins again with everything that is still waited for. Callers may poll
//! rarely, since they are woken: for as long as that is not possible, readers are woken every few seconds without news.

use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_protocol::{Target, Wait, WatchCall, WatchReply, encode};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, oneshot, watch as channel},
    task::JoinSet,
};

use crate::{backoff::pause_after, timer::pause, transport::Transport};

/// How long a poll may take: more than the 25 s after which the server answers without news.
const POLL: Duration = Duration::from_secs(40);

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
        Self { transport, readers: Arc::default(), task: Mutex::new(JoinSet::new()) }
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
    state: Mutex<State>,
    /// Notified when there is something to send.
    added: Notify,
    /// Whether the server wakes readers, as far as this is known.
    connected: channel::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, (Wait, oneshot::Sender<()>)>,
    /// To be sent.
    add: Vec<u64>,
    cancel: Vec<u64>,
    /// The server has no such call: readers poll, and are not sent.
    unsupported: bool,
}

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

    /// Everything that is waited for, for a watch that begins; none if no reader waits.
    fn all(&self) -> Option<Vec<Wait>> {
        let mut state = self.state.lock();
        (state.add, state.cancel) = (Vec::new(), Vec::new());
        let all: Vec<_> = state.waiting.values().map(|(wait, _)| wait.clone()).collect();
        (!all.is_empty()).then_some(all)
    }

    /// What was added and withdrawn since it was last asked.
    fn changes(&self) -> (Vec<Wait>, Vec<u64>) {
        let mut state = self.state.lock();
        let add = mem::take(&mut state.add);
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
    let mut failures = 0;
    loop {
        let Some(add) = readers.all() else {
            readers.added.notified().await;
            continue;
        };
        let ended = watch(&transport, &readers, add, &mut failures).await;
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
                tracing::debug!(%error, failures, "wake-ups are interrupted");
                pause(pause_after(failures, error.retry_after(), fastrand::f64())).await;
            }
        }
    }
}

/// One watch, until no reader waits any more or it fails. A poll that is answered ends a row of failures.
async fn watch(transport: &Transport, readers: &Readers, add: Vec<Wait>, failures: &mut u32) -> Result<()> {
    let watch = fastrand::u64(..);
    let call = async |begin, (add, cancel), poll| -> Result<WatchReply, Error> {
        let limit = if poll { POLL } else { transport.timeout };
        let body = encode(&WatchCall { watch, begin, add, cancel, poll });
        transport.call_once(&Target::Watch, body, limit).await
    };
    call(true, (add, Vec::new()), false).await?;
    // After a failure only the answer to a poll proves that the way is open for long requests, too.
    if *failures == 0 {
        readers.set_connected(true);
    }
    loop {
        // What came since the last call travels with the poll.
        let mut poll = std::pin::pin!(call(false, readers.changes(), true));
        let reply = loop {
            tokio::select! {
                biased;
                reply = poll.as_mut() => break reply?,
                () = readers.added.notified() => {
                    if !readers.has_additions() {
                        continue;
                    }
                }
            }
            // The poll goes on while further readers are sent; those that come meanwhile are sent together.
            let mut sent = std::pin::pin!(call(false, readers.changes(), false));
            let early = tokio::select! {
                biased;
                reply = poll.as_mut() => Some(reply?),
                sent = sent.as_mut() => {
                    sent?;
                    None
                }
            };
            if let Some(reply) = early {
                readers.wake(&reply.fired);
                sent.await?;
                break WatchReply { fired: Vec::new() };
            }
        };
        *failures = 0;
        readers.set_connected(true);
        readers.wake(&reply.fired);
        if readers.is_empty() {
            return Ok(());
        }
    }
}
