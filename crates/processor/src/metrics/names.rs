//! Names of the metrics of a processor, and what they mean.

use ::metrics::{describe_counter, describe_gauge, describe_histogram};

pub(crate) const CHANGES: &str = "changefeed_processor_changes_total";
pub(crate) const CALLS: &str = "changefeed_processor_calls_total";
pub(crate) const RETRIES: &str = "changefeed_processor_retries_total";
pub(crate) const CHECKPOINTS: &str = "changefeed_processor_checkpoints_total";
pub(crate) const DEAD_LETTERS: &str = "changefeed_processor_dead_letters_total";
pub(crate) const LEASE_MOVES: &str = "changefeed_processor_lease_moves_total";
pub(crate) const ERRORS: &str = "changefeed_processor_errors_total";
pub(crate) const SPLITS: &str = "changefeed_processor_splits_total";
pub(crate) const REPAIRED: &str = "changefeed_processor_repaired_leases_total";
pub(crate) const REQUESTS: &str = "changefeed_processor_requests_total";
pub(crate) const REQUEST_UNITS: &str = "changefeed_processor_request_units_total";
pub(crate) const LEASE_CHANGES: &str = "changefeed_processor_lease_changes_total";
pub(crate) const LEASE_FAILURES: &str = "changefeed_processor_lease_failures_total";

pub(crate) const BATCH_CHANGES: &str = "changefeed_processor_batch_changes";
pub(crate) const INGEST: &str = "changefeed_processor_ingest_seconds";
pub(crate) const DELEGATE: &str = "changefeed_processor_delegate_seconds";
pub(crate) const DELIVERY: &str = "changefeed_processor_delivery_seconds";
pub(crate) const REQUEST_SECONDS: &str = "changefeed_processor_request_seconds";

pub(crate) const HOSTS: &str = "changefeed_processor_hosts";
pub(crate) const OWNED_LEASES: &str = "changefeed_processor_owned_leases";
pub(crate) const STALLED_LEASES: &str = "changefeed_processor_stalled_leases";
pub(crate) const OUTAGE_LEASES: &str = "changefeed_processor_outage_leases";
pub(crate) const SLOW_LEASES: &str = "changefeed_processor_slow_leases";
pub(crate) const LAG_CHANGES: &str = "changefeed_processor_lag_changes";
pub(crate) const LAG_SECONDS: &str = "changefeed_processor_lag_seconds";
pub(crate) const LAG_LEASES: &str = "changefeed_processor_lag_leases";
pub(crate) const LAG_FAILURES: &str = "changefeed_processor_lag_failures_total";
pub(crate) const LEASE_LAG_CHANGES: &str = "changefeed_processor_lease_lag_changes";
pub(crate) const LEASE_LAG_SECONDS: &str = "changefeed_processor_lease_lag_seconds";

const COUNTERS: &[(&str, &str)] = &[
    (CHANGES, "Changes that were handled, skipped or dead-lettered."),
    (CALLS, "Delegate calls that have ended, by result."),
    (RETRIES, "Delegate calls that repeated a failed attempt."),
    (CHECKPOINTS, "Writes of progress into leases."),
    (DEAD_LETTERS, "Items written to the dead-letter container."),
    (LEASE_MOVES, "Leases that came to this host or left it."),
    (ERRORS, "Failures that were reported, by what failed."),
    (SPLITS, "Leases that were replaced because their range was split or merged."),
    (REPAIRED, "Leases that were created again because leases did not cover the key space."),
    (REQUESTS, "Requests to the containers of the processor."),
    (REQUEST_UNITS, "Request units that the stores charged."),
    (LAG_FAILURES, "Measurements of the lag that failed."),
    (LEASE_CHANGES, "Changes of one lease that were handled, skipped or dead-lettered. Only with lease metrics."),
    (LEASE_FAILURES, "Delegate calls of one lease that failed. Only with lease metrics."),
];

const HISTOGRAMS: &[(&str, &str)] = &[
    (BATCH_CHANGES, "Changes in a delegate call."),
    (INGEST, "From the commit of the oldest change of a page until the page was read."),
    (DELEGATE, "Duration of delegate calls."),
    (DELIVERY, "From the commit of the oldest change of a page until all of the page was handled."),
    (REQUEST_SECONDS, "Duration of requests to the containers of the processor."),
];

const GAUGES: &[(&str, &str)] = &[
    (HOSTS, "Hosts of the processor that run in this process."),
    (OWNED_LEASES, "Leases that the host owns."),
    (STALLED_LEASES, "Owned leases whose batch keeps failing."),
    (OUTAGE_LEASES, "Owned leases whose items fail one after the other."),
    (SLOW_LEASES, "Owned leases whose delegate call runs for longer than expected."),
    (LAG_CHANGES, "Changes after the checkpoints of all leases of the processor."),
    (LAG_SECONDS, "Age of the oldest change after a checkpoint."),
    (LAG_LEASES, "All leases of the processor, by state."),
    (LEASE_LAG_CHANGES, "Changes after the checkpoint of one lease. Only with lease metrics."),
    (LEASE_LAG_SECONDS, "Age of the oldest change after the checkpoint of one lease. Only with lease metrics."),
];

/// Tells the recorder what the metrics mean.
pub(crate) fn describe() {
    COUNTERS.iter().for_each(|(name, help)| describe_counter!(*name, *help));
    HISTOGRAMS.iter().for_each(|(name, help)| describe_histogram!(*name, *help));
    GAUGES.iter().for_each(|(name, help)| describe_gauge!(*name, *help));
}
