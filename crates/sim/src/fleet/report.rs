//! What a fleet did, as a table and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::lease_store::Requests;

/// The result of `--fleet`.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The number of hosts at the start.
    pub hosts: usize,
    /// The number of leases.
    pub leases: usize,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// A time in which nothing happens, after the start; `None` before it was measured.
    pub idle: Option<IdleMinute>,
}

/// One change of the number of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// `start`, `+1`, `x2`, `/2` or `staggered`.
    pub name: &'static str,
    /// The number of hosts after it.
    pub hosts: usize,
    /// Simulated seconds until the leases were balanced.
    pub seconds: f64,
    /// The same in acquire intervals.
    pub cycles: f64,
    /// Requests to the lease store until then.
    pub requests: Requests,
    /// Writes that acquire, request, grant or release, tried for each lease.
    pub ownership_writes_per_lease: f64,
    /// Changes that were delivered more than once.
    pub duplicates: u64,
}

/// Requests in each minute of a time without changes of owners, per host.
#[derive(Clone, Debug, Serialize)]
pub struct IdleMinute {
    /// Writes for each lease that a host owns, the mean of all hosts.
    pub writes_per_lease: f64,
    /// One for each renewal interval.
    pub writes_allowed: f64,
    /// Listings and reads of the feed of the host with most.
    pub most_reads: f64,
    /// One for each acquire interval.
    pub reads_allowed: f64,
    /// Listings and reads of the feed, the mean of all hosts.
    pub mean_reads: f64,
    /// Documents that a host reads, the mean of all hosts.
    pub mean_documents: f64,
}

impl Report {
    /// The report as a table in Markdown.
    pub fn table(&self) -> String {
        let mut text = format!("{} hosts, {} leases\n\n", self.hosts, self.leases);
        text.push_str(
            "| step | hosts | cycles | seconds | writes | of ownership | per lease | conflicts | listings | reads | documents | duplicates |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for step in &self.steps {
            let Requests { writes, ownership_writes, conflicts, listings, documents, .. } = step.requests;
            let Step { name, hosts, seconds, cycles, ownership_writes_per_lease, duplicates, .. } = step;
            let reads = step.requests.reads();
            writeln!(
                text,
                "| {name} | {hosts} | {cycles:.1} | {seconds:.1} | {writes} | {ownership_writes} | {ownership_writes_per_lease:.2} | {conflicts} | \
                 {listings} | {reads} | {documents} | {duplicates} |"
            )
            .expect("invariant: a string takes all text");
        }
        let Some(idle) = &self.idle else { return text };
        let IdleMinute { writes_per_lease, writes_allowed, most_reads, reads_allowed, mean_reads, mean_documents } =
            idle;
        writeln!(
            text,
            "\nidle, per host and minute: {writes_per_lease:.2} writes for each lease (one per renewal: \
             {writes_allowed:.2}), at most {most_reads:.2} and on average {mean_reads:.2} listings and feed reads (one per acquire interval: \
             {reads_allowed:.2}), {mean_documents:.0} documents"
        )
        .expect("invariant: a string takes all text");
        text
    }
}
