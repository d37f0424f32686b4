//! FNV-1a: hashes that are the same on every machine and in every version.
//!
//! Lease ids, dead-letter ids and query continuations on disk depend on them, so the outputs never change. Not for
//! hashing of untrusted keys into tables: FNV does not resist collisions that are made on purpose.

/// Returns FNV-1a of 64 bits over the bytes of `parts`, one after the other. Where parts end does not count.
///
/// ```
/// use changefeed_core::stable_hash::fnv1a_64;
///
/// assert_eq!(fnv1a_64(["foo", "bar"]), fnv1a_64(["foobar"]));
/// ```
pub fn fnv1a_64<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    parts.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, part| part.as_ref().iter().fold(hash, step))
}

/// Returns FNV-1a of 128 bits over the bytes of `parts`, one after the other. Where parts end does not count.
pub fn fnv1a_128<P: AsRef<[u8]>>(parts: impl IntoIterator<Item = P>) -> u128 {
    let step =
        |hash: u128, byte: &u8| (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    let basis = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    parts.into_iter().fold(basis, |hash, part| part.as_ref().iter().fold(hash, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hashes_agree_with_published_values() {
        assert_eq!(fnv1a_64([""]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(["a"]), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(["foobar"]), 0x8594_4171_f739_67e8);
        assert_eq!(fnv1a_128([""]), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(["a"]), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(fnv1a_128(["foobar"]), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn parts_are_hashed_as_one_text() {
        assert_eq!(fnv1a_64(["fo", "", "obar"]), fnv1a_64(["foobar"]));
        assert_eq!(fnv1a_128([b"fo".as_slice(), b"obar"]), fnv1a_128(["foobar"]));
    }
}
