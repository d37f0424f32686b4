//! Keys and items never appear in logs: a whole session at the most talkative level, then a search.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
};

use changefeed_embedded::Engine;
use changefeed_server::{Tls, auth::Keys, self_signed};
use serde_json::json;
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span,
};

use self::support::{Ask, Client, Wire, World, world::DOCS};

/// A key that is easy to find, as text and in base64.
const KEY_TEXT: &str = "marker-key-0123456789";
const KEY: &str = "bWFya2VyLWtleS0wMTIzNDU2Nzg5";

/// What the members of items hold.
const MARKER: &str = "marker-body-7f3a";

/// All that was logged, by us and by the libraries we use, one entry after the other.
#[derive(Clone, Debug, Default)]
struct Capture(Arc<Mutex<Vec<String>>>);

impl Capture {
    fn note(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut line = Line(format!("span {} {}", attributes.metadata().target(), attributes.metadata().name()));
        attributes.record(&mut line);
        self.note(line.0);
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut line = Line("record".to_owned());
        values.record(&mut line);
        self.note(line.0);
    }

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(format!("{} {}", event.metadata().level(), event.metadata().target()));
        event.record(&mut line);
        self.note(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Libraries that do not know `tracing` log here.
impl log::Log for Capture {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.note(format!("{} {} {}", record.level(), record.target(), record.args()));
    }

    fn flush(&self) {}
}

fn item(id: &str) -> serde_json::Value {
    json!({ "id": id, "pk": "a", "secret": MARKER, "deep": { "more": [MARKER] }, "n": 1 })
}

/// Requests of every kind, good and bad; those that are refused come second.
fn session() -> (Vec<Ask>, Vec<Ask>) {
    let upsert = |id: &str| Ask::post(DOCS, item(id)).key("a").with("x-ms-documentdb-is-upsert", "True");
    let one = format!("{DOCS}/one");
    let set = json!({ "operations": [{ "op": "set", "path": "/secret", "value": MARKER }] });
    let batch =
        json!([{ "operationType": "Upsert", "resourceBody": item("two") }, { "operationType": "Read", "id": "two" }]);
    let good = vec![
        upsert("one"),
        Ask::get(&one).key("a"),
        Ask::put(&one, item("one")).key("a"),
        Ask::patch(&one, set).key("a"),
        Ask::batch(DOCS, &batch).key("a"),
        Ask::get(DOCS),
        Ask::get(DOCS).feed(),
        Ask::get(DOCS).all_versions().with("if-none-match", "*"),
        Ask::query(DOCS, &format!("SELECT * FROM c WHERE c.secret = '{MARKER}'")),
        upsert("three"),
        Ask::delete(format!("{DOCS}/three")).key("a"),
    ];
    let cut = item("four").to_string().replace('}', "");
    let bad_patch = json!({ "operations": [{ "op": "incr", "path": "/secret", "value": MARKER }] });
    let incr = json!({ "operations": [{ "op": "incr", "path": "/secret", "value": 1 }] });
    let bad_batch = json!([{ "operationType": "Create", "resourceBody": item("one") }]);
    let large = json!({ "id": "large", "pk": "a", "secret": MARKER.repeat(200_000) });
    let mut skewed = upsert("five");
    skewed.at = Some(support::time::now() - std::time::Duration::from_secs(3600));
    let mut wrong = upsert("five");
    wrong.signed_verb = Some("GET".to_owned());
    let mut no_id = item("x");
    no_id["id"] = json!(MARKER.len());
    let bad = vec![
        Ask::post(DOCS, cut).key("a"),
        Ask::post(DOCS, item("one")).key("a"),
        Ask::post(DOCS, item("six")).key("b"),
        Ask::post(DOCS, no_id).key("a"),
        Ask::post(DOCS, json!([item("x")])).key("a"),
        Ask::put(&one, item("one")).key("a").with("if-match", "\"0\""),
        Ask::put(&one, item("other")).key("a").with("if-match", "\"0\""),
        Ask::patch(&one, bad_patch).key("a"),
        Ask::patch(&one, incr).key("a"),
        Ask::batch(DOCS, &bad_batch).key("b"),
        Ask::post(DOCS, large).key("a"),
        skewed,
        wrong,
    ];
    (good, bad)
}

async fn run(client: &mut Client, sent: &mut Vec<String>) {
    let (good, bad) = session();
    let keys = client.keys.clone();
    for ask in good {
        sent.extend(ask.signature(&keys).into_iter().filter(|(name, _)| name == "authorization").map(|(_, text)| text));
        let what = format!("{} {}", ask.method, ask.path);
        let reply = client.send(ask).await;
        assert!(reply.status < 400, "{what}: {reply:?}");
    }
    for ask in bad {
        sent.extend(ask.signature(&keys).into_iter().filter(|(name, _)| name == "authorization").map(|(_, text)| text));
        let what = format!("{} {}", ask.method, ask.path);
        let reply = client.send(ask).await;
        assert!(reply.status >= 400 || reply.status == 207, "{what}: {reply:?}");
        let text = reply.text();
        for secret in [KEY, KEY_TEXT, MARKER] {
            assert!(!text.contains(secret), "{what} was answered with {text}");
        }
    }
}

#[tokio::test]
async fn neither_keys_nor_items_appear_in_logs_or_errors() {
    let capture = Capture::default();
    tracing::subscriber::set_global_default(capture.clone()).unwrap();
    log::set_boxed_logger(Box::new(capture.clone())).unwrap();
    log::set_max_level(log::LevelFilter::Trace);

    let made = self_signed().unwrap();
    let mut sent = Vec::new();
    for tls in [None, Some(made.clone())] {
        let wires = match &tls {
            None => [Wire::One, Wire::Two],
            Some(made) => [Wire::TlsOne(made.certificate.clone()), Wire::TlsTwo(made.certificate.clone())],
        };
        let engine = Engine::in_memory().unwrap();
        let catalog = engine.catalog();
        let keys = Keys::parse(KEY).unwrap();
        let world = World::over(engine, catalog, keys, |builder| match tls {
            None => builder,
            Some(made) => builder.tls(Tls::Given(made)),
        })
        .await;
        for (number, wire) in wires.iter().enumerate() {
            let mut client = world.client_by(wire).await;
            if number == 0 {
                client.send(Ask::post("/dbs", json!({ "id": "db" }))).await.expect(201);
                let container = json!({ "id": "c", "partitionKey": { "paths": ["/pk"], "version": 2 } });
                client.send(Ask::post("/dbs/db/colls", container)).await.expect(201);
            }
            run(&mut client, &mut sent).await;
        }
        assert!(!format!("{:?}", world.server).contains(KEY_TEXT));
        world.server.stop().await;
        world.engine.close().await.unwrap();
    }

    let lines = capture.lines();
    let ours = lines.iter().filter(|line| line.contains("answered")).count();
    assert!(ours >= 4 * 20, "our own lines were captured: {ours} of {}", lines.len());
    assert!(lines.iter().any(|line| line.contains("rustls")), "those of libraries, too");
    let signatures = sent.iter().map(String::as_str);
    let secrets: Vec<&str> = [KEY, KEY_TEXT, MARKER].into_iter().chain(signatures).collect();
    for line in &lines {
        for secret in &secrets {
            assert!(!line.contains(secret), "{secret} stands in {line}");
        }
    }
}
