//! How long to wait before a request is repeated. Pure: randomness is a parameter.

use std::time::Duration;

/// The first pause; each further one is twice as long.
const FIRST: Duration = Duration::from_millis(50);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(5);

/// The pause after `failures` failures in a row: between half and all of it, by `random` from 0 to 1, so that clients
/// that failed together do not come back together. At least as long as the server asked for.
pub(crate) fn pause_after(failures: u32, asked: Option<Duration>, random: f64) -> Duration {
    let doubled = FIRST.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(LONGEST);
    let jittered = doubled.mul_f64(0.5 + 0.5 * random.clamp(0.0, 1.0));
    jittered.max(asked.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_respect_the_server() {
        let longest = |failures| pause_after(failures, None, 1.0);
        assert_eq!([longest(1), longest(2), longest(3)], [50, 100, 200].map(Duration::from_millis));
        assert_eq!(longest(u32::MAX), LONGEST);
        assert_eq!(pause_after(1, None, 0.0), Duration::from_millis(25));
        assert_eq!(pause_after(1, Some(Duration::from_millis(700)), 0.5), Duration::from_millis(700));
    }
}
