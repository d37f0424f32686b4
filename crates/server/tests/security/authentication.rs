//! Every route, with every kind of signature that is not good enough.

use std::{collections::BTreeSet, mem::discriminant, time::Duration};

use changefeed_server::{
    auth::Keys,
    path::{Path, Target},
};
use hyper::Method;
use serde_json::{Value, json};

use crate::support::{Ask, Client, Reply, Wire, World, item, time, world::DOCS};

/// One way to use a target, and whether it only reads.
struct Route {
    ask: Ask,
    reads: bool,
}

/// An example of each kind of target. `every_kind_of_target_is_in_the_table` fails if one is missing.
const PATHS: [&str; 14] = [
    "/",
    "/dbs",
    "/dbs/db",
    "/dbs/db/colls",
    "/dbs/db/colls/c",
    "/dbs/db/colls/c/docs",
    "/dbs/db/colls/c/docs/one",
    "/dbs/db/colls/c/operations/partitionkeydelete",
    "/dbs/db/colls/c/pkranges",
    "/dbs/db/colls/c/sprocs",
    "/dbs/db/users",
    "/offers",
    "/offers/o1-2",
    "/_changefeed/verify",
];

/// All that can be asked of a target. No wildcard: a new kind of target does not compile until it is added.
fn routes(path: &str) -> Vec<Route> {
    let read = |ask| Route { ask, reads: true };
    let write = |ask| Route { ask, reads: false };
    let query = || read(Ask::query(path, "SELECT * FROM c"));
    match Path::parse(path).unwrap().target {
        Target::Account => vec![read(Ask::get(path))],
        Target::Databases => vec![read(Ask::get(path)), query(), write(Ask::post(path, json!({ "id": "new" })))],
        Target::Database(_) => vec![read(Ask::get(path)), write(Ask::delete(path))],
        Target::Containers(_) => {
            let new = json!({ "id": "new", "partitionKey": { "paths": ["/pk"] } });
            vec![read(Ask::get(path)), query(), write(Ask::post(path, new))]
        }
        Target::Container(..) => {
            let own = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 } });
            vec![read(Ask::get(path)), write(Ask::put(path, own)), write(Ask::delete(path))]
        }
        Target::Items(..) => {
            let batch = json!([{ "operationType": "Create", "resourceBody": item("b", "a", 1) }]);
            vec![
                read(Ask::get(path)),
                read(Ask::get(path).feed()),
                read(Ask::get(path).all_versions().with("if-none-match", "*")),
                query(),
                read(Ask::query(path, "SELECT * FROM c").with("x-ms-cosmos-is-query-plan-request", "True")),
                write(Ask::post(path, item("new", "a", 1)).key("a")),
                write(Ask::post(path, item("one", "a", 2)).key("a").with("x-ms-documentdb-is-upsert", "True")),
                write(Ask::batch(path, &batch).key("a")),
            ]
        }
        Target::Item(..) => {
            let patch = json!({ "operations": [{ "op": "set", "path": "/n", "value": 2 }] });
            vec![
                read(Ask::get(path).key("a")),
                write(Ask::put(path, item("one", "a", 2)).key("a")),
                write(Ask::patch(path, patch).key("a")),
                write(Ask::delete(path).key("a")),
            ]
        }
        Target::PartitionKeyDelete(..) => vec![write(Ask::new("POST", path).key("a"))],
        Target::Ranges(..) | Target::Users(..) => vec![read(Ask::get(path))],
        Target::Scripts(..) => vec![read(Ask::get(path)), write(Ask::post(path, json!({ "id": "s" })))],
        Target::Offers => vec![read(Ask::get(path)), query()],
        Target::Offer(_) => {
            let offer = json!({ "content": { "offerThroughput": 500 } });
            vec![read(Ask::get(path)), write(Ask::put(path, offer))]
        }
        Target::Admin(_) => {
            let calls = [
                ("split", json!({ "container": "db/c", "range": "0" })),
                ("merge", json!({ "container": "db/c", "ranges": ["0", "1"] })),
                ("throttle", json!({ "seconds": 1 })),
                ("faults", json!({ "status": 500 })),
                ("verify", Value::Null),
            ];
            calls.map(|(name, body)| write(Ask::post(format!("/_changefeed/{name}"), body))).into()
        }
    }
}

fn key(text: &str) -> Keys {
    Keys::parse(text).unwrap()
}

/// The server's keys: one for everything, one for reading.
const OWN: &str = "MDEyMzQ1Njc4OWFiY2RlZg==\nread-only ZmVkY2JhOTg3NjU0MzIxMA==";
const READER: &str = "ZmVkY2JhOTg3NjU0MzIxMA==";
const STRANGER: &str = "c3RyYW5nZXJzdHJhbmdlcg==";

async fn world() -> World {
    let engine = changefeed_embedded::Engine::in_memory().unwrap();
    let catalog = engine.catalog();
    let world = World::over(engine, catalog, key(OWN), |builder| builder.allow_faults(true)).await;
    let mut client = world.client().await;
    client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
    let container = json!({"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}});
    client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    world
}

/// A client with an address of its own: refusals are counted by address, and later ones are slow.
async fn stranger(world: &World, number: usize) -> Client {
    let address = [127, 0, 1, u8::try_from(number).unwrap()];
    Client::connect_from(address.into(), world.address(), &Wire::One, world.keys.clone()).await
}

/// The ways in which a signature is not good enough, each with the status it is refused with.
fn bad_signatures(ask: &Ask) -> Vec<(&'static str, u16, Ask)> {
    let with = |change: &dyn Fn(&mut Ask)| {
        let mut ask = ask.clone();
        change(&mut ask);
        ask
    };
    let unsigned = with(&|ask| ask.unsigned = true);
    let late = time::now() - Duration::from_secs(16 * 60);
    let early = time::now() + Duration::from_secs(16 * 60);
    let date = httpdate::fmt_http_date(time::now());
    let other_verb = if ask.method == "GET" { Method::DELETE } else { Method::GET };
    let other_path = if ask.path == "/dbs/other" { "/dbs/another" } else { "/dbs/other" };
    vec![
        ("no signature", 401, unsigned.clone()),
        ("no date", 401, unsigned.clone().with("authorization", "type=master&ver=1.0&sig=AAAA")),
        ("no scheme", 401, unsigned.clone().with("x-ms-date", &date).with("authorization", "Bearer abc")),
        (
            "a directory token",
            401,
            unsigned.with("x-ms-date", &date).with("authorization", "type=aad&ver=1.0&sig=a.b.c"),
        ),
        ("the key of another account", 401, with(&|ask| ask.keys = Some(Keys::emulator()))),
        ("the key of a stranger", 401, with(&|ask| ask.keys = Some(key(STRANGER)))),
        ("signed too long ago", 403, with(&|ask| ask.at = Some(late))),
        ("signed for later", 403, with(&|ask| ask.at = Some(early))),
        ("signed for another verb", 401, with(&|ask| ask.signed_verb = Some(other_verb.to_string()))),
        ("signed for another path", 401, with(&|ask| ask.signed_path = Some(other_path.to_owned()))),
    ]
}

fn assert_refused(reply: &Reply, status: u16, what: &str) {
    assert_eq!(reply.status, status, "{what}: {reply:?}");
    let code = if status == 401 { "Unauthorized" } else { "Forbidden" };
    assert_eq!(reply.json()["code"], code, "{what}");
    assert!(reply.header("x-ms-activity-id").is_some(), "{what}");
}

#[test]
fn every_kind_of_target_is_in_the_table() {
    let source = include_str!("../../src/router/path.rs");
    let body = source.split_once("pub enum Target<'a> {").unwrap().1.split_once("\n}").unwrap().0;
    let variants: Vec<&str> = body.lines().filter(|line| line.trim_start().starts_with(char::is_uppercase)).collect();
    let targets: Vec<Target> = PATHS.iter().map(|path| Path::parse(path).unwrap().target).collect();
    let mut distinct = Vec::new();
    for target in &targets {
        if !distinct.contains(&discriminant(target)) {
            distinct.push(discriminant(target));
        }
    }
    assert_eq!(distinct.len(), variants.len(), "{variants:?} against {targets:?}");
}

#[tokio::test]
async fn no_route_lets_anybody_in_without_a_good_signature() {
    let world = world().await;
    let before = world.state().await;
    let mut refused = 0;
    let routes = PATHS.iter().flat_map(|path| routes(path));
    for (number, route) in routes.enumerate() {
        let mut client = stranger(&world, number + 1).await;
        for (what, status, ask) in bad_signatures(&route.ask) {
            let what = format!("{} {} with {what}", ask.method, ask.path);
            assert_refused(&client.send(ask).await, status, &what);
            refused += 1;
        }
    }
    assert_eq!(world.state().await, before, "nothing was done");
    assert!(refused > 300, "{refused} requests were tried");
}

#[tokio::test]
async fn a_key_for_reading_reads_everything_and_writes_nothing() {
    let world = world().await;
    let before = world.state().await;
    let mut client = world.client().await;
    client.keys = key(READER);
    let mut seen = BTreeSet::new();
    for route in PATHS.iter().flat_map(|path| routes(path)) {
        let what = format!("{} {}", route.ask.method, route.ask.path);
        let reply = client.send(route.ask).await;
        if route.reads {
            assert!(matches!(reply.status, 200 | 304), "{what}: {reply:?}");
        } else {
            assert_refused(&reply, 403, &what);
        }
        seen.insert(route.reads);
    }
    assert_eq!(seen.len(), 2, "both reads and writes were tried");
    assert_eq!(world.state().await, before, "nothing was done");
}

#[tokio::test]
async fn a_write_in_the_clothes_of_a_query_is_a_query_or_a_write_but_not_both() {
    let world = world().await;
    let before = world.state().await;
    let mut client = world.client().await;
    client.keys = key(READER);
    let batch = json!([{ "operationType": "Create", "resourceBody": item("b", "a", 1) }]);
    for ask in [
        Ask::batch(DOCS, &batch).key("a"),
        Ask::post(DOCS, item("x", "a", 1)).key("a").with("x-ms-documentdb-is-upsert", "True"),
        Ask::post("/dbs", json!({ "id": "new" })),
        Ask::post("/dbs/db/colls", json!({ "id": "new", "partitionKey": { "paths": ["/pk"] } })),
        Ask::put("/dbs/db/colls/c/docs/one", item("one", "a", 9)).key("a"),
        Ask::post("/_changefeed/split", json!({ "container": "db/c", "range": "0" })),
    ] {
        for disguise in [
            ("x-ms-documentdb-isquery", "True"),
            ("content-type", "application/query+json"),
            ("x-ms-cosmos-is-query-plan-request", "True"),
        ] {
            let what = format!("{} {} as {disguise:?}", ask.method, ask.path);
            let reply = client.send(ask.clone().with(disguise.0, disguise.1)).await;
            assert!(reply.status >= 400, "{what}: {reply:?}");
            assert_eq!(world.state().await, before, "{what}");
        }
    }
}

#[tokio::test]
async fn every_route_answers_to_a_good_signature() {
    for path in PATHS {
        // Each in a world of its own, since some delete it.
        for number in 0..routes(path).len() {
            let world = world().await;
            let ask = routes(path).swap_remove(number).ask;
            let what = format!("{} {}", ask.method, ask.path);
            let reply = world.client().await.send(ask).await;
            assert!(!matches!(reply.status, 401 | 403 | 405), "{what}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_does_not_tell_what_exists() {
    let world = world().await;
    let mut client = stranger(&world, 1).await;
    let mut told = BTreeSet::new();
    for path in ["/dbs/db", "/dbs/none", "/dbs/db/colls/c", "/dbs/db/colls/none", "/dbs/db/colls/c/docs/one"] {
        let mut ask = Ask::get(path).key("a").with("x-ms-activity-id", "the-same");
        ask.keys = Some(key(STRANGER));
        let reply = client.send(ask).await.expect(401);
        told.insert(reply.text());
    }
    assert_eq!(told.len(), 1, "{told:?}");
}

#[tokio::test]
async fn who_guesses_is_slowed_down_and_who_has_the_key_is_not() {
    let world = world().await;
    let mut client = stranger(&world, 1).await;
    let guess = || {
        let mut ask = Ask::get("/dbs");
        ask.keys = Some(key(STRANGER));
        ask
    };
    let (_, took) = time::timed(async {
        for _ in 0..20 {
            client.send(guess()).await.expect(401);
        }
    })
    .await;
    assert!(took < Duration::from_secs(10), "the first twenty take no time: {took:?}");
    let (_, took) = time::timed(client.send(guess())).await;
    assert!(took >= Duration::from_millis(900), "the twenty-first waits: {took:?}");
    let (reply, took) = time::timed(client.send(Ask::get("/dbs"))).await;
    reply.expect(200);
    assert!(took < Duration::from_millis(900), "the right key never waits: {took:?}");
}
