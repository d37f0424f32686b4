//! Point reads while clients run queries that use all the time they get, against point reads of an idle server.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use changefeed_embedded::Durability;
use changefeed_server::Server;
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    Context, Experiment, Goal, Row,
    client::{Client, head},
};
use crate::{
    Result, load,
    measure::{self, Latencies, Measurement},
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[Row {
        name: "hostile_query_read_p99",
        unit: "ms",
        baseline: "idle_read_p99",
        goal: Some(Goal::ValueBelow(50.0)),
    }],
    run: hostile,
};

/// About a quarter of a million combinations of each item.
const QUERY: &str = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.x JOIN b IN c.x WHERE a = b";

const ITEMS: usize = 500;
const QUERIES: usize = 4;

/// Rest between two reads: what is measured is how long one waits, not how many there can be.
const REST: Duration = Duration::from_millis(2);

fn hostile(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("hostile")?;
    let length = context.scale.round;
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Relaxed, 1))?;
    runtime.block_on(async {
        let numbers: Vec<_> = (0..490).collect();
        for n in 0..ITEMS {
            store.container.create(&json!({"id": format!("i{n}"), "pk": "p", "x": numbers})).await?;
        }
        Ok::<_, crate::Error>(())
    })?;
    let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(server.start())?;
    let address = server.address();
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(reads(address, length)),
        |_| runtime.block_on(reads_beside_queries(address, length)),
    )?;
    runtime.block_on(server.stop());
    runtime.block_on(store.engine.close())?;
    let p99 = |latencies: &Latencies| latencies.percentile(99).as_secs_f64() * 1000.0;
    let longest = rounds.iter().map(|round| round.subject.max()).max().unwrap_or_default();
    let note = format!("beside {QUERIES} queries; the longest {:.1} ms", longest.as_secs_f64() * 1000.0);
    Ok(vec![Measurement::of("hostile_query_read_p99", &rounds, p99).note(note)])
}

async fn reads(address: SocketAddr, length: Duration) -> Result<Latencies> {
    let link = "dbs/bench/colls/items/docs/i0";
    let request = head("GET", &format!("/{link}"), link, 0, &[("x-ms-documentdb-partitionkey", "[\"p\"]")])?;
    let mut client = Client::connect(address).await?;
    let (begin, mut latencies) = (Instant::now(), Vec::new());
    while begin.elapsed() < length {
        let asked = Instant::now();
        let answer = client.ask(request.as_bytes()).await?;
        if answer.status != "200" {
            return Err(format!("a read was answered with {}", answer.status).into());
        }
        latencies.push(asked.elapsed());
        tokio::time::sleep(REST).await;
    }
    Ok(Latencies::new(latencies))
}

async fn reads_beside_queries(address: SocketAddr, length: Duration) -> Result<Latencies> {
    let body = json!({ "query": QUERY }).to_string();
    let link = "dbs/bench/colls/items";
    let headers = [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    let request = head("POST", &format!("/{link}/docs"), link, body.len(), &headers)? + &body;
    let mut queries = JoinSet::new();
    for _ in 0..QUERIES {
        let request = request.clone();
        queries.spawn(async move {
            let mut client = Client::connect(address).await?;
            loop {
                let answer = client.ask(request.as_bytes()).await?;
                if answer.status != "200" {
                    return Err::<(), crate::Error>(format!("a query was answered with {}", answer.status).into());
                }
            }
        });
    }
    let latencies = tokio::spawn(reads(address, length)).await??;
    match queries.try_join_next() {
        Some(ended) => ended?.map(|()| latencies),
        None => Ok(latencies),
    }
}
