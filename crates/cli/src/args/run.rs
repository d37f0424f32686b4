//! The arguments of `run`: the delegate, and the options of a processor.

use std::{path::PathBuf, time::Duration};

use clap::{ArgGroup, Args as Arguments};

use super::{
    data::positive,
    metrics::MetricsArgs,
    moment::{Moment, duration, positive_duration},
    store::{ContainerName, ProcessorArgs},
};

const EXAMPLES: &str = "\
Examples:
  changefeed run mailer --store ./data \\
    --container shop/orders --leases shop/leases --from beginning --print
  changefeed run mailer --store http://localhost:8081 \\
    --container shop/orders --leases shop/leases \\
    --exec 'jq -r .id >> ids.txt'
  changefeed run archive --store ./data --container shop/orders \\
    --leases shop/leases --from beginning --copy-to shop/archive --once

--exec runs the command by `sh -c` for each batch, with one change on each line of stdin, as --print --json prints them. \
Exit code 0 means that the batch is done; any other fails the attempt, and the batch is retried. The end of what the command \
wrote to stderr, up to 1 KiB, is part of the error in logs, dead letters and `changefeed explain`; all of it goes to the \
stderr of this host. The command must end by itself when stdin ends. At --delegate-timeout its whole process group is killed.

With --results the command may say what became of single changes, one line of JSON each on stdout; changes that it does not \
mention are done. RESULT is \"done\", \"skip\", \"retry\" or \"dead-letter\":
  {\"change_id\": \"...\", \"result\": RESULT, \"after\": \"5s\", \"reason\": \"...\"}

Variables of the command: CHANGEFEED_PROCESSOR, CHANGEFEED_INSTANCE, CHANGEFEED_LEASE, CHANGEFEED_ATTEMPT. Variables of this \
host that hold a key are not passed on. If the items of a batch that have a member `traceparent` (W3C Trace Context) have the \
same one, the command gets it as TRACEPARENT, with TRACESTATE if there is one, and the receiver of --webhook as headers.

--metrics 9464 serves http://127.0.0.1:9464/metrics for Prometheus, with /healthz and /readyz for whoever starts and \
restarts processes; docs/metrics.md lists what is measured.

--webhook sends each batch as {\"processor\", \"instance\", \"lease\", \"attempt\", \"changes\": [...]} by POST; an answer of \
the 2xx kind means that the batch is done, any other fails the attempt. The headers Idempotency-Key and webhook-id are the \
same for the same changes; with --webhook-secret-file the header webhook-signature is that of Standard Webhooks \
(HMAC-SHA256 over `id.timestamp.body`). Redirects are not followed.

Ends on Ctrl-C, SIGTERM and SIGHUP, also while it is starting: running calls are finished, leases are handed over, the exit \
code is 0, 130 with --once if it has not caught up, or 2 if a call did not finish before the stop deadline and was cut off. A \
second signal, at least a second later, ends it at once, with 130. SIGHUP is ignored under `nohup`.

If the reader of what it prints goes away, as `| head` does, it ends, too: with 0, or with 1 if --once has not caught up. \
What could not be printed is not checkpointed, and the next run delivers it.";

/// Runs a host with a ready-made delegate: prints changes, runs a command or calls a webhook for each
/// batch, or copies to another container
#[derive(Debug, Arguments)]
#[command(group = ArgGroup::new("printing").args(["print", "check"]).multiple(true))]
#[command(after_long_help = EXAMPLES, after_help = "See --help for examples and for how --exec and --webhook work.")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) processor: ProcessorArgs,

    /// Opens everything, changes nothing, and says what would run
    #[arg(long)]
    pub(crate) check: bool,

    /// Ends when it has caught up
    #[arg(long)]
    pub(crate) once: bool,

    /// What goes to stderr
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = ["off", "error", "warn", "info", "debug", "trace"])]
    pub(crate) log: String,

    #[command(flatten)]
    pub(crate) delegate: DelegateArgs,

    #[command(flatten)]
    pub(crate) options: OptionArgs,

    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
}

/// What happens to a change.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Delegate")]
pub(crate) struct DelegateArgs {
    /// Prints each change
    #[arg(long)]
    pub(crate) print: bool,

    /// Prints each change as one line of JSON; with --check, what would run
    #[arg(long, requires = "printing")]
    pub(crate) json: bool,

    /// Runs this command for each batch
    #[arg(long, value_name = "COMMAND", conflicts_with = "print")]
    pub(crate) exec: Option<String>,

    /// Reads results for single changes from the command's stdout
    #[arg(long, requires = "exec", conflicts_with = "print")]
    pub(crate) results: bool,

    /// Sends each batch to this URL
    #[arg(long, value_name = "URL", conflicts_with_all = ["print", "exec"])]
    pub(crate) webhook: Option<String>,

    /// File with the secrets that sign, one on each line: two while one replaces the other; it is read for each batch
    #[arg(
        long,
        value_name = "FILE",
        requires = "webhook",
        env = "CHANGEFEED_WEBHOOK_SECRET_FILE",
        hide_env_values = true
    )]
    pub(crate) webhook_secret_file: Option<PathBuf>,

    /// How long the receiver may take to answer
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    pub(crate) webhook_timeout: Duration,

    /// Copies items to this container, in the same store or in another folder or server; it is made if it is missing.
    /// Copies carry the LSN of their original in _cf_lsn and its container in _cf_source: an older version never overwrites a
    /// newer one. If the container is deleted and created again, its items replace their copies. A copy that was made of
    /// another container, or of another store, is refused. Deletes are copied with --all-versions only
    #[arg(long, value_name = "[STORE/]DB/NAME", conflicts_with_all = ["print", "exec", "webhook"])]
    pub(crate) copy_to: Option<String>,

    /// File with the key of that other server [default: the key of --store]
    #[arg(long, value_name = "FILE", requires = "copy_to", conflicts_with_all = ["print", "exec", "webhook"])]
    pub(crate) copy_key_file: Option<PathBuf>,

    /// Replaces copies that were made of another container or store: this one has taken its place, as a restored store does
    #[arg(long, requires = "copy_to", conflicts_with_all = ["print", "exec", "webhook"])]
    pub(crate) copy_other_source: bool,

    /// Allows plain http:// and receivers in private networks and on this machine
    #[arg(long, requires = "webhook", conflicts_with_all = ["print", "exec", "copy_to"])]
    pub(crate) allow_private: bool,
}

/// The options of a processor. What is not given stays as the library has it, but for the start, which is now.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Options of the processor")]
pub(crate) struct OptionArgs {
    /// Name of this host [default: a name that no other host has]
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<String>,

    /// Where a processor that starts for the first time begins: `beginning`, `now`, a time, or '10m ago' [default: now]
    #[arg(long, value_name = "WHEN")]
    pub(crate) from: Option<Moment>,

    /// Delivers all versions and deletes, instead of the newest version of each item; the container must keep them, as one
    /// does that `load --retention` makes
    #[arg(long)]
    pub(crate) all_versions: bool,

    /// Changes in a batch, at most
    #[arg(long, value_name = "N")]
    pub(crate) max_items: Option<usize>,

    /// Leases of this host, at most
    #[arg(long, value_name = "N")]
    pub(crate) max_leases: Option<usize>,

    /// Calls of this host at once, at most
    #[arg(long, value_name = "N")]
    pub(crate) max_concurrent_calls: Option<usize>,

    /// Bytes that this host has read and not yet delivered, at most
    #[arg(long, value_name = "BYTES")]
    pub(crate) max_bytes_in_flight: Option<usize>,

    /// Request units a second of this host, at most
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(crate) max_request_units_per_second: Option<f64>,

    /// How often a range without changes is read, where the store does not tell
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) poll_interval: Option<Duration>,

    /// How long a read of the feed may take
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) read_timeout: Option<Duration>,

    /// How long a call may take before it counts as failed [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) delegate_timeout: Option<Duration>,

    /// A call that takes longer is reported
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) slow_after: Option<Duration>,

    /// A lease whose batch has failed so often is reported as stalled
    #[arg(long, value_name = "N")]
    pub(crate) stalled_after: Option<u32>,

    /// How long a start retries while a store is unavailable or throttled [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) start_timeout: Option<Duration>,

    /// How long a stop waits for running calls
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) stop_deadline: Option<Duration>,

    /// Takes leases from a living host that does not hand them over in this time [default: never]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) steal_after: Option<Duration>,

    /// Stores progress so often at most [default: after each batch]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) checkpoint_every: Option<Duration>,

    /// How often a host looks for leases to take
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) acquire_interval: Option<Duration>,

    /// How often a lease is renewed
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) renew_interval: Option<Duration>,

    /// How long a lease that is not renewed is kept
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) expiration: Option<Duration>,

    /// Puts items that keep failing into this container, which is made if need be
    #[arg(long, value_name = "DB/NAME", env = "CHANGEFEED_DEAD_LETTERS", hide_env_values = true)]
    pub(crate) dead_letters: Option<ContainerName>,

    /// Attempts before an item becomes a dead letter
    #[arg(long, value_name = "N", requires = "dead_letters")]
    pub(crate) dead_letter_after: Option<u32>,

    /// Processes that an item crashes before it becomes a dead letter [default: 2]
    #[arg(long, value_name = "N", requires = "dead_letters")]
    pub(crate) dead_letter_after_crashes: Option<u32>,

    /// How long dead letters are kept [default: until they are deleted]
    #[arg(long, value_name = "TIME", value_parser = positive_duration, requires = "dead_letters")]
    pub(crate) dead_letter_ttl: Option<Duration>,
}
