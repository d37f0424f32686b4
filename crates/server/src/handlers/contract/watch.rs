//! Wake-ups by long polling: a client registers the ranges it follows, and one long request returns those that may have
//! changes. One such request serves all ranges of all containers of a client.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_protocol::{Wait, WatchCall, WatchReply};
use futures_util::{
    StreamExt as _,
    future::{AbortHandle, Aborted, BoxFuture, abortable},
    stream::FuturesUnordered,
};
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
    time::Instant,
};

use super::address;
use crate::{
    containers::{container_cache::ContainerCache, handle::ContainerHandle},
    net::timeouts::within,
};

/// The length of a poll without changes: shorter than the idle timeouts of common proxies.
const POLL: Duration = Duration::from_secs(25);

/// A watch is dropped if its client has not called for this long.
const IDLE: Duration = Duration::from_secs(60);

/// The most watches: as many as connections.
const MAX_WATCHES: usize = 4096;

/// The most waits of a watch: more than the leases of any host.
const MAX_WAITS: usize = 100_000;

/// The queue of a watch's task. The task only adds futures, so calls rarely wait.
const QUEUE: usize = 16;

/// All watches of the server.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Mutex<BTreeMap<u64, Arc<Watch>>>,
    closed: AtomicBool,
}

/// The waits of one client.
#[derive(Debug)]
struct Watch {
    commands: mpsc::Sender<Command>,
    fired: Mutex<Vec<u64>>,
    news: Notify,
    /// The number of running calls.
    calls: AtomicUsize,
    last_call: Mutex<Instant>,
    /// Aborted when the watch is dropped.
    _task: JoinSet<()>,
}

#[derive(Debug)]
struct Command {
    add: Vec<(u64, Arc<ContainerHandle>, Wait)>,
    cancel: Vec<u64>,
}

impl Watches {
    /// Carries out a call of a client.
    pub(crate) async fn call(&self, containers: &ContainerCache, call: WatchCall) -> Result<WatchReply> {
        let watch = self.find(call.watch, call.begin)?;
        let _under_way = UnderWay::new(&watch);
        if call.add.len() > MAX_WAITS {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("a watch has at most {MAX_WAITS} waits")));
        }
        let mut add = Vec::with_capacity(call.add.len());
        let mut gone = Vec::new();
        for wait in call.add {
            match address::open(containers, (&wait.database, &wait.container), &wait.address).await {
                Ok(handle) => add.push((wait.id, handle, wait)),
                // The reader that waits learns why from its next read.
                Err(_) => gone.push(wait.id),
            }
        }
        if !add.is_empty() || !call.cancel.is_empty() {
            let command = Command { add, cancel: call.cancel };
            watch.commands.send(command).await.map_err(|_| Error::new(ErrorKind::Closed, "the server stops"))?;
        }
        if !gone.is_empty() {
            watch.fire(gone);
        }
        if call.poll {
            within(POLL, self.news(&watch)).await;
        }
        let fired = if call.poll { std::mem::take(&mut *watch.fired.lock()) } else { Vec::new() };
        Ok(WatchReply { fired })
    }

    /// Ends all polls, current and future: a server that stops does not wait for them.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.watches.lock().values().for_each(|watch| watch.news.notify_waiters());
    }

    async fn news(&self, watch: &Watch) {
        loop {
            let news = watch.news.notified();
            let mut news = std::pin::pin!(news);
            // From here on no notification is missed.
            news.as_mut().enable();
            if self.closed.load(Ordering::Acquire) || !watch.fired.lock().is_empty() {
                return;
            }
            news.await;
        }
    }

    fn find(&self, id: u64, begin: bool) -> Result<Arc<Watch>> {
        let mut watches = self.watches.lock();
        if begin {
            watches.retain(|_, watch| watch.is_used());
            if watches.len() >= MAX_WATCHES {
                return Err(Error::new(
                    ErrorKind::Throttled,
                    format!("{MAX_WATCHES} clients wait for changes already"),
                ));
            }
            let watch = Watch::new();
            watches.insert(id, Arc::clone(&watch));
            return Ok(watch);
        }
        watches
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::new(ErrorKind::InvalidArgument, "this server does not know the watch: begin another"))
    }
}

impl Watch {
    fn new() -> Arc<Self> {
        let (commands, received) = mpsc::channel(QUEUE);
        Arc::new_cyclic(|watch: &std::sync::Weak<Self>| {
            let mut task = JoinSet::new();
            let watch = watch.clone();
            task.spawn(run(received, move |id| {
                if let Some(watch) = watch.upgrade() {
                    watch.fire([id]);
                }
            }));
            Self {
                commands,
                fired: Mutex::new(Vec::new()),
                news: Notify::new(),
                calls: AtomicUsize::new(0),
                last_call: Mutex::new(Instant::now()),
                _task: task,
            }
        })
    }

    fn fire(&self, ids: impl IntoIterator<Item = u64>) {
        self.fired.lock().extend(ids);
        self.news.notify_waiters();
    }

    fn is_used(&self) -> bool {
        self.calls.load(Ordering::Acquire) > 0 || self.last_call.lock().elapsed() < IDLE
    }
}

/// Counts a call for as long as it lives, also if its client goes away.
struct UnderWay<'a>(&'a Watch);

impl<'a> UnderWay<'a> {
    fn new(watch: &'a Watch) -> Self {
        watch.calls.fetch_add(1, Ordering::AcqRel);
        Self(watch)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        *self.0.last_call.lock() = Instant::now();
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The task of a watch: waits for news of all its ranges.
async fn run(mut commands: mpsc::Receiver<Command>, fire: impl Fn(u64)) {
    let mut waits: FuturesUnordered<BoxFuture<'static, Result<u64, Aborted>>> = FuturesUnordered::new();
    let mut handles: BTreeMap<u64, AbortHandle> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => {
                let Some(Command { add, cancel }) = command else { return };
                for id in cancel {
                    if let Some(handle) = handles.remove(&id) {
                        handle.abort();
                    }
                }
                for (id, handle, wait) in add {
                    // More than a watch may have: woken at once, these readers poll.
                    if handles.len() >= MAX_WAITS {
                        fire(id);
                        continue;
                    }
                    let (wait, handle) = abortable(async move {
                        handle.store().changed(&wait.range, &wait.continuation).await;
                        id
                    });
                    waits.push(Box::pin(wait));
                    handles.insert(id, handle);
                }
            }
            Some(done) = waits.next(), if !waits.is_empty() => {
                if let Ok(id) = done {
                    handles.remove(&id);
                    fire(id);
                }
            }
        }
    }
}
