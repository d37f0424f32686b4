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
    measure::{self, Measurement, Round, Spread},
    process,
    rows::{
        feed,
        processor::{
            delivery::{self, Rate},
            latency,
        },
        wake_up::micros,
    },
    store::{Store, StoreWriter},
};

pub(super) const DELIVERY: Experiment = Experiment {
    rows: &[
        Row {
            name: "remote_delivery",
            unit: "changes/s",
            baseline: "http_feed_loop",
            goal: Some(Goal::RatioAtLeast(0.9)),
        },
        Row { name: "remote_delivery_embedded", unit: "changes/s", baseline: "embedded_processor", goal: None },
    ],
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
pub(super) struct Served {
    child: Child,
    pub(super) endpoint: String,
}

impl Served {
    pub(super) fn start(folder: &Path) -> Result<Self> {
        let mut child =
            Command::new(env::current_exe()?).arg("--serve-child").arg(folder).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let endpoint = line.trim().strip_prefix("ready ").ok_or("the child was never ready")?.to_owned();
        Ok(Self { child, endpoint })
    }

    pub(super) fn address(&self) -> Result<SocketAddr> {
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
    // A folder is open in one process at a time, so the store in this process has its turn before the server.
    let embedded = runtime.block_on(delivery_in_process(&folder, context.scale.rounds, items))?;
    let served = Served::start(&folder)?;
    let (container, leases) = runtime.block_on(served.containers(RANGES))?;
    // Everything is read once, so that it is warm.
    runtime.block_on(feed::read_all(&container))?;
    let address = served.address()?;
    let mut loops = Vec::new();
    // What both processes spend counts: on a busy machine a share of time says more about its other work.
    let cpu =
        || Ok::<_, crate::Error>(process::cpu_seconds()? + process::cpu_seconds_of(&served.child.id().to_string())?);
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| {
            let (begin, spent) = (Instant::now(), cpu()?);
            let read = runtime.block_on(http_loop(address))?;
            if read != items {
                return Err(format!("the loop read {read} changes of {items}").into());
            }
            let whole = items as f64 / begin.elapsed().as_secs_f64();
            Ok(Delivered { whole, started: whole, start_up: 0.0, by_cpu: items as f64 / (cpu()? - spent) })
        },
        |round| {
            let begin = Instant::now();
            runtime.block_on(feed::read_all(&container))?;
            loops.push(items as f64 / begin.elapsed().as_secs_f64());
            let (name, spent) = (format!("remote-{round}"), cpu()?);
            let deliver = delivery::deliver_all(container.clone(), leases.clone(), name, items);
            let Rate { whole, started, start_up, .. } = runtime.block_on(async { tokio::spawn(deliver).await? })?;
            Ok(Delivered { whole, started, start_up, by_cpu: items as f64 / (cpu()? - spent) })
        },
    )?;
    let own = Spread::of(loops).median;
    let ratio = |value: fn(&Delivered) -> f64| Measurement::of("remote_delivery", &rounds, value).ratio.median;
    let note = format!(
        "{items} items, {RANGES} ranges, the server in a process of its own; ratio without start-up ({:.0} ms) {:.2}, by \
         CPU time of both processes {:.2}; a loop over `read_changes` of the client {own:.0} changes/s",
        Spread::of(rounds.iter().map(|round| round.subject.start_up)).median,
        ratio(|rate| rate.started),
        ratio(|rate| rate.by_cpu)
    );
    let apart = rounds.iter().zip(embedded).map(|(round, baseline)| Round { baseline, subject: round.subject.whole });
    let apart: Vec<_> = apart.collect();
    Ok(vec![
        Measurement::of("remote_delivery", &rounds, |rate| rate.whole).note(note),
        Measurement::of("remote_delivery_embedded", &apart, |rate| *rate)
            .note("the same processor over the same store in its own process, just before"),
    ])
}

/// What one round gave, in changes per second.
struct Delivered {
    whole: f64,
    /// From the first call of the delegate on.
    started: f64,
    /// Until the first call of the delegate, in milliseconds.
    start_up: f64,
    /// Per second of processor time of both processes.
    by_cpu: f64,
}

/// Rates of the processor over the store in this process.
async fn delivery_in_process(folder: &Path, rounds: usize, items: u64) -> Result<Vec<f64>> {
    let store = Store::open(folder, Durability::Durable, RANGES).await?;
    let leases = store.leases().await?;
    feed::read_all(&store.container).await?;
    let mut rates = Vec::new();
    for round in 0..rounds {
        let deliver =
            delivery::deliver_all(store.container.clone(), leases.clone(), format!("embedded-{round}"), items);
        rates.push(tokio::spawn(deliver).await??.whole);
    }
    drop(leases);
    store.engine.close().await?;
    Ok(rates)
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
