//! Metrics of a server, through the `metrics` facade: a program exports them with the recorder that it installs before it
//! starts the server. `docs/metrics.md` lists all names.

use std::{collections::BTreeMap, fmt, time::Duration};

use changefeed_protocol::Target as Call;
use hyper::{HeaderMap, Method, StatusCode, header};
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use parking_lot::RwLock;

use crate::{headers as header_names, router::path::Target};

/// The type of a body that is a query.
const QUERY: &[u8] = b"application/query+json";

const REQUESTS: &str = "changefeed_server_requests_total";
const REQUEST_SECONDS: &str = "changefeed_server_request_seconds";
const REQUEST_BYTES: &str = "changefeed_server_request_bytes_total";
const RESPONSE_BYTES: &str = "changefeed_server_response_bytes_total";
const THROTTLED: &str = "changefeed_server_throttled_requests_total";
const REFUSED_SIGNATURES: &str = "changefeed_server_refused_signatures_total";
const CONNECTIONS: &str = "changefeed_server_connections";
const ACCEPTED: &str = "changefeed_server_accepted_connections_total";
const REFUSED: &str = "changefeed_server_refused_connections_total";

/// What a request asks for: a small number of kinds, whatever clients send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Account,
    Admin,
    Batch,
    ChangeFeed,
    Container,
    CreateItem,
    Database,
    DeleteItem,
    DeletePartitionKey,
    Health,
    ListItems,
    Metrics,
    Offer,
    PatchItem,
    Query,
    QueryPlan,
    Ranges,
    ReadItem,
    RemoteCatalog,
    RemoteRead,
    RemoteWatch,
    RemoteWrite,
    ReplaceItem,
    Script,
    #[default]
    Unknown,
}

const KINDS: [(Kind, &str); 25] = [
    (Kind::Account, "account"),
    (Kind::Admin, "admin"),
    (Kind::Batch, "batch"),
    (Kind::ChangeFeed, "change_feed"),
    (Kind::Container, "container"),
    (Kind::CreateItem, "create_item"),
    (Kind::Database, "database"),
    (Kind::DeleteItem, "delete_item"),
    (Kind::DeletePartitionKey, "delete_partition_key"),
    (Kind::Health, "health"),
    (Kind::ListItems, "list_items"),
    (Kind::Metrics, "metrics"),
    (Kind::Offer, "offer"),
    (Kind::PatchItem, "patch_item"),
    (Kind::Query, "query"),
    (Kind::QueryPlan, "query_plan"),
    (Kind::Ranges, "ranges"),
    (Kind::ReadItem, "read_item"),
    (Kind::RemoteCatalog, "remote_catalog"),
    (Kind::RemoteRead, "remote_read"),
    (Kind::RemoteWatch, "remote_watch"),
    (Kind::RemoteWrite, "remote_write"),
    (Kind::ReplaceItem, "replace_item"),
    (Kind::Script, "script"),
    (Kind::Unknown, "unknown"),
];

impl Kind {
    /// The kind of a request whose path is known.
    pub(crate) fn of(method: &Method, target: &Target<'_>, headers: &HeaderMap) -> Self {
        let is_set = |name| headers.get(name).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
        match target {
            Target::Account => Self::Account,
            Target::Databases | Target::Database(_) | Target::Users(..) => Self::Database,
            Target::Containers(_) | Target::Container(..) => Self::Container,
            Target::Ranges(..) => Self::Ranges,
            Target::Scripts(..) => Self::Script,
            Target::Offers | Target::Offer(_) => Self::Offer,
            Target::PartitionKeyDelete(..) => Self::DeletePartitionKey,
            Target::Items(..) if *method == Method::GET => {
                if headers.contains_key(&header_names::A_IM) {
                    Self::ChangeFeed
                } else {
                    Self::ListItems
                }
            }
            Target::Items(..) if is_set(&header_names::IS_BATCH) => Self::Batch,
            Target::Items(..) if is_set(&header_names::IS_QUERY_PLAN) => Self::QueryPlan,
            Target::Items(..) if is_set(&header_names::IS_QUERY) || has_query(headers) => Self::Query,
            Target::Items(..) => Self::CreateItem,
            Target::Item(..) => match *method {
                Method::GET => Self::ReadItem,
                Method::PUT => Self::ReplaceItem,
                Method::PATCH => Self::PatchItem,
                Method::DELETE => Self::DeleteItem,
                _ => Self::Unknown,
            },
            Target::Admin(name) => match Call::parse(name) {
                Some(Call::Catalog(_)) => Self::RemoteCatalog,
                Some(Call::Watch) => Self::RemoteWatch,
                Some(call) if call.is_read() => Self::RemoteRead,
                Some(_) => Self::RemoteWrite,
                None => Self::Admin,
            },
        }
    }

    fn label(self) -> &'static str {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or("unknown", |(_, label)| label)
    }
}

/// Whether the body is said to be a query.
fn has_query(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.as_bytes());
    kind.is_some_and(|kind| kind.get(..QUERY.len()).is_some_and(|start| start.eq_ignore_ascii_case(QUERY)))
}

/// What is known of a request when it has been answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) kind: Kind,
    pub(crate) request_bytes: usize,
}

/// The metrics of one server.
pub(crate) struct ServerMetrics {
    /// By kind and status: a few of each are ever used.
    requests: RwLock<BTreeMap<(Kind, u16), Counter>>,
    seconds: [(Kind, Histogram); KINDS.len()],
    request_bytes: Counter,
    response_bytes: Counter,
    throttled: Counter,
    refused_signatures: Counter,
    connections: Gauge,
    accepted: Counter,
    refused: Counter,
}

impl ServerMetrics {
    pub(crate) fn new() -> Self {
        describe();
        let connections = gauge!(CONNECTIONS);
        // So that it is there before the first connection.
        connections.increment(0.0);
        Self {
            requests: RwLock::default(),
            seconds: KINDS.map(|(kind, label)| (kind, histogram!(REQUEST_SECONDS, "kind" => label))),
            request_bytes: counter!(REQUEST_BYTES),
            response_bytes: counter!(RESPONSE_BYTES),
            throttled: counter!(THROTTLED),
            refused_signatures: counter!(REFUSED_SIGNATURES),
            connections,
            accepted: counter!(ACCEPTED),
            refused: counter!(REFUSED),
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&self, request: Measured, status: StatusCode, response_bytes: usize, took: Duration) {
        let Measured { kind, request_bytes } = request;
        self.counter(kind, status.as_u16()).increment(1);
        if let Some((_, seconds)) = self.seconds.iter().find(|(known, _)| *known == kind) {
            seconds.record(took.as_secs_f64());
        }
        self.request_bytes.increment(request_bytes as u64);
        self.response_bytes.increment(response_bytes as u64);
        match status {
            StatusCode::TOO_MANY_REQUESTS => self.throttled.increment(1),
            StatusCode::UNAUTHORIZED => self.refused_signatures.increment(1),
            _ => {}
        }
    }

    fn counter(&self, kind: Kind, status: u16) -> Counter {
        if let Some(counter) = self.requests.read().get(&(kind, status)) {
            return counter.clone();
        }
        let new = || counter!(REQUESTS, "kind" => kind.label(), "status" => status.to_string());
        self.requests.write().entry((kind, status)).or_insert_with(new).clone()
    }

    /// A connection was accepted; it counts until the result is dropped.
    pub(crate) fn connected(&self) -> Connected {
        self.accepted.increment(1);
        self.connections.increment(1.0);
        Connected(self.connections.clone())
    }

    /// A connection was refused: there are too many.
    pub(crate) fn refused(&self) {
        self.refused.increment(1);
    }
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerMetrics")
    }
}

/// A connection that is open.
pub(crate) struct Connected(Gauge);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}

fn describe() {
    describe_counter!(REQUESTS, "Requests that were answered, by kind and status.");
    describe_histogram!(REQUEST_SECONDS, "From the headers of a request until its answer was ready, by kind.");
    describe_counter!(REQUEST_BYTES, "Bytes of the bodies of requests.");
    describe_counter!(RESPONSE_BYTES, "Bytes of the bodies of responses.");
    describe_counter!(THROTTLED, "Requests that were answered with 429.");
    describe_counter!(REFUSED_SIGNATURES, "Requests that were answered with 401.");
    describe_gauge!(CONNECTIONS, "Connections that are open.");
    describe_counter!(ACCEPTED, "Connections that were accepted.");
    describe_counter!(REFUSED, "Connections that were refused because there were too many.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::path::Path;

    #[test]
    fn a_request_is_counted_by_what_it_asks_for() {
        let kind = |method: Method, path: &str, given: Option<(&'static str, &'static str)>| {
            let mut headers = HeaderMap::new();
            if let Some((name, value)) = given {
                headers.insert(name, value.parse().unwrap());
            }
            Kind::of(&method, &Path::parse(path).unwrap().target, &headers).label()
        };
        let docs = "/dbs/a/colls/b/docs";
        assert_eq!(kind(Method::GET, docs, None), "list_items");
        assert_eq!(kind(Method::GET, docs, Some(("a-im", "Incremental Feed"))), "change_feed");
        assert_eq!(kind(Method::POST, docs, None), "create_item");
        assert_eq!(kind(Method::POST, docs, Some(("x-ms-documentdb-isquery", "True"))), "query");
        assert_eq!(kind(Method::POST, docs, Some(("content-type", "application/query+json; x=y"))), "query");
        assert_eq!(kind(Method::DELETE, "/dbs/a/colls/b/docs/c", None), "delete_item");
        assert_eq!(
            kind(Method::POST, &format!("/_changefeed/{}/watch", changefeed_protocol::VERSION), None),
            "remote_watch"
        );
        assert_eq!(kind(Method::POST, "/_changefeed/split", None), "admin");
    }

    #[test]
    fn every_kind_has_a_label_of_its_own() {
        let labels: std::collections::BTreeSet<_> = KINDS.iter().map(|(_, label)| label).collect();
        assert_eq!(labels.len(), KINDS.len());
    }
}
