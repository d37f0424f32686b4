//! The account's key, wherever it comes from. It is never printed.

use std::{env, fs, os::unix::fs::PermissionsExt as _, path::Path};

use changefeed::remote::{EMULATOR_KEY, trust::is_loopback};
use changefeed_server::auth::Keys;

use crate::{args::StoreArgs, exit::Result, redact::redacted};

/// The variable that holds the account's key.
const VARIABLE: &str = "CHANGEFEED_KEY";

/// The keys in a file, as a server accepts them.
pub(crate) fn in_file(file: &Path) -> Result<Keys> {
    Ok(Keys::parse(&read(file)?).map_err(|problem| format!("{}: {problem}", file.display()))?)
}

/// The key with which a client of the server at `host` signs, in base64.
pub(crate) fn of_client(args: &StoreArgs, host: &str) -> Result<String> {
    let (text, place) = match (&args.key_file, env::var(VARIABLE)) {
        (Some(file), _) => (read(file)?, file.display().to_string()),
        (None, Ok(key)) => (key, format!("the variable {VARIABLE}")),
        (None, Err(_)) if is_loopback(host) => return Ok(EMULATOR_KEY.to_owned()),
        (None, Err(_)) => {
            return Err(format!("{host} needs the account's key: pass --key-file or set {VARIABLE}").into());
        }
    };
    Keys::parse(&text).map_err(|problem| format!("{place}: {problem}"))?;
    let keys = || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let writes = keys().find(|line| !line.starts_with("read-only "));
    let reads = keys().find_map(|line| line.strip_prefix("read-only "));
    writes.or(reads).map(|key| key.trim().to_owned()).ok_or_else(|| format!("{place} holds no key").into())
}

/// The text of a file with a secret; says so if others can read it.
pub(crate) fn read(file: &Path) -> Result<String> {
    let shown = redacted(&file.to_string_lossy());
    let text = fs::read_to_string(file).map_err(|error| format!("read the key file {shown}: {error}"))?;
    if fs::metadata(file).is_ok_and(|found| found.permissions().mode() & 0o077 != 0) {
        tracing::warn!(file = %shown, "others can read the key file: run chmod 600 on it");
    }
    Ok(text)
}
