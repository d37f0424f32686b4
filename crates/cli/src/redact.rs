//! Secrets that options may hold, hidden where options are shown: keys in connection strings, and what a URL has before its
//! host and after its path.

use crate::connection_string::without_key;

/// The value of an option, to be shown.
pub(crate) fn redacted(value: &str) -> String {
    match value.split_once("://") {
        Some((scheme, rest)) if scheme == "http" || scheme == "https" => format!("{scheme}://{}", redacted_rest(rest)),
        _ => without_key(value),
    }
}

/// Scheme, host and port of a URL, for errors that are stored and read by others: its path may be a secret, too.
pub(crate) fn origin(url: &hyper::Uri) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default())
}

fn redacted_rest(rest: &str) -> String {
    let (before, query) = match rest.split_once(['?', '#']) {
        Some((before, _)) => (before, "?(hidden)"),
        None => (rest, ""),
    };
    let (authority, path) = before.split_at(before.find('/').unwrap_or(before.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("(hidden)@{host}{path}{query}"),
        None => format!("{authority}{path}{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_in_a_value_is_hidden_and_the_rest_stays() {
        for (value, shown) in [
            ("https://hook.example/a/b?token=c2VjcmV0&x=1", "https://hook.example/a/b?(hidden)"),
            ("https://ada:c2VjcmV0@hook.example:8443/a", "https://(hidden)@hook.example:8443/a"),
            ("http://a:c2V@b@hook.example", "http://(hidden)@hook.example"),
            ("https://hook.example#c2VjcmV0", "https://hook.example?(hidden)"),
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
            ("AccountEndpoint=https://a.b/;AccountKey=c2VjcmV0;", "AccountEndpoint=https://a.b/;AccountKey=(hidden);"),
            ("./data", "./data"),
        ] {
            assert_eq!(redacted(value), shown);
        }
        assert_eq!(origin(&"https://ada:x@hook.example:8443/secret?a=b".parse().unwrap()), "https://hook.example:8443");
    }
}
