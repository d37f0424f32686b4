//! One lease from its taking to its end on this host: where it begins, who works on it, what follows it.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, FeedRange, StartFrom};
use tokio::sync::mpsc;

use crate::{
    deliver::told,
    host::{Report, Shared},
    lease::{
        document::{Anchor, LeaseDocument},
        keeper::{Ending, KeeperHandle},
        ownership::Loss,
        prefix::LeaseToken,
    },
    notification::{Failure, Notification, Release},
    succession::{self, Succeeded},
    suspicion::Suspicion,
    worker::{Exit, Orders, Worker, resume},
};

/// Works on one lease until it ends.
pub(crate) async fn work(
    shared: Arc<Shared>,
    document: Box<LeaseDocument>,
    keeper: KeeperHandle,
    orders: Orders,
    reports: mpsc::UnboundedSender<Report>,
) {
    let token = document.token.clone();
    shared.notifier.notify(Notification::LeaseAcquired(token.clone()));
    let mut stopping = orders.stopping.clone();
    let begun = tokio::select! {
        biased;
        () = told(&mut stopping) => None,
        begun = Box::pin(begin(&shared, &document)) => begun,
    };
    let Some((range, start)) = begun else {
        keeper.end(Ending::Release(None)).await;
        shared.notifier.notify(Notification::LeaseReleased(token.clone(), Release::Stopped));
        drop(reports.send(Report::Ended(token)));
        return;
    };
    let mut worker = Worker {
        shared: Arc::clone(&shared),
        token: token.clone(),
        version: document.version,
        range: range.clone(),
        keeper,
        orders,
        position: start,
        stored: document.continuation.clone(),
        failures: document.attempts().count,
        suspicion: Suspicion::parse(document.suspect()),
        batch: 0,
        caught_up: false,
        buried: 0,
        careful_items: 0,
    };
    // The keeper has its own: leases are many, and most of them wait.
    drop(document);
    loop {
        match worker.run().await {
            Exit::Released(release) => {
                report_twin(&shared, &token, &release);
                shared.notifier.notify(Notification::LeaseReleased(token.clone(), release));
                break;
            }
            Exit::RangeGone => {
                let stopping = worker.orders.stopping.clone();
                match Box::pin(succession::succeed(&shared, &token, &range, &worker.keeper, stopping, &reports)).await {
                    Succeeded::Replaced => break,
                    Succeeded::Lost(loss) => {
                        shared.notifier.notify(Notification::LeaseReleased(token.clone(), Release::Lost(loss)));
                        break;
                    }
                    // It goes on where it was, not at its checkpoint: users may not have stored all that they handled.
                    Succeeded::Keep => shared.runtime.sleep(shared.options.store_retry.first).await,
                }
            }
        }
    }
    drop(reports.send(Report::Ended(token)));
}

/// A lease that was taken by our own name is the sign of a second process with that name.
fn report_twin(shared: &Shared, token: &LeaseToken, release: &Release) {
    if let Release::Lost(Loss::Taken { by: Some(by) }) = release
        && *by == shared.identity.instance
    {
        let message = format!("another host uses the instance name {by}: give each host its own");
        let failure = Failure::Lease(Arc::new(Error::new(ErrorKind::InvalidArgument, message)));
        shared.notifier.notify(Notification::Error(Some(token.clone()), failure));
    }
}

/// The range of a lease, and where its feed begins: at its checkpoint, else where the processor's leases were made.
async fn begin(shared: &Shared, document: &LeaseDocument) -> Option<(FeedRange, StartFrom)> {
    let range = match document.range() {
        Some(range) => range,
        None => {
            let live = shared.monitored.feed_ranges().await.ok()?;
            live.into_iter().find(|range| range.id.as_str() == document.token.as_str())?.range
        }
    };
    let start = match &document.continuation {
        Some(token) => resume(token),
        None => earliest(document.start().map_or_else(|| shared.anchors.of(&range), |start| vec![start]))
            .unwrap_or_else(|| shared.options.start.clone()),
    };
    Some((range, start))
}

/// The earliest of several anchors. Continuations come first among equals only if there is nothing earlier: leases
/// whose ranges began at continuations have one of their own.
fn earliest(anchors: Vec<Anchor>) -> Option<StartFrom> {
    let rank = |anchor: &Anchor| match anchor {
        Anchor::Beginning => (0, changefeed_core::Timestamp::default()),
        Anchor::Time(time) => (1, *time),
        Anchor::Continuation(_) => (2, changefeed_core::Timestamp::default()),
    };
    anchors.into_iter().min_by_key(rank).map(|anchor| match anchor {
        Anchor::Beginning => StartFrom::Beginning,
        Anchor::Time(time) => StartFrom::Time(time),
        Anchor::Continuation(token) => resume(&token),
    })
}
