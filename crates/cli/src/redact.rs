//! Secrets that options may hold, hidden where options are shown: keys in connection strings, keys in the place of files that
//! hold them, and of a URL everything but scheme, host and port.

use crate::connection_string::{is_connection_string, without_key};

/// How many characters a key has at least. Those of Azure have 88.
const SHORTEST_KEY: usize = 40;

/// The value of an option, to be shown.
pub(crate) fn redacted(value: &str) -> String {
    if is_connection_string(value) {
        return without_key(value);
    }
    let is_scheme = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match value.split_once("://") {
        Some((scheme, rest)) if is_scheme(scheme) => format!("{scheme}://{}", redacted_rest(rest)),
        _ if is_key(value.trim()) => "(hidden)".to_owned(),
        _ => value.to_owned(),
    }
}

/// The URL of a webhook, also if its scheme is missing.
pub(crate) fn redacted_webhook(url: &str) -> String {
    if url.contains("://") { redacted(url) } else { redacted_rest(url) }
}

/// The value of the option of this name, to be shown.
pub(crate) fn redacted_option(name: &str, value: &str) -> String {
    if name == "webhook" { redacted_webhook(value) } else { redacted(value) }
}

/// Whether this is probably a key: base64 of thirty bytes or more. Few paths have only such characters.
fn is_key(text: &str) -> bool {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let has = |is_meant: fn(&u8) -> bool| text.as_bytes().iter().any(is_meant);
    text.len() >= SHORTEST_KEY
        && text.len().is_multiple_of(4)
        && !text.starts_with('/')
        && text.bytes().all(is_base64)
        && has(u8::is_ascii_uppercase)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_digit)
}

/// Scheme, host and port of a URL, for errors that are stored and read by others: its path may be a secret, too.
pub(crate) fn origin(url: &hyper::Uri) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}", url.scheme_str().unwrap_or_default(), url.host().unwrap_or_default())
}

/// What follows the scheme. A path may be a secret, too, as that of many webhooks is.
fn redacted_rest(rest: &str) -> String {
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = if matches!(path, "" | "/") { path } else { "/(hidden)" };
    // A password may hold a slash.
    match (rest.rsplit_once('@'), authority.rsplit_once('@')) {
        (_, Some((_, host))) => format!("(hidden)@{host}{path}"),
        (Some(_), None) => "(hidden)".to_owned(),
        (None, None) => format!("{authority}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_in_a_value_is_hidden_and_the_rest_stays() {
        for (value, shown) in [
            ("https://hook.example/a/b?token=c2VjcmV0&x=1", "https://hook.example/(hidden)"),
            ("https://hook.example/services/c2VjcmV0", "https://hook.example/(hidden)"),
            ("https://ada:c2VjcmV0@hook.example:8443/a", "https://(hidden)@hook.example:8443/(hidden)"),
            ("http://a:c2V@b@hook.example", "http://(hidden)@hook.example"),
            ("http://a:c2V/b@hook.example", "http://(hidden)"),
            ("https://hook.example#c2VjcmV0", "https://hook.example/(hidden)"),
            ("http://127.0.0.1:8081/", "http://127.0.0.1:8081/"),
            ("http://127.0.0.1:8081", "http://127.0.0.1:8081"),
            ("AccountEndpoint=https://a.b/;AccountKey=c2VjcmV0;", "AccountEndpoint=https://a.b/;AccountKey=(hidden);"),
            ("htps://hook.example/c2VjcmV0", "htps://hook.example/(hidden)"),
            ("./data", "./data"),
            ("curl https://hook.example/a", "curl https://hook.example/a"),
        ] {
            assert_eq!(redacted(value), shown);
        }
        assert_eq!(redacted_option("webhook", "hook.example/c2VjcmV0"), "hook.example/(hidden)");
        assert_eq!(redacted_option("container", "shop/orders"), "shop/orders");
        assert_eq!(redacted(changefeed::remote::EMULATOR_KEY), "(hidden)");
        let path = "/home/ada/projects/shop/deployment/keys2/Primary";
        assert_eq!((redacted(path).as_str(), path.len() % 4), (path, 0));
        assert_eq!(origin(&"https://ada:x@hook.example:8443/secret?a=b".parse().unwrap()), "https://hook.example:8443");
    }
}
