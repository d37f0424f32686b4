//! `/metrics`: what a monitoring system reads. Open to this machine; from elsewhere it takes a read-only key.

use std::{fmt, net::IpAddr, sync::Arc};

use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderValue},
};

use crate::{
    auth::Keys,
    error::{ApiError, ApiResult},
    router::host_check,
    wire::http::Reply,
};

/// The path of the metrics.
pub(crate) const METRICS_PATH: &str = "/metrics";

/// The text format of Prometheus.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Headers of proxies: a request that has one of them does not come from this machine, whoever sends it.
const FORWARDED: [&str; 3] = ["forwarded", "x-forwarded-for", "via"];

/// Gives the metrics of the process as text. The program that knows the recorder plugs it in.
#[derive(Clone)]
pub(crate) struct Render(pub(crate) Arc<dyn Fn() -> String + Send + Sync>);

impl fmt::Debug for Render {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Render")
    }
}

/// Who asks for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub(crate) address: IpAddr,
    pub(crate) headers: &'a HeaderMap,
    /// The authority of the URL, where that has one.
    pub(crate) authority: Option<&'a str>,
}

/// The metrics, if this client may have them.
///
/// # Errors
/// 404 if the server has none, 401 with what to do if the client is not on this machine and shows no read-only key.
pub(crate) fn read(render: Option<&Render>, keys: &Keys, own: &[String], asker: Asker<'_>) -> ApiResult<Reply> {
    let Some(Render(render)) = render else {
        return Err(ApiError::not_found("this server has no metrics: only that of `changefeed serve` has"));
    };
    if !is_local(own, asker) && !shows_key(keys, asker.headers) {
        let message = "metrics are open to clients on this machine only: from elsewhere send `Authorization: Bearer KEY` \
                       with a read-only key of the key file";
        return Err(ApiError::new(StatusCode::UNAUTHORIZED, message));
    }
    let mut reply = Reply::new(StatusCode::OK, render());
    reply.set(&header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
    Ok(reply)
}

/// Whether the client is on this machine and asks under a name of this machine: a page in a browser may be made to ask
/// under another name.
fn is_local(own: &[String], asker: Asker<'_>) -> bool {
    asker.address.to_canonical().is_loopback()
        && !FORWARDED.iter().any(|name| asker.headers.contains_key(*name))
        && host_check::check(asker.headers, asker.authority, own).is_ok()
}

fn shows_key(keys: &Keys, headers: &HeaderMap) -> bool {
    let shown = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    shown.and_then(|text| text.strip_prefix("Bearer ")).is_some_and(|key| keys.is_read_only(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
    const READS: &str = "cmVhZC1vbmx5IHJlYWQtb25seQ==";

    fn status(address: [u8; 4], header: &[(&'static str, &str)]) -> u16 {
        let keys = Keys::parse(&format!("{OWN}\nread-only {READS}")).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static("localhost:8081"));
        header.iter().for_each(|(name, value)| drop(headers.insert(*name, value.parse().unwrap())));
        let asker = Asker { address: IpAddr::from(address), headers: &headers, authority: None };
        let render = Render(Arc::new(|| "up 1\n".to_owned()));
        read(Some(&render), &keys, &[], asker).map_or_else(|error| error.status, |reply| reply.status).as_u16()
    }

    #[test]
    fn a_client_on_this_machine_needs_no_key() {
        assert_eq!(status([127, 0, 0, 1], &[]), 200);
        assert_eq!(status([10, 0, 0, 7], &[]), 401);
    }

    #[test]
    fn another_name_or_a_proxy_means_another_machine() {
        assert_eq!(status([127, 0, 0, 1], &[("host", "evil.example.com")]), 401);
        assert_eq!(status([127, 0, 0, 1], &[("x-forwarded-for", "10.0.0.7")]), 401);
    }

    #[test]
    fn a_read_only_key_opens_from_anywhere_and_no_other_does() {
        assert_eq!(status([10, 0, 0, 7], &[("authorization", &format!("Bearer {READS}"))]), 200);
        assert_eq!(status([10, 0, 0, 7], &[("authorization", &format!("Bearer {OWN}"))]), 401, "it may write");
        assert_eq!(status([10, 0, 0, 7], &[("authorization", "Bearer c29tZSBvdGhlciBrZXk=")]), 401);
        assert_eq!(status([10, 0, 0, 7], &[("authorization", "Bearer ")]), 401);
    }
}
