//! Counts for people.

/// `1 lease`, `2 leases`.
pub(crate) fn count_of(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}
