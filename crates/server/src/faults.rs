//! Fault injection: throttling and error responses on request, through our own calls only.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use changefeed_core::{Clock, Timestamp};
use hyper::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{
    error::ApiError,
    router::path::{Path, Target},
};

/// The most faults at once.
const MAX_FAULTS: usize = 1000;

/// Throttling: 429 until a point in time.
#[derive(Clone, Debug)]
struct Throttle {
    container: Option<String>,
    until: Timestamp,
    retry_after: Duration,
}

/// An error response to send instead of the real response.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fault {
    /// The status of the response.
    status: u16,
    /// The substatus, if any.
    #[serde(default)]
    substatus: Option<u32>,
    /// The number of requests that it affects.
    #[serde(default = "once")]
    count: u32,
    /// Only for requests of this method.
    #[serde(default)]
    method: Option<String>,
    /// Only for paths that contain this.
    #[serde(default)]
    path_contains: Option<String>,
    /// Whether the request is performed before its response is replaced: the outcome is unknown to the client.
    #[serde(default)]
    after: bool,
    /// The value of `x-ms-retry-after-ms`.
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn once() -> u32 {
    1
}

/// The faults that are active.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    any: AtomicBool,
    throttles: Mutex<Vec<Throttle>>,
    faults: Mutex<Vec<Fault>>,
}

/// The fault that hits a request.
#[derive(Debug)]
pub(crate) enum InjectedFault {
    /// The request is not performed.
    Before(ApiError),
    /// The request is performed, and its response replaced.
    After(ApiError),
}

/// Returns `true` for calls of operators, which faults do not affect.
fn is_operators(path: &Path<'_>) -> bool {
    matches!(&path.target, Target::Admin(name) if changefeed_protocol::Target::parse(name).is_none())
}

impl Faults {
    pub(crate) fn throttle(&self, container: Option<String>, until: Timestamp, retry_after: Duration) {
        let mut throttles = self.throttles.lock();
        throttles.retain(|throttle| throttle.container != container);
        throttles.push(Throttle { container, until, retry_after });
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn inject(&self, fault: Fault) -> Result<(), String> {
        if StatusCode::from_u16(fault.status).is_err() || fault.status < 400 || fault.status > 599 {
            return Err(format!("status {} cannot be injected: use 400 to 599", fault.status));
        }
        let mut faults = self.faults.lock();
        if faults.len() >= MAX_FAULTS {
            return Err(format!("{MAX_FAULTS} faults are waiting already: clear them first"));
        }
        faults.push(fault);
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Removes all faults.
    pub(crate) fn clear(&self) {
        self.throttles.lock().clear();
        self.faults.lock().clear();
        self.any.store(false, Ordering::Release);
    }

    /// Returns the fault that hits a request, if any.
    pub(crate) fn next_fault(
        &self,
        method: &str,
        raw_path: &str,
        path: &Path<'_>,
        clock: &dyn Clock,
    ) -> Option<InjectedFault> {
        if !self.any.load(Ordering::Acquire) || is_operators(path) {
            return None;
        }
        if let Some(wait) = self.throttled(path, clock.wall()) {
            return Some(InjectedFault::Before(ApiError::throttled(wait)));
        }
        let mut faults = self.faults.lock();
        let at = faults.iter().position(|fault| {
            fault.method.as_ref().is_none_or(|own| own.eq_ignore_ascii_case(method))
                && fault.path_contains.as_ref().is_none_or(|part| raw_path.contains(part.as_str()))
        })?;
        let fault = faults.get_mut(at)?;
        let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut error = ApiError::new(status, "this answer was asked for by an injected fault");
        error.substatus = fault.substatus;
        error.retry_after = fault.retry_after_ms.map(Duration::from_millis);
        let trouble = if fault.after { InjectedFault::After(error) } else { InjectedFault::Before(error) };
        fault.count = fault.count.saturating_sub(1);
        if fault.count == 0 {
            faults.remove(at);
        }
        Some(trouble)
    }

    fn throttled(&self, path: &Path<'_>, now: Timestamp) -> Option<Duration> {
        let mut throttles = self.throttles.lock();
        throttles.retain(|throttle| throttle.until > now);
        let container = match &path.target {
            Target::Items(db, coll) | Target::Item(db, coll, _) => format!("{db}/{coll}"),
            Target::Admin(name) => match changefeed_protocol::Target::parse(name)? {
                changefeed_protocol::Target::Container(db, coll, _) => format!("{db}/{coll}"),
                _ => return None,
            },
            _ => return None,
        };
        let hit = throttles.iter().find(|throttle| throttle.container.as_ref().is_none_or(|own| *own == container))?;
        let left = Duration::from_millis(hit.until.as_millis().saturating_sub(now.as_millis()));
        Some(hit.retry_after.min(left))
    }
}
