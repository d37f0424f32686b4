//! The table of metrics, the dashboard and the alert rules, each against a live scrape.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::Value;

use crate::scrape::{Metric, Observed};

fn document(name: &str) -> String {
    let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of the table in docs/metrics.md.
fn table() -> BTreeMap<String, Metric> {
    let text = document("metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `changefeed_"));
    let metric = |row: &str| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells.as_slice() else { panic!("four cells: {row}") };
        assert!(!meaning.is_empty(), "{row}");
        let labels = labels.split(',').map(|label| label.trim().to_owned()).filter(|label| !label.is_empty());
        (name.trim_matches('`').to_owned(), Metric { kind: (*kind).to_owned(), labels: labels.collect() })
    };
    rows.map(metric).collect()
}

/// The names of metrics in a text; those of the parts of a histogram are those of the histogram.
fn names(text: &str, known: &BTreeMap<String, Metric>) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let words = text.split(|char| !is_part(char)).filter(|word| word.starts_with("changefeed_"));
    let histogram = |word: &str| {
        let ends = ["_bucket", "_sum", "_count"];
        let whole = ends.iter().find_map(|end| word.strip_suffix(end)).filter(|whole| known.contains_key(*whole));
        whole.unwrap_or(word).to_owned()
    };
    words.map(histogram).collect()
}

#[test]
fn the_documents_name_what_a_live_scrape_shows() {
    let observed = Observed::start(&["--print", "--lease-metrics"]);
    observed.shows("changefeed_processor_changes_total{processor=\"mailer\"} 20");
    observed.shows("changefeed_processor_lag_changes{processor=\"mailer\"} 0");
    observed.shows("changefeed_processor_lag_leases{processor=\"mailer\",state=\"owned\"} 4");
    let (scraped, text) = observed.scrape();

    let documented = table();
    for (name, metric) in &scraped {
        assert_eq!(documented.get(name), Some(metric), "docs/metrics.md lacks {name}, or has it otherwise");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no help text");
    }
    let missing: Vec<_> = documented.keys().filter(|name| !scraped.contains_key(*name)).collect();
    assert!(missing.is_empty(), "docs/metrics.md has what no process shows: {missing:?}");

    let dashboard: Value = serde_json::from_str(&document("grafana-dashboard.json")).unwrap();
    let mut queries = Vec::new();
    collect(&dashboard, &mut queries);
    assert!(queries.len() >= 20, "{} queries", queries.len());
    for query in queries {
        let used = names(&query, &scraped);
        assert!(!used.is_empty(), "no metric in {query}");
        used.iter().for_each(|name| assert!(scraped.contains_key(name), "{name} of the dashboard is in no scrape"));
    }
    for file in ["prometheus-alerts.yml", "prometheus-alerts.test.yml"] {
        let used = names(&document(file), &scraped);
        assert!(used.len() >= 4, "{file}: {used:?}");
        used.iter().for_each(|name| assert!(scraped.contains_key(name), "{name} in {file} is in no scrape"));
    }
    observed.host.stop();
}

/// All queries of a dashboard, at any depth.
fn collect(value: &Value, queries: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    ("expr" | "query", Value::String(text)) if text.contains("changefeed_") => {
                        queries.push(text.clone())
                    }
                    ("expr", other) => panic!("a query without a metric of ours: {other}"),
                    _ => collect(member, queries),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect(value, queries)),
        _ => {}
    }
}
