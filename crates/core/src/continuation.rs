//! Continuations: where a reader of one range goes on.

use std::{fmt, sync::Arc};

use crate::{Error, ErrorKind, Lsn, ResourceId, Result};

/// How much of a continuation an error message shows: it may come from outside and be of any length.
const SHOWN_CHARS: usize = 64;

/// A position in the feed of one range, as text that only the store that made it understands.
///
/// Our own stores use a quoted LSN, `"14"`, and something longer only inside an LSN that has more changes than a page; Azure Cosmos DB's is the verbatim ETag of the response. One that came
/// from a page also knows its container, so that using it elsewhere is refused; a text from a lease does not.
/// Two continuations are equal if their texts are.
#[derive(Clone)]
pub struct Continuation {
    token: Arc<str>,
    container: Option<ResourceId>,
}

impl Continuation {
    /// Creates one from a stored text. The store that reads it checks it.
    pub fn from_token(token: impl Into<Arc<str>>) -> Self {
        Self { token: token.into(), container: None }
    }

    /// Creates a position of the store of `container`.
    pub fn new(token: impl Into<Arc<str>>, container: ResourceId) -> Self {
        Self { token: token.into(), container: Some(container) }
    }

    /// Returns the position right after `lsn`, in the form of our own stores.
    pub fn after(lsn: Lsn, container: ResourceId) -> Self {
        Self::new(format!("\"{lsn}\""), container)
    }

    /// Returns the text to store.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Returns the container it belongs to, if known.
    pub fn container(&self) -> Option<&ResourceId> {
        self.container.as_ref()
    }

    /// Reads the form of our own stores: an LSN with or without quotes.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignContinuation`] if it belongs to another container than `container`,
    /// [`ErrorKind::BadContinuation`] if it is not a (quoted) number.
    pub fn to_lsn(&self, container: &ResourceId) -> Result<Lsn> {
        if let Some(own) = &self.container
            && own != container
        {
            return Err(Error::new(
                ErrorKind::ForeignContinuation,
                format!("continuation {self} belongs to container {own}, not to {container}: start this one again"),
            ));
        }
        let quoted = self.token.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        number(quoted.unwrap_or(&self.token)).map(Lsn::new).ok_or_else(|| {
            Error::new(
                ErrorKind::BadContinuation,
                format!("{self} is not a continuation of this store: expected a quoted number such as \"14\""),
            )
        })
    }
}

/// A number of digits only.
fn number(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

impl PartialEq for Continuation {
    fn eq(&self, other: &Self) -> bool {
        self.token == other.token
    }
}

impl Eq for Continuation {}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.token.char_indices().nth(SHOWN_CHARS) {
            Some((end, _)) => write!(f, "{}…", &self.token[..end]),
            None => f.write_str(&self.token),
        }
    }
}

impl fmt::Debug for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Continuation({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(number: u32) -> ResourceId {
        ResourceId::container(1, number)
    }

    #[test]
    fn a_quoted_and_a_bare_number_are_positions() {
        for token in ["\"14\"", "14"] {
            assert_eq!(Continuation::from_token(token).to_lsn(&container(1)).unwrap(), Lsn::new(14));
        }
    }

    #[test]
    fn anything_else_is_a_bad_continuation() {
        let plain = [
            "",
            "\"\"",
            "\"14",
            "14\"",
            "-1",
            "+1",
            " 1",
            "1.0",
            "99999999999999999999999",
            "\"a-1\"",
            "é",
            "\"0\"5\"",
            "\"14.05\"",
        ];
        for token in plain {
            let error = Continuation::from_token(token).to_lsn(&container(1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadContinuation, "{token}");
        }
    }

    #[test]
    fn a_position_of_another_container_is_refused() {
        let error = Continuation::after(Lsn::new(3), container(1)).to_lsn(&container(2)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignContinuation);
    }
}
