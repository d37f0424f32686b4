//! The arguments of `serve`.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use clap::Args as Arguments;

/// Serves a store to any Cosmos DB SDK: a local Cosmos DB whose change feed is right
///
/// Prints one line of JSON when it is ready: {"event":"ready","endpoint":...}. Ends in good order on SIGTERM and
/// SIGINT; reads keys and certificate again on SIGHUP. Clients sign with the emulator's public key unless --key-file
/// is given. /healthz and /readyz are open to anybody; /metrics, for Prometheus, to clients on this machine, and to those
/// that send `Authorization: Bearer KEY` with a read-only key of the key file.
#[derive(Debug, Arguments)]
#[command(after_help = "\
Example:
  changefeed serve --store ./data --listen 127.0.0.1:8081")]
pub(crate) struct ServeArgs {
    /// Folder of the store, made if it is missing; `memory` keeps nothing
    #[arg(long, value_name = "DIR", env = "CHANGEFEED_STORE", hide_env_values = true)]
    pub(crate) store: PathBuf,

    /// Address and port; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Speaks TLS: `self-signed`, or two files in PEM form, certificate and key, with a comma between them. The
    /// self-signed certificate is for localhost, the account host and each --tls-name. It is kept in the folder of the
    /// store as certificate.pem, which clients need, and renewed a month before it expires
    #[arg(long, value_name = "self-signed|CERT,KEY")]
    pub(crate) tls: Option<String>,

    /// Host name or IP address by which clients on other machines reach the server, for the self-signed certificate; may be
    /// given several times
    #[arg(long, value_name = "NAME|IP", value_parser = tls_name)]
    pub(crate) tls_name: Vec<String>,

    /// File with the account's keys in base64, one on each line; `read-only` before one that must not write
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// How many ranges a new container begins with; without it one for each 10,000 RU/s of its throughput
    #[arg(long, value_name = "N")]
    pub(crate) ranges: Option<usize>,

    /// How long the feed of all versions and deletes looks back in containers that do not say; 0: not at all
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    pub(crate) retention: u32,

    /// Shows the previous version of replaced and deleted items in all-versions mode, also in containers without a
    /// previousImageRetentionPolicy
    #[arg(long)]
    pub(crate) previous_images: bool,

    /// The name of the account, which is part of every lease id: the host name that clients use, with a dot for KEDA.
    /// Hosts of changefeed learn it from the server. With the emulator's public key, requests under other names than
    /// this, localhost and loopback addresses are refused
    #[arg(long, value_name = "HOST", default_value = "localhost", value_parser = account_host)]
    pub(crate) account_host: String,

    /// Allows `changefeed fault`, for tests of clients
    #[arg(long)]
    pub(crate) allow_faults: bool,

    /// Allows plain HTTP on other addresses than loopback, behind something that speaks TLS
    #[arg(long)]
    pub(crate) allow_plain: bool,

    /// Ends in good order when stdin is closed: for programs that start a server of their own
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,

    /// What goes to stderr
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
    pub(crate) log: String,
}

/// An address to listen on; `localhost` is that of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = numeric.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "pass an IP address and a port up to 65535, for example 127.0.0.1:8081".to_owned())
}

/// A host name or an IP address of a certificate, without port.
fn tls_name(text: &str) -> Result<String, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    account_host(&text.to_ascii_lowercase()).map_err(|_| {
        "pass a host name or an IP address without port, for example db.example.com or 192.0.2.7".to_owned()
    })
}

/// A host name in lower case, without port.
fn account_host(text: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.');
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) {
        return Err("pass a host name in lower case without port, for example changefeed.example.com".to_owned());
    }
    Ok(text.to_owned())
}
