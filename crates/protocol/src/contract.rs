//! The values of the contract on the wire.

use changefeed_core::{
    Batch, Capabilities, Change, ChangePage, ContainerIdentity, ContainerInfo, ContainerSpec, Continuation,
    DatabaseInfo, DatabaseSpec, ETag, Epk, FeedRange, Item, ItemId, ItemKey, ItemPage, ListItems, Lsn, Mode, Operation,
    PartitionKey, PartitionKeyDefinition, PhysicalRange, RangeId, ReadChanges, ResourceId, Response, StartFrom,
    StoreId, TimeToLive, Timestamp, Write, WriteResult,
};
use serde_json::{Map, Value};

use crate::codec::{Malformed, Reader, Wire, put_text, take_text};

/// Types that are sent as their text.
macro_rules! wire_text {
    ($($type:ty, $problem:literal;)*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                put_text(&self.to_string(), out);
            }

            fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                take_text(input, |text| text.parse().map_err(|_| Malformed($problem)))
            }
        }
    )*};
}

wire_text! {
    Epk, "an effective partition key is not hexadecimal";
    FeedRange, "a feed range is not of the form min-max";
    PartitionKey, "a partition key is not a JSON array";
    StoreId, "a store id is not one";
}

/// The same for types that lend their text.
macro_rules! wire_str {
    ($($type:ty, $problem:literal;)*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                put_text(self.as_str(), out);
            }

            fn size_hint(&self) -> usize {
                // And its length.
                10 + self.as_str().len()
            }

            fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                take_text(input, |text| text.parse().map_err(|_| Malformed($problem)))
            }
        }
    )*};
}

wire_str! {
    ETag, "an etag is not one";
    RangeId, "the id of a range is not one";
}

/// The id of an item to read or delete may be one that no item can be given any more.
impl Wire for ItemId {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self.as_str(), out);
    }

    fn size_hint(&self) -> usize {
        10 + self.as_str().len()
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        take_text(input, |text| Ok(Self::stored(text)))
    }
}

/// Types that are sent as JSON.
macro_rules! wire_json {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                put_text(&serde_json::to_string(self).unwrap_or_default(), out);
            }

            fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                take_text(input, |text| serde_json::from_str(text).map_err(|_| Malformed("a setting is not JSON")))
            }
        }
    )*};
}

wire_json!(PartitionKeyDefinition, Map<String, Value>);

/// Types that are sent member by member.
macro_rules! wire_struct {
    ($($type:ident { $($member:ident),* })*) => {$(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$member.put(out);)*
            }

            fn size_hint(&self) -> usize {
                0 $(+ self.$member.size_hint())*
            }

            fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                Ok(Self { $($member: Wire::read_from(input)?),* })
            }
        }
    )*};
}

pub(crate) use wire_struct;

wire_struct! {
    Batch { partition_key, writes, return_items }
    Change { id, rid, lsn, timestamp, operation, current, previous, previous_lsn }
    ChangePage { changes, continuation, newest_lsn, remaining, physical }
    ContainerIdentity { store, account_host, database_name, container_name, database, container, partition_key }
    ContainerInfo { rid, timestamp, spec }
    ContainerSpec { name, partition_key, ranges, time_to_live, all_versions_retention, extra }
    DatabaseInfo { name, rid, timestamp, extra }
    DatabaseSpec { name, extra }
    Item { id, etag, timestamp, lsn, rid, body }
    ItemKey { partition_key, id }
    ItemPage { items, cursors, next }
    ListItems { id_prefix, rid, range, after, max_items, cursors }
    PhysicalRange { id, range, parents }
    WriteResult { id, etag, lsn, timestamp, created, item }
}

/// Its partition key stays here: the range says the same.
impl Wire for ReadChanges {
    fn put(&self, out: &mut Vec<u8>) {
        self.range.put(out);
        self.physical.put(out);
        self.start.put(out);
        self.mode.put(out);
        self.not_before.put(out);
        self.max_items.put(out);
        self.count_remaining.put(out);
    }

    fn size_hint(&self) -> usize {
        self.range.size_hint() + self.physical.size_hint() + self.start.size_hint() + 24
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            range: Wire::read_from(input)?,
            physical: Wire::read_from(input)?,
            partition_key: None,
            start: Wire::read_from(input)?,
            mode: Wire::read_from(input)?,
            not_before: Wire::read_from(input)?,
            max_items: Wire::read_from(input)?,
            count_remaining: Wire::read_from(input)?,
        })
    }
}

impl<T: Wire> Wire for Response<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.request_charge.put(out);
        self.value.put(out);
    }

    fn size_hint(&self) -> usize {
        self.request_charge.size_hint() + self.value.size_hint()
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let request_charge = f64::read_from(input)?;
        Ok(Self::new(T::read_from(input)?, request_charge))
    }
}

/// Sent as the bytes that its text encodes: each change of a page has one.
impl Wire for ResourceId {
    fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.push(0);
        let count = self.write_bytes_to(out);
        if let Some(first) = out.get_mut(at) {
            // At most 16 bytes.
            *first = count as u8;
        }
    }

    fn size_hint(&self) -> usize {
        17
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = usize::read_from(input)?;
        input.with_bytes(count, |bytes| Self::from_bytes(bytes).ok_or(Malformed("a resource id is not one")))
    }
}

impl Wire for Lsn {
    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read_from(input).map(Self::new)
    }
}

impl Wire for Timestamp {
    fn put(&self, out: &mut Vec<u8>) {
        self.as_millis().put(out);
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        u64::read_from(input).map(Self::from_millis)
    }
}

impl Wire for Continuation {
    fn put(&self, out: &mut Vec<u8>) {
        put_text(self.token(), out);
        self.container().copied().put(out);
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let token = String::read_from(input)?;
        Ok(match Option::read_from(input)? {
            Some(container) => Self::new(token, container),
            None => Self::from_token(token),
        })
    }
}

impl Wire for Mode {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::LatestVersion => 0,
            Self::AllVersions => 1,
        });
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read_from(input)? {
            0 => Ok(Self::LatestVersion),
            1 => Ok(Self::AllVersions),
            _ => Err(Malformed("unknown mode")),
        }
    }
}

impl Wire for Operation {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Write => 0,
            Self::Create => 1,
            Self::Replace => 2,
            Self::Delete => 3,
            Self::Expire => 4,
        });
    }

    #[inline]
    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read_from(input)? {
            0 => Ok(Self::Write),
            1 => Ok(Self::Create),
            2 => Ok(Self::Replace),
            3 => Ok(Self::Delete),
            4 => Ok(Self::Expire),
            _ => Err(Malformed("unknown operation")),
        }
    }
}

impl Wire for StartFrom {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Beginning => out.push(0),
            Self::Now => out.push(1),
            Self::Time(time) => {
                out.push(2);
                time.put(out);
            }
            Self::Continuation(continuation) => {
                out.push(3);
                continuation.put(out);
            }
        }
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read_from(input)? {
            0 => Ok(Self::Beginning),
            1 => Ok(Self::Now),
            2 => Timestamp::read_from(input).map(Self::Time),
            3 => Continuation::read_from(input).map(Self::Continuation),
            _ => Err(Malformed("unknown start")),
        }
    }
}

impl Wire for TimeToLive {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Off => out.push(0),
            Self::ItemsOnly => out.push(1),
            Self::Seconds(seconds) => {
                out.push(2);
                seconds.put(out);
            }
        }
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read_from(input)? {
            0 => Ok(Self::Off),
            1 => Ok(Self::ItemsOnly),
            2 => u32::read_from(input).map(Self::Seconds),
            _ => Err(Malformed("unknown time to live")),
        }
    }
}

impl Wire for Write {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Create { body } => {
                out.push(0);
                body.put(out);
            }
            Self::Upsert { body, if_match } => {
                out.push(1);
                body.put(out);
                if_match.put(out);
            }
            Self::Replace { body, if_match } => {
                out.push(2);
                body.put(out);
                if_match.put(out);
            }
            Self::Delete { id, if_match } => {
                out.push(3);
                id.put(out);
                if_match.put(out);
            }
        }
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::read_from(input)? {
            0 => Ok(Self::Create { body: Wire::read_from(input)? }),
            1 => Ok(Self::Upsert { body: Wire::read_from(input)?, if_match: Wire::read_from(input)? }),
            2 => Ok(Self::Replace { body: Wire::read_from(input)?, if_match: Wire::read_from(input)? }),
            3 => Ok(Self::Delete { id: Wire::read_from(input)?, if_match: Wire::read_from(input)? }),
            _ => Err(Malformed("unknown write")),
        }
    }
}

impl Wire for Capabilities {
    fn put(&self, out: &mut Vec<u8>) {
        // Whether the store is in this process is for the receiver to say.
        for can in [self.split_on_demand, self.all_versions, self.wake_ups, self.range_parents] {
            can.put(out);
        }
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self::new()
            .split_on_demand(bool::read_from(input)?)
            .all_versions(bool::read_from(input)?)
            .wake_ups(bool::read_from(input)?)
            .range_parents(bool::read_from(input)?))
    }
}

#[cfg(test)]
mod tests;
