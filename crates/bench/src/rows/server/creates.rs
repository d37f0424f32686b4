//! Durable creates over HTTP, against the engine in process.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use changefeed_core::{Batch, Container, Write};
use changefeed_embedded::Durability;
use changefeed_server::Server;

use super::{
    CONNECTIONS, Context, Experiment, Row,
    client::{Rate, ask_for, head},
};
use crate::{
    Result, load,
    measure::{self, Measurement},
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[
        Row { name: "http_creates_1", unit: "creates/s", baseline: "engine_in_process_1", goal: None },
        Row { name: "http_creates_32", unit: "creates/s", baseline: "engine_in_process_32", goal: None },
    ],
    run: creates,
};

const BODY_BYTES: usize = 1024;

fn creates(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("http_creates")?;
    let (rounds, length) = (context.scale.rounds, context.scale.round);
    let store = runtime.block_on(Store::open(&folder.join("store"), Durability::Durable, 1))?;
    let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(server.start())?;
    let (path, link) = ("/dbs/bench/colls/items/docs", "dbs/bench/colls/items");
    let head: Arc<str> = head("POST", path, link, BODY_BYTES, &[("x-ms-documentdb-partitionkey", "[\"k\"]")])?.into();
    let next = Arc::new(AtomicU64::new(0));
    let mut measured = Vec::new();
    for (row, connections) in [("http_creates_1", 1), ("http_creates_32", CONNECTIONS)] {
        let taken = measure::interleaved(
            rounds,
            |_| runtime.block_on(in_process(&store.container, connections, length, &next)),
            |_| Ok(runtime.block_on(over_http(server.address(), connections, length, &head, &next))?.by_time),
        )?;
        measured.push(Measurement::of(row, &taken, |rate| *rate).note(format!("{BODY_BYTES} bytes each, synced")));
    }
    runtime.block_on(server.stop());
    runtime.block_on(store.engine.close())?;
    Ok(measured)
}

fn body(next: &AtomicU64) -> Bytes {
    let number = next.fetch_add(1, Ordering::Relaxed);
    let head = format!(r#"{{"id":"i{number}","pk":"k","text":""#);
    let filler = BODY_BYTES.saturating_sub(head.len() + 2);
    Bytes::from(head + &"x".repeat(filler) + "\"}")
}

async fn in_process(container: &Container, writers: u64, length: Duration, next: &Arc<AtomicU64>) -> Result<f64> {
    let start = Instant::now();
    let tasks = (0..writers).map(|_| {
        let (container, next) = (container.clone(), Arc::clone(next));
        tokio::spawn(async move {
            let mut count = 0_u64;
            while start.elapsed() < length {
                container.backend().write(Batch::single(None, Write::Create { body: body(&next) })).await?;
                count += 1;
            }
            Ok(count)
        })
    });
    let writes: u64 = load::join(tasks.collect()).await?.iter().sum();
    Ok(writes as f64 / start.elapsed().as_secs_f64())
}

async fn over_http(
    address: SocketAddr,
    connections: u64,
    length: Duration,
    head: &Arc<str>,
    next: &Arc<AtomicU64>,
) -> Result<Rate> {
    let (head, next) = (Arc::clone(head), Arc::clone(next));
    ask_for(address, connections, length, "201", move |_| [head.as_bytes(), &body(&next)].concat().into()).await
}
