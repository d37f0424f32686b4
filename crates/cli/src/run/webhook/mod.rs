//! `run --webhook`: each batch is sent to a URL, signed.

mod address;
mod signature;

use std::{path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use changefeed::{BatchResult, Context, DelegateError, RawChanges};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{Request, Response, StatusCode, Uri, body::Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

use self::{address::PublicAddresses, signature::Secrets};
use super::trace_context::TraceContext;
use crate::{
    args::DelegateArgs,
    change_line::{Form, lines},
    clock,
    exit::Result,
    redact::{origin, redacted_webhook},
};

/// How long a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(5);

/// A receiver may answer with so much; it is not used but to say what went wrong.
const MOST_OF_AN_ANSWER: usize = 64 << 10;

/// So much of an answer is shown when it is an error.
const SHOWN_OF_AN_ANSWER: usize = 200;

/// A URL, and how it is called.
#[derive(Debug)]
pub(super) struct Webhook {
    url: Uri,
    client: Client<HttpsConnector<HttpConnector<PublicAddresses>>, Full<Bytes>>,
    secrets: Option<PathBuf>,
    timeout: Duration,
    processor: String,
}

impl Webhook {
    /// Checks the URL and the secrets before anything is read.
    pub(super) fn new(url: &str, args: &DelegateArgs, processor: &str) -> Result<Self> {
        let refused = |problem: &str| format!("--webhook {}: {problem}", redacted_webhook(url));
        let url: Uri =
            url.parse().map_err(|error| refused(&format!("{error}: pass a URL such as https://example.com/hook")))?;
        let secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") if args.allow_private => false,
            Some("http") => return Err(refused("use https://, or pass --allow-private for a receiver near by").into()),
            _ => return Err(refused("pass a URL that begins with https://").into()),
        };
        let host = url.host().ok_or_else(|| refused("a URL needs a host"))?;
        if !args.allow_private && address::is_private_literal(host) {
            return Err(refused("this is a private address: pass --allow-private if it is meant").into());
        }
        if let Some(file) = &args.webhook_secret_file {
            Secrets::read(file)?;
        }
        let mut tcp = HttpConnector::new_with_resolver(PublicAddresses { allow_private: args.allow_private });
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls(secure)?).https_or_http().enable_http1();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector.wrap_connector(tcp)),
            secrets: args.webhook_secret_file.clone(),
            timeout: args.webhook_timeout,
            processor: processor.to_owned(),
            url,
        })
    }

    /// Sends a batch. Any answer of the 2xx kind means that it is done.
    pub(super) async fn call(
        &self,
        changes: &RawChanges,
        context: &Context,
    ) -> std::result::Result<BatchResult, DelegateError> {
        let request = self.request(changes, context)?;
        let exchange = async {
            let response = self.client.request(request).await.map_err(|error| self.failed(&error))?;
            self.judge(response).await
        };
        clock::within(self.timeout, exchange).await.unwrap_or_else(|| {
            Err(DelegateError::new(format!("{} did not answer within {:?}", origin(&self.url), self.timeout)))
        })
    }

    fn request(
        &self,
        changes: &RawChanges,
        context: &Context,
    ) -> std::result::Result<Request<Full<Bytes>>, DelegateError> {
        let body = self.body(changes, context)?;
        let id = signature::batch_id(changes);
        let seconds = clock::now().as_secs();
        let mut request = Request::post(&self.url)
            .header("content-type", "application/json")
            .header("user-agent", concat!("changefeed/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", &id)
            .header("webhook-id", &id)
            .header("webhook-timestamp", seconds);
        if let Some(TraceContext { parent, state }) = TraceContext::of(changes) {
            request = request.header("traceparent", parent);
            if let Some(state) = state {
                request = request.header("tracestate", state);
            }
        }
        if let Some(file) = &self.secrets {
            // Read each time: a secret is replaced by writing the file, without a restart.
            let secrets = Secrets::read(file).map_err(|error| DelegateError::new(error.to_string()))?;
            request = request.header("webhook-signature", secrets.sign(&id, seconds, &body));
        }
        Ok(request.body(Full::new(Bytes::from(body)))?)
    }

    /// `{"processor": …, "lease": …, "attempt": …, "changes": [ … ]}`, each change as `--print --json` shows it.
    fn body(&self, changes: &RawChanges, context: &Context) -> std::result::Result<String, DelegateError> {
        let lines = lines(changes, Form::Json, Some(context.lease().as_str()))?;
        let list = lines.trim_end().replace('\n', ",");
        let text = |text: &str| serde_json::to_string(text);
        Ok(format!(
            "{{\"processor\":{},\"instance\":{},\"lease\":{},\"attempt\":{},\"changes\":[{list}]}}",
            text(&self.processor)?,
            text(context.instance())?,
            text(context.lease().as_str())?,
            context.attempt(),
        ))
    }

    async fn judge(&self, response: Response<Incoming>) -> std::result::Result<BatchResult, DelegateError> {
        let status = response.status();
        let answer = Limited::new(response.into_body(), MOST_OF_AN_ANSWER).collect().await;
        if status.is_success() {
            return Ok(BatchResult::Done);
        }
        if status.is_redirection() {
            let advice = "redirects are not followed: pass the URL it leads to";
            return Err(DelegateError::new(format!("{} answered {}: {advice}", origin(&self.url), status.as_u16())));
        }
        let answer = answer.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let shown: String = String::from_utf8_lossy(&answer).chars().take(SHOWN_OF_AN_ANSWER).collect();
        // An answer that is empty or too large is not shown.
        let shown = if shown.trim().is_empty() { String::new() } else { format!(": {}", shown.trim()) };
        Err(DelegateError::new(format!("{} answered {}{shown}", origin(&self.url), describe(status))))
    }

    fn failed(&self, error: &hyper_util::client::legacy::Error) -> DelegateError {
        let mut causes = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(next) = cause {
            causes.push_str(": ");
            causes.push_str(&next.to_string());
            cause = next.source();
        }
        DelegateError::new(format!("call {}: {causes}", origin(&self.url)))
    }
}

fn describe(status: StatusCode) -> String {
    format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())
}

fn tls(secure: bool) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    if secure {
        // What cannot be read is missing later, and the refused certificate is then named.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    Ok(config.with_safe_default_protocol_versions()?.with_root_certificates(roots).with_no_client_auth())
}
