//! Activity ids: one for each request, to find it again in logs on both sides.

use hyper::header::HeaderValue;

/// A new random id in the form of a UUID.
pub(crate) fn new() -> HeaderValue {
    let mut bytes = [0; 16];
    if getrandom::fill(&mut bytes).is_err() {
        tracing::warn!("the system gives no random numbers: activity ids are all the same");
    }
    let [a, b, c, d, e, f, g, h, rest @ ..] = bytes;
    let (g, h8) = (g & 0x0f | 0x40, rest[0] & 0x3f | 0x80);
    let text = format!(
        "{a:02x}{b:02x}{c:02x}{d:02x}-{e:02x}{f:02x}-{g:02x}{h:02x}-{h8:02x}{:02x}-{:02x}{:02x}{:02x}{:02x}{:02x}{:02x}",
        rest[1], rest[2], rest[3], rest[4], rest[5], rest[6], rest[7]
    );
    HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("00000000-0000-4000-8000-000000000000"))
}
