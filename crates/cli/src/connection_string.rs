//! Accounts of Azure Cosmos DB, by their endpoint or by a connection string as the portal shows it, which may hold the key.

use hyper::Uri;

/// The members of a connection string; the key must not be shown.
const ENDPOINT: &str = "accountendpoint=";
const KEY: &str = "accountkey=";

/// How the hosts of accounts end, in the clouds that Azure has.
const CLOUDS: [&str; 4] =
    [".documents.azure.com", ".documents.azure.cn", ".documents.azure.us", ".documents.microsoftazure.de"];

/// An account of Azure Cosmos DB that a store is named by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AccountName<'a> {
    pub(crate) endpoint: &'a str,
    /// The key, if the connection string has it.
    #[cfg_attr(not(feature = "cosmos"), allow(dead_code, reason = "accounts are refused"))]
    pub(crate) key: Option<&'a str>,
}

impl<'a> AccountName<'a> {
    /// The account that `store` names; none if it names something else.
    pub(crate) fn of(store: &'a str) -> Option<Self> {
        if is_connection_string(store) {
            let find = |name| {
                let part = store.split(';').find(|part| begins_with(part, name))?;
                part.split_once('=').map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
            };
            return Some(Self { endpoint: find(ENDPOINT).unwrap_or_default(), key: find(KEY) });
        }
        let host = host(store)?.to_ascii_lowercase();
        CLOUDS.iter().any(|cloud| host.ends_with(cloud)).then_some(Self { endpoint: store, key: None })
    }

    /// The host of the endpoint, if it is a URL.
    pub(crate) fn host(&self) -> Option<String> {
        host(self.endpoint)
    }
}

/// The host of an http(s) URL.
fn host(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    url.host().map(str::to_owned)
}

/// Whether this is a connection string of an account.
fn is_connection_string(store: &str) -> bool {
    store.split(';').any(|part| begins_with(part, ENDPOINT))
}

/// The same text without its key, to be shown; one without a key as it is.
pub(crate) fn without_key(text: &str) -> String {
    let shown = |part| if begins_with(part, KEY) { "AccountKey=(hidden)" } else { part };
    text.split(';').map(shown).collect::<Vec<_>>().join(";")
}

/// Whether a part has this name, which is given in lower case.
fn begins_with(part: &str, name: &str) -> bool {
    part.trim_start().to_ascii_lowercase().starts_with(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_hidden_wherever_it_stands() {
        for (text, shown) in [
            (
                "AccountEndpoint=https://a.b/;AccountKey=c2VjcmV0==;",
                "AccountEndpoint=https://a.b/;AccountKey=(hidden);",
            ),
            ("accountkey=c2VjcmV0; AccountEndpoint=https://a.b/", "AccountKey=(hidden); AccountEndpoint=https://a.b/"),
            ("./data;1", "./data;1"),
        ] {
            assert_eq!(without_key(text), shown);
            assert_eq!(is_connection_string(text), shown != text, "{text}");
        }
    }

    #[test]
    fn an_account_is_named_by_its_host_or_by_a_connection_string() {
        let azure = "https://shop.documents.azure.com:443/";
        for (store, found) in [
            (azure, Some((azure, None))),
            ("https://Shop.Documents.Azure.com", Some(("https://Shop.Documents.Azure.com", None))),
            ("https://shop.documents.azure.cn", Some(("https://shop.documents.azure.cn", None))),
            (
                "AccountEndpoint=http://localhost:8081/;AccountKey=YWJj==;",
                Some(("http://localhost:8081/", Some("YWJj=="))),
            ),
            ("accountkey=YWJj; AccountEndpoint=https://a.b/", Some(("https://a.b/", Some("YWJj")))),
            ("AccountEndpoint=https://a.b/;", Some(("https://a.b/", None))),
            ("AccountEndpoint=https://a.b/;AccountKey=;", Some(("https://a.b/", None))),
            ("https://documents.azure.com.example.org", None),
            ("http://127.0.0.1:8081", None),
            ("./shop.documents.azure.com", None),
            ("memory", None),
        ] {
            let account = AccountName::of(store).map(|account| (account.endpoint, account.key));
            assert_eq!(account, found, "{store}");
        }
        assert_eq!(AccountName::of(azure).unwrap().host().as_deref(), Some("shop.documents.azure.com"));
    }
}
