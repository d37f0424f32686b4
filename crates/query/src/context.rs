//! The evaluation context of one item: the item, the time, and the budget of its evaluation.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use crate::json;
use crate::value::Value;

/// The size limit of a row, and of any value that is sorted or grouped by: the response limit of Cosmos DB.
pub(crate) const MAX_ROW_BYTES: usize = 4 * 1024 * 1024;

/// Why the evaluation of an item ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Joins and subqueries made too many values.
    Values,
    /// Copies of text took too much memory.
    Bytes,
    /// A row, or a value to sort or group by, is larger than [`MAX_ROW_BYTES`].
    Row,
    /// The caller asked to stop.
    Stopped,
}

impl Halt {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Values => "its joins or subqueries make more than 250000 values: filter inside the join",
            Self::Bytes => "its values take more than 64 MiB of memory: select fewer or shorter values",
            Self::Row => "a row of its result has more than 4 MiB: select fewer or shorter values",
            Self::Stopped => "it takes too long to evaluate: use shorter joins and fewer conditions",
        }
    }
}

/// Member values by name, in the text of one object.
type Members<'a> = BTreeMap<String, Value<'a>>;

/// The evaluation context of one item.
pub(crate) struct Context<'a> {
    pub(crate) item: Value<'a>,
    /// Milliseconds since 1970, the same for the whole run.
    pub(crate) now: i64,
    /// Rows, and elements of copied values, that may still be made of this item.
    values: Cell<usize>,
    /// Bytes that may still be copied.
    bytes: Cell<usize>,
    /// Work since `stop` was last asked.
    work: Cell<usize>,
    stop: &'a dyn Fn() -> bool,
    halt: Cell<Option<Halt>>,
    /// The number of members of large objects that were looked up.
    lookups: Cell<u32>,
    /// Objects that are looked into again and again, by address and length of their text.
    objects: RefCell<BTreeMap<(usize, usize), Members<'a>>>,
}

impl<'a> Context<'a> {
    /// Joins multiply: so many combinations of one item are taken for a mistake.
    const VALUES: usize = 250_000;

    /// An item has at most 2 MiB, so this is a generous number of copies of it.
    const BYTES: usize = 64 * 1024 * 1024;

    /// `stop` is asked after about this many evaluations of expressions.
    const WORK: usize = 1024;

    /// Objects of this length are indexed when they are looked into often.
    const LARGE_OBJECT: usize = 256;

    /// Up to this number, lookups are cheaper without an index.
    const FREE_LOOKUPS: u32 = 8;

    pub(crate) fn new(item: Value<'a>, now: i64, stop: &'a dyn Fn() -> bool) -> Self {
        Self {
            item,
            now,
            values: Cell::new(Self::VALUES),
            bytes: Cell::new(Self::BYTES),
            work: Cell::new(0),
            stop,
            halt: Cell::new(None),
            lookups: Cell::new(0),
            objects: RefCell::default(),
        }
    }

    /// Why the evaluation ended early, if it did. Results made after that mean nothing.
    pub(crate) fn halted(&self) -> Option<Halt> {
        self.halt.get()
    }

    /// Pays for one more row, or for a copy; false if the evaluation has ended.
    pub(crate) fn spend(&self, amount: usize) -> bool {
        self.take(&self.values, amount, Halt::Values)
    }

    /// Pays for bytes that are copied; false if the evaluation has ended.
    pub(crate) fn spend_bytes(&self, amount: usize) -> bool {
        self.take(&self.bytes, amount, Halt::Bytes)
    }

    fn take(&self, from: &Cell<usize>, amount: usize, reason: Halt) -> bool {
        let left = from.get();
        from.set(left.saturating_sub(amount));
        if left == 0 || amount > left {
            self.halt(reason);
        }
        self.halt.get().is_none()
    }

    fn halt(&self, reason: Halt) {
        if self.halt.get().is_none() {
            self.halt.set(Some(reason));
        }
    }

    /// Counts work, one unit for about one expression; false if the evaluation has ended.
    pub(crate) fn work(&self, amount: usize) -> bool {
        let work = self.work.get() + amount;
        self.work.set(work);
        if work >= Self::WORK {
            self.work.set(0);
            if (self.stop)() {
                self.halt(Halt::Stopped);
            }
        }
        self.halt.get().is_none()
    }

    /// The value, if it may become a row or a key.
    pub(crate) fn fit(&self, value: Value<'a>) -> Value<'a> {
        if value.exceeds(MAX_ROW_BYTES) {
            self.halt(Halt::Row);
            return Value::Undefined;
        }
        value
    }

    /// Charges the memory that `value` owns to the budget.
    pub(crate) fn paid(&self, value: Value<'a>) -> Value<'a> {
        match value.owned_bytes() {
            0 => value,
            bytes if self.spend_bytes(bytes) => value,
            _ => Value::Undefined,
        }
    }

    /// The member of an object of a document.
    pub(crate) fn member(&self, text: &'a str, name: &str) -> Value<'a> {
        let find = || json::member(text, name).map_or(Value::Undefined, Value::raw);
        if text.len() < Self::LARGE_OBJECT {
            return find();
        }
        let lookups = self.lookups.get() + 1;
        self.lookups.set(lookups);
        if lookups <= Self::FREE_LOOKUPS {
            self.work(text.len() / 256);
            return find();
        }
        let mut objects = self.objects.borrow_mut();
        let members = objects.entry((text.as_ptr() as usize, text.len())).or_insert_with(|| {
            self.work(text.len() / 64);
            let mut members = Members::new();
            for (name, value) in json::members(text) {
                // The first of several members with one name counts, as in `json::member`.
                members.entry(json::unescape(name).into_owned()).or_insert_with(|| Value::raw(value));
            }
            members
        });
        members.get(name).cloned().unwrap_or(Value::Undefined)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_the_same_with_and_without_an_index() {
        let pad = "x".repeat(400);
        let text = format!(r#"{{"a":1,"pad":"{pad}","\u0062":[2],"a":3,"":{{"z":4}}}}"#);
        let cx = Context::new(Value::Undefined, 0, &|| false);
        for _ in 0..20 {
            for name in ["a", "b", "", "pad", "none"] {
                let expected = json::member(&text, name).map_or(Value::Undefined, Value::raw);
                assert_eq!(cx.member(&text, name), expected, "{name}");
            }
        }
        assert_eq!(cx.objects.borrow().len(), 1);
    }

    #[test]
    fn the_caller_is_asked_from_time_to_time_and_can_stop() {
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let cx = Context::new(Value::Undefined, 0, &stop);
        let worked = (0..1_000_000).take_while(|_| cx.work(1)).count();
        assert_eq!((worked, asked.get()), (3 * Context::WORK - 1, 3));
        assert_eq!(cx.halted(), Some(Halt::Stopped));
    }
}
