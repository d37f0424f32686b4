//! What one host may use: memory for pages, concurrent delegate calls, request units.

pub(crate) mod page_memory;
pub(crate) mod request_units;

use std::sync::Arc;

use tokio::sync::Semaphore;

use self::{page_memory::PageMemory, request_units::RequestUnits};
use crate::{options::Options, runtime::Runtime};

/// What one host may use; `None` where there is no limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostLimits {
    pub(crate) memory: Option<Arc<PageMemory>>,
    /// One permit for each delegate call that may run.
    pub(crate) calls: Option<Arc<Semaphore>>,
    pub(crate) request_units: Option<Arc<RequestUnits>>,
}

impl HostLimits {
    /// The limits of a host with these options.
    pub(crate) fn new(options: &Options, runtime: &Arc<dyn Runtime>) -> Self {
        let permits = |calls: usize| crate::planted!(CallsUnlimited => 1000; calls.min(Semaphore::MAX_PERMITS));
        let calls = options.max_concurrent_calls.map(|calls| Semaphore::new(permits(calls)));
        Self {
            memory: options.max_bytes_in_flight.map(|limit| Arc::new(PageMemory::new(limit))),
            calls: calls.map(Arc::new),
            request_units: options
                .max_request_units_per_second
                .map(|units| Arc::new(RequestUnits::new(units, runtime))),
        }
    }
}
