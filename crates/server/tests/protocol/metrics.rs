//! `/metrics` and `/readyz`, and what a server counts.

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

use crate::support::{
    Ask, World,
    world::{DOCS, item},
};

fn unsigned(path: &str) -> Ask {
    Ask { unsigned: true, ..Ask::get(path) }
}

#[track_caller]
fn value(handle: &PrometheusHandle, series: &str) -> f64 {
    let (text, start) = (handle.render(), format!("changefeed_server_{series} "));
    let found = text.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("there is no series {series} in\n{text}")).parse().unwrap()
}

#[tokio::test]
async fn requests_are_counted_by_kind_and_status() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let render = handle.clone();
    let world = World::with(|builder| builder.metrics(move || render.render())).await;
    let mut client = world.client().await;
    for number in 0..3 {
        let ask = Ask::post(DOCS, item(&number.to_string(), "a", number)).key("a");
        client.send(ask).await.expect(201);
    }
    client.send(Ask::post(DOCS, item("0", "a", 0)).key("a")).await.expect(409);
    client.send(Ask::get(format!("{DOCS}/7")).key("a")).await.expect(404);
    assert_eq!(value(&handle, "requests_total{kind=\"create_item\",status=\"201\"}"), 3.0);
    assert_eq!(value(&handle, "requests_total{kind=\"create_item\",status=\"409\"}"), 1.0);
    assert_eq!(value(&handle, "requests_total{kind=\"read_item\",status=\"404\"}"), 1.0);
    assert_eq!(value(&handle, "request_seconds_count{kind=\"create_item\"}"), 4.0);
    assert!(value(&handle, "request_bytes_total") > 0.0 && value(&handle, "response_bytes_total") > 0.0);
    assert!(value(&handle, "connections") >= 1.0 && value(&handle, "accepted_connections_total") >= 1.0);
    let shown = client.send(unsigned("/metrics")).await.expect(200);
    assert!(shown.text().contains("# TYPE changefeed_server_requests_total counter"), "{}", shown.text());
}

#[tokio::test]
async fn throttled_and_unsigned_requests_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post("/_changefeed/throttle", r#"{"container":"db/c","seconds":30}"#)).await.expect(200);
    client.send(Ask::get(format!("{DOCS}/7")).key("a")).await.expect(429);
    world.client().await.send(unsigned("/dbs")).await.expect(401);
    assert_eq!(value(&handle, "throttled_requests_total"), 1.0);
    assert_eq!(value(&handle, "refused_signatures_total"), 1.0);
}

#[tokio::test]
async fn a_server_without_metrics_says_so_and_is_ready_all_the_same() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(unsigned("/metrics")).await.expect(404);
    assert_eq!(client.send(unsigned("/readyz")).await.expect(200).json()["status"], "ok");
}

#[tokio::test]
async fn metrics_are_not_shown_through_a_proxy_or_to_a_page_from_elsewhere() {
    let world = World::with(|builder| builder.metrics(|| "up 1\n".to_owned())).await;
    let mut client = world.client().await;
    let refused = client.send(unsigned("/metrics").with("x-forwarded-for", "10.0.0.7")).await.expect(401);
    assert!(refused.text().contains("read-only key"), "{}", refused.text());
    let foreign = unsigned("/metrics").with("origin", "http://evil.example.com");
    world.client().await.send(foreign).await.expect(401);
    world.client().await.send(unsigned("/metrics")).await.expect(200);
}
