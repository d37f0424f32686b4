//! The certificate of `--tls self-signed`: it is kept in the folder of the store, so that clients that trust it still do after a
//! restart. It is renewed before it expires and when it has to hold other names, with the same key: clients of ours that have
//! the one before trust the new one as well.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use changefeed_core::Timestamp;
use changefeed_server::{Tls, self_signed_for};

use crate::exit::Result;

/// The files in the folder of the store.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "certificate.key";

/// The names of every certificate.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A month before it expires.
const RENEWED_AFTER: Duration = Duration::from_secs(365 * 24 * 3600);

/// How the key file begins: when the certificate was made, and for which names.
const MADE: &str = "# made by changefeed serve --tls self-signed at ";

/// The names that a certificate holds: those of this machine, of the account, and further ones.
pub(super) fn names(account_host: &str, further: &[String]) -> Vec<String> {
    let mut names: Vec<String> = LOCAL.map(str::to_owned).into();
    for name in std::iter::once(account_host).chain(further.iter().map(String::as_str)) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// A certificate in the folder of a store.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    names: Vec<String>,
}

impl Kept {
    pub(super) fn new(folder: &Path, names: Vec<String>) -> Self {
        Self { folder: folder.to_owned(), names }
    }

    /// The file that clients need.
    pub(super) fn file(&self) -> PathBuf {
        self.folder.join(CERTIFICATE)
    }

    pub(super) fn tls(&self) -> Tls {
        Tls::Files(self.file(), self.folder.join(KEY))
    }

    /// Makes the certificate if it is missing, about to expire or for other names; whether it did.
    pub(super) fn renew(&self, now: Timestamp) -> Result<bool> {
        let path = self.folder.join(KEY);
        let key = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("read {}: {error}", path.display()).into()),
        };
        let names = self.names.join(", ");
        let pem = match &key {
            None => None,
            Some(text) => {
                let Some((seconds, held)) = made(text) else {
                    return Err(format!(
                        "{} was not made by --tls self-signed: pass --tls CERT,KEY to use it, or move it away",
                        path.display()
                    )
                    .into());
                };
                if held == names && !is_due(seconds, now) && self.tls().check().is_ok() {
                    return Ok(false);
                }
                text.find("-----BEGIN").and_then(|begin| text.get(begin..))
            }
        };
        // A key that cannot be read is replaced.
        let made = self_signed_for(&self.names, pem).or_else(|_| self_signed_for(&self.names, None))?;
        // The key comes last: a crash in between leaves no key, or the line for the certificate before, and both are made again.
        self.write(CERTIFICATE, &made.certificate)?;
        self.write(KEY, &format!("{MADE}{} for {names}\n{}", now.as_secs(), made.key))?;
        Ok(true)
    }

    /// Writes a file that only the owner reads, whole or not at all.
    fn write(&self, name: &str, text: &str) -> Result<()> {
        let (path, partial) = (self.folder.join(name), self.folder.join(format!("{name}.partial")));
        let write = || {
            let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&partial)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&partial, &path)
        };
        write().map_err(|error: io::Error| format!("write {}: {error}", path.display()).into())
    }
}

/// When the certificate was made, in seconds, and the names that it holds.
fn made(key: &str) -> Option<(u64, &str)> {
    let (seconds, names) = key.lines().next()?.strip_prefix(MADE)?.split_once(" for ")?;
    Some((seconds.parse().ok()?, names))
}

/// Whether a certificate that was made then is old, or not yet valid since the clock was set back.
fn is_due(made: u64, now: Timestamp) -> bool {
    now.as_secs() >= made.saturating_add(RENEWED_AFTER.as_secs()) || now.as_secs().saturating_add(DAY.as_secs()) < made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_made_again_for_other_names_and_before_it_expires() {
        let folder = std::env::temp_dir().join(format!("changefeed-certificate-test-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("make a folder");
        let kept = |further: &[&str]| {
            let further: Vec<String> = further.iter().map(|name| (*name).to_owned()).collect();
            Kept::new(&folder, names("localhost", &further))
        };
        let days = |days: u64| Timestamp::from_secs(1_800_000_000 + days * DAY.as_secs());
        let read = |name: &str| fs::read_to_string(folder.join(name)).expect("read");
        let secret = || read(KEY).lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert!(kept(&[]).renew(days(0)).expect("make"));
        let (certificate, key) = (read(CERTIFICATE), secret());
        assert!(!kept(&["localhost"]).renew(days(364)).expect("keep"));
        assert_eq!(read(CERTIFICATE), certificate);
        for (names, day) in [(&[][..], 365), (&["shop.example.com"][..], 366), (&[][..], 367), (&[][..], 300)] {
            assert!(kept(names).renew(days(day)).expect("renew"), "{names:?} on day {day}");
            assert_ne!(read(CERTIFICATE), certificate);
            assert_eq!(secret(), key, "the key stays");
        }
        fs::remove_file(folder.join(CERTIFICATE)).expect("remove");
        assert!(kept(&[]).renew(days(300)).expect("make it again"));
        fs::write(folder.join(KEY), "-----BEGIN PRIVATE KEY-----").expect("write");
        let refused = kept(&[]).renew(days(300)).expect_err("a key of somebody else").to_string();
        assert!(refused.contains("--tls CERT,KEY"), "{refused}");
        fs::remove_dir_all(folder).expect("remove the folder");
    }
}
