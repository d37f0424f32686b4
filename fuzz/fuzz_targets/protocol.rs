//! Messages between our client and our server: refused or read, and whatever is read is written and read the same.
#![no_main]

use changefeed_core::{Batch, ChangePage, ContainerSpec, ItemKey, ItemPage, ListItems, ReadChanges, Response};
use changefeed_protocol::{
    Address, Opened, WatchCall, WatchReply, Wire, decode, decode_error, decode_parts, encode, encode_error,
};
use libfuzzer_sys::fuzz_target;

fn check<T: Wire>(bytes: &[u8]) {
    let whole = decode::<T>(bytes.to_vec().into());
    // Where a message is cut makes no difference.
    let (first, second) = bytes.split_at(bytes.first().map_or(0, |byte| usize::from(*byte).min(bytes.len())));
    let parts = decode_parts::<T>(&[first.to_vec().into(), second.to_vec().into()]);
    assert_eq!(parts.as_ref().ok().map(encode), whole.as_ref().ok().map(encode));
    if let Ok(message) = whole {
        let again = encode(&message);
        let read = decode::<T>(again.clone()).ok().expect("its own bytes");
        assert_eq!(encode(&read), again);
    }
}

fuzz_target!(|bytes: &[u8]| {
    check::<(Address, Batch)>(bytes);
    check::<(Address, ReadChanges)>(bytes);
    check::<(Address, ItemKey)>(bytes);
    check::<(Address, ListItems)>(bytes);
    check::<(String, ContainerSpec)>(bytes);
    check::<Response<ChangePage>>(bytes);
    check::<Response<ItemPage>>(bytes);
    check::<Opened>(bytes);
    check::<WatchCall>(bytes);
    check::<WatchReply>(bytes);
    if let Ok(error) = decode_error(bytes.to_vec().into()) {
        let again = decode_error(encode_error(&error)).expect("its own bytes");
        assert_eq!(format!("{again:?}"), format!("{error:?}"));
    }
});
