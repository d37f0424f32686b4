//! The authorization header: nothing but the right signature opens anything.
#![no_main]

use changefeed_core::Timestamp;
use changefeed_server::{
    auth::{Keys, Signed, authorize, parse},
    path::Path,
};
use libfuzzer_sys::fuzz_target;

const DATE: &str = "Sun, 15 Nov 2026 20:52:04 GMT";

fuzz_target!(|text: &str| {
    let path = Path::parse("/dbs/db1/colls/c1/docs").expect("a path");
    let keys = Keys::parse("MDEyMzQ1Njc4OWFiY2RlZg==").expect("a key");
    let now = Timestamp::from_secs(1_794_775_924);
    let right = keys.sign("get", "docs", "dbs/db1/colls/c1", DATE).expect("a signature");
    let signed = Signed { authorization: Some(text), ms_date: Some(DATE), date: None };
    if authorize(&keys, "GET", &path, signed, now).is_ok() {
        assert_eq!(parse(text), parse(&right), "a signature that was not made with the key");
    }
    let dated = Signed { authorization: Some(&right), ms_date: Some(text), date: None };
    if authorize(&keys, "GET", &path, dated, now).is_ok() {
        assert!(text.eq_ignore_ascii_case(DATE), "a date that was not signed: {text}");
    }
});
