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
use changefeed_protocol::{Wait, WatchCall, WatchId, WatchReply};
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

/// The length of a poll without changes: shorter than the idle timeouts of common proxies. Clients ask for shorter ones
/// behind proxies that allow less.
const POLL: Duration = Duration::from_secs(25);

/// The shortest poll that a client can ask for.
const SHORTEST_POLL: Duration = Duration::from_secs(1);

/// A watch is dropped if its client has not called for this long.
const IDLE: Duration = Duration::from_secs(60);

/// The most watches, one for each client: as many as connections.
const MAX_WATCHES: usize = 4096;

/// The most waits of a watch: more than the leases of any host. Clients send them in several requests, since the body of
/// one has its limit, too.
const MAX_WAITS: usize = 100_000;

/// The queue of a watch's task. The task only adds futures, so calls rarely wait.
const QUEUE: usize = 16;

/// All watches of the server: one for each client, the one that it began last.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    watches: Mutex<BTreeMap<u32, (u32, Arc<Watch>)>>,
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
    /// Carries out a call of a client; a poll takes no longer than the header `prefer` says.
    pub(crate) async fn call(
        &self,
        containers: &ContainerCache,
        call: WatchCall,
        prefer: Option<&str>,
    ) -> Result<WatchReply> {
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
            within(poll_length(prefer), self.news(&watch)).await;
        }
        let fired = if call.poll { std::mem::take(&mut *watch.fired.lock()) } else { Vec::new() };
        Ok(WatchReply { fired })
    }

    /// Ends all polls, current and future: a server that stops does not wait for them.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.watches.lock().values().for_each(|(_, watch)| watch.news.notify_waiters());
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

    /// Finds the watch of a call. One that begins replaces the client's watch before; a call about an earlier one, which
    /// was delayed on its way, is refused: it would take wake-ups that its client no longer waits for.
    fn find(&self, WatchId { client, number }: WatchId, begin: bool) -> Result<Arc<Watch>> {
        let mut watches = self.watches.lock();
        let unknown = || Error::new(ErrorKind::InvalidArgument, "this server does not know the watch: begin another");
        if !begin {
            let (newest, watch) = watches.get(&client).ok_or_else(unknown)?;
            return if *newest == number { Ok(Arc::clone(watch)) } else { Err(unknown()) };
        }
        match watches.get(&client) {
            Some((newest, _)) if *newest > number => return Err(unknown()),
            Some(_) => {}
            None => {
                watches.retain(|_, (_, watch)| watch.is_used());
                if watches.len() >= MAX_WATCHES {
                    let message = format!("{MAX_WATCHES} clients wait for changes already");
                    return Err(Error::new(ErrorKind::Throttled, message));
                }
            }
        }
        let watch = Watch::new();
        watches.insert(client, (number, Arc::clone(&watch)));
        Ok(watch)
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

/// The length of a poll whose request has this header: RFC 7240 has `wait=SECONDS`. Whatever else it says is ignored.
fn poll_length(prefer: Option<&str>) -> Duration {
    let wait = prefer.into_iter().flat_map(|text| text.split(',')).find_map(|part| part.trim().strip_prefix("wait="));
    let seconds = wait.and_then(|seconds| seconds.parse().ok());
    seconds.map_or(POLL, |seconds| Duration::from_secs(seconds).clamp(SHORTEST_POLL, POLL))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_can_ask_for_shorter_polls_only() {
        let seconds = |prefer| poll_length(prefer).as_secs();
        assert_eq!(seconds(None), 25);
        assert_eq!([seconds(Some("wait=7")), seconds(Some("return=minimal, wait=9"))], [7, 9]);
        assert_eq!([seconds(Some("wait=0")), seconds(Some("wait=99")), seconds(Some("wait=-1"))], [1, 25, 25]);
    }

    #[tokio::test]
    async fn a_client_has_one_watch_and_no_call_reaches_an_earlier_one() {
        let watches = Watches::default();
        let begin = |client, number| watches.find(WatchId { client, number }, true);
        let first = begin(1, 1).unwrap();
        for number in 2..10_000 {
            begin(1, number).unwrap();
        }
        assert_eq!(watches.watches.lock().len(), 1);
        assert!(!Arc::ptr_eq(&first, &watches.find(WatchId { client: 1, number: 9999 }, false).unwrap()));
        // Calls that were delayed on their way.
        assert!(watches.find(WatchId { client: 1, number: 1 }, false).is_err());
        assert_eq!(begin(1, 1).unwrap_err().kind(), ErrorKind::InvalidArgument);
        for client in 2..=u32::try_from(MAX_WATCHES).unwrap() {
            begin(client, 1).unwrap();
        }
        assert_eq!(begin(0, 1).unwrap_err().kind(), ErrorKind::Throttled);
        begin(1, 10_000).unwrap();
    }
}
