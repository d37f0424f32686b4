//! One call: signed, sent, bounded in time, repeated where that is safe.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use changefeed_core::{Clock, Effect, Error, ErrorKind, Result};
use changefeed_protocol::{CONTENT_TYPE, PREFIX, Target, Wire, decode_error, decode_parts, encode};
use http_body_util::Full;
use hyper::{Method, Request, header, header::HeaderValue};

use crate::{
    answer::{Answer, Proof},
    backoff::pause_after,
    connect_error::connect_error,
    endpoint::Endpoint,
    http::Http,
    key::Key,
    parts::Parts,
    timer::{instant, pause, within},
};

const USER_AGENT: &str = concat!("changefeed-remote/", env!("CARGO_PKG_VERSION"));

/// The longest that a server may make a call wait before it is repeated; a longer wait is left to the caller.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The longest pause while the server may still be starting.
const START_PAUSE: Duration = Duration::from_millis(500);

/// How many bytes a second a request may at least take, in addition to the timeout of its answer.
const SLOWEST_UPLOAD: u32 = 64 << 10;

/// How many timeouts an answer may take that keeps coming: 4 MiB in a minute, with the default timeout.
const TIMEOUTS: u32 = 6;

/// How long a call may take. A link that is slow but moves is waited for; one that is silent is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Until the answer begins.
    answer: Duration,
    /// How long nothing may come of an answer that has begun.
    silence: Duration,
    /// All together.
    overall: Duration,
}

impl Limits {
    pub(crate) fn of(timeout: Duration, sent: usize) -> Self {
        let upload = Duration::from_secs((sent / SLOWEST_UPLOAD as usize) as u64);
        Self {
            answer: timeout.saturating_add(upload),
            silence: timeout,
            overall: timeout.saturating_mul(TIMEOUTS).saturating_add(upload),
        }
    }

    /// Nothing but a limit for everything.
    pub(crate) fn only(overall: Duration) -> Self {
        Self { answer: overall, silence: overall, overall }
    }

    /// The answer may begin later by this.
    pub(crate) fn later(self, time: Duration) -> Self {
        let longer = |limit: Duration| limit.saturating_add(time);
        Self { answer: longer(self.answer), overall: longer(self.overall), ..self }
    }
}

/// How calls reach the server.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) http: Http,
    pub(crate) endpoint: Endpoint,
    pub(crate) key: Key,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) start: Start,
    /// Where a certificate that is not trusted is to be written to.
    pub(crate) certificate_file: Option<PathBuf>,
}

/// The time in which a server may still be starting.
#[derive(Debug)]
pub(crate) struct Start {
    timeout: Duration,
    /// Whether the server has answered, or something that takes its place.
    reached: AtomicBool,
}

impl Start {
    pub(crate) fn within(timeout: Duration) -> Self {
        Self { timeout, reached: AtomicBool::new(timeout.is_zero()) }
    }

    /// Whether to go on trying, `elapsed` after the first try.
    fn waits(&self, elapsed: Duration) -> bool {
        !self.reached.load(Ordering::Relaxed) && elapsed < self.timeout
    }

    fn set_reached(&self) {
        // Read first: calls of all tasks come by, and a write would take the cache line from the others.
        if !self.reached.load(Ordering::Relaxed) {
            self.reached.store(true, Ordering::Relaxed);
        }
    }
}

impl Transport {
    /// Makes a call and repeats it while the server cannot be reached or throttles, as long as nothing was done.
    pub(crate) async fn call<T: Wire>(&self, target: &Target, message: &impl Wire) -> Result<T> {
        let body = encode(message);
        let (mut failures, began) = (0, instant());
        loop {
            let answer = self.call_once(target, body.clone(), self.limits(body.len()), None).await;
            failures += 1;
            let waits = self.start.waits(began.elapsed());
            match answer {
                Err(error) if (failures <= self.retries || waits) && can_be_repeated(&error) => {
                    if waits && failures == 1 {
                        let (server, limit) = (&self.endpoint, self.start.timeout);
                        tracing::warn!(%server, ?limit, %error, "the server cannot be reached yet, retrying");
                    }
                    tracing::debug!(call = target.path(), %error, failures, "a call is repeated");
                    let length = pause_after(failures, error.retry_after(), fastrand::f64());
                    pause(if waits { length.min(START_PAUSE) } else { length }).await;
                }
                answer => return answer,
            }
        }
    }

    /// The limits of a call that sends so many bytes.
    pub(crate) fn limits(&self, sent: usize) -> Limits {
        Limits::of(self.timeout, sent)
    }

    /// Makes a call once; the server may wait with its answer for as long as `wait`. An error says whether the call may have
    /// been carried out all the same.
    pub(crate) async fn call_once<T: Wire>(
        &self,
        target: &Target,
        body: Bytes,
        limits: Limits,
        wait: Option<Duration>,
    ) -> Result<T> {
        // Nothing that a read does needs to be found out.
        let unknown = |error: Error| if target.is_read() { error } else { error.with_unknown_effect() };
        let mut request = self.request(target, body)?;
        if let Some(wait) = wait {
            request.headers_mut().insert("prefer", prefer_wait(wait));
        }
        let answer = match self.send(request, limits).await {
            Ok(answer) => answer,
            Err(Failed::NotSent(error)) => return Err(error),
            Err(Failed::Sent(error)) => return Err(unknown(error)),
        };
        let unreadable = |malformed: changefeed_protocol::Malformed| {
            let message = format!(
                "the answer of {} cannot be read by this client (changefeed {}, calls of {}): build both from the same \
                 version of changefeed",
                self.endpoint,
                env!("CARGO_PKG_VERSION"),
                changefeed_protocol::VERSION
            );
            unknown(Error::new(ErrorKind::Unavailable, message).with_source(malformed))
        };
        match (answer.is_ours(), answer.status.is_success()) {
            (true, true) => decode_parts(answer.body.as_slice()).map_err(unreadable),
            (true, false) => Err(decode_error(answer.body.joined()).unwrap_or_else(unreadable)),
            (false, _) => match answer.refusal(&self.endpoint, self.clock.wall()) {
                (error, Proof::NothingDone) => Err(error),
                (error, Proof::None) => Err(unknown(error)),
            },
        }
    }

    /// The time that requests are signed with.
    pub(crate) fn date(&self) -> String {
        let now = std::time::UNIX_EPOCH + Duration::from_millis(self.clock.wall().as_millis());
        httpdate::fmt_http_date(now)
    }

    fn request(&self, target: &Target, body: Bytes) -> Result<Request<Full<Bytes>>> {
        let date = self.date();
        let authorization = self.key.authorization(Method::POST.as_str(), PREFIX, &target.link(), &date);
        Request::builder()
            .method(Method::POST)
            .uri(self.endpoint.uri(&target.path())?)
            .header(header::AUTHORIZATION, authorization)
            .header("x-ms-date", date)
            .header(header::CONTENT_TYPE, CONTENT_TYPE)
            .header(header::USER_AGENT, USER_AGENT)
            .body(Full::new(body))
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, "make the request").with_source(error))
    }

    /// Sends a request and receives all of its answer.
    pub(crate) async fn send(&self, request: Request<Full<Bytes>>, limits: Limits) -> Result<Answer, Failed> {
        let late = |what: &str, limit: Duration| {
            Failed::Sent(Error::new(ErrorKind::Timeout, format!("{} {what} within {limit:?}", self.endpoint)))
        };
        let Some(answer) = within(limits.overall, self.exchange(request, limits, &late)).await else {
            return Err(late("did not complete its answer", limits.overall));
        };
        answer
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        limits: Limits,
        late: &impl Fn(&str, Duration) -> Failed,
    ) -> Result<Answer, Failed> {
        let Some(sent) = within(limits.answer, self.http.request(request)).await else {
            return Err(late("did not answer", limits.answer));
        };
        let response = sent.map_err(|error| {
            let failed = if error.is_connect() { Failed::NotSent } else { Failed::Sent };
            failed(connect_error(&self.endpoint, self.certificate_file.as_deref(), error))
        })?;
        let (parts, body) = response.into_parts();
        let Some(body) = Parts::receive(body, limits.silence).await else {
            return Err(late("sent nothing of its answer", limits.silence));
        };
        let body = body.map_err(|error| {
            let message = format!("the answer of {} broke off", self.endpoint);
            Failed::Sent(Error::new(ErrorKind::Unavailable, message).with_source(error))
        })?;
        let answer = Answer { status: parts.status, headers: parts.headers, body };
        if !answer.is_of_a_gateway() {
            self.start.set_reached();
        }
        Ok(answer)
    }
}

/// How long the server may wait with its answer, as RFC 7240 has it. Servers that do not know it wait as they like.
fn prefer_wait(wait: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("wait={}", wait.as_secs())).unwrap_or(HeaderValue::from_static("wait=1"))
}

/// A call without an answer.
pub(crate) enum Failed {
    /// It never left this machine.
    NotSent(Error),
    /// It may have arrived.
    Sent(Error),
}

fn can_be_repeated(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Throttled)
        && error.effect() == Effect::None
        && error.retry_after().is_none_or(|wait| wait <= MAX_RETRY_AFTER)
}
