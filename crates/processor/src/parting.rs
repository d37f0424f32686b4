//! The parting of a host: what it had asked for goes back before it is gone, so that nobody waits for its silence.

use changefeed_core::ErrorKind;

use crate::{
    deliver::told,
    host::Host,
    lease::{document::LeaseDocument, keeper::set_free},
};

/// A lease may be granted while we withdraw our request for it; then it is looked at again. More often hardly happens.
const LOOKS: u32 = 3;

impl Host {
    /// Withdraws requests, and gives back what was granted to this host and not taken yet. An error is no harm: then
    /// others wait until the lease has expired.
    pub(crate) async fn part(&self) {
        let mut hurry = self.orders.hurry.clone();
        let give_back = async {
            for _ in 0..LOOKS {
                if self.give_back().await {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = told(&mut hurry) => {}
            () = give_back => {}
        }
    }

    /// False if a lease changed meanwhile.
    async fn give_back(&self) -> bool {
        let Ok(listing) = self.shared.store.list().await else { return true };
        let mut done = true;
        // What we work on is left to its keeper, the only one to write it: a namesake's request for it is not ours.
        let session = Some(self.shared.identity.session.as_str());
        for lease in listing.leases.iter().filter(|lease| lease.document.session() != session) {
            let Some(document) = without(&lease.document, &self.shared.identity.instance) else { continue };
            let written = self.shared.store.replace(&document, &lease.etag).await;
            done &= !written.is_err_and(|error| error.kind() == ErrorKind::PreconditionFailed);
        }
        done
    }
}

/// The lease without what it says of an instance that goes; none if it says nothing. One that is worked on has a session
/// and is left to its worker.
fn without(document: &LeaseDocument, instance: &str) -> Option<LeaseDocument> {
    let granted = document.owner.as_deref() == Some(instance) && document.session().is_none();
    let asked = document.hand_over().is_some_and(|asked| asked.to == instance);
    let mut changed = document.clone();
    if granted {
        set_free(&mut changed, None);
    } else if asked {
        changed.set_hand_over(None);
    } else {
        return None;
    }
    Some(changed)
}
