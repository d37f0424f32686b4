//! The moves of a host: what its plan says, done to the lease container.

use std::sync::Arc;

use changefeed_core::{Effect, ErrorKind, Result};

use crate::{
    deployment::{AT_ONCE, together},
    host::{Host, Shared, Standing},
    lease::{
        balance::Move,
        document::LeaseDocument,
        ownership::OwnedLease,
        store::{Listing, StoredLease},
    },
    notification::Failure,
    runtime::BoxFuture,
};

/// What became of a move.
enum Moved {
    /// The lease is ours.
    Taken(Box<OwnedLease>),
    /// Its owner was asked for it.
    Asked,
    /// Somebody was faster, or nothing is left to be done.
    Nothing,
}

impl Host {
    /// Performs moves, some at a time: a store that groups writes stores them together, and a worker starts as soon as
    /// its lease is ours.
    pub(crate) async fn perform(&mut self, steps: &[Move], listing: &Listing) {
        let steps: Vec<(&Move, &StoredLease)> =
            steps.iter().filter_map(|step| Some((step, listing.find(step.lease())?))).collect();
        for some in steps.chunks(AT_ONCE) {
            if *self.orders.stopping.borrow() {
                return;
            }
            let moving = some.iter().map(|(step, seen)| -> BoxFuture<'_, Result<Moved>> {
                match step {
                    Move::Take(token) | Move::Force(token) if self.running.contains_key(token) => {
                        Box::pin(std::future::ready(Ok(Moved::Nothing)))
                    }
                    step => Box::pin(perform(&self.shared, step, seen)),
                }
            });
            let moved = together(moving.collect()).await;
            for ((step, seen), moved) in some.iter().zip(moved) {
                if moved.is_err() && matches!(step, Move::Take(_) | Move::Force(_)) {
                    // It may have been done all the same: then what we were to adopt under an older epoch is void.
                    self.epochs.insert(step.lease().clone(), seen.document.epoch() + 1);
                }
                self.note(step, seen.document.epoch(), moved);
            }
        }
    }

    fn note(&mut self, step: &Move, epoch: u64, moved: Result<Moved>) {
        let token = step.lease();
        if !matches!(step, Move::Ask(_)) {
            self.asked.remove(token);
        }
        match moved {
            Ok(Moved::Taken(lease)) => self.start(*lease),
            Ok(Moved::Asked) => {
                let standing = Standing { epoch, since: self.shared.runtime.monotonic() };
                self.asked.insert(token.clone(), standing);
            }
            Ok(Moved::Nothing) => {}
            Err(error) => self.report(Some(token.clone()), Failure::Lease(Arc::new(error))),
        }
    }
}

async fn perform(shared: &Shared, step: &Move, seen: &StoredLease) -> Result<Moved> {
    let Shared { store, runtime, identity, .. } = shared;
    match step {
        Move::Take(_) | Move::Force(_) => {
            let taken = OwnedLease::take(store, runtime, identity, seen).await?;
            Ok(taken.map_or(Moved::Nothing, |lease| Moved::Taken(Box::new(lease))))
        }
        Move::Ask(_) => {
            let mut document = seen.document.clone();
            document.set_hand_over(Some(&identity.instance));
            Ok(if request(shared, &document, seen).await? { Moved::Asked } else { Moved::Nothing })
        }
        Move::Withdraw(_) => {
            let mut document = seen.document.clone();
            document.set_hand_over(None);
            request(shared, &document, seen).await.map(|_| Moved::Nothing)
        }
    }
}

/// Writes a request into a lease of another host. That it has changed meanwhile is no error: there is a next cycle.
async fn request(shared: &Shared, document: &LeaseDocument, seen: &StoredLease) -> Result<bool> {
    match shared.store.replace(document, &seen.etag).await {
        Ok(_) => Ok(true),
        Err(error) if error.effect() == Effect::Unknown => Ok(true),
        Err(error) => match error.kind() {
            ErrorKind::PreconditionFailed | ErrorKind::ItemNotFound => Ok(false),
            _ => Err(error),
        },
    }
}
