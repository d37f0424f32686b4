//! Pages of the change feed over HTTP, against a static body of the same bytes over the same stack.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use changefeed_server::Server;
use hyper::{HeaderMap, Method, StatusCode};

use super::{
    Context, Experiment, Goal, Row,
    bare::Bare,
    client::{Client, Rate, ask_for, by_cpu, signed},
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

fn pages(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("http_pages")?;
    let store = runtime.block_on(Store::written(&folder.join("store"), ITEMS, ITEMS, 1))?;
    let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into());
    let server = runtime.block_on(server.start())?;
    let headers = signed(
        "get",
        "docs",
        "dbs/bench/colls/items",
        &[
            ("a-im", "Incremental Feed".to_owned()),
            ("x-ms-max-item-count", PAGE_ITEMS.to_string()),
            ("x-ms-documentdb-partitionkeyrangeid", "0".to_owned()),
        ],
    )?;
    let sample = runtime.block_on(first_page(server.address(), &headers))?;
    let bytes = sample.len();
    let bare = runtime.block_on(Bare::start(sample))?;
    let length = context.scale.round;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(read_for(bare.address, length, &headers)),
        |_| runtime.block_on(read_for(server.address(), length, &headers)),
    )?;
    runtime.block_on(server.stop());
    runtime.block_on(store.engine.close())?;
    let note = format!("{PAGE_ITEMS} items, {bytes} bytes a page, {CONNECTIONS} connections; {}", by_cpu(&rounds));
    Ok(vec![Measurement::of("http_feed_pages", &rounds, |rate| rate.by_time).note(note)])
}

async fn first_page(address: SocketAddr, headers: &HeaderMap) -> Result<Bytes> {
    let path = "/dbs/bench/colls/items/docs";
    let answer = Client::connect(address).await?.ask(Method::GET, path, headers, Bytes::new()).await?;
    let count = answer.headers.get("x-ms-item-count").and_then(|count| count.to_str().ok()).unwrap_or("none");
    match answer.status {
        StatusCode::OK if count == PAGE_ITEMS.to_string() => Ok(answer.body),
        status => Err(format!("the feed answered {status} with {count} items").into()),
    }
}

/// Reads pages from all over the feed.
async fn read_for(address: SocketAddr, length: Duration, headers: &HeaderMap) -> Result<Rate> {
    let headers = headers.clone();
    ask_for(address, CONNECTIONS, length, move |client, number| {
        let mut headers = headers.clone();
        Box::pin(async move {
            let after = number * PAGE_ITEMS % (ITEMS - PAGE_ITEMS);
            headers.insert("if-none-match", format!("\"{after}\"").parse()?);
            let answer = client.ask(Method::GET, "/dbs/bench/colls/items/docs", &headers, Bytes::new()).await?;
            match answer.status {
                StatusCode::OK => Ok(()),
                status => Err(format!("a page was answered with {status}").into()),
            }
        })
    })
    .await
}
