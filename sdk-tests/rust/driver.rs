//! 26 steps through the SDK, one after the other: `driver ENDPOINT [text]` prints OK or FAIL for each.

use azure_data_cosmos::feed::*;
use azure_data_cosmos::models::*;
use azure_data_cosmos::options::*;
use azure_data_cosmos::*;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::future::Future;
#[derive(Debug, Clone, Serialize, Deserialize)]
struct It {
    id: String,
    pk: String,
    #[serde(default)]
    v: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    s: Option<String>,
}
fn it(id: &str, pk: &str, v: i64) -> It {
    It { id: id.into(), pk: pk.into(), v, s: None }
}
type R<T> = std::result::Result<T, Box<dyn std::error::Error>>;
/// Runs the shell command in `SPLIT_CMD`, with `{db}`, `{coll}` and `{range}` filled in.
fn split(db: &str, coll: &str, range: &str) -> String {
    let command = std::env::var("SPLIT_CMD").expect("SPLIT_CMD says how to split a range");
    let command = command.replace("{db}", db).replace("{coll}", coll).replace("{range}", range);
    let done = std::process::Command::new("sh").arg("-c").arg(command).output().unwrap();
    String::from_utf8_lossy(&done.stdout).into_owned()
}
async fn step<T: std::fmt::Debug>(n: &str, f: impl Future<Output = R<T>>) -> Option<T> {
    match tokio::time::timeout(std::time::Duration::from_secs(20), f).await {
        Err(_) => {
            println!("FAIL {n} -> timeout");
            None
        }
        Ok(Err(e)) => {
            let s = format!("{e}");
            println!("FAIL {n} -> {}", s.chars().take(600).collect::<String>());
            None
        }
        Ok(Ok(v)) => {
            let s = format!("{v:?}");
            println!("OK   {n} -> {}", s.chars().take(420).collect::<String>());
            Some(v)
        }
    }
}
async fn drain(
    c: &clients::ContainerClient,
    scope: FeedScope,
    start: ChangeFeedStartFrom,
    o: ChangeFeedOptions,
    max: usize,
) -> R<(Vec<String>, String)> {
    let mut pages = c.query_change_feed::<serde_json::Value>(scope, start, Some(o)).await?;
    let mut out = vec![];
    let mut emp = 0;
    for _ in 0..max {
        let Some(p) = pages.next().await else { break };
        let p = p?;
        if p.items().is_empty() {
            out.push("304".into());
            emp += 1;
            if emp >= 4 {
                break;
            }
            continue;
        }
        emp = 0;
        for i in p.items() {
            out.push(format!(
                "{:?}:{}",
                i.operation_type(),
                i.current().map(|x| x["id"].to_string()).unwrap_or_else(|| format!(
                    "prev {}",
                    i.previous().map(|x| x["id"].to_string()).unwrap_or_default()
                ))
            ));
        }
        out.push("|".into());
    }
    let t = pages.to_continuation_token()?;
    let t = serde_json::to_string(&t).unwrap_or_else(|_| format!("{t:?}"));
    Ok((out, t))
}
#[tokio::main]
async fn main() -> R<()> {
    let ep = std::env::args().nth(1).unwrap();
    let bin = std::env::args().nth(2).as_deref() != Some("text");
    let key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
    let acct = AccountReference::with_authentication_key(
        ep.parse::<AccountEndpoint>()?,
        azure_core::credentials::Secret::from(key),
    );
    let mut b = CosmosClient::builder();
    if !bin {
        b = b.with_binary_encoding_options(BinaryEncodingOptions::new().with_enabled(false));
    }
    let cl = match b.build(acct, RoutingStrategy::ProximityTo("South Central US".into())).await {
        Ok(c) => c,
        Err(x) => {
            println!("FAIL client {x}");
            return Ok(());
        }
    };
    println!("OK   client");
    step("create_database", async { Ok(cl.create_database("db1", None).await?.status()) }).await;
    let db = cl.database_client("db1");
    step("create_container", async {
        Ok(db
            .create_container(ContainerProperties::new("c1", PartitionKeyDefinition::from("/pk")), None)
            .await?
            .status())
    })
    .await;
    step("create_container_avad", async {
        Ok(db
            .create_container(
                ContainerProperties::new("cavad", PartitionKeyDefinition::from("/pk")).with_change_feed_policy(
                    ChangeFeedPolicy::default().with_retention_duration(std::time::Duration::from_secs(600)),
                ),
                None,
            )
            .await?
            .status())
    })
    .await;
    let c = match db.container_client("c1", None).await {
        Ok(c) => c,
        Err(x) => {
            println!("FAIL container_client {x}");
            return Ok(());
        }
    };
    println!("OK   container_client");
    step("create_item", async { Ok(c.create_item("a", "1", &it("1", "a", 1), None).await?.status()) }).await;
    for i in 2..9 {
        let pk = "abcdefgh".chars().nth(i % 8).unwrap().to_string();
        c.create_item(
            pk.clone(),
            &i.to_string(),
            &It { s: Some("héllo wörld".into()), ..it(&i.to_string(), &pk, i as i64 * 1000) },
            None,
        )
        .await
        .ok();
    }
    let et = step("read_item", async {
        let r = c.read_item("a", "1", None).await?;
        let h = r.headers().etag().map(|x| x.to_string());
        let m: It = r.into_model()?;
        Ok((h, m))
    })
    .await
    .and_then(|x| x.0);
    step("read_404", async {
        match c.read_item("a", "zz", None).await {
            Ok(r) => Ok(format!("{:?}", r.status())),
            Err(x) => Ok(format!("err {:?}", x.status())),
        }
    })
    .await;
    step("upsert_item", async { Ok(c.upsert_item("a", "1", &it("1", "a", 2), None).await?.status()) }).await;
    if let Some(t) = et {
        step("replace_stale", async {
            match c
                .replace_item(
                    "a",
                    "1",
                    &it("1", "a", 3),
                    Some(ItemWriteOptions::default().with_precondition(Precondition::if_match(t))),
                )
                .await
            {
                Ok(r) => Ok(format!("{:?}", r.status())),
                Err(x) => Ok(format!("err {:?}", x.status())),
            }
        })
        .await;
    }
    step("delete_item", async { Ok(c.delete_item("a", "8", None).await?.status()) }).await;
    step("query_partition", async {
        let mut q = c.query_items::<serde_json::Value>("SELECT * FROM c", FeedScope::partition("a"), None).await?;
        let mut o = vec![];
        while let Some(x) = q.next().await {
            o.push(x?["id"].to_string())
        }
        Ok(o)
    })
    .await;
    step("query_cross", async {
        let mut q = c
            .query_items::<serde_json::Value>("SELECT * FROM c WHERE c.v > 1", FeedScope::full_container(), None)
            .await?;
        let mut o = vec![];
        while let Some(x) = q.next().await {
            o.push(x?["id"].to_string())
        }
        Ok(o)
    })
    .await;
    step("query_order", async {
        let mut q = c
            .query_items::<serde_json::Value>("SELECT * FROM c ORDER BY c.v DESC", FeedScope::full_container(), None)
            .await?;
        let mut o = vec![];
        while let Some(x) = q.next().await {
            o.push(x?["id"].to_string())
        }
        Ok(o)
    })
    .await;
    step("read_feed_ranges", async { Ok(c.read_feed_ranges(None).await?) }).await;
    let mx = MaxItemCountHint::Limit(3.try_into().unwrap());
    let d = ChangeFeedOptions::default;
    step(
        "cf_beginning",
        drain(&c, FeedScope::full_container(), ChangeFeedStartFrom::Beginning, d().with_max_item_count(mx), 20),
    )
    .await;
    let now = step("cf_now", drain(&c, FeedScope::full_container(), ChangeFeedStartFrom::Now, d(), 20)).await;
    c.upsert_item("b", "n1", &it("n1", "b", 5), None).await?;
    c.upsert_item("c", "n2", &it("n2", "c", 5), None).await?;
    if let Some((_, t)) = &now {
        let tok: ContinuationToken = serde_json::from_str(t)?;
        step(
            "cf_continuation",
            drain(&c, FeedScope::full_container(), ChangeFeedStartFrom::Now, d().with_continuation_token(tok), 20),
        )
        .await;
    }
    step("cf_partition_key", drain(&c, FeedScope::partition("a"), ChangeFeedStartFrom::Beginning, d(), 20)).await;
    let fr = c.read_feed_ranges(None).await?;
    step("cf_feed_range", drain(&c, FeedScope::range(fr[0].clone()), ChangeFeedStartFrom::Beginning, d(), 20)).await;
    let av = step(
        "cf_avad_now",
        drain(
            &c,
            FeedScope::full_container(),
            ChangeFeedStartFrom::Now,
            d().with_mode(ChangeFeedMode::AllVersionsAndDeletes),
            20,
        ),
    )
    .await;
    c.create_item("a", "z1", &it("z1", "a", 1), None).await?;
    c.replace_item("a", "z1", &it("z1", "a", 2), None).await?;
    c.delete_item("a", "z1", None).await?;
    if let Some((_, t)) = &av {
        let tok: ContinuationToken = serde_json::from_str(t)?;
        step(
            "cf_avad_continuation",
            drain(
                &c,
                FeedScope::full_container(),
                ChangeFeedStartFrom::Now,
                d().with_mode(ChangeFeedMode::AllVersionsAndDeletes).with_continuation_token(tok),
                20,
            ),
        )
        .await;
    }
    step("batch", async {
        let b = TransactionalBatch::new("a").create_item(it("b1", "a", 1))?.upsert_item(it("b2", "a", 2), None)?;
        Ok(c.execute_transactional_batch(b, None).await?.status())
    })
    .await;
    println!("     split {}", split("db1", "c1", "0"));
    c.upsert_item("b", "s1", &it("s1", "b", 5), None).await?;
    c.upsert_item("c", "s2", &it("s2", "c", 5), None).await?;
    if let Some((_, t)) = &now {
        let tok: ContinuationToken = serde_json::from_str(t)?;
        step(
            "split_then_continue",
            drain(&c, FeedScope::full_container(), ChangeFeedStartFrom::Now, d().with_continuation_token(tok), 20),
        )
        .await;
    }
    step("split_query_cross", async {
        let mut q = c
            .query_items::<serde_json::Value>("SELECT * FROM c WHERE c.v > 1", FeedScope::full_container(), None)
            .await?;
        let mut o = vec![];
        while let Some(x) = q.next().await {
            o.push(x?["id"].to_string())
        }
        Ok(o)
    })
    .await;
    step("split_feed_ranges", async { Ok(c.read_feed_ranges(None).await?.len()) }).await;
    Ok(())
}
