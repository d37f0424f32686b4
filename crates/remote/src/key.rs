//! The account's key, and the signatures that are made with it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use changefeed_core::{Error, ErrorKind, Result};
use hmac::{Hmac, Mac};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

/// The public key of emulators, which a server on the loopback interface accepts unless it was started with another.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A key. Never shown.
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    /// Reads a key in base64.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refused = |why: &str| {
            let message = format!("the key {why}: pass the line of the server's key file, or EMULATOR_KEY");
            Error::new(ErrorKind::InvalidArgument, message)
        };
        let bytes = STANDARD.decode(text.trim()).map_err(|_| refused("is not base64"))?;
        if bytes.is_empty() {
            return Err(refused("is empty"));
        }
        Hmac::new_from_slice(&bytes).map(Self).map_err(|_| refused("cannot be used"))
    }

    /// The authorization header of a request, as Cosmos DB has it.
    pub(crate) fn authorization(&self, verb: &str, kind: &str, link: &str, date: &str) -> String {
        let text = format!("{}\n{kind}\n{link}\n{}\n\n", verb.to_ascii_lowercase(), date.to_ascii_lowercase());
        let mut mac = self.0.clone();
        mac.update(text.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        utf8_percent_encode(&format!("type=master&ver=1.0&sig={signature}"), NON_ALPHANUMERIC).to_string()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_one_that_the_official_sdks_make() {
        let key = Key::parse(EMULATOR_KEY).unwrap();
        let header = key.authorization("GET", "docs", "dbs/db1/colls/c1/docs/a b", "Sun, 15 Nov 2026 20:52:04 GMT");
        let signature = "n2Ug3CPY5LXdHrrr3o/aLotjZT5MBp2K5BSdvPhXWZg=";
        let encoded = utf8_percent_encode(signature, NON_ALPHANUMERIC);
        assert_eq!(header, format!("type%3Dmaster%26ver%3D1%2E0%26sig%3D{encoded}"));
    }

    #[test]
    fn a_key_is_never_shown_and_a_bad_one_is_refused() {
        assert_eq!(format!("{:?}", Key::parse(EMULATOR_KEY).unwrap()), "Key");
        for bad in ["", "not base64!"] {
            let error = Key::parse(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(!error.message().contains("not base64!"));
        }
    }
}
