//! Authentication: the signature over method, resource and date, made with a key of the account.

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use changefeed_core::Timestamp;
use hmac::{Hmac, Mac};
use percent_encoding::percent_decode_str;
use sha2::Sha256;

use crate::path::{PARTITION_KEY, Path};

/// The well-known public key of Cosmos DB emulators.
pub const EMULATOR_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// The largest difference between the date of a request and the server's clock.
const MAX_SKEW: Duration = Duration::from_secs(15 * 60);

/// The longest authorization header that is looked at.
const MAX_HEADER_BYTES: usize = 4096;

/// The permissions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    Full,
    /// Reading and querying.
    ReadOnly,
}

/// The keys of an account. Several may be live at once, so that clients can change over one by one. Never shown.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

/// A key, ready to sign.
#[derive(Clone)]
struct Key {
    access: Access,
    mac: Hmac<Sha256>,
    is_emulators: bool,
}

impl Key {
    fn new(access: Access, key: &[u8]) -> Option<Self> {
        let is_emulators = STANDARD.decode(EMULATOR_KEY).is_ok_and(|known| known == key);
        Some(Self { access, mac: Hmac::<Sha256>::new_from_slice(key).ok()?, is_emulators })
    }

    fn over(&self, text: &str) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        mac.update(text.as_bytes());
        mac
    }
}

impl Keys {
    /// The public key of emulators. Accepted on the loopback interface only.
    pub fn emulator() -> Self {
        let key = STANDARD.decode(EMULATOR_KEY).ok().and_then(|key| Key::new(Access::Full, &key));
        Self(key.into_iter().collect())
    }

    /// Reads a key file: one key in base64 on each line, at most eight; `read-only` before one that must not write.
    /// Empty lines and lines that begin with `#` are left out.
    ///
    /// # Errors
    /// Names the line that is not valid, without its key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (access, key) = match line.strip_prefix("read-only ") {
                Some(key) => (Access::ReadOnly, key.trim()),
                None => (Access::Full, line),
            };
            let number = index + 1;
            let key = STANDARD.decode(key).map_err(|_| {
                format!("line {number} of the key file is not base64: make a key with `openssl rand -base64 48`")
            })?;
            if key.len() < 16 {
                return Err(format!(
                    "the key in line {number} of the key file has less than 16 bytes: make one with `openssl rand \
                     -base64 48`"
                ));
            }
            keys.extend(Key::new(access, &key));
        }
        match keys.len() {
            0 => Err("the key file holds no key: make one with `openssl rand -base64 48`".to_owned()),
            1..=8 => Ok(Self(keys)),
            count => Err(format!("the key file holds {count} keys: keep at most eight")),
        }
    }

    /// Returns `true` if the public key of emulators is among them.
    pub fn has_emulator_key(&self) -> bool {
        self.0.iter().any(|key| key.is_emulators)
    }

    /// Returns whether a text is one of the keys that may read only, in base64. For clients that cannot sign.
    pub(crate) fn is_read_only(&self, text: &str) -> bool {
        const PROOF: &str = "bearer";
        let shown = STANDARD.decode(text.trim()).ok().filter(|key| !key.is_empty());
        let Some(shown) = shown.and_then(|key| Key::new(Access::ReadOnly, &key)) else { return false };
        // Compared by what they sign, in constant time.
        let proof = shown.over(PROOF).finalize().into_bytes();
        self.access(&proof, PROOF) == Some(Access::ReadOnly)
    }

    /// Returns the access of the key that signed `text`. All keys are always compared, so that timing reveals nothing.
    fn access(&self, signature: &[u8], text: &str) -> Option<Access> {
        let mut found = None;
        for key in &self.0 {
            if key.over(text).verify_slice(signature).is_ok() {
                found = Some(key.access);
            }
        }
        found
    }

    /// The header with which a request of this verb, kind, link and date is signed by the first key.
    pub fn sign(&self, verb: &str, kind: &str, link: &str, date: &str) -> Option<String> {
        let mac = self.0.first()?.over(&text_to_sign(verb, kind, link, date, ""));
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let plain = format!("type=master&ver=1.0&sig={signature}");
        Some(percent_encoding::utf8_percent_encode(&plain, percent_encoding::NON_ALPHANUMERIC).to_string())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.0.len())
    }
}

fn text_to_sign(verb: &str, kind: &str, link: &str, ms_date: &str, date: &str) -> String {
    let parts = [(verb, true), (kind, false), (link, false), (ms_date, true), (date, true)];
    let mut text = String::with_capacity(parts.iter().map(|(part, _)| part.len() + 1).sum());
    for (part, in_lower_case) in parts {
        let start = text.len();
        text.push_str(part);
        if in_lower_case {
            text[start..].make_ascii_lowercase();
        }
        text.push('\n');
    }
    text
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No authorization header.
    Missing,
    /// The header is not of the form that a master key gives.
    Malformed,
    /// A token of a directory or of a user: not served here.
    OtherScheme,
    /// No date, or one that is none.
    NoDate,
    /// The date is too far off.
    Skewed,
    /// No key made this signature.
    WrongSignature,
}

impl Refusal {
    /// A sentence for the client.
    pub fn message(self) -> &'static str {
        match self {
            Self::Missing => "Required Header authorization is missing: sign the request with the account's key.",
            Self::Malformed => "The authorization header is not of the form type=master&ver=1.0&sig=..., URL-encoded.",
            Self::OtherScheme => {
                "Only the account's key is accepted here, neither directory tokens nor resource tokens."
            }
            Self::NoDate => "Neither x-ms-date nor date holds a date such as Sun, 15 Nov 2026 20:52:04 GMT.",
            Self::Skewed => {
                "The authorization token is not valid at the current time: the clocks of client and server differ by \
                 more than 15 minutes."
            }
            Self::WrongSignature => {
                "The input authorization token can't serve the request. The wrong key is being used, or the expected \
                 payload is not built as per the protocol."
            }
        }
    }
}

/// The headers that authorization looks at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signed<'a> {
    /// `authorization`.
    pub authorization: Option<&'a str>,
    /// `x-ms-date`.
    pub ms_date: Option<&'a str>,
    /// `date`.
    pub date: Option<&'a str>,
}

/// Checks the signature of a request and returns its access.
///
/// # Errors
/// The reason of the refusal.
pub fn authorize(
    keys: &Keys,
    verb: &str,
    path: &Path<'_>,
    signed: Signed<'_>,
    now: Timestamp,
) -> Result<Access, Refusal> {
    let signature = parse(signed.authorization.ok_or(Refusal::Missing)?)?;
    let ms_date = signed.ms_date.unwrap_or("");
    let date = signed.date.unwrap_or("");
    let shown = if ms_date.is_empty() { date } else { ms_date };
    let at = httpdate::parse_http_date(shown).map_err(|_| Refusal::NoDate)?;
    let at = at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    if at.abs_diff(Duration::from_millis(now.as_millis())) > MAX_SKEW {
        return Err(Refusal::Skewed);
    }
    // A proxy may add a date that was not signed.
    let dates: &[&str] = if ms_date.is_empty() {
        &[date]
    } else if date.is_empty() {
        &[""]
    } else {
        &["", date]
    };
    let mut found = None;
    // All that may have been signed is tried, whichever fits.
    let kinds: &[&str] = match path.kind {
        // Some SDKs sign the container whose partition key is deleted.
        PARTITION_KEY => &[PARTITION_KEY, "colls"],
        kind => &[kind],
    };
    for link in &path.links {
        for (kind, date) in kinds.iter().flat_map(|kind| dates.iter().map(move |date| (kind, date))) {
            let text = text_to_sign(verb, kind, link, ms_date, date);
            found = keys.access(&signature, &text).or(found);
        }
    }
    found.ok_or(Refusal::WrongSignature)
}

/// The signature in an authorization header.
///
/// # Errors
/// The reason of the refusal.
pub fn parse(header: &str) -> Result<Vec<u8>, Refusal> {
    if header.len() > MAX_HEADER_BYTES {
        return Err(Refusal::Malformed);
    }
    // With room for all of it: the decoder itself would grow its text step by step.
    let mut text = Vec::with_capacity(header.len());
    text.extend(percent_decode_str(header));
    let text = std::str::from_utf8(&text).map_err(|_| Refusal::Malformed)?;
    let (mut kind, mut version, mut signature) = (None, None, None);
    for part in text.splitn(3, '&') {
        match part.split_once('=') {
            Some(("type", value)) => kind = Some(value),
            Some(("ver", value)) => version = Some(value),
            Some(("sig", value)) => signature = Some(value),
            _ => return Err(Refusal::Malformed),
        }
    }
    match (kind, version, signature) {
        (Some("master"), Some("1.0"), Some(signature)) => STANDARD.decode(signature).map_err(|_| Refusal::Malformed),
        (Some("aad" | "resource"), _, _) => Err(Refusal::OtherScheme),
        _ => Err(Refusal::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATE: &str = "Sun, 15 Nov 2026 20:52:04 GMT";

    fn now() -> Timestamp {
        let at = httpdate::parse_http_date(DATE).unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
        Timestamp::from_secs(at.as_secs())
    }

    fn check(verb: &str, path: &str, signature: &str) -> Result<Access, Refusal> {
        let header = format!("type%3dmaster%26ver%3d1.0%26sig%3d{}", signature.replace('+', "%2B").replace('/', "%2F"));
        let signed = Signed { authorization: Some(&header), ms_date: Some(DATE), date: None };
        authorize(&Keys::emulator(), verb, &Path::parse(path).unwrap(), signed, now())
    }

    #[test]
    fn signatures_of_the_official_sdks_are_accepted() {
        for (verb, path, signature) in [
            ("GET", "/", "w9LzTyxcSwaq0ZjLwQiuTymt4rrwl0tY5DRhUIzB8nM="),
            ("POST", "/dbs/db1/colls/c1/docs", "SJnIFqNj1SoA2JL7hg5cXVwWcSYSJ8p6bjAGVAlErfo="),
            ("GET", "/dbs/db1/colls/c1/docs/a%20b/", "n2Ug3CPY5LXdHrrr3o/aLotjZT5MBp2K5BSdvPhXWZg="),
            ("GET", "/dbs/db1/colls/c1/pkranges", "yk8CdPxu9yFhV/FjzyMdHa4JKcTvf4qfTbSq4Pd6RCI="),
            ("POST", "/offers/", "10p+ILeDwd7IgKgoRpYkGzPorj0seULr8VIXTnF5GSA="),
        ] {
            assert_eq!(check(verb, path, signature), Ok(Access::Full), "{verb} {path}");
            assert_eq!(check("PUT", path, signature), Err(Refusal::WrongSignature), "{verb} {path}");
        }
    }

    #[test]
    fn what_was_signed_for_one_resource_does_not_open_another() {
        let signature = "n2Ug3CPY5LXdHrrr3o/aLotjZT5MBp2K5BSdvPhXWZg=";
        for path in ["/dbs/db1/colls/c1/docs/b", "/dbs/db1/colls/C1/docs/a%20b", "/dbs/db1/colls/c1/docs"] {
            assert_eq!(check("GET", path, signature), Err(Refusal::WrongSignature), "{path}");
        }
    }

    #[test]
    fn dates_more_than_fifteen_minutes_off_are_refused() {
        let keys = Keys::emulator();
        let path = Path::parse("/dbs").unwrap();
        let header = keys.sign("get", "dbs", "", &DATE.to_ascii_lowercase()).unwrap();
        let signed = Signed { authorization: Some(&header), ms_date: Some(DATE), date: None };
        for (off, allowed) in [(14 * 60, true), (16 * 60, false)] {
            for now in [now().saturating_add(Duration::from_secs(off)), now().saturating_sub(Duration::from_secs(off))]
            {
                assert_eq!(authorize(&keys, "GET", &path, signed, now).is_ok(), allowed, "{off}");
            }
        }
        let dateless = Signed { authorization: Some(&header), ms_date: None, date: None };
        assert_eq!(authorize(&keys, "GET", &path, dateless, now()), Err(Refusal::NoDate));
    }

    #[test]
    fn a_read_only_key_is_told_apart_and_two_keys_are_live_at_once() {
        let keys = Keys::parse("# ours\nMDEyMzQ1Njc4OWFiY2RlZg==\nread-only ZmVkY2JhOTg3NjU0MzIxMA==\n").unwrap();
        let reader = Keys::parse("ZmVkY2JhOTg3NjU0MzIxMA==").unwrap();
        let path = Path::parse("/dbs").unwrap();
        let header = reader.sign("get", "dbs", "", &DATE.to_ascii_lowercase()).unwrap();
        let signed = Signed { authorization: Some(&header), ms_date: Some(DATE), date: None };
        assert_eq!(authorize(&keys, "GET", &path, signed, now()), Ok(Access::ReadOnly));
        assert_eq!(authorize(&Keys::emulator(), "GET", &path, signed, now()), Err(Refusal::WrongSignature));
    }

    #[test]
    fn headers_that_are_no_signature_are_refused() {
        for (header, refusal) in [
            ("", Refusal::Malformed),
            ("type=master", Refusal::Malformed),
            ("type=master&ver=2.0&sig=AAAA", Refusal::Malformed),
            ("type=master&ver=1.0&sig=!", Refusal::Malformed),
            ("%ff%fe", Refusal::Malformed),
            ("type%3Daad%26ver%3D1.0%26sig%3Dey.ab.cd", Refusal::OtherScheme),
            ("type=aad&ver=1.0&sig=ey.ab.cd", Refusal::OtherScheme),
        ] {
            assert_eq!(parse(header), Err(refusal), "{header}");
        }
    }

    #[test]
    fn keys_are_never_shown_and_bad_key_files_name_their_line() {
        assert_eq!(format!("{:?}", Keys::emulator()), "Keys(1)");
        assert!(Keys::parse("").unwrap_err().contains("no key"));
        assert!(Keys::parse("\nnot base64!").unwrap_err().contains("line 2"));
        assert!(!Keys::parse("\nc2VjcmV0").unwrap_err().contains("c2VjcmV0"));
        assert!(Keys::emulator().has_emulator_key());
    }
}
