//! Requests whose cost must not grow with what they do not touch: pages of one item, reads by resource id, long queries.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use changefeed_core::ResourceId;
use changefeed_embedded::Durability;
use changefeed_server::Server;
use serde_json::json;
use tokio::runtime::Runtime;

use super::{
    Context, Experiment, Goal, Row,
    client::{Client, head},
};
use crate::{
    Result, load,
    measure::{self, Measurement},
    place::Folder,
    rows::many_items::fill,
    store::Store,
};

pub(super) const MANY_ITEMS: Experiment = Experiment {
    rows: &[
        Row {
            name: "one_item_page_1m_items",
            unit: "ms",
            baseline: "one_item_page_1k_items",
            goal: Some(Goal::RatioAtMost(3.0)),
        },
        Row {
            name: "unknown_resource_id_1m_items",
            unit: "ms",
            baseline: "unknown_resource_id_1k_items",
            goal: Some(Goal::RatioAtMost(3.0)),
        },
    ],
    run: many_items,
};

pub(super) const LONG_QUERY: Experiment = Experiment {
    rows: &[Row {
        name: "or_terms_large_item",
        unit: "ms",
        baseline: "or_terms_small_item",
        goal: Some(Goal::RatioAtMost(3.0)),
    }],
    run: long_query,
};

const FEW_ITEMS: u64 = 1000;

/// Terms of the long query, each of which reads a member that the item does not have.
const TERMS: usize = 40_000;
const LARGE_ITEM_BYTES: usize = 1_000_000;

const CONTAINER: &str = "dbs/bench/colls/items";
const DOCS: &str = "/dbs/bench/colls/items/docs";

/// A store behind a server, both in this process.
struct Served {
    store: Store,
    server: Server,
}

impl Served {
    fn start(runtime: &Runtime, folder: &Folder, name: &str) -> Result<Self> {
        runtime.block_on(async {
            let store = Store::open(&folder.join(name), Durability::Relaxed, 1).await?;
            let server = Server::builder(store.engine.catalog()).listen(([127, 0, 0, 1], 0).into()).start().await?;
            Ok(Self { store, server })
        })
    }

    fn stop(self, runtime: &Runtime) -> Result<()> {
        runtime.block_on(async {
            self.server.stop().await;
            self.store.engine.close().await?;
            Ok(())
        })
    }
}

fn many_items(context: &Context) -> Result<Vec<Measurement>> {
    let items = context.scale.served_items;
    let runtime = load::runtime()?;
    let folder = context.place.folder("many_items")?;
    let (few, many) = (Served::start(&runtime, &folder, "few")?, Served::start(&runtime, &folder, "many")?);
    runtime.block_on(fill(&few.store.container, FEW_ITEMS))?;
    runtime.block_on(fill(&many.store.container, items))?;
    let length = context.scale.round;
    let page = head("GET", DOCS, CONTAINER, 0, &[("a-im", "Incremental Feed"), ("x-ms-max-item-count", "1")])?;
    let measured = |served: &Served, request: &str, status: &'static str| {
        runtime.block_on(mean_millis(served.server.address(), request, status, length))
    };
    let pages = measure::interleaved(
        context.scale.rounds,
        |_| measured(&few, &page, "200"),
        |_| measured(&many, &page, "200"),
    )?;
    let (few_rid, many_rid) = (unknown_item(&few)?, unknown_item(&many)?);
    // The name of an item is not enough without its partition key, and no item has the resource id.
    let reads = measure::interleaved(
        context.scale.rounds,
        |_| measured(&few, &few_rid, "400"),
        |_| measured(&many, &many_rid, "400"),
    )?;
    few.stop(&runtime)?;
    many.stop(&runtime)?;
    let note = format!("{} k items, mean of one request after the other", items / 1000);
    Ok(vec![
        Measurement::of("one_item_page_1m_items", &pages, |millis| *millis).note(note.clone()),
        Measurement::of("unknown_resource_id_1m_items", &reads, |millis| *millis).note(note),
    ])
}

/// A read of an item by a resource id that no item has.
fn unknown_item(served: &Served) -> Result<String> {
    let identity = served.store.container.identity();
    let (database, container) = (identity.database, identity.container);
    let number = container.container_number().ok_or("a container without a number")?;
    let rid = ResourceId::document(database.database_number(), number, 1 << 40)?.to_string();
    let path = format!("/dbs/{database}/colls/{container}/docs/{rid}");
    head("GET", &path, &rid.to_ascii_lowercase(), 0, &[])
}

fn long_query(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("long_query")?;
    let (small, large) = (Served::start(&runtime, &folder, "small")?, Served::start(&runtime, &folder, "large")?);
    for (served, bytes) in [(&small, 10), (&large, LARGE_ITEM_BYTES)] {
        let item = json!({ "id": "1", "pk": "p", "text": "x".repeat(bytes) });
        runtime.block_on(served.store.container.create(&item))?;
    }
    let query = json!({ "query": format!("SELECT VALUE c.id FROM c WHERE {}false", "c.a = 1 OR ".repeat(TERMS)) });
    let query = query.to_string();
    let kind = [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    let request = head("POST", DOCS, CONTAINER, query.len(), &kind)? + &query;
    let length = context.scale.round;
    let rounds = measure::interleaved(
        context.scale.rounds,
        |_| runtime.block_on(mean_millis(small.server.address(), &request, "200", length)),
        |_| runtime.block_on(mean_millis(large.server.address(), &request, "200", length)),
    )?;
    small.stop(&runtime)?;
    large.stop(&runtime)?;
    let note = format!("{TERMS} terms over one item of {} KB", LARGE_ITEM_BYTES / 1000);
    Ok(vec![Measurement::of("or_terms_large_item", &rounds, |millis| *millis).note(note)])
}

/// The mean length of a request, asked over and over on one connection until `length` is over, at least once.
async fn mean_millis(address: SocketAddr, request: &str, status: &str, length: Duration) -> Result<f64> {
    let mut client = Client::connect(address).await?;
    client.expect(status, request.as_bytes()).await?;
    let (begin, mut count) = (Instant::now(), 0.0);
    while begin.elapsed() < length || count == 0.0 {
        client.expect(status, request.as_bytes()).await?;
        count += 1.0;
    }
    Ok(begin.elapsed().as_secs_f64() * 1000.0 / count)
}
