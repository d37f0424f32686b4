//! Seeded randomness: a draw depends on the seed, the actor and the number of its draws, on nothing else. So leaving one
//! fault out of a scenario does not change what others draw.

/// The stream of one actor.
#[derive(Clone, Debug)]
pub struct Rng {
    key: u64,
    counter: u64,
}

impl Rng {
    /// The stream of `actor` under `seed`.
    pub fn new(seed: u64, actor: &str) -> Self {
        let name = actor
            .bytes()
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3));
        Self { key: mix(seed ^ mix(name)), counter: 0 }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key ^ mix(self.counter))
    }

    /// A number below `end`, which must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is far below anything a scenario could notice.
        self.number() % end.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `per_mille` times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of the values.
    pub fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        let at = self.below(values.len() as u64);
        values[usize::try_from(at).unwrap_or_default()].clone()
    }
}

/// The finalizer of SplitMix64: every bit of the result depends on every bit of the input.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_repeat_and_do_not_depend_on_each_other() {
        let draw = |actor| {
            let mut rng = Rng::new(7, actor);
            [rng.number(), rng.number(), rng.number()]
        };
        assert_eq!(draw("a"), draw("a"));
        assert_ne!(draw("a"), draw("b"));
    }
}
