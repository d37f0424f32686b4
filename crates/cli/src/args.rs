//! The command line.

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args as Arguments, Parser, Subcommand};

const EXIT_CODES: &str = "Exit codes: 0 all is well, 1 done but something is not well, 2 error, 130 ended by Ctrl-C.";

/// Change feed processor: every change of a container reaches your code, at least once, in order, on as many hosts as
/// you start
#[derive(Debug, Parser)]
#[command(name = "changefeed", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// The arguments of this process; ends it with exit code 2 if they make no sense.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(DemoArgs),
    Serve(ServeArgs),
    Ranges(RangesArgs),
    Split(SplitArgs),
    Merge(MergeArgs),
    Throttle(ThrottleArgs),
    Fault(FaultArgs),
    Verify(VerifyArgs),
}

const DEMO_LEDGER: &str = "\
The ledger at the end counts changes, one for each version of each order:
  written       acknowledged by the store after they were on disk
  delivered     of these, handled by a host at least once
  duplicates    handled again, because a host died after handling them and before storing that
  dead letters  found in the dead-letter container
  lost          written, but neither delivered nor dead letters
An order is only updated after its last version was handled: the feed shows the newest version of an item, so faster
updates would be merged, and counting them would prove nothing.

The events go to stderr, the ledger to stdout. Exit codes: 0 nothing was lost, 1 something was, 2 error, 130 Ctrl-C.";

/// Shows the whole idea in half a minute: hosts share the work, one dies, others join, a range splits, an item is
/// poison, and nothing is lost
///
/// Needs nothing installed: the store is a fresh folder, the writer and the hosts are in this process.
#[derive(Debug, Arguments)]
#[command(after_long_help = DEMO_LEDGER, after_help = "See --help for what the ledger counts.")]
pub(crate) struct DemoArgs {
    /// Prints the ledger as one JSON object: written, delivered, duplicates, dead_letters, lost, seconds
    #[arg(long)]
    pub(crate) json: bool,

    /// About how long it takes; no less than 8, which the events themselves need
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) seconds: u32,

    /// Chooses which orders are written; when things happen still varies from run to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,

    /// Keeps the store in this folder, which must be new or empty [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
}

/// Serves a store to any Cosmos DB SDK: a local Cosmos DB whose change feed is right
///
/// Prints one line of JSON when it is ready: {"event":"ready","endpoint":...}. Ends in good order on SIGTERM and
/// SIGINT; reads keys and certificate again on SIGHUP. Clients sign with the emulator's public key unless --key-file
/// is given.
#[derive(Debug, Arguments)]
pub(crate) struct ServeArgs {
    /// Folder of the store, made if it is missing; `memory` keeps nothing
    #[arg(long, value_name = "DIR")]
    pub(crate) store: PathBuf,

    /// Address and port; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8081", value_parser = address)]
    pub(crate) listen: SocketAddr,

    /// Speaks TLS: `self-signed`, or two files in PEM form, certificate and key, with a comma between them
    #[arg(long, value_name = "self-signed|CERT,KEY")]
    pub(crate) tls: Option<String>,

    /// File with the account's keys in base64, one on each line; `read-only` before one that must not write
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// How many ranges a new container begins with; without it one for each 10,000 RU/s of its throughput
    #[arg(long, value_name = "N")]
    pub(crate) ranges: Option<usize>,

    /// How long the feed of all versions and deletes looks back in containers that do not say; 0: not at all
    #[arg(long, value_name = "MINUTES", default_value_t = 10)]
    pub(crate) retention: u32,

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

    /// What goes to stderr
    #[arg(long, value_name = "LEVEL", default_value = "warn", value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
    pub(crate) log: String,
}

/// Which store, and how to get in.
#[derive(Debug, Arguments)]
pub(crate) struct StoreArgs {
    /// Folder of a store that nobody serves, or the http(s):// endpoint of a server
    #[arg(long, value_name = "DIR|URL")]
    pub(crate) store: String,

    /// File with the account's key [default: the variable CHANGEFEED_KEY, or the emulator's key on loopback]
    #[arg(long, value_name = "FILE")]
    pub(crate) key_file: Option<PathBuf>,

    /// Certificate in PEM form that vouches for an https:// server [default: any, if the server is on loopback]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Lists the ranges of a container
#[derive(Debug, Arguments)]
pub(crate) struct RangesArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: String,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Splits a range in two; readers and writers go on
#[derive(Debug, Arguments)]
pub(crate) struct SplitArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: String,

    /// The range, as `changefeed ranges` shows it
    #[arg(long, value_name = "ID")]
    pub(crate) range: String,

    /// Where to cut, an effective partition key in hexadecimal [default: the middle]
    #[arg(long, value_name = "EPK")]
    pub(crate) at: Option<String>,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Makes one range of two neighbours; readers and writers go on
#[derive(Debug, Arguments)]
pub(crate) struct MergeArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The container, as database/container
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: String,

    /// The two ranges, as `changefeed ranges` shows them
    #[arg(long, value_name = "ID,ID", value_delimiter = ',', required = true)]
    pub(crate) ranges: Vec<String>,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Lets a server answer requests for items with 429 for a while
#[derive(Debug, Arguments)]
pub(crate) struct ThrottleArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Only this container, as database/container [default: all]
    #[arg(long, value_name = "DB/NAME")]
    pub(crate) container: Option<String>,

    /// For how long; 0 ends it
    #[arg(long, value_name = "N")]
    pub(crate) seconds: f64,

    /// The retry-after value sent to clients, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 500)]
    pub(crate) retry_after_ms: u64,
}

/// Lets a server give a wrong answer, for tests of clients; it must have been started with --allow-faults
#[derive(Debug, Arguments)]
pub(crate) struct FaultArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// The status to answer with, 400 to 599
    #[arg(long, value_name = "N", required_unless_present = "clear")]
    pub(crate) status: Option<u16>,

    /// The substatus to answer with
    #[arg(long, value_name = "N")]
    pub(crate) substatus: Option<u32>,

    /// How many requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) count: u32,

    /// Only requests of this method
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,

    /// Only requests whose path contains this
    #[arg(long, value_name = "TEXT")]
    pub(crate) path_contains: Option<String>,

    /// Carries the request out before it gives the wrong answer
    #[arg(long)]
    pub(crate) after: bool,

    /// Ends all faults and throttling instead
    #[arg(long, conflicts_with = "status")]
    pub(crate) clear: bool,
}

/// Reads everything in a store and compares items with the feed
#[derive(Debug, Arguments)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    /// Prints JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// An address to listen on; `localhost` is that of this machine.
fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = numeric.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "pass an IP address and a port up to 65535, for example 127.0.0.1:8081".to_owned())
}

/// A host name in lower case, without port.
fn account_host(text: &str) -> Result<String, String> {
    let fits = |char: char| char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.');
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) {
        return Err("pass a host name in lower case without port, for example changefeed.example.com".to_owned());
    }
    Ok(text.to_owned())
}
