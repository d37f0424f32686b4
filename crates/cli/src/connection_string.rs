//! Accounts of Azure Cosmos DB, by their endpoint or by a connection string as the portal shows it, which may hold the key.

use hyper::Uri;

/// The members of a connection string; the key must not be shown.
const ENDPOINT: &str = "accountendpoint";
const KEY: &str = "accountkey";

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
    /// The account that `store` names; none if it names something else. Quotes around a connection string, as some files
    /// with variables keep them, are no part of it.
    pub(crate) fn of(store: &'a str) -> Option<Self> {
        if is_connection_string(store) {
            let find = |name| {
                let mut parts = store.trim_matches(is_around).split(';').filter_map(|part| part.split_once('='));
                let (_, value) = parts.find(|(found, _)| found.trim().eq_ignore_ascii_case(name))?;
                Some(value.trim()).filter(|value| !value.is_empty())
            };
            return Some(Self { endpoint: find(ENDPOINT).unwrap_or_default(), key: find(KEY) });
        }
        let host = host(store)?.to_ascii_lowercase();
        CLOUDS.iter().any(|cloud| host.ends_with(cloud)).then_some(Self { endpoint: store, key: None })
    }

    /// The host of the endpoint. Refuses an endpoint that is no URL, without showing it: the key may be part of it.
    pub(crate) fn host(&self) -> Result<String, &'static str> {
        host(self.endpoint).filter(|_| !is_connection_string(self.endpoint)).ok_or(
            "a connection string needs an AccountEndpoint that is a URL, as \
             AccountEndpoint=https://my-shop.documents.azure.com:443/;AccountKey=...;",
        )
    }
}

/// The host of an http(s) URL.
fn host(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    url.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https"))?;
    url.host().map(str::to_owned)
}

/// Whether this is meant as a connection string of an account, also if it is quoted or a word of it is mistyped.
pub(crate) fn is_connection_string(text: &str) -> bool {
    [ENDPOINT, KEY].into_iter().any(|name| after_name(text, name).is_some())
}

/// The same text with its endpoint only, to be shown; one that is no connection string as it is.
pub(crate) fn without_key(text: &str) -> String {
    if !is_connection_string(text) {
        return text.to_owned();
    }
    let shown = |part: &str| match (after_name(part, KEY), part.split_once('=')) {
        (Some(value), _) => format!("{}(hidden)", part.get(..value).unwrap_or_default()),
        (None, Some((name, _))) if after_name(part, ENDPOINT).is_none() => format!("{name}=(hidden)"),
        _ => part.to_owned(),
    };
    text.split(';').map(shown).collect::<Vec<_>>().join(";")
}

/// Where the value of a member begins, whose name is given in lower case.
fn after_name(text: &str, name: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let ends = lower.match_indices(name).map(|(begin, _)| begin + name.len());
    ends.filter_map(|end| {
        let rest = lower.get(end..)?;
        let spaces = rest.len() - rest.trim_start().len();
        rest.trim_start().starts_with('=').then_some(end + spaces + 1)
    })
    .next()
}

/// What may stand around a value.
fn is_around(char: char) -> bool {
    char.is_whitespace() || matches!(char, '"' | '\'')
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
            ("accountkey=c2VjcmV0; AccountEndpoint=https://a.b/", "accountkey=(hidden); AccountEndpoint=https://a.b/"),
            (
                "\"AccountEndpoint=https://a.b/;AccountKey=c2VjcmV0\"",
                "\"AccountEndpoint=https://a.b/;AccountKey=(hidden)",
            ),
            (
                "AccountEndpoint=https://a.b/,AccountKey = c2VjcmV0==",
                "AccountEndpoint=https://a.b/,AccountKey =(hidden)",
            ),
            ("AcountEndpoint=https://a.b/;AccountKey=c2VjcmV0", "AcountEndpoint=(hidden);AccountKey=(hidden)"),
            ("AccountEndpoint=https://a.b/;AcountKey=c2VjcmV0", "AccountEndpoint=https://a.b/;AcountKey=(hidden)"),
            ("https://a.b/;AccountKey=c2VjcmV0", "https://a.b/;AccountKey=(hidden)"),
            ("./data;1", "./data;1"),
            ("c.accountkeys = 5", "c.accountkeys = 5"),
        ] {
            assert_eq!(without_key(text), shown);
            assert_eq!(is_connection_string(text), shown != text, "{text}");
        }
    }

    #[test]
    fn a_connection_string_without_a_url_is_refused_without_being_shown() {
        for store in [
            "AcountEndpoint=https://a.b/;AccountKey=c2VjcmV0",
            "AccountEndpoint=https://a.b/,AccountKey=c2VjcmV0",
            "AccountEndpoint=a.b;AccountKey=c2VjcmV0",
            "https://a.b/;AccountKey=c2VjcmV0",
            "AccountKey=c2VjcmV0",
        ] {
            let refused = AccountName::of(store).unwrap().host().unwrap_err();
            assert!(refused.contains("needs an AccountEndpoint that is a URL"), "{store}: {refused}");
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
            ("\"AccountEndpoint=https://a.b/;AccountKey=YWJj\"", Some(("https://a.b/", Some("YWJj")))),
            ("'AccountEndpoint = https://a.b/;'\n", Some(("https://a.b/", None))),
            ("AccountEndpoint=https://a.b/;AccountKey=;", Some(("https://a.b/", None))),
            ("https://documents.azure.com.example.org", None),
            ("http://127.0.0.1:8081", None),
            ("./shop.documents.azure.com", None),
            ("memory", None),
        ] {
            let account = AccountName::of(store).map(|account| (account.endpoint, account.key));
            assert_eq!(account, found, "{store}");
        }
        assert_eq!(AccountName::of(azure).unwrap().host().as_deref(), Ok("shop.documents.azure.com"));
    }
}
