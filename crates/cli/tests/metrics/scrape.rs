//! A live scrape of a server and of a host, and what is in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

use changefeed::core::{Clock as _, SystemClock};

use crate::{
    http::{free_port, get},
    process::eventually,
    shop::{Host, Shop},
};

/// A metric as a scrape shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Metric {
    pub(crate) kind: String,
    pub(crate) labels: BTreeSet<String>,
}

/// A server with orders, and a host of `mailer` on it that shows its metrics.
pub(crate) struct Observed {
    pub(crate) shop: Shop,
    pub(crate) host: Host,
    pub(crate) address: SocketAddr,
}

impl Observed {
    /// A host with this delegate and these options.
    pub(crate) fn start(more: &[&str]) -> Self {
        let shop = Shop::served();
        shop.load(20);
        let address = free_port();
        let options = ["--metrics", &address.to_string(), "--lag-interval", "100ms"];
        let host = shop.host("worker-1", &[&options[..], more].concat());
        Self { shop, host, address }
    }

    /// Waits until the host shows this line.
    pub(crate) fn shows(&self, line: &str) {
        eventually(line, || self.host_text().is_some_and(|text| text.lines().any(|shown| shown == line)));
    }

    fn host_text(&self) -> Option<String> {
        get(self.address, "/metrics", &[]).filter(|(status, _)| *status == 200).map(|(_, text)| text)
    }

    /// All metrics of both processes, and the text in which they stand.
    pub(crate) fn scrape(&self) -> (BTreeMap<String, Metric>, String) {
        let (status, server) = get(self.shop.address(), "/metrics", &[]).unwrap();
        assert_eq!(status, 200, "{server}");
        let text = server + &self.host_text().unwrap();
        (metrics(&text), text)
    }
}

/// Reads the text format of Prometheus.
fn metrics(text: &str) -> BTreeMap<String, Metric> {
    let mut found: BTreeMap<String, Metric> = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            found.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else if !line.starts_with('#')
            && let Some((series, labels)) = line.split_once('{')
        {
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                let name = series.strip_suffix(end)?;
                found.contains_key(name).then(|| name.to_owned())
            });
            let labels = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name.to_owned());
            let metric = found.entry(name.unwrap_or_else(|| series.to_owned())).or_default();
            metric.labels.extend(labels.filter(|label| label != "le"));
        }
    }
    found
}

#[test]
fn the_text_format_is_read_as_prometheus_reads_it() {
    let text = "# HELP a_seconds x\n# TYPE a_seconds histogram\na_seconds_bucket{p=\"m, n\",le=\"1\"} 3\na_seconds_sum{p=\"m\"} \
                1\n\n# TYPE b_total counter\nb_total 7\n";
    let found = metrics(text);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a_seconds", "b_total"]);
    assert_eq!(found["a_seconds"].labels.iter().collect::<Vec<_>>(), ["p"]);
    assert_eq!(found["b_total"].kind, "counter");
}

#[test]
fn the_lag_is_measured_as_often_as_the_lag_interval_says() {
    // Nothing is handled: the lag is what was written. The interval is a tenth of a second.
    let observed = Observed::start(&["--exec", "exit 1"]);
    observed.shows("changefeed_processor_lag_changes{processor=\"mailer\"} 20");
    let begin = SystemClock.wall().as_millis();
    for written in 21..26 {
        observed.shop.load(1);
        observed.shows(&format!("changefeed_processor_lag_changes{{processor=\"mailer\"}} {written}"));
    }
    let seconds = (SystemClock.wall().as_millis() - begin) / 1000;
    // By default five measurements take at least 40 s.
    assert!(seconds < 35, "{seconds} s");
    observed.host.stop();
}
