//! Paths of URLs: what is accepted has segments without separators, and the same meaning with a slash at its end.
#![no_main]

use changefeed_server::path::{Path, Target};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(path) = Path::parse(text) else { return };
    assert!(!path.links.is_empty());
    if !text.ends_with('/') && text.len() < 8000 {
        assert_eq!(Path::parse(&format!("{text}/")).expect("one more slash").target, path.target);
    }
    if let Target::Item(database, container, id) = &path.target {
        for segment in [database, container, id] {
            assert!(!segment.is_empty() && !segment.contains(['/', '\\', '#']));
        }
    }
});
