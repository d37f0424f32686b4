//! Spans of a real host through the layer of OpenTelemetry, as docs/metrics.md shows it.

use changefeed::{Changes, Context, Processor, core::StartFrom, embedded::Engine};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, TraceFlags, TraceId, TraceState, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
use serde_json::json;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::prelude::*;

#[derive(serde::Deserialize)]
struct Order {
    traceparent: Option<String>,
}

/// As in docs/metrics.md, whose code is compiled by the documentation tests of this crate.
fn link(traceparent: &str) -> Option<SpanContext> {
    let mut parts = traceparent.split('-').skip(1);
    let (trace, span) = (TraceId::from_hex(parts.next()?).ok()?, SpanId::from_hex(parts.next()?).ok()?);
    Some(SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_one_span_that_is_linked_to_its_writers() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    tracing_subscriber::registry()
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("mailer")))
        .init();

    let shop = Engine::in_memory().expect("open").database("shop");
    let orders = shop.container("orders").partition_key("/customer").create().await.expect("orders");
    let leases = shop.container("leases").create().await.expect("leases");
    let writers = [
        ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"),
        ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),
    ];
    for (number, (trace, span)) in writers.iter().enumerate() {
        let order =
            json!({ "id": number.to_string(), "customer": "ada", "traceparent": format!("00-{trace}-{span}-01") });
        orders.create(&order).await.expect("create");
    }
    let processor = Processor::builder("mailer", &orders, &leases)
        .instance_name("worker-1")
        .start_from(StartFrom::Beginning)
        .build(|orders: Changes<Order>, _: Context| async move {
            for context in orders.iter().filter_map(|order| link(order.traceparent.as_deref()?)) {
                tracing::Span::current().add_link(context);
            }
            Ok(())
        })
        .expect("build");
    processor.run_until_caught_up().await.expect("run");

    let spans = exporter.get_finished_spans().expect("spans");
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "delegate").collect();
    assert_eq!(calls.len(), 1, "one for the batch: {spans:?}");
    let call = calls[0];
    assert_eq!(call.span_kind, SpanKind::Consumer);
    let attribute = |name: &str| {
        let found = call.attributes.iter().find(|attribute| attribute.key.as_str() == name);
        found.unwrap_or_else(|| panic!("{name} is not in {:?}", call.attributes)).value.to_string()
    };
    assert_eq!((attribute("processor"), attribute("instance")), ("mailer".to_owned(), "worker-1".to_owned()));
    assert_eq!((attribute("lease"), attribute("items")), ("0".to_owned(), "2".to_owned()));
    let linked: Vec<(String, String)> = call
        .links
        .iter()
        .map(|link| (link.span_context.trace_id().to_string(), link.span_context.span_id().to_string()))
        .collect();
    assert_eq!(linked, writers.map(|(trace, span)| (trace.to_owned(), span.to_owned())));
}
