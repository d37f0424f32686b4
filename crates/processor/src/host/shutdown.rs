//! The shutdown of a host: withdraws its requests, so that nobody grants a lease to a host that is gone.

use changefeed_core::ErrorKind;

use super::Host;
use crate::lease::{document::LeaseDocument, update::end_ownership};

/// A lease may be granted while the request for it is withdrawn; then it is looked at again. More often hardly happens.
const ROUNDS: u32 = 3;

impl Host {
    /// Withdraws requests, and releases leases that were granted to this host and not acquired yet. Errors do no harm:
    /// others wait until such a lease has expired.
    pub(super) async fn withdraw_requests(&self) {
        let withdraw = async {
            for _ in 0..ROUNDS {
                if self.withdraw_once().await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = self.context.signals.abort.cancelled() => {
                self.context.stop_report.add_host("the lease container does not answer while requests are withdrawn");
            }
            () = withdraw => {}
        }
    }

    /// Returns `false` if a lease changed meanwhile.
    async fn withdraw_once(&self) -> bool {
        let Ok(listing) = self.context.store.list().await else { return true };
        let mut done = true;
        // What this host works on is left to its tasks, the only writers: a namesake's request for it is not its own.
        let session = Some(self.context.identity.session.as_str());
        for lease in listing.leases.iter().filter(|lease| lease.document.session() != session) {
            let Some(document) = without(&lease.document, &self.context.identity.instance) else { continue };
            let written = self.context.store.replace(&document, &lease.etag).await;
            done &= !written.is_err_and(|error| error.kind() == ErrorKind::PreconditionFailed);
        }
        done
    }
}

/// The lease without a grant to or a request of an instance; `None` if it has neither. One that is worked on has a
/// session and is left to its task.
fn without(document: &LeaseDocument, instance: &str) -> Option<LeaseDocument> {
    let granted = document.owner.as_deref() == Some(instance) && document.session().is_none();
    let requested = document.hand_over().is_some_and(|request| request.to == instance);
    let mut changed = document.clone();
    if granted {
        end_ownership(&mut changed, None);
    } else if requested {
        changed.set_hand_over(None);
    } else {
        return None;
    }
    Some(changed)
}
