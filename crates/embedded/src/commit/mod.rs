//! Committing: one owner decides on all writes, in groups that share one sync.

mod catalog;
mod catalog_changes;
mod committer;
mod plan;
mod relayout;

use changefeed_core::{Result, WriteResult};
use tokio::sync::oneshot;

pub(crate) use self::{
    catalog::CatalogChange,
    committer::{Committer, EXPIRE_INTERVAL_MS},
    plan::{Action, Prepared, PreparedWrite, append_watermark},
};
use crate::inner::Inner;

/// A group takes no more writes once its frame has this many bytes: more would make everybody wait for longer.
const GROUP_BYTES: usize = 4 * 1024 * 1024;

/// Something for the committer to do.
#[derive(Debug)]
pub(crate) enum Command {
    Write(Prepared, oneshot::Sender<Result<Vec<WriteResult>>>),
    Catalog(CatalogChange, oneshot::Sender<Result<Option<changefeed_core::RangeId>>>),
    /// Deletes what has expired, lets go of what left retention.
    Expire(oneshot::Sender<Result<()>>),
    /// Syncs everything, says so in the log, and refuses all further writes.
    Close(oneshot::Sender<Result<()>>),
}

impl Committer {
    /// Performs commands in order. Neighbouring writes share frames and syncs.
    pub(crate) fn perform(&mut self, inner: &Inner, commands: impl IntoIterator<Item = Command>) {
        let mut commands = commands.into_iter().peekable();
        self.expire_if_due(inner);
        while let Some(command) = commands.next() {
            match command {
                Command::Write(first, reply) => {
                    let mut writes = vec![(first, reply)];
                    let mut bytes = writes[0].0.bytes();
                    while bytes < GROUP_BYTES
                        && let Some(Command::Write(..)) = commands.peek()
                        && let Some(Command::Write(next, reply)) = commands.next()
                    {
                        bytes += next.bytes();
                        writes.push((next, reply));
                    }
                    self.write(inner, writes);
                }
                Command::Catalog(change, reply) => self.begin_catalog_change(inner, change, reply),
                Command::Expire(reply) => self.expire(inner, reply),
                Command::Close(reply) => drop(reply.send(self.close())),
            }
        }
        self.advance_relayouts(inner);
        self.refuse_waiting();
    }
}
