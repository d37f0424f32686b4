//! Settings of an account that leases depend on. The SDK does not show them, so they are read with one request of our own.

use std::{fmt, sync::Arc, time::Duration};

use azure_core::{
    credentials::{Secret, TokenCredential},
    hmac::hmac_sha256,
    http::{Method, Request, Url, new_http_client},
};
use changefeed_core::{Clock, Error, ErrorKind, Result, SystemClock, Timestamp};
use parking_lot::RwLock;
use serde::Deserialize;
use time::{OffsetDateTime, format_description::BorrowedFormatItem, macros::format_description};

use crate::timer::within;

/// What tokens for Azure Cosmos DB are asked for.
const SCOPE: &str = "https://cosmos.azure.com/.default";
const VERSION: &str = "2020-07-15";
const HTTP_DATE: &[BorrowedFormatItem<'_>] =
    format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");

/// How long a credential may take for a token: one that asks a metadata endpoint, and then a tool, needs a while.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the account may take to answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// How to prove who is asking.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credential {
    /// A key of the account, in base64.
    Key(String),
    /// An identity of Microsoft Entra ID. Its tokens should be cached, as those of `azure_identity` are: one is asked for
    /// with every request.
    Token(Arc<dyn TokenCredential>),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Credential::Key(…)",
            Self::Token(_) => "Credential::Token(…)",
        })
    }
}

/// The default consistency of an account, from the strongest to the weakest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[non_exhaustive]
pub enum Consistency {
    /// Reads see the last committed write.
    Strong,
    /// Reads lag by a bounded time or number of versions.
    BoundedStaleness,
    /// A client reads its own writes.
    Session,
    /// Writes are seen in their order.
    ConsistentPrefix,
    /// No promise.
    Eventual,
}

/// Settings of an account that leases depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AccountProperties {
    /// The regions that take writes.
    pub write_regions: Vec<String>,
    /// All regions.
    pub regions: Vec<String>,
    /// Whether each write region takes writes on its own, so that a condition on an ETag holds in that region only.
    pub has_multiple_write_regions: bool,
    /// The default consistency.
    pub consistency: Consistency,
    source: Source,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    writable_locations: Vec<Location>,
    #[serde(default)]
    readable_locations: Vec<Location>,
    #[serde(default)]
    enable_multiple_write_locations: bool,
    user_consistency_policy: Policy,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    name: String,
    #[serde(default)]
    database_account_endpoint: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Policy {
    default_consistency_level: Consistency,
}

impl AccountProperties {
    /// Asks the account. Takes 10 s at most, after the token of an identity, which may take a minute.
    ///
    /// The credential is kept: containers that are opened for leases with these properties read them again from time to
    /// time.
    ///
    /// # Errors
    /// `InvalidArgument` if the endpoint is not a URL or the key not base64, `Forbidden` if the credential is not
    /// accepted, `Unavailable` or `Timeout` if the account cannot be reached or there is no token.
    pub async fn read(endpoint: &str, credential: &Credential) -> Result<Self> {
        let what = format!("read the account at {endpoint}");
        let late = |who: &str, limit: Duration| Error::new(ErrorKind::Timeout, format!("{what}: {who} in {limit:?}"));
        let url = parse_endpoint(endpoint)?;
        let request = within(TOKEN_TIMEOUT, request(url.clone(), credential, &SystemClock)).await;
        let request = request.ok_or_else(|| late("no token", TOKEN_TIMEOUT))??;
        let answer = async {
            let response = new_http_client(None).execute_request(&request).await?;
            let status = u16::from(response.status());
            Ok::<_, azure_core::Error>((status, response.try_into_raw_response().await?.into_body()))
        };
        let unreachable = |error| Error::new(ErrorKind::Unavailable, format!("{what}: no answer")).with_source(error);
        let answer = within(TIMEOUT, answer).await.ok_or_else(|| late("no answer", TIMEOUT))?;
        let (status, body) = answer.map_err(unreachable)?;
        match status {
            200 => Self::parse(&body, url, credential.clone(), SystemClock.wall()).map_err(|error| {
                Error::new(ErrorKind::Unsupported, format!("{what}: this is not an account of Azure Cosmos DB"))
                    .with_source(error)
            }),
            401 | 403 => {
                let message =
                    format!("{what}: the credential is not accepted ({status}): check key, roles and firewall");
                Err(Error::new(ErrorKind::Forbidden, message))
            }
            429 => Err(Error::new(ErrorKind::Throttled, format!("{what}: too many requests"))),
            _ => Err(Error::new(ErrorKind::Unavailable, format!("{what}: it answered {status}"))),
        }
    }

    pub(crate) fn parse(
        body: &[u8],
        endpoint: Url,
        credential: Credential,
        read_at: Timestamp,
    ) -> serde_json::Result<Self> {
        let answer: Answer = serde_json::from_slice(body)?;
        let locations = || answer.writable_locations.iter().chain(&answer.readable_locations);
        let mut regional: Vec<Url> =
            locations().filter_map(|location| Url::parse(&location.database_account_endpoint).ok()).collect();
        regional.sort();
        regional.dedup();
        let names = |locations: &[Location]| locations.iter().map(|location| location.name.clone()).collect();
        Ok(Self {
            write_regions: names(&answer.writable_locations),
            regions: names(&answer.readable_locations),
            has_multiple_write_regions: answer.enable_multiple_write_locations,
            consistency: answer.user_consistency_policy.default_consistency_level,
            source: Source { endpoint, regional, credential: Arc::new(RwLock::new(credential)), read_at },
        })
    }

    /// Asks the account that these came from again, with the credential that is valid now.
    ///
    /// # Errors
    /// See [`AccountProperties::read`].
    pub(crate) async fn read_again(&self) -> Result<Self> {
        let credential = self.source.credential.read().clone();
        Self::read(self.source.endpoint.as_str(), &credential).await
    }

    /// Uses another credential from now on, also in clones, to read the properties again.
    pub(crate) fn replace_credential(&self, credential: Credential) {
        *self.source.credential.write() = credential;
    }

    /// When the account was asked.
    pub(crate) fn read_at(&self) -> Timestamp {
        self.source.read_at
    }

    /// The endpoint that was asked.
    pub(crate) fn endpoint(&self) -> &Url {
        &self.source.endpoint
    }

    /// Whether these are of the account with this endpoint: the one that was asked, or that of one of its regions.
    pub(crate) fn are_of(&self, endpoint: &Url) -> bool {
        let is_same = |own: &Url| {
            own.host_str() == endpoint.host_str() && own.port_or_known_default() == endpoint.port_or_known_default()
        };
        is_same(&self.source.endpoint) || self.source.regional.iter().any(is_same)
    }
}

/// Where properties come from.
#[derive(Clone)]
struct Source {
    endpoint: Url,
    /// The endpoints of the regions.
    regional: Vec<Url>,
    credential: Arc<RwLock<Credential>>,
    read_at: Timestamp,
}

/// Without the credential.
impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.endpoint.as_str())
    }
}

/// When they were read, and with which credential, makes no difference.
impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.endpoint == other.endpoint && self.regional == other.regional
    }
}

impl Eq for Source {}

fn parse_endpoint(endpoint: &str) -> Result<Url> {
    Url::parse(endpoint).map_err(|error| {
        let message = format!("{endpoint:?} is not a URL: expected https://<account>.documents.azure.com");
        Error::new(ErrorKind::InvalidArgument, message).with_source(error)
    })
}

async fn request(url: Url, credential: &Credential, clock: &dyn Clock) -> Result<Request> {
    let date = http_date(clock.wall());
    let authorization = match credential {
        Credential::Key(key) => {
            let text = format!("get\n\n\n{}\n\n", date.to_ascii_lowercase());
            let signature = hmac_sha256(&text, &Secret::new(key.clone())).map_err(|error| {
                Error::new(ErrorKind::InvalidArgument, "the key of the account is not base64").with_source(error)
            })?;
            format!("type=master&ver=1.0&sig={signature}")
        }
        Credential::Token(identity) => {
            let token = identity.get_token(&[SCOPE], None).await.map_err(|error| {
                Error::new(ErrorKind::Unavailable, "no token could be got for the identity").with_source(error)
            })?;
            format!("type=aad&ver=1.0&sig={}", token.token.secret())
        }
    };
    let mut request = Request::new(url, Method::Get);
    request.insert_header("authorization", url_encoded(&authorization));
    request.insert_header("x-ms-date", date);
    request.insert_header("x-ms-version", VERSION);
    request.insert_header("accept", "application/json");
    Ok(request)
}

fn http_date(time: Timestamp) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    time.format(HTTP_DATE).unwrap_or_default()
}

/// Everything but letters, digits and `-._~` escaped.
fn url_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"id":"shop",
        "writableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://shop-westeurope.example.com:443/"}],
        "readableLocations":[{"name":"West Europe","databaseAccountEndpoint":"https://shop-westeurope.example.com:443/"}],
        "enableMultipleWriteLocations":false,"userConsistencyPolicy":{"defaultConsistencyLevel":"Session"}}"#;

    fn shop() -> AccountProperties {
        let endpoint = parse_endpoint("https://Shop.example.com").unwrap();
        AccountProperties::parse(BODY, endpoint, Credential::Key("secret".to_owned()), Timestamp::default()).unwrap()
    }

    #[test]
    fn an_account_tells_regions_and_consistency() {
        let shop = shop();
        assert_eq!((&*shop.write_regions, &*shop.regions), (&["West Europe".to_owned()][..], &*shop.write_regions));
        assert_eq!((shop.has_multiple_write_regions, shop.consistency), (false, Consistency::Session));
    }

    #[test]
    fn properties_are_of_the_account_with_the_same_host_and_port() {
        let is_of_shop = |endpoint: &str| shop().are_of(&parse_endpoint(endpoint).unwrap());
        let own = ["https://shop.example.com/", "https://SHOP.example.com:443", "https://shop-westeurope.example.com"];
        assert!(own.into_iter().all(is_of_shop));
        let others = ["https://leases.example.com", "https://shop.example.com:8081", "https://shop.example.org"];
        assert!(!others.into_iter().any(is_of_shop));
    }

    #[test]
    fn properties_do_not_show_their_credential() {
        let shown = format!("{:?}", shop());
        assert!(shown.contains("shop.example.com") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn dates_and_headers_are_written_as_the_service_wants_them() {
        assert_eq!(http_date(Timestamp::from_secs(1_700_000_000)), "Tue, 14 Nov 2023 22:13:20 GMT");
        assert_eq!(url_encoded("type=master&sig=a+/="), "type%3Dmaster%26sig%3Da%2B%2F%3D");
    }
}
