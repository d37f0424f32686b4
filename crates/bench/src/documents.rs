//! Documents to write: JSON of exactly 1 KiB, the same from run to run.

use std::sync::Arc;

use bytes::Bytes;

/// The size of every body.
pub(crate) const BODY_BYTES: usize = 1024;

/// Over how many partition keys items are spread.
pub(crate) const PARTITION_KEYS: u64 = 1000;

/// Text that bodies are filled up from: long enough that neighbours differ, short enough to stay in the CPU cache.
const FILLER_BYTES: usize = 64 * 1024;

/// Makes documents. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Documents {
    filler: Arc<[u8]>,
    items: u64,
}

impl Documents {
    /// Documents of `items` different items.
    pub(crate) fn new(items: u64) -> Self {
        let mut random = Random::new(1);
        Self { filler: (0..FILLER_BYTES).map(|_| letter(random.below(32))).collect(), items }
    }

    /// How many items there are.
    pub(crate) fn items(&self) -> u64 {
        self.items
    }

    /// A version of `item`; another `counter` gives other text.
    pub(crate) fn body(&self, item: u64, counter: u64) -> Bytes {
        let (id, pk) = (id(item), partition_key(item));
        let mut body = format!("{{\"id\":\"{id}\",\"pk\":\"{pk}\",\"counter\":{counter},\"text\":\"").into_bytes();
        let room = BODY_BYTES - body.len() - 2;
        let skip = Random::new(item ^ (counter << 32)).below((FILLER_BYTES - BODY_BYTES) as u64);
        let skip = usize::try_from(skip).expect("invariant: within the filler");
        body.reserve_exact(room + 2);
        body.extend_from_slice(&self.filler[skip..skip + room]);
        body.extend_from_slice(b"\"}");
        Bytes::from(body)
    }
}

/// The id of an item.
pub(crate) fn id(item: u64) -> String {
    format!("item-{item:08}")
}

/// The partition key of an item.
pub(crate) fn partition_key(item: u64) -> String {
    format!("pk-{:04}", item % PARTITION_KEYS)
}

/// Random numbers that repeat from run to run.
#[derive(Clone, Debug)]
pub(crate) struct Random(fastrand::Rng);

impl Random {
    /// Another sequence for each seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.u64(..bound)
    }
}

fn letter(number: u64) -> u8 {
    match u8::try_from(number) {
        Ok(number @ 0..26) => b'a' + number,
        _ => b' ',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_json_of_exactly_one_kibibyte() {
        let documents = Documents::new(10);
        for (item, counter) in [(0, 0), (9, u64::from(u32::MAX)), (1_234_567, 17)] {
            let body = documents.body(item, counter);
            assert_eq!(body.len(), BODY_BYTES);
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert_eq!(value["id"], id(item));
            assert_eq!(value["pk"], partition_key(item));
            assert_eq!(value["counter"], counter);
        }
    }

    #[test]
    fn documents_repeat_and_differ_by_item_and_counter() {
        let (first, second) = (Documents::new(10), Documents::new(10));
        assert_eq!(first.body(3, 4), second.body(3, 4));
        let text = |item, counter| first.body(item, counter)[100..].to_vec();
        assert_ne!(text(3, 4), text(3, 5));
        assert_ne!(text(3, 4), text(4, 4));
    }

    #[test]
    fn random_numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = Random::new(0);
        let mut seen = [false; 10];
        (0..1000).for_each(|_| seen[usize::try_from(random.below(10)).unwrap()] = true);
        assert_eq!(seen, [true; 10]);
    }
}
