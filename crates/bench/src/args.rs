//! The command line.

use std::{path::PathBuf, time::Duration};

use changefeed::LeaseTiming;
use clap::Parser;

/// Measures the store and the processor against raw files, channels and loops, in the same run on the same machine
#[derive(Debug, Parser)]
#[command(name = "changefeed-bench")]
pub(crate) struct Args {
    /// Rows to measure, by name or prefix (see --list); all rows if none is given
    #[arg(value_name = "ROWS")]
    pub(crate) rows: Vec<String>,

    /// Fewer writes and shorter rounds: everything in about five minutes
    #[arg(long)]
    pub(crate) quick: bool,

    /// As little as possible of every row, to see that it can be measured; the values mean nothing
    #[arg(long, conflicts_with = "quick")]
    pub(crate) smoke: bool,

    /// Also writes the results to this file, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,

    /// Where to put the data: a folder in here, removed at the end [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Lists the rows and measures nothing
    #[arg(long)]
    pub(crate) list: bool,

    /// Writes to this folder until killed: what `reopen_after_crash` runs as a child process
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) crash_child: Option<PathBuf>,

    /// Owns leases of a store in this folder and says what they weigh: what `memory_per_lease` runs as a child process
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) memory_child: Option<PathBuf>,

    /// Serves a store in this folder until killed: what `server_ready` runs as a child process
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) serve_child: Option<PathBuf>,

    /// Runs a host on the server with this endpoint until killed: what `remote_takeover_after_kill` runs as child processes
    #[arg(long, value_name = "URL", hide = true, requires = "instance")]
    pub(crate) host_child: Option<String>,

    /// The instance name of that host
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) instance: Option<String>,
}

impl Args {
    /// The arguments of this process; ends it with exit code 2 if they make no sense.
    pub(crate) fn from_command_line() -> Self {
        Self::parse()
    }

    /// How much to measure.
    pub(crate) fn scale(&self) -> Scale {
        match (self.quick, self.smoke) {
            (_, true) => Scale::SMOKE,
            (true, false) => Scale::QUICK,
            (false, false) => Scale::FULL,
        }
    }
}

/// How much to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// The flag that selects it, for child processes.
    pub(crate) flag: Option<&'static str>,
    /// How many rounds, each of the baseline and of the subject.
    pub(crate) rounds: usize,
    /// How long a round of either lasts.
    pub(crate) round: Duration,
    /// Writes before the store is reopened.
    pub(crate) lifecycle_writes: u64,
    /// Items over which these writes go.
    pub(crate) lifecycle_items: u64,
    /// Items in the feed that is read.
    pub(crate) feed_items: u64,
    /// Wake-ups in a round.
    pub(crate) wake_ups: usize,
    /// Items that a processor delivers.
    pub(crate) delivered_items: u64,
    /// Rounds of what takes seconds because of the lease timing.
    pub(crate) slow_rounds: usize,
    /// Items of a container that is split, merged or changed.
    pub(crate) many_items: u64,
    /// Items of a container that clients ask for one of them.
    pub(crate) served_items: u64,
    /// Items of a store that is opened again.
    pub(crate) restart_items: u64,
    /// How long idle leases are watched: until each is renewed once, with the embedded timing.
    pub(crate) idle_leases: Duration,
    /// How long the requests of an idle host are counted.
    pub(crate) idle_host: Duration,
    /// Whether leases of a crashed host expire sooner than by default.
    pub(crate) short_expiration: bool,
}

impl Scale {
    const FULL: Self = Self {
        flag: None,
        rounds: 5,
        round: Duration::from_secs(2),
        lifecycle_writes: 1_000_000,
        lifecycle_items: 200_000,
        feed_items: 200_000,
        wake_ups: 1000,
        delivered_items: 500_000,
        slow_rounds: 3,
        many_items: 3_000_000,
        served_items: 1_000_000,
        restart_items: 1_000_000,
        idle_leases: LeaseTiming::EMBEDDED.renew,
        idle_host: Duration::from_secs(60),
        short_expiration: false,
    };

    const QUICK: Self = Self {
        flag: Some("--quick"),
        rounds: 3,
        round: Duration::from_secs(1),
        lifecycle_writes: 100_000,
        lifecycle_items: 20_000,
        feed_items: 20_000,
        wake_ups: 300,
        delivered_items: 200_000,
        slow_rounds: 1,
        many_items: 300_000,
        served_items: 300_000,
        restart_items: 200_000,
        idle_leases: LeaseTiming::EMBEDDED.renew,
        idle_host: Duration::from_secs(20),
        short_expiration: true,
    };

    const SMOKE: Self = Self {
        flag: Some("--smoke"),
        rounds: 1,
        round: Duration::from_millis(100),
        lifecycle_writes: 2000,
        lifecycle_items: 1000,
        feed_items: 2000,
        wake_ups: 10,
        delivered_items: 2000,
        slow_rounds: 1,
        many_items: 10_000,
        served_items: 10_000,
        restart_items: 5000,
        idle_leases: Duration::from_secs(1),
        idle_host: Duration::from_secs(2),
        short_expiration: true,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(std::iter::once("changefeed-bench").chain(words.iter().copied()))
    }

    #[test]
    fn the_definition_of_the_command_line_is_sound() {
        <Args as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn without_arguments_all_rows_are_measured_in_full() {
        let args = parse(&[]).unwrap();
        assert!(args.rows.is_empty() && args.json.is_none() && args.dir.is_none() && !args.list);
        assert_eq!(args.scale(), Scale::FULL);
    }

    #[test]
    fn flags_and_rows_mix() {
        let args = parse(&["feed", "--quick", "--json", "out.json", "wake_up_p50", "--dir", "/data"]).unwrap();
        assert_eq!(args.rows, ["feed", "wake_up_p50"]);
        assert_eq!(args.scale(), Scale::QUICK);
        assert_eq!(args.json.unwrap().to_str(), Some("out.json"));
        assert_eq!(args.dir.unwrap().to_str(), Some("/data"));
    }

    #[test]
    fn smoke_is_a_scale_of_its_own() {
        assert_eq!(parse(&["--smoke"]).unwrap().scale(), Scale::SMOKE);
        assert!(parse(&["--smoke", "--quick"]).is_err());
    }

    #[test]
    fn an_unknown_flag_is_refused_with_exit_code_2() {
        assert_eq!(parse(&["--fast"]).unwrap_err().exit_code(), 2);
    }
}
