//! What to do next about a lease, with the command that does it. Pure.

use changefeed::{Cause, Explanation, LeaseToken};

/// Whether somebody has to do something; what passes by itself does not count.
pub(crate) fn needs_attention(cause: Cause) -> bool {
    !matches!(
        cause,
        Cause::NoData
            | Cause::CaughtUp
            | Cause::Working
            | Cause::DelegateRunning
            | Cause::HandOver
            | Cause::SplitPending
            | Cause::Tombstone
    )
}

/// The next step about one lease; none if nobody has to do anything.
pub(super) fn next(name: &str, found: &Explanation) -> Option<String> {
    step(name, found.cause, found.dead_letter_after, Some(&found.lease))
}

/// The next steps about all of them, each once.
pub(super) fn of_all(name: &str, leases: &[Explanation]) -> Vec<String> {
    let mut steps: Vec<(String, Vec<&Explanation>)> = Vec::new();
    for found in leases {
        let Some(of_several) = step(name, found.cause, found.dead_letter_after, None) else { continue };
        match steps.iter_mut().find(|(text, _)| *text == of_several) {
            Some((_, leases)) => leases.push(found),
            None => steps.push((of_several, vec![found])),
        }
    }
    let text = |(of_several, leases): (String, Vec<&Explanation>)| match leases.as_slice() {
        [only] => next(name, only).unwrap_or(of_several),
        _ => of_several,
    };
    steps.into_iter().map(text).collect()
}

/// The next step about the lease, or about several in the same situation.
fn step(name: &str, cause: Cause, dead_letter_after: Option<u32>, lease: Option<&LeaseToken>) -> Option<String> {
    // A command that must not be given without a lease, which would mean all of them.
    let of_lease = lease.map_or_else(|| "--lease TOKEN".to_owned(), |lease| format!("--lease {lease}"));
    Some(match cause {
        Cause::Retrying => match dead_letter_after {
            Some(attempts) => format!(
                "fix the cause; items that still fail after {attempts} attempts become dead letters, and the others are \
                 delivered"
            ),
            None => {
                format!(
                    "fix the cause, or pass --dead-letters DB/NAME to `changefeed run {name}` to set the item aside"
                )
            }
        },
        Cause::Outage => {
            "repair what the error names: batches are retried until then, and none becomes a dead letter".to_owned()
        }
        // To release the lease would not help for long: a host whose call hangs is alive, and takes leases.
        Cause::SlowDelegate => format!(
            "see what the call waits for; if it never ends, kill the host and start one that ends such calls: \
             `changefeed run {name} --delegate-timeout TIME`"
        ),
        Cause::Paused => match lease {
            Some(lease) => format!("`changefeed resume {name} --lease {lease}`"),
            // Resuming all means those that are paused.
            None => format!("`changefeed resume {name}`"),
        },
        Cause::Throttled => format!(
            "raise the throughput of the store, or pass --max-request-units-per-second to `changefeed run {name}`"
        ),
        Cause::FeedFailing => {
            "repair what the error names; `changefeed verify` tells whether the store is damaged".to_owned()
        }
        Cause::DeadLetterFailing => format!(
            "repair what the error names; `changefeed run {name} --check` tells whether the containers can be opened"
        ),
        Cause::Expired => format!(
            "`changefeed seek {name} --to now {of_lease}`, and a longer retention of the container: what was missed is gone"
        ),
        Cause::Unowned | Cause::OwnerSilent | Cause::Missing => {
            format!("if no other host runs, start one: `changefeed run {name} ...`")
        }
        Cause::Broken => format!(
            "stop the hosts, then `changefeed leases import {name} --from FILE` with an earlier export; without one, repair \
             the document in the file that `changefeed leases export {name} --to FILE` writes"
        ),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cause that needs attention.
    const BAD: [Cause; 12] = [
        Cause::SlowDelegate,
        Cause::Retrying,
        Cause::Outage,
        Cause::Throttled,
        Cause::FeedFailing,
        Cause::DeadLetterFailing,
        Cause::Expired,
        Cause::Unowned,
        Cause::OwnerSilent,
        Cause::Paused,
        Cause::Broken,
        Cause::Missing,
    ];

    #[test]
    fn whatever_needs_attention_has_a_next_step_and_nothing_else_has() {
        for cause in BAD {
            assert!(needs_attention(cause) && step("mailer", cause, None, None).is_some(), "{cause:?}");
        }
        let fine = [Cause::NoData, Cause::CaughtUp, Cause::Working, Cause::DelegateRunning, Cause::HandOver];
        for cause in fine.into_iter().chain([Cause::SplitPending, Cause::Tombstone]) {
            assert!(!needs_attention(cause) && step("mailer", cause, None, None).is_none(), "{cause:?}");
        }
    }

    #[test]
    fn a_step_names_the_lease_that_it_is_about() {
        let lease: LeaseToken = "3".parse().unwrap();
        for (cause, command) in [
            (Cause::Paused, "`changefeed resume mailer --lease 3`"),
            (Cause::Expired, "`changefeed seek mailer --to now --lease 3`"),
        ] {
            assert!(step("mailer", cause, None, Some(&lease)).unwrap().contains(command), "{cause:?}");
        }
        assert!(step("mailer", Cause::Expired, None, None).unwrap().contains("--lease TOKEN"));
    }
}
