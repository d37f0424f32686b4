//! Documents of the lease container: any bytes are refused or read, and what is read is written and read back the same.
#![no_main]

use changefeed::lease::document::{InfoDocument, LeaseDocument, LockDocument};
use changefeed_fuzz::read_everything;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(lease) = LeaseDocument::parse(body) {
        read_everything(&lease);
        let json = lease.to_json();
        let again = LeaseDocument::parse(&json).expect("its own JSON");
        assert_eq!(again, lease);
        assert_eq!(again.to_json(), json);
    }
    if let Ok(info) = InfoDocument::parse(body) {
        assert_eq!(InfoDocument::parse(&info.to_json()).expect("its own JSON"), info);
    }
    if let Ok(lock) = LockDocument::parse(body) {
        assert_eq!(LockDocument::parse(&lock.to_json()).expect("its own JSON"), lock);
    }
});
