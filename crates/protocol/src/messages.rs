//! Messages that are not values of the contract: the address of a container, wake-ups.

use changefeed_core::{Capabilities, ContainerIdentity, Continuation, FeedRange, ResourceId, StoreId};

use crate::{
    codec::{Malformed, Reader, Wire},
    contract::wire_struct,
};

/// Which container a call means. Its names are in the path; these tell it from another one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The store that the handle was opened on.
    pub store: StoreId,
    /// The container that the handle was opened on.
    pub container: ResourceId,
}

/// The answer to opening a container.
#[derive(Clone, Debug, PartialEq)]
pub struct Opened {
    /// Which container it is.
    pub identity: ContainerIdentity,
    /// What its store can do.
    pub capabilities: Capabilities,
}

/// One reader that waits for news.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    /// Chosen by the client, unique within its watch.
    pub id: u64,
    /// The name of the database.
    pub database: String,
    /// The name of the container.
    pub container: String,
    /// Which container of that name.
    pub address: Address,
    /// Which keys.
    pub range: FeedRange,
    /// After which position.
    pub continuation: Continuation,
}

/// Which watch of which client. On the wire it is one number, which clients of before chose at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchId {
    /// Chosen by the client at random, once.
    pub client: u32,
    /// Counts the watches of the client: one that begins replaces those before it.
    pub number: u32,
}

impl Wire for WatchId {
    fn put(&self, out: &mut Vec<u8>) {
        (u64::from(self.client) << 32 | u64::from(self.number)).put(out);
    }

    fn read_from(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bits = u64::read_from(input)?;
        // The halves of the number.
        Ok(Self { client: (bits >> 32) as u32, number: bits as u32 })
    }
}

/// Adds waits to a watch, takes waits from it, or asks which of them have news. A watch lives on the server for as long
/// as its client asks.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchCall {
    /// Which watch.
    pub watch: WatchId,
    /// Whether this begins the watch. A watch that the server does not know is refused otherwise: it was restarted, and
    /// the client has to send all its waits again.
    pub begin: bool,
    /// Further waits.
    pub add: Vec<Wait>,
    /// Waits that nobody waits for any more.
    pub cancel: Vec<u64>,
    /// Whether to answer only when a wait has news, or after some time.
    pub poll: bool,
}

/// The answer to a [`WatchCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchReply {
    /// The waits that may have news; they have left the watch.
    pub fired: Vec<u64>,
}

wire_struct! {
    Address { store, container }
    Opened { identity, capabilities }
    Wait { id, database, container, address, range, continuation }
    WatchCall { watch, begin, add, cancel, poll }
    WatchReply { fired }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode, encode};

    #[test]
    fn a_watch_call_comes_back() {
        let address = Address { store: StoreId::from_bits(1), container: ResourceId::container(1, 2) };
        let wait = Wait {
            id: 7,
            database: "shop".to_owned(),
            container: "orders".to_owned(),
            address,
            range: FeedRange::full(),
            continuation: Continuation::from_token("\"3\""),
        };
        let watch = WatchId { client: u32::MAX, number: 3 };
        let call = WatchCall { watch, begin: true, add: vec![wait], cancel: vec![1, 2], poll: true };
        assert_eq!(decode::<WatchCall>(encode(&call)).unwrap(), call);
        let reply = WatchReply { fired: vec![7] };
        assert_eq!(decode::<WatchReply>(encode(&reply)).unwrap(), reply);
    }
}
