//! The one place that gives up waiting.

use super::Fixture;

/// Waits for something that has to happen; panics if it has not after the fixture's patience.
#[expect(clippy::disallowed_methods, reason = "detects failures only: a case that passes never waits for this clock")]
pub(super) async fn within<T>(fixture: &dyn Fixture, what: &str, happening: impl Future<Output = T>) -> T {
    match tokio::time::timeout(fixture.patience(), happening).await {
        Ok(value) => value,
        Err(_) => panic!("waited {:?} in vain for this: {what}", fixture.patience()),
    }
}
