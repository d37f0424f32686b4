//! S17 for resets: a forced reset does not undo the seek before it.

use serde_json::Value;

use super::{
    Broken,
    key_range::KeyRange,
    lease::Writer,
    lease_document::{LeaseDocument, position},
};
use crate::oracle::{Target, WrittenChange};

/// Where ranges begin, as `.info` says. Only positions that can be compared with those of leases count.
#[derive(Clone, Debug, Default)]
pub struct StartPositions(Vec<(KeyRange, u64)>);

impl StartPositions {
    /// Those in the body of `.info`.
    pub fn parse(info: &Value) -> Self {
        let text = info["properties"]["cf.anchors"].as_str().unwrap_or("[]");
        let entries: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
        let comparable = |entry: &Value| {
            let start = &entry["start"];
            let at = if start == "beginning" { Some(0) } else { position(start["continuation"].as_str()) };
            Some((KeyRange::from_token(entry["range"].as_str()?)?, at?))
        };
        Self(entries.iter().filter_map(comparable).collect())
    }

    /// Whether a change is before the start of its range.
    pub fn leave_out(&self, change: &WrittenChange) -> bool {
        let before =
            |(range, start): &(KeyRange, u64)| range.contains(&change.epk) && Target::After(*start).passes(change);
        self.0.iter().any(before)
    }

    fn of(&self, range: &KeyRange) -> impl Iterator<Item = u64> {
        self.0.iter().filter(|(own, _)| own.overlaps(range)).map(|(_, start)| *start)
    }
}

/// A reset of a processor that begins at the beginning.
#[derive(Clone, Debug)]
pub struct Reset {
    /// When `.info` was deleted.
    pub at: u64,
    /// Where ranges began then.
    pub starts: StartPositions,
}

impl Reset {
    /// A host that runs creates leases again where `.info` said, one that starts at the beginning: never later.
    ///
    /// # Errors
    /// S17.
    pub fn check(&self, new: &LeaseDocument, range: Option<&KeyRange>, writer: Writer) -> Result<(), Broken> {
        // Children of a split have an owner, and begin at its checkpoint.
        let is_repair = new.owner.is_none() && new.epoch() == 0;
        let (Some(range), Some(at)) = (range, new.position()) else { return Ok(()) };
        let passed = self.starts.of(range).find(|start| *start < at);
        match passed.filter(|_| is_repair && writer.sent > self.at) {
            None => Ok(()),
            Some(start) => {
                let token = &new.token;
                Err((
                    "S17",
                    format!("lease {token} begins at {at} after a reset, but an operator had moved it to {start}"),
                ))
            }
        }
    }
}
