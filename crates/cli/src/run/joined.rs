//! A host on a folder that another process has open: it works through the admin endpoint of that process, and says so. It does
//! not open the folder itself when that process has ended: a server or a program that is restarted would then find its own
//! folder taken.

use std::{convert::Infallible, path::Path, time::Duration};

use changefeed::ADMIN_SOCKET;
use tokio::net::UnixStream;

use crate::{clock, processor_stores::ProcessorStores};

/// How often it is checked whether the other process is still there.
const CHECKED_EVERY: Duration = Duration::from_secs(1);

/// Says what the host depends on, where it works through another process.
pub(super) fn announce(stores: &ProcessorStores) {
    for folder in stores.joined() {
        let folder = folder.display();
        tracing::warn!(
            "another process has the store in {folder} open: this host works through it, and waits if it ends until a \
             process opens the folder again; `changefeed serve --store {folder}` lets hosts come and go"
        );
    }
}

/// Says when the other process has ended, and when there is one again. Never ends.
pub(super) async fn watch(stores: &ProcessorStores) -> Infallible {
    let mut folders: Vec<(&Path, bool)> = stores.joined().into_iter().map(|folder| (folder, true)).collect();
    if folders.is_empty() {
        return std::future::pending().await;
    }
    loop {
        clock::sleep(CHECKED_EVERY).await;
        for (folder, was_open) in &mut folders {
            let is_open = UnixStream::connect(folder.join(ADMIN_SOCKET)).await.is_ok();
            let shown = folder.display();
            match (std::mem::replace(was_open, is_open), is_open) {
                (true, false) => tracing::warn!(
                    "the process that had the store in {shown} open has ended: this host waits until another one opens the \
                     folder: start `changefeed serve --store {shown}`"
                ),
                (false, true) => tracing::info!("a process has the store in {shown} open again: this host goes on"),
                _ => {}
            }
        }
    }
}
