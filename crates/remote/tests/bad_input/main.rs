//! What users get wrong, and what goes wrong around them: each time a sentence that names the fix, and no restart needed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod servers;
mod settings;
#[path = "../support/mod.rs"]
mod support;
mod tls;

use changefeed_core::{Error, ErrorKind};

/// Checks kind and words of an error.
#[track_caller]
fn says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    assert_eq!(error.kind(), kind, "{error:?}");
    for part in parts {
        assert!(error.message().contains(part), "{part:?} is missing in {error:?}");
    }
}
