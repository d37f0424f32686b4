//! Pages of the change feed over HTTP, against a static body of the same bytes over the same stack.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed_server::Server;

use super::{
    Context, Experiment, Goal, Row,
    bare::Bare,
    client::{Client, Rate, ask_for, by_cpu, head},
};
use crate::{
    Result, load,
    measure::{self, Measurement},
    store::Store,
};

pub(super) const EXPERIMENT: Experiment = Experiment {
    rows: &[Row {
        name: "http_feed_pages",
        unit: "pages/s",
        baseline: "static_body",
        goal: Some(Goal::RatioAtLeast(0.7)),
    }],
    run: pages,
};

const ITEMS: u64 = 5000;
const PAGE_ITEMS: u64 = 100;
const CONNECTIONS: u64 = 4;

/// One for each page.
type Requests = Arc<[Arc<[u8]>]>;

fn pages(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("http_pages")?;
    let store = runtime.block_on(Store::written(&folder.join("store"), ITEMS, ITEMS, 1))?;
    let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(server.start())?;
    let requests: Requests = (0..ITEMS / PAGE_ITEMS).map(request).collect::<Result<_>>()?;
    let sample = runtime.block_on(first_page(server.address(), &requests))?;
    let bytes = sample.len();
    let bare = runtime.block_on(Bare::start(sample))?;
    let length = context.scale.round;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(read_for(bare.address, length, &requests)),
        |_| runtime.block_on(read_for(server.address(), length, &requests)),
    )?;
    runtime.block_on(server.stop());
    runtime.block_on(store.engine.close())?;
    let note = format!("{PAGE_ITEMS} items, {bytes} bytes a page, {CONNECTIONS} connections; {}", by_cpu(&rounds));
    Ok(vec![Measurement::of("http_feed_pages", &rounds, |rate| rate.by_time).note(note)])
}

/// The request for the page with this number.
fn request(page: u64) -> Result<Arc<[u8]>> {
    let headers = [
        ("a-im", "Incremental Feed"),
        ("x-ms-max-item-count", &PAGE_ITEMS.to_string()),
        ("x-ms-documentdb-partitionkeyrangeid", "0"),
        ("if-none-match", &format!("\"{}\"", page * PAGE_ITEMS)),
    ];
    let head = head("GET", "/dbs/bench/colls/items/docs", "dbs/bench/colls/items", 0, &headers)?;
    Ok(head.into_bytes().into())
}

async fn first_page(address: SocketAddr, requests: &Requests) -> Result<Bytes> {
    let request = requests.first().ok_or("there are no requests")?;
    let mut client = Client::connect(address).await?;
    let answer = client.ask(request).await?;
    match (answer.status, answer.header("x-ms-item-count")) {
        ("200", Some(count)) if count == PAGE_ITEMS.to_string() => Ok(Bytes::copy_from_slice(answer.body)),
        (status, count) => Err(format!("the feed answered {status} with {count:?} items").into()),
    }
}

/// Reads pages from all over the feed.
async fn read_for(address: SocketAddr, length: Duration, requests: &Requests) -> Result<Rate> {
    let requests = Arc::clone(requests);
    let page = move |number: u64| Arc::clone(&requests[number as usize % requests.len()]);
    ask_for(address, CONNECTIONS, length, "200", page).await
}
