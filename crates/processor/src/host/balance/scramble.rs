//! Numbers that hosts agree on without talking. Pure.

use changefeed_core::stable_hash::fnv1a_64;

/// A number that looks random but is always the same for one text and one seed.
pub(super) fn scramble(text: &str, seed: u64) -> u64 {
    // The finalizer of SplitMix64, because FNV alone leaves the order of similar texts almost unchanged.
    let hash = fnv1a_64([&seed.to_le_bytes()[..], text.as_bytes()]);
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}
