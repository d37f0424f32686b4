//! Connection strings of Azure Cosmos DB, as the portal shows them: they name a store and hold its key.

/// The member that must not be shown.
const KEY: &str = "accountkey=";

/// Whether this names an account of Azure Cosmos DB.
pub(crate) fn is_connection_string(store: &str) -> bool {
    store.split(';').any(|part| begins_with(part, "accountendpoint="))
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
}
