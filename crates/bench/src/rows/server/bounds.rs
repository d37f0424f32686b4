//! What clients can make the server hold: the largest response that it sends, and its memory while clients do not read.

use std::{
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{
    Context, Experiment, Goal, Row,
    client::{Client, head, signed_head},
    start::Child,
};
use crate::{
    Result, load,
    measure::{Measurement, Round},
    process,
};

pub(super) const LARGEST_RESPONSE: Experiment = Experiment {
    rows: &[Row {
        name: "largest_response",
        unit: "MiB",
        baseline: "limit_of_cosmos_db",
        goal: Some(Goal::RatioAtMost(1.0)),
    }],
    run: largest_response,
};

pub(super) const NEVER_READING: Experiment = Experiment {
    rows: &[Row {
        name: "memory_never_reading_clients",
        unit: "MiB",
        baseline: "limit_of_bodies",
        goal: Some(Goal::RatioAtMost(1.25)),
    }],
    run: never_reading,
};

const MIB: f64 = 1024.0 * 1024.0;

/// What Cosmos DB sends in one response, in MiB.
const RESPONSE_MIB: f64 = 4.0;

/// The default of `Limits::max_memory_bytes`, in MiB.
const BODIES_MIB: f64 = 256.0;

/// Items of half a MiB, of which eight make a page.
const ITEMS: usize = 40;
const ITEM_BYTES: usize = 512 * 1024;

/// Clients that ask for a page and never read it: more than the limit lets in.
const CLIENTS: usize = 200;

/// How long the memory of the server is watched: shorter than its write timeout.
const WATCH: Duration = Duration::from_secs(8);

const CONTAINER: &str = "dbs/bench/colls/items";
const DOCS: &str = "/dbs/bench/colls/items/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", "[\"p\"]");

fn largest_response(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("largest_response")?;
    let child = Child::start(&folder.join("store"))?;
    let (bytes, what) = runtime.block_on(largest(child.address))?;
    let rounds = [Round { baseline: RESPONSE_MIB, subject: bytes as f64 / MIB }];
    let note = format!("{what}, of {ITEMS} items of {} KiB", ITEM_BYTES / 1024);
    Ok(vec![Measurement::of("largest_response", &rounds, |value| *value).note(note)])
}

/// Asks for as much as each kind of request can ask for; the longest body, and the request that it answered.
async fn largest(address: SocketAddr) -> Result<(usize, &'static str)> {
    let mut client = Client::with_buffer(address, 256 * 1024 * 1024).await?;
    let start = {
        create(&mut client).await?;
        let now = feed_head(Some("*"))?;
        client.ask(now.as_bytes()).await?.header("etag").ok_or("a feed without etag")?.to_owned()
    };
    fill(&mut client).await?;
    let query = json!({ "query": "SELECT c, c AS d, c AS e FROM c" }).to_string();
    let kind = [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "True")];
    let query = head("POST", DOCS, CONTAINER, query.len(), &kind)? + &query;
    let reads: Vec<_> = (0..100).map(|n| json!({ "operationType": "Read", "id": id(n % ITEMS) })).collect();
    let reads = json!(reads).to_string();
    let batch = [KEY, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-continue-on-error", "True")];
    let batch = head("POST", DOCS, CONTAINER, reads.len(), &batch)? + &reads;
    let list = head("GET", DOCS, CONTAINER, 0, &[("x-ms-max-item-count", "1000")])?;
    let latest = head("GET", DOCS, CONTAINER, 0, &[("a-im", "Incremental Feed"), ("x-ms-max-item-count", "1000")])?;
    let mut largest = (0, "none");
    for (what, request) in [("query", query), ("batch of reads", batch), ("list", list), ("feed", latest)] {
        let bytes = client.ask(request.as_bytes()).await?.body.len();
        largest = largest.max((bytes, what));
    }
    for n in 0..ITEMS {
        let link = format!("{CONTAINER}/docs/{}", id(n));
        let delete = head("DELETE", &format!("/{link}"), &link, 0, &[KEY])?;
        client.expect("204", delete.as_bytes()).await?;
    }
    let versions = feed_head(Some(&start))?;
    let bytes = client.ask(versions.as_bytes()).await?.body.len();
    Ok(largest.max((bytes, "feed of all versions")))
}

fn feed_head(after: Option<&str>) -> Result<String> {
    let after = after.unwrap_or("*");
    let headers = [("a-im", "Full-Fidelity Feed"), ("if-none-match", after), ("x-ms-max-item-count", "1000")];
    head("GET", DOCS, CONTAINER, 0, &headers)
}

fn id(n: usize) -> String {
    format!("i{n}")
}

/// Creates a container whose feed of all versions has previous images, the largest pages that there are.
async fn create(client: &mut Client) -> Result<()> {
    let database = json!({ "id": "bench" }).to_string();
    let request = signed_head(("POST", "dbs"), "/dbs", "", database.len(), &[])? + &database;
    client.expect("201", request.as_bytes()).await?;
    let images = json!({ "supportedFeatures": { "allVersionsAndDeletes": { "mode": 3 } } });
    let container = json!({
        "id": "items", "partitionKey": { "paths": ["/pk"], "version": 2 }, "previousImageRetentionPolicy": images,
    });
    let container = container.to_string();
    let request = signed_head(("POST", "colls"), "/dbs/bench/colls", "dbs/bench", container.len(), &[])? + &container;
    client.expect("201", request.as_bytes()).await
}

async fn fill(client: &mut Client) -> Result<()> {
    for n in 0..ITEMS {
        let body = json!({ "id": id(n), "pk": "p", "text": "x".repeat(ITEM_BYTES) }).to_string();
        let request = head("POST", DOCS, CONTAINER, body.len(), &[KEY, ("prefer", "return=minimal")])? + &body;
        client.expect("201", request.as_bytes()).await?;
    }
    Ok(())
}

fn never_reading(context: &Context) -> Result<Vec<Measurement>> {
    let runtime = load::runtime()?;
    let folder = context.place.folder("never_reading")?;
    let child = Child::start(&folder.join("store"))?;
    let grown = runtime.block_on(async {
        let mut client = Client::connect(child.address).await?;
        create(&mut client).await?;
        fill(&mut client).await?;
        let before = resident(&child)?;
        let list = head("GET", DOCS, CONTAINER, 0, &[("x-ms-max-item-count", "1000")])?;
        let mut unread = Vec::new();
        for _ in 0..CLIENTS {
            let mut stream = TcpStream::connect(child.address).await?;
            stream.write_all(list.as_bytes()).await?;
            unread.push(stream);
        }
        let (begin, mut most) = (Instant::now(), before);
        while begin.elapsed() < WATCH {
            most = most.max(resident(&child)?);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(unread);
        Result::Ok(most.saturating_sub(before))
    })?;
    let rounds = [Round { baseline: BODIES_MIB, subject: grown as f64 / MIB }];
    let note = format!("{CLIENTS} clients, a page of 4 MiB each, watched for {} s", WATCH.as_secs());
    Ok(vec![Measurement::of("memory_never_reading_clients", &rounds, |value| *value).note(note)])
}

fn resident(child: &Child) -> Result<u64> {
    process::resident_bytes_of(&fs::read_to_string(format!("/proc/{}/status", child.id()))?)
}
