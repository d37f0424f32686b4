//! The arguments of `run` about metrics.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Args as Arguments;

use super::moment::positive_duration;

/// Where metrics are shown, and to whom.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Metrics")]
pub(crate) struct MetricsArgs {
    /// Serves /metrics for Prometheus, /healthz and /readyz at this address; a port alone is one of this machine
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address)]
    pub(crate) metrics: Option<SocketAddr>,

    /// File with the key that readers of /metrics send as `Authorization: Bearer KEY`
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) metrics_key_file: Option<PathBuf>,

    /// Takes the key over plain HTTP on other addresses than loopback, behind something that speaks TLS
    #[arg(long, requires = "metrics", conflicts_with = "metrics_open")]
    pub(crate) allow_plain: bool,

    /// Lets anybody who reaches another address than this machine's read /metrics
    #[arg(long, requires = "metrics", conflicts_with = "metrics_key_file")]
    pub(crate) metrics_open: bool,

    /// Gives each lease metrics of its own
    #[arg(long, requires = "metrics")]
    pub(crate) lease_metrics: bool,

    /// How often the lag is measured for /metrics
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_duration)]
    pub(crate) lag_interval: Duration,
}

/// An address to listen on; a port alone is on the loopback interface.
fn address(text: &str) -> Result<SocketAddr, String> {
    let full = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.bytes().all(|byte| byte.is_ascii_digit()) => format!("127.0.0.1:{text}"),
        None => text.to_owned(),
    };
    full.parse().map_err(|_| "pass a port, or an IP address and a port, for example 127.0.0.1:9464".to_owned())
}
