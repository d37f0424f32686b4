//! Metrics of the command: collected by the recorder of `metrics-exporter-prometheus`, shown at `/metrics`.

pub(crate) mod endpoint;
pub(crate) mod probe;

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::{clock, exit::Result};

/// Upper bounds of the buckets of durations, in seconds: from a sync of the log to a delegate that hangs.
const SECONDS: [f64; 18] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
    300.0,
];

/// Upper bounds of the buckets of sizes: changes in a batch, writes in a group.
const COUNTS: [f64; 12] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

/// How often samples are sorted into buckets: until then each needs memory of its own.
const UPKEEP: Duration = Duration::from_secs(1);

/// Installs the recorder of this process. To be done before a store is opened: what is open records elsewhere.
///
/// # Errors
/// If there is a recorder already.
pub(crate) fn install() -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_batch_changes".to_owned()), &COUNTS)?
        .set_buckets_for_metric(Matcher::Suffix("_commit_writes".to_owned()), &COUNTS)?
        .install_recorder()?;
    metrics::describe_gauge!("changefeed_build_info", "Always 1; the label is the version of the command.");
    metrics::gauge!("changefeed_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

/// Keeps the memory of the recorder small. Never ends.
pub(crate) async fn upkeep(handle: PrometheusHandle) {
    loop {
        clock::sleep(UPKEEP).await;
        handle.run_upkeep();
    }
}
