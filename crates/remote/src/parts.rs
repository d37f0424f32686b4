//! The body of an answer, in the parts in which it was received.
//!
//! A page of the feed is decoded in place: joining its parts would copy a megabyte once more.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::{http::READ_BYTES, timer::within};

/// From how many bytes on a part is kept as it is. Smaller ones are copied together: each part holds a buffer of up to
/// [`READ_BYTES`] in memory, so what is kept never takes more than twice its size.
const KEPT_BYTES: usize = READ_BYTES / 2;

/// A body.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: Vec<Bytes>,
    /// Small parts, copied together; they follow `parts`.
    small: BytesMut,
}

impl Parts {
    /// Receives all of a body; none if nothing of it comes for as long as `silence`.
    pub(crate) async fn receive(mut body: Incoming, silence: Duration) -> Option<hyper::Result<Self>> {
        let mut parts = Self::default();
        while let Some(frame) = within(silence, body.frame()).await? {
            match frame {
                Ok(frame) => frame.into_data().into_iter().for_each(|data| parts.push(data)),
                Err(error) => return Some(Err(error)),
            }
        }
        parts.end_small();
        Some(Ok(parts))
    }

    /// The parts, none of them empty.
    pub(crate) fn as_slice(&self) -> &[Bytes] {
        &self.parts
    }

    /// All of it in one piece.
    pub(crate) fn joined(&self) -> Bytes {
        match self.as_slice() {
            [only] => only.clone(),
            parts => parts.concat().into(),
        }
    }

    fn push(&mut self, data: Bytes) {
        if data.len() < KEPT_BYTES {
            self.small.extend_from_slice(&data);
        } else {
            self.end_small();
            self.parts.push(data);
        }
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.parts.push(self.small.split().freeze());
        }
    }
}

#[cfg(test)]
impl From<String> for Parts {
    fn from(text: String) -> Self {
        Self { parts: vec![text.into()], small: BytesMut::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(sizes: &[usize]) -> Parts {
        let mut parts = Parts::default();
        for (number, size) in sizes.iter().enumerate() {
            parts.push(vec![number as u8; *size].into());
        }
        parts.end_small();
        parts
    }

    #[test]
    fn large_parts_are_kept_and_small_ones_copied_together_in_order() {
        let large = KEPT_BYTES;
        let parts = received(&[10, 20, large, large + 1, 0, 30, large - 1]);
        let lengths: Vec<usize> = parts.as_slice().iter().map(Bytes::len).collect();
        assert_eq!(lengths, [30, large, large + 1, large + 29]);
        let joined = parts.joined();
        assert_eq!(joined.len(), 3 * large + 60);
        assert!(joined.is_sorted(), "the order of the parts is kept");
    }

    #[test]
    fn a_body_without_parts_is_empty() {
        assert!(received(&[]).as_slice().is_empty());
        assert_eq!(received(&[0]).joined(), Bytes::new());
    }
}
