//! Point reads over HTTP.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_server::Server;

use super::{
    CONNECTIONS, Context, Experiment, Goal, Row,
    bare::Bare,
    client::{Client, Rate, ask_for, by_cpu, head},
};
use crate::{
    Result, documents, load,
    measure::{self, Measurement},
    rows::point_reads,
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[
        Row {
            name: "http_point_reads_1",
            unit: "reads/s",
            baseline: "bare_hyper_1",
            goal: Some(Goal::RatioAtLeast(0.7)),
        },
        Row {
            name: "http_point_reads_32",
            unit: "reads/s",
            baseline: "bare_hyper_32",
            goal: Some(Goal::RatioAtLeast(0.7)),
        },
        Row { name: "http_point_reads_32_engine", unit: "reads/s", baseline: "engine_in_process", goal: None },
    ],
    run: reads,
};

/// A request is made ready for each of so many items.
const ITEMS: u64 = 1000;

/// One for each item.
type Requests = Arc<[Arc<[u8]>]>;

fn reads(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("http_reads")?;
    let (rounds, length) = (context.scale.rounds, context.scale.round);
    let store = runtime.block_on(Store::filled(&folder.join("store"), ITEMS, 1))?;
    let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(server.start())?;
    let requests: Requests = (0..ITEMS).map(request).collect::<Result<_>>()?;
    let sample = runtime.block_on(sample(server.address(), &requests))?;
    let bytes = sample.len();
    let bare = runtime.block_on(Bare::start(sample))?;
    let over_http =
        |address: SocketAddr, connections: u64| runtime.block_on(read_for(address, connections, length, &requests));
    let one = measure::interleaved(rounds, |_| over_http(bare.address, 1), |_| over_http(server.address(), 1))?;
    let many = measure::interleaved(
        rounds,
        |_| over_http(bare.address, CONNECTIONS),
        |_| over_http(server.address(), CONNECTIONS),
    )?;
    let engine = measure::interleaved(
        rounds,
        |seed| runtime.block_on(point_reads::read_for(&store.container, ITEMS, length, seed as u64)),
        |_| Ok(over_http(server.address(), CONNECTIONS)?.by_time),
    )?;
    runtime.block_on(server.stop());
    runtime.block_on(store.engine.close())?;
    let note = |rounds| format!("{bytes} bytes each, client on the same cores; {}", by_cpu(rounds));
    Ok(vec![
        Measurement::of("http_point_reads_1", &one, |rate| rate.by_time).note(note(&one)),
        Measurement::of("http_point_reads_32", &many, |rate| rate.by_time).note(note(&many)),
        Measurement::of("http_point_reads_32_engine", &engine, |rate| *rate).note("client on the same cores"),
    ])
}

fn request(item: u64) -> Result<Arc<[u8]>> {
    let link = format!("dbs/bench/colls/items/docs/{}", documents::id(item));
    let key = format!("[\"{}\"]", documents::partition_key(item));
    let head = head("GET", &format!("/{link}"), &link, 0, &[("x-ms-documentdb-partitionkey", &key)])?;
    Ok(head.into_bytes().into())
}

async fn sample(address: SocketAddr, requests: &Requests) -> Result<Bytes> {
    let request = requests.first().ok_or("there are no requests")?;
    let mut client = Client::connect(address).await?;
    let answer = client.ask(request).await?;
    match answer.status {
        "200" => Ok(Bytes::copy_from_slice(answer.body)),
        status => Err(format!("a read was answered with {status}").into()),
    }
}

async fn read_for(address: SocketAddr, connections: u64, length: Duration, requests: &Requests) -> Result<Rate> {
    let requests = Arc::clone(requests);
    let read = move |number: u64| Arc::clone(&requests[number as usize * 7919 % requests.len()]);
    ask_for(address, connections, length, "200", read).await
}
