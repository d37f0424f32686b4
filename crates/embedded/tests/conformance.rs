//! The contract, in both forms of the store, in memory and on disk; and with pages that come from both.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use changefeed_core::{Catalog, async_trait};
use changefeed_embedded::Engine;
use changefeed_testkit::{clock::TestClock, conformance::Fixture};

struct Store {
    engine: Engine,
    clock: TestClock,
    folder: Option<PathBuf>,
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

#[async_trait]
impl Fixture for Store {
    fn catalog(&self) -> Arc<dyn Catalog> {
        self.engine.catalog()
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.engine.tidy().await.expect("tidy");
    }
}

fn in_memory() -> Store {
    remembering(0)
}

/// A store that has what was written last at hand, and must fetch the rest.
fn mixed() -> Store {
    remembering(2000)
}

fn remembering(bytes: usize) -> Store {
    let clock = TestClock::new();
    let builder = Engine::builder().clock(Arc::new(clock.clone())).recent_bytes(bytes);
    Store { engine: builder.in_memory().expect("open in memory"), clock, folder: None }
}

fn on_disk() -> Store {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("conformance-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let clock = TestClock::new();
    let engine = Engine::builder().clock(Arc::new(clock.clone())).open(&folder).expect("open a folder");
    Store { engine, clock, folder: Some(folder) }
}

mod memory {
    changefeed_testkit::conformance!(super::in_memory);
}

mod both {
    changefeed_testkit::conformance!(super::mixed);
}

mod disk {
    changefeed_testkit::conformance!(super::on_disk);
}
