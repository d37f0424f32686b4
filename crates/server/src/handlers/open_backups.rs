//! Backups under way: snapshots that clients read part by part.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use changefeed_core::{Clock, Timestamp};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{net::timeouts::pause, storage::StoredFiles};

/// The most backups at a time: each keeps files of the store from being removed.
pub(crate) const MOST: usize = 4;

/// A backup that nobody reads for this long is over: its client has gone.
const IDLE: Duration = Duration::from_secs(10 * 60);

/// How often idle backups are looked for.
const LOOK: Duration = Duration::from_secs(30);

/// All backups under way, by number.
#[derive(Debug, Default)]
pub(crate) struct OpenBackups {
    open: Arc<Mutex<BTreeMap<u64, Backup>>>,
    /// The task that ends idle ones.
    expiring: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Backup {
    files: Arc<dyn StoredFiles>,
    used: Timestamp,
}

impl OpenBackups {
    /// Whether there are as many as there may be.
    pub(crate) fn is_full(&self) -> bool {
        self.open.lock().len() >= MOST
    }

    pub(crate) fn add(&self, number: u64, files: Arc<dyn StoredFiles>, clock: &Arc<dyn Clock>) {
        self.open.lock().insert(number, Backup { files, used: clock.wall() });
        self.expire(clock);
    }

    /// The files of a backup, which is in use at `now`.
    pub(crate) fn files(&self, number: u64, now: Timestamp) -> Option<Arc<dyn StoredFiles>> {
        let mut open = self.open.lock();
        let found = open.get_mut(&number)?;
        found.used = now;
        Some(Arc::clone(&found.files))
    }

    /// Lets the files of a backup go; whether there was one.
    pub(crate) fn remove(&self, number: u64) -> bool {
        self.open.lock().remove(&number).is_some()
    }

    /// Ends backups that nobody reads, for as long as there are any.
    fn expire(&self, clock: &Arc<dyn Clock>) {
        let mut expiring = self.expiring.lock();
        while expiring.try_join_next().is_some() {}
        if !expiring.is_empty() {
            return;
        }
        let (open, clock) = (Arc::clone(&self.open), Arc::clone(clock));
        expiring.spawn(async move {
            loop {
                pause(LOOK).await;
                let now = clock.wall();
                let mut open = open.lock();
                open.retain(|_, backup| backup.used.saturating_add(IDLE) > now);
                if open.is_empty() {
                    return;
                }
            }
        });
    }
}
