//! Messages between our client and our server: refused or read, and whatever is read is written and read the same.
#![no_main]

use changefeed_core::{Batch, ChangePage, ContainerSpec, ItemKey, ItemPage, ListItems, ReadChanges, Response};
use changefeed_protocol::{Address, Opened, WatchCall, WatchReply, Wire, decode, decode_error, encode, encode_error};
use libfuzzer_sys::fuzz_target;

fn check<T: Wire>(bytes: &[u8]) {
    if let Ok(message) = decode::<T>(bytes.to_vec().into()) {
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
