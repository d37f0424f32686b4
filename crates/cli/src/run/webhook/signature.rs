//! Signatures as in Standard Webhooks: HMAC-SHA256 over id, time and body, one for each secret of the file.

use std::{fmt::Write as _, fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use changefeed::RawChanges;
use hmac::{Hmac, Mac as _};
use sha2::{Digest as _, Sha256};

use crate::{exit::Result, redact::redacted};

/// What stands before a secret in base64.
const PREFIX: &str = "whsec_";

/// Secrets of less than this many bytes can be guessed.
const SHORTEST: usize = 16;

/// The secrets that a receiver may check against: two while one replaces the other.
pub(super) struct Secrets(Vec<Hmac<Sha256>>);

impl Secrets {
    /// Reads a file: one secret on each line.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let shown = redacted(&file.to_string_lossy());
        let text = fs::read_to_string(file).map_err(|error| format!("read the secrets in {shown}: {error}"))?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut secrets = Vec::new();
        for line in lines {
            let secret = match line.strip_prefix(PREFIX) {
                Some(encoded) => STANDARD.decode(encoded).map_err(|_| {
                    format!(
                        "a secret in {shown} is not base64 after {PREFIX}: make one with \
                                          `openssl rand -base64 32`"
                    )
                })?,
                None => line.as_bytes().to_vec(),
            };
            if secret.len() < SHORTEST {
                return Err(format!(
                    "a secret in {shown} has less than {SHORTEST} bytes: make one with `openssl rand \
                                    -base64 32`"
                )
                .into());
            }
            secrets.push(Hmac::<Sha256>::new_from_slice(&secret)?);
        }
        if secrets.is_empty() {
            return Err(format!("{shown} holds no secret: make one with `openssl rand -base64 32`").into());
        }
        Ok(Self(secrets))
    }

    /// The value of the header, one signature for each secret.
    pub(super) fn sign(&self, id: &str, seconds: u64, body: &str) -> String {
        let sign = |secret: &Hmac<Sha256>| {
            let mut secret = secret.clone();
            secret.update(format!("{id}.{seconds}.{body}").as_bytes());
            format!("v1,{}", STANDARD.encode(secret.finalize().into_bytes()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

/// The name of a batch: the same for the same changes, whoever sends them and however often.
pub(super) fn batch_id(changes: &RawChanges) -> String {
    let mut hash = Sha256::new();
    for (_, info) in changes.with_info() {
        hash.update(info.change_id().as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(16).fold(String::new(), |mut text, byte| {
        // Writing to a text does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_published_example() {
        let secrets = Secrets(vec![
            Hmac::<Sha256>::new_from_slice(&STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap()).unwrap(),
        ]);
        let signed = secrets.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
