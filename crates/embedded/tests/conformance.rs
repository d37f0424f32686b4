//! The contract, in both forms of the store, in memory and on disk; and with pages that come from both.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use changefeed_core::{Capabilities, Catalog, async_trait};
use changefeed_embedded::{Builder, Engine, vfs::memory::MemoryDisk};
use changefeed_testkit::{
    clock::TestClock,
    conformance::{Feature, Fixture},
};

struct Store {
    /// None while it is being reopened.
    engine: Mutex<Option<Engine>>,
    clock: TestClock,
    recent_bytes: Option<usize>,
    place: Place,
    /// Kept open as long as a case runs.
    other: Mutex<Option<Engine>>,
}

enum Place {
    Memory(MemoryDisk),
    Folder(PathBuf),
}

impl Store {
    fn new(place: Place, recent_bytes: Option<usize>) -> Self {
        let (engine, other) = (Mutex::new(None), Mutex::new(None));
        let store = Self { engine, clock: TestClock::new(), recent_bytes, place, other };
        *store.engine.lock().expect("no panic") = Some(store.open());
        store
    }

    fn builder(&self) -> Builder {
        let builder = Engine::builder().clock(Arc::new(self.clock.clone()));
        match self.recent_bytes {
            Some(bytes) => builder.recent_bytes(bytes),
            None => builder,
        }
    }

    fn open(&self) -> Engine {
        match &self.place {
            Place::Memory(disk) => self.builder().open_on(disk.clone()).expect("open in memory"),
            Place::Folder(folder) => self.builder().open(folder).expect("open a folder"),
        }
    }

    fn engine(&self) -> Engine {
        self.engine.lock().expect("no panic").clone().expect("the store is open")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Place::Folder(folder) = &self.place {
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

#[async_trait]
impl Fixture for Store {
    fn catalog(&self) -> Arc<dyn Catalog> {
        self.engine().catalog()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new().split_on_demand(true).all_versions(true).wake_ups(true).range_parents(true).in_process(true)
    }

    fn supports(&self, feature: Feature) -> bool {
        feature != Feature::Charges
    }

    async fn reopen(&self) {
        let engine = self.engine.lock().expect("no panic").take();
        engine.expect("the store is open").close().await.expect("close");
        *self.engine.lock().expect("no panic") = Some(self.open());
    }

    async fn other_store(&self) -> Arc<dyn Catalog> {
        let other = self.builder().in_memory().expect("open another store");
        let catalog = other.catalog();
        *self.other.lock().expect("no panic") = Some(other);
        catalog
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.engine().expire().await.expect("expire");
    }
}

fn in_memory() -> Store {
    Store::new(Place::Memory(MemoryDisk::new()), Some(0))
}

/// A store that has what was written last at hand, and must fetch the rest.
fn mixed() -> Store {
    Store::new(Place::Memory(MemoryDisk::new()), Some(2000))
}

fn on_disk() -> Store {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("conformance-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    Store::new(Place::Folder(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)), None)
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
