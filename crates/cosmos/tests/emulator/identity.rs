//! Identities of Entra ID: what is sent, what tokens are asked for, and what happens if there is none.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use azure_core::{
    credentials::{AccessToken, TokenCredential, TokenRequestOptions},
    error::ErrorKind as AzureErrorKind,
    time::{Duration as AzureDuration, OffsetDateTime},
};
use changefeed_core::{ErrorKind, FeedRange, ReadChanges, StartFrom, async_trait};
use changefeed_cosmos::Credential;
use serde_json::json;

use crate::{
    account::Emulated,
    seen::{Seen, start, until},
    shop::{Shop, container},
};

/// What the service wants tokens to be for.
const SCOPE: &str = "https://cosmos.azure.com/.default";

/// A credential whose tokens have a number, and characters that a header must escape.
#[derive(Debug, Default)]
pub(crate) struct Identity {
    scopes: Mutex<Vec<Vec<String>>>,
    tokens: AtomicUsize,
    has_none: AtomicBool,
}

#[async_trait]
impl TokenCredential for Identity {
    async fn get_token(&self, scopes: &[&str], _: Option<TokenRequestOptions<'_>>) -> azure_core::Result<AccessToken> {
        self.scopes.lock().unwrap().push(scopes.iter().map(|scope| (*scope).to_owned()).collect());
        if self.has_none.load(Ordering::Acquire) {
            return Err(azure_core::Error::with_message(AzureErrorKind::Credential, "the certificate has expired"));
        }
        let number = self.tokens.fetch_add(1, Ordering::Relaxed);
        let hour = AzureDuration::hours(1);
        Ok(AccessToken::new(format!("a+b/c=.{number}"), OffsetDateTime::now_utc() + hour))
    }
}

fn credential(identity: &Arc<Identity>) -> Credential {
    Credential::Token(Arc::<Identity>::clone(identity))
}

#[tokio::test]
async fn every_request_carries_a_token_for_the_scope_of_cosmos_db() {
    let (emulated, identity) = (Emulated::new().await, Arc::new(Identity::default()));
    Shop::create(&emulated);
    let account = emulated.connect_with(credential(&identity)).await.unwrap();
    let orders = container(&account, "orders").await;
    orders.upsert(&json!({"id": "1", "customer": "a"})).await.unwrap();
    let page = orders.read_changes(ReadChanges::new(FeedRange::full(), StartFrom::Beginning)).await.unwrap();
    assert_eq!(page.changes.len(), 1);
    let requests = emulated.requests();
    let sent: Vec<&str> = requests.iter().map(|request| request.header("authorization").unwrap()).collect();
    let number = |text: &str| {
        let token = text.strip_prefix("type%3Daad%26ver%3D1.0%26sig%3Da%2Bb%2Fc%3D.");
        token.unwrap_or_else(|| panic!("{text:?} is no token")).parse::<usize>().unwrap()
    };
    let numbers: std::collections::BTreeSet<usize> = sent.iter().map(|text| number(text)).collect();
    // The credential is asked for each request, so that an expired token is never sent.
    assert_eq!(numbers.len(), sent.len(), "{sent:?}");
    let scopes = identity.scopes.lock().unwrap();
    assert!(scopes.len() >= sent.len() && scopes.iter().all(|asked| asked == &[SCOPE]), "{scopes:?}");
}

#[tokio::test]
async fn an_identity_without_a_token_cannot_connect_and_the_error_says_why() {
    let (emulated, identity) = (Emulated::new().await, Arc::new(Identity::default()));
    identity.has_none.store(true, Ordering::Release);
    let error = emulated.connect_with(credential(&identity)).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Unavailable, "no token could be got for the identity"));
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("the certificate has expired"), "{cause}");
    assert!(emulated.requests().is_empty(), "nothing is sent without a token");
}

#[tokio::test]
async fn a_host_reports_that_its_identity_has_no_token_and_carries_on_with_the_next() {
    let (emulated, identity) = (Emulated::new().await, Arc::new(Identity::default()));
    Shop::create(&emulated);
    let account = emulated.connect_with(credential(&identity)).await.unwrap();
    // Leases and writers have the key.
    let direct = emulated.connect().await;
    let (shop, writers, seen) =
        (Shop::open(&account, &direct).await, Shop::open(&direct, &direct).await, Seen::default());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&errors);
    let builder = shop.builder().on_error(move |report| own.lock().unwrap().push(report.failure.to_string()));
    let running = start(builder, &seen).await;
    writers.write(0..10).await;
    until("delivery", || seen.len() >= 10).await;
    identity.has_none.store(true, Ordering::Release);
    until("an error", || errors.lock().unwrap().iter().any(|error| error.contains("read changes of shop/orders")))
        .await;
    writers.write(10..20).await;
    assert_eq!(seen.len(), 10);
    identity.has_none.store(false, Ordering::Release);
    until("delivery", || seen.len() >= 20).await;
    running.stop().await.unwrap();
    assert_eq!(seen.distinct(), 20);
}
