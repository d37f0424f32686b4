//! What the log says: spans that name processor, instance and lease; events with fields; levels.

mod shop;

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use changefeed::{
    Changes, Context, DeadLetter, DelegateError,
    core::{ErrorKind, StartFrom},
};
use changefeed_testkit::faulty::{Call, Fault};
use shop::{Notifications, Order, Seen, Shop, faulty, start, until};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl Fields {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("-", String::as_str)
    }
}

/// A line of the log, with the fields of the spans around it.
#[derive(Clone, Debug)]
struct Line {
    level: Level,
    fields: Fields,
    /// `span.field`, from all spans around it.
    spans: Fields,
}

/// A subscriber that keeps everything.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    spans: Vec<(Fields, Option<usize>)>,
    entered: Vec<usize>,
    lines: Vec<Line>,
}

impl Log {
    /// The lines with this message.
    fn lines(&self, message: &str) -> Vec<Line> {
        let kept = self.0.lock().expect("lock");
        kept.lines.iter().filter(|line| line.fields.get("message") == message).cloned().collect()
    }

    fn first(&self, message: &str) -> Line {
        self.lines(message).into_iter().next().unwrap_or_else(|| panic!("no line says {message}"))
    }
}

fn number(id: &Id) -> usize {
    usize::try_from(id.into_u64()).expect("small") - 1
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("changefeed") || metadata.target().starts_with("logs")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut kept = self.0.lock().expect("lock");
        let mut fields = Fields::default();
        span.record(&mut fields);
        let name = span.metadata().name();
        let fields = Fields(fields.0.into_iter().map(|(field, value)| (format!("{name}.{field}"), value)).collect());
        let current = span.is_contextual().then(|| kept.entered.last().copied()).flatten();
        let parent = span.parent().map(number).or(current);
        kept.spans.push((fields, parent));
        Id::from_u64(kept.spans.len() as u64)
    }

    fn record(&self, span: &Id, record: &Record<'_>) {
        let mut fields = Fields::default();
        record.record(&mut fields);
        let added = fields.0.into_iter().map(|(field, value)| (format!("delegate.{field}"), value));
        self.0.lock().expect("lock").spans[number(span)].0.0.extend(added);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut kept = self.0.lock().expect("lock");
        let (mut fields, mut spans) = (Fields::default(), Fields::default());
        event.record(&mut fields);
        let mut at = kept.entered.last().copied();
        while let Some(span) = at {
            let (fields, parent) = &kept.spans[span];
            spans.0.extend(fields.0.clone());
            at = *parent;
        }
        kept.lines.push(Line { level: *event.metadata().level(), fields, spans });
    }

    fn enter(&self, span: &Id) {
        self.0.lock().expect("lock").entered.push(number(span));
    }

    fn exit(&self, span: &Id) {
        let mut kept = self.0.lock().expect("lock");
        let at = kept.entered.iter().rposition(|entered| *entered == number(span));
        at.map(|at| kept.entered.remove(at));
    }
}

#[tokio::test(start_paused = true)]
async fn lines_of_hosts_leases_and_delegates_say_whose_they_are() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let processor = shop.processor("worker-1").build(move |orders: Changes<Order>, ctx: Context| {
        let seen = kept.clone();
        async move {
            seen.add(&orders, &ctx);
            tracing::info!(orders = orders.len(), "orders handled");
            Ok(())
        }
    });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || seen.len() == 3).await;
    until("the end of the feed", || !log.lines("lease caught up").is_empty()).await;
    running.stop().await.expect("stop");
    for message in ["lease acquired", "lease caught up", "lease released", "orders handled"] {
        let Line { fields, spans, .. } = log.first(message);
        assert_eq!((spans.get("processor.processor"), spans.get("processor.instance")), ("mailer", "worker-1"));
        if message == "orders handled" {
            assert_eq!((spans.get("delegate.lease"), spans.get("delegate.attempt")), ("0", "1"));
            assert_eq!(fields.get("orders"), "3");
        } else {
            assert_eq!((spans.get("lease.lease"), fields.get("lease")), ("0", "0"), "{message}");
        }
    }
    assert_eq!(log.first("lease acquired").level, Level::INFO);
    assert_eq!(log.first("lease caught up").level, Level::DEBUG);
}

#[tokio::test(start_paused = true)]
async fn the_span_of_a_batch_names_its_changes_and_the_traces_of_their_writers() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    let traced = |item: u64, context: &str| serde_json::json!({ "id": format!("o{item}"), "customer": "c1", "version": 1, "traceparent": context });
    let context = |number: u64| format!("00-{number:032x}-b7ad6b7169203331-01");
    shop.orders.upsert(&traced(1, &context(1))).await.expect("upsert");
    shop.orders.upsert(&traced(2, &context(2))).await.expect("upsert");
    shop.orders.upsert(&traced(3, &context(1))).await.expect("upsert");
    shop.orders.upsert(&traced(4, "not a context")).await.expect("upsert");
    let processor = shop.processor("worker-1").build(move |orders: Changes<Order>, _: Context| async move {
        tracing::info!(orders = orders.len(), "orders handled");
        Ok(())
    });
    let running = processor.expect("build").start().await.expect("start");
    until("delivery", || !log.lines("orders handled").is_empty()).await;
    running.stop().await.expect("stop");
    let spans = log.first("orders handled").spans;
    let names = ["processor", "instance", "lease", "attempt", "first_lsn", "last_lsn", "items"];
    let shown = names.map(|name| spans.get(&format!("delegate.{name}")).to_owned());
    assert_eq!(shown, ["mailer", "worker-1", "0", "1", "2", "5", "4"]);
    assert_eq!(spans.get("delegate.traceparents"), format!("{},{}", context(1), context(2)));
}

#[tokio::test(start_paused = true)]
async fn stalls_dead_letters_and_outages_are_warnings_with_their_details_as_fields() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    shop.write(0..10, 1).await;
    let notifications = Notifications::default();
    let builder = shop.processor("worker-1").dead_letter(DeadLetter::to(&shop.rejected)).max_items(1);
    let builder = builder.on_notification(notifications.listen());
    let processor =
        builder.build(|_: Changes<Order>, _: Context| async { Err::<(), _>(DelegateError::new("sink down")) });
    let running = processor.expect("build").start().await.expect("start");
    until("an outage", || !log.lines("outage detected").is_empty()).await;
    running.stop().await.expect("stop");
    for message in ["lease stalled", "item dead-lettered", "outage detected"] {
        let Line { level, fields, spans } = log.first(message);
        assert_eq!(level, Level::WARN, "{message}");
        assert!(fields.get("reason").contains("sink down"), "{message}: {fields:?}");
        assert_eq!((fields.get("lease"), spans.get("processor.instance")), ("0", "worker-1"), "{message}");
    }
    assert_eq!(log.first("lease stalled").fields.get("attempts"), "3");
    assert_eq!(log.first("item dead-lettered").fields.get("item"), "o0");
    let failed = log.first("batch failed");
    assert_eq!(failed.level, Level::WARN);
    let details = ["attempt", "first_lsn", "last_lsn", "lease"].map(|field| failed.fields.get(field).to_owned());
    assert_eq!(details, ["1", "2", "2", "0"]);
}

#[tokio::test(start_paused = true)]
async fn where_leases_of_dotnet_hosts_begin_is_a_warning() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    let identity = shop.orders.identity();
    let prefix = format!("mailer{}_{}_{}", identity.account_host, identity.database, identity.container);
    let lease = serde_json::json!({"id": format!("{prefix}..0"), "version": 0, "LeaseToken": "0",
        "FeedRange": {"Range": {"min": "", "max": "FF"}}, "Owner": null, "ContinuationToken": null, "properties": {}});
    shop.leases.create(&lease).await.expect("lease");
    shop.leases.create(&serde_json::json!({"id": format!("{prefix}.info")})).await.expect("info");
    for _ in 0..2 {
        let running = start(shop.processor("worker-1").start_from(StartFrom::Now), &Seen::default()).await;
        running.stop().await.expect("stop");
        let about = |line: &&Line| line.fields.get("message").starts_with("leases that .NET hosts created");
        let lines = log.0.lock().expect("lock").lines.iter().filter(about).cloned().collect::<Vec<_>>();
        assert_eq!(lines.len(), 1, "once");
        let created = shop.clock.now().as_millis() - 300_000;
        assert_eq!((lines[0].level, lines[0].fields.get("leases")), (Level::WARN, "1"));
        assert_eq!(lines[0].fields.get("start"), format!("time {created}"));
    }
}

#[tokio::test(start_paused = true)]
async fn retries_of_a_start_are_logged_with_processor_attempt_and_pause() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    let calls = AtomicU32::new(0);
    let refuse_two = move |_: &Call<'_>| match calls.fetch_add(1, Ordering::Relaxed) {
        0 | 1 => Fault::Throttled,
        _ => Fault::None,
    };
    let shop = Shop { leases: faulty(&shop.leases, refuse_two), ..shop };
    let running = start(shop.processor("worker-1"), &Seen::default()).await;
    running.stop().await.expect("stop");
    let lines = log.lines("request to the store failed, retrying");
    let attempts: Vec<&str> = lines.iter().map(|line| line.fields.get("attempt")).collect();
    assert_eq!(attempts, ["1", "2"]);
    for Line { level, fields, spans } in &lines {
        assert_eq!((*level, fields.get("container")), (Level::INFO, "leases"));
        assert_ne!((fields.get("pause"), fields.get("error")), ("-", "-"));
        assert_eq!((spans.get("processor.processor"), spans.get("processor.instance")), ("mailer", "worker-1"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_outside_a_batch_is_logged_with_the_operation_that_failed() {
    let log = Log::default();
    let _guard = tracing::subscriber::set_default(log.clone());
    let shop = Shop::new(1).await;
    let orders = faulty(&shop.orders, |call: &Call<'_>| match call {
        Call::ReadChanges(request) if request.max_items > 1 => Fault::Error(ErrorKind::Unavailable),
        _ => Fault::None,
    });
    let shop = Shop { orders, ..shop };
    let running = start(shop.processor("worker-1"), &Seen::default()).await;
    until("a failure", || !log.lines("feed read failed").is_empty()).await;
    running.stop().await.expect("stop");
    assert_eq!(log.first("feed read failed").level, Level::WARN);
}

#[tokio::test(start_paused = true)]
async fn without_a_subscriber_everything_works_as_well() {
    let shop = Shop::new(1).await;
    shop.write(0..3, 1).await;
    let seen = Seen::default();
    let running = start(shop.processor("worker-1"), &seen).await;
    until("delivery", || seen.len() == 3).await;
    running.stop().await.expect("stop");
}
