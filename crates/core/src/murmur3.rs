//! MurmurHash3, the two variants that place partition keys: x86 32 (version 1) and x64 128 (version 2). Seed 0.

/// MurmurHash3 x64 128 with seed 0: the two halves in the order of the algorithm.
pub(crate) fn murmur3_x64_128(data: &[u8]) -> (u64, u64) {
    const C1: u64 = 0x87c3_7b91_1142_53d5;
    const C2: u64 = 0x4cf5_ad43_2745_937f;
    let scramble1 = |k: u64| k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2);
    let scramble2 = |k: u64| k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1);

    let (blocks, tail) = data.as_chunks::<16>();
    let (mut h1, mut h2) = (0u64, 0u64);
    for block in blocks {
        let (k1, k2) = halves(*block);
        h1 = (h1 ^ scramble1(k1)).rotate_left(27).wrapping_add(h2);
        h1 = h1.wrapping_mul(5).wrapping_add(0x52dc_e729);
        h2 = (h2 ^ scramble2(k2)).rotate_left(31).wrapping_add(h1);
        h2 = h2.wrapping_mul(5).wrapping_add(0x3849_5ab5);
    }
    // A missing byte counts as zero, and a zero word scrambles to zero: no cases needed.
    let (k1, k2) = halves(padded(tail));
    h1 ^= scramble1(k1) ^ data.len() as u64;
    h2 ^= scramble2(k2) ^ data.len() as u64;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish64(h1);
    h2 = finish64(h2);
    h1 = h1.wrapping_add(h2);
    (h1, h2.wrapping_add(h1))
}

/// MurmurHash3 x86 32 with seed 0.
pub(crate) fn murmur3_x86_32(data: &[u8]) -> u32 {
    let scramble = |k: u32| k.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let (blocks, tail) = data.as_chunks::<4>();
    let mut h = 0u32;
    for block in blocks {
        h = (h ^ scramble(u32::from_le_bytes(*block))).rotate_left(13);
        h = h.wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    h ^= scramble(u32::from_le_bytes(padded(tail)));
    // The algorithm defines the length modulo 2^32.
    h ^= data.len() as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

fn halves(block: [u8; 16]) -> (u64, u64) {
    let word = u128::from_le_bytes(block);
    (word as u64, (word >> 64) as u64)
}

fn padded<const N: usize>(tail: &[u8]) -> [u8; N] {
    let mut block = [0; N];
    for (to, from) in block.iter_mut().zip(tail) {
        *to = *from;
    }
    block
}

fn finish64(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_128_bit_hash_agrees_with_published_values() {
        assert_eq!(murmur3_x64_128(b""), (0, 0));
        assert_eq!(murmur3_x64_128(b"hello"), (0xcbd8_a7b3_41bd_9b02, 0x5b1e_906a_48ae_1d19));
        assert_eq!(
            murmur3_x64_128(b"The quick brown fox jumps over the lazy dog"),
            (0xe34b_bc7b_bc07_1b6c, 0x7a43_3ca9_c49a_9347)
        );
    }

    #[test]
    fn the_32_bit_hash_agrees_with_published_values() {
        assert_eq!(murmur3_x86_32(b""), 0);
        assert_eq!(murmur3_x86_32(b"test"), 0xba6b_d213);
        assert_eq!(murmur3_x86_32(b"Hello, world!"), 0xc036_3e43);
        assert_eq!(murmur3_x86_32(b"The quick brown fox jumps over the lazy dog"), 0x2e4f_f723);
    }

    #[test]
    fn every_tail_length_gives_its_own_hash() {
        let data = [7u8; 64];
        let wide: std::collections::BTreeSet<_> = (0..=64).map(|n| murmur3_x64_128(&data[..n])).collect();
        let narrow: std::collections::BTreeSet<_> = (0..=64).map(|n| murmur3_x86_32(&data[..n])).collect();
        assert_eq!((wide.len(), narrow.len()), (65, 65));
    }
}
