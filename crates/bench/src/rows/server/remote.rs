//! A processor in one process over a store in another, through the server: delivery against a bare HTTP loop over the
//! same feed, and how long after a commit the delegate is called.

use std::{
    env,
    hint::black_box,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use changefeed_core::Container;
use changefeed_embedded::Durability;
use changefeed_remote::{EMULATOR_KEY, Server};

use super::{
    Context, Experiment, Goal, Row,
    client::{Client, head},
};
use crate::{
    Result, load,
    measure::{self, Measurement, Spread},
    rows::{
        feed,
        processor::{delivery, latency},
        wake_up::micros,
    },
    store::{Store, StoreWriter},
};

pub(super) const DELIVERY: Experiment = Experiment {
    rows: &[Row {
        name: "remote_delivery",
        unit: "changes/s",
        baseline: "http_feed_loop",
        goal: Some(Goal::RatioAtLeast(0.9)),
    }],
    run: delivery_through_the_server,
};

pub(super) const LATENCY: Experiment = Experiment {
    rows: &[
        Row {
            name: "remote_commit_to_delegate_p50",
            unit: "us",
            baseline: "changed_waiter",
            goal: Some(Goal::ValueBelow(5000.0)),
        },
        Row { name: "remote_commit_to_delegate_p99", unit: "us", baseline: "changed_waiter", goal: None },
    ],
    run: latency_through_the_server,
};

const RANGES: usize = 4;

/// As many changes a page as the processor asks for.
const PAGE_ITEMS: &str = "1000";

/// A server in a process of its own.
struct Served {
    child: Child,
    endpoint: String,
}

impl Served {
    fn start(folder: &Path) -> Result<Self> {
        let mut child =
            Command::new(env::current_exe()?).arg("--serve-child").arg(folder).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let endpoint = line.trim().strip_prefix("ready ").ok_or("the child was never ready")?.to_owned();
        Ok(Self { child, endpoint })
    }

    fn address(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.trim_start_matches("http://").trim_end_matches('/').parse()?)
    }

    /// The containers `items` and `leases`, through the client.
    async fn containers(&self, ranges: usize) -> Result<(Container, Container)> {
        let database = Server::connect(&self.endpoint, EMULATOR_KEY)?.database("bench");
        let items = database.container("items").partition_key("/pk").ranges(ranges).open_or_create().await?;
        Ok((items, database.container("leases").open_or_create().await?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn delivery_through_the_server(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("remote_delivery")?.join("store");
    let items = context.scale.delivered_items;
    runtime.block_on(async {
        Ok::<_, crate::Error>(Store::written(&folder, items, items, RANGES).await?.engine.close().await?)
    })?;
    let served = Served::start(&folder)?;
    let (container, leases) = runtime.block_on(served.containers(RANGES))?;
    // Everything is read once, so that it is warm.
    runtime.block_on(feed::read_all(&container))?;
    let address = served.address()?;
    let mut loops = Vec::new();
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| {
            let begin = Instant::now();
            let read = runtime.block_on(http_loop(address))?;
            if read != items {
                return Err(format!("the loop read {read} changes of {items}").into());
            }
            Ok(items as f64 / begin.elapsed().as_secs_f64())
        },
        |round| {
            let begin = Instant::now();
            runtime.block_on(feed::read_all(&container))?;
            loops.push(items as f64 / begin.elapsed().as_secs_f64());
            let name = format!("remote-{round}");
            let deliver = delivery::deliver_all(container.clone(), leases.clone(), name, items);
            Ok(runtime.block_on(async { tokio::spawn(deliver).await? })?.whole)
        },
    )?;
    let own = Spread::of(loops).median;
    let note = format!(
        "{items} items, {RANGES} ranges, the server in a process of its own; a loop over `read_changes` of the client \
         {own:.0} changes/s"
    );
    Ok(vec![Measurement::of("remote_delivery", &rounds, |rate| *rate).note(note)])
}

/// Reads the whole feed as an SDK would, one connection for each range, without looking into the items.
async fn http_loop(address: SocketAddr) -> Result<u64> {
    let tasks = (0..RANGES).map(|range| {
        tokio::spawn(async move {
            let mut client = Client::connect(address).await?;
            let (mut read, mut etag) = (0, "\"0\"".to_owned());
            loop {
                let range = range.to_string();
                let headers = [
                    ("a-im", "Incremental Feed"),
                    ("x-ms-max-item-count", PAGE_ITEMS),
                    ("x-ms-documentdb-partitionkeyrangeid", range.as_str()),
                    ("if-none-match", etag.as_str()),
                ];
                let request = head("GET", "/dbs/bench/colls/items/docs", "dbs/bench/colls/items", 0, &headers)?;
                let answer = client.ask(request.as_bytes()).await?;
                if answer.status == "304" {
                    return Ok(read);
                }
                let count: u64 = answer.header("x-ms-item-count").ok_or("a page without a count")?.parse()?;
                read += count;
                black_box((answer.body.first(), answer.body.last()));
                etag = answer.header("etag").ok_or("a page without an etag")?.to_owned();
            }
        })
    });
    Ok(load::join(tasks.collect()).await?.iter().sum())
}

fn latency_through_the_server(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("remote_latency")?.join("store");
    // Made here and left at once: a handle would keep the folder locked.
    runtime.block_on(async {
        Ok::<_, crate::Error>(Store::open(&folder, Durability::Durable, 1).await?.engine.close().await?)
    })?;
    let served = Served::start(&folder)?;
    let (container, leases) = runtime.block_on(served.containers(1))?;
    let rounds = (0..context.scale.rounds).map(|round| {
        let (name, writer) = (format!("remote-{round}"), StoreWriter::new(container.clone()));
        let samples = context.scale.wake_ups;
        let delivering = latency::round_of(name, container.clone(), leases.clone(), writer, samples);
        runtime.block_on(async { tokio::spawn(delivering).await? })
    });
    let rounds = rounds.collect::<Result<Vec<_>>>()?;
    let row = |name, percent| {
        let handed_over = |delays: &latency::Delays| micros(delays.handed_over.percentile(percent));
        let whole = Measurement::of(name, &rounds, handed_over).value.median;
        let committed = |delays: &latency::Delays| micros(delays.committed.percentile(percent));
        Measurement::of(name, &rounds, committed).note(format!(
            "from the first sign of a durable commit, seen from another process; from handing it over {whole:.0} us"
        ))
    };
    Ok(vec![row("remote_commit_to_delegate_p50", 50), row("remote_commit_to_delegate_p99", 99)])
}
