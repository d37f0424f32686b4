//! Bodies of responses: counted while they are in memory, and watched while they wait for a client that does not read.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::memory::{Held, MemoryBudget};

/// On HTTP/2 a body is passed on in chunks of this length; the next one is polled when the client has read this one.
const PIECE_BYTES: usize = 64 * 1024;

/// Shorter bodies are not counted: that would cost more than they do.
const SMALL_BYTES: usize = 2 * 1024;

/// The responses of one HTTP/2 connection that the client has not taken yet, by number, with the moment of the last
/// progress.
#[derive(Debug, Default)]
pub(crate) struct Unread {
    since: Mutex<BTreeMap<u64, Instant>>,
    next: AtomicU64,
}

impl Unread {
    /// Returns when the client has not taken anything of a response for `timeout`.
    pub(crate) async fn stalled(&self, timeout: Duration) {
        loop {
            let oldest = self.since.lock().values().min().copied();
            let deadline = oldest.unwrap_or_else(Instant::now) + timeout;
            if deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

/// A response that is tracked until its last byte is sent.
#[derive(Debug)]
struct Ticket {
    unread: Arc<Unread>,
    number: u64,
}

impl Ticket {
    fn new(unread: &Arc<Unread>) -> Self {
        let number = unread.next.fetch_add(1, Ordering::Relaxed);
        unread.since.lock().insert(number, Instant::now());
        Self { unread: Arc::clone(unread), number }
    }

    fn note_progress(&self) {
        self.unread.since.lock().insert(self.number, Instant::now());
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.unread.since.lock().remove(&self.number);
    }
}

/// Bytes that are counted until the last slice of them is dropped.
struct Counted {
    bytes: Bytes,
    _held: Held,
    _ticket: Option<Arc<Ticket>>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a response.
#[derive(Debug)]
pub(crate) struct ResponseBody {
    rest: Bytes,
    piece: usize,
    ticket: Option<Arc<Ticket>>,
}

impl ResponseBody {
    /// `unread` is that of the connection if it speaks HTTP/2.
    pub(crate) fn new(bytes: Bytes, budget: &Arc<MemoryBudget>, unread: Option<&Arc<Unread>>) -> Self {
        let piece = if unread.is_some() { PIECE_BYTES } else { usize::MAX };
        if bytes.len() < SMALL_BYTES {
            return Self { rest: bytes, piece, ticket: None };
        }
        let ticket = unread.map(|unread| Arc::new(Ticket::new(unread)));
        let counted = Counted { _held: budget.hold(bytes.len()), _ticket: ticket.clone(), bytes };
        Self { rest: Bytes::from_owner(counted), piece, ticket }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if let Some(ticket) = &self.ticket {
            ticket.note_progress();
        }
        let length = self.piece.min(self.rest.len());
        let piece = self.rest.split_to(length);
        if self.rest.is_empty() {
            // An empty slice would keep the whole buffer alive.
            (self.rest, self.ticket) = (Bytes::new(), None);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
