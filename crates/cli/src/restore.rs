//! `changefeed restore`: a store made of a backup, under a new identity.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::Path,
};

use changefeed_core::StoreId;
use changefeed_embedded::Engine;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::{
    args::RestoreArgs,
    backup::{
        FILES,
        manifest::{FileEntry, Manifest, hex},
        partial::Partial,
    },
    count::count_of,
    exit::{Exit, Result, block_on, print, print_text},
    progress::Indicator,
    store::must_be_a_path,
};

/// How much is copied at a time.
const PART_BYTES: usize = 1024 * 1024;

/// Makes a store. It gets its name when it is complete and was opened once.
pub(crate) fn restore(args: &RestoreArgs) -> Result<Exit> {
    must_be_a_path(&args.store, "restore makes one")?;
    let manifest = Manifest::read(&args.backup)?;
    let partial = Partial::begin(&args.store)?;
    let progress = Indicator::of_bytes(manifest.bytes(), "restored");
    for file in &manifest.files {
        copy(&args.backup, &partial, file, &progress)?;
    }
    drop(progress);
    let checking = Indicator::waiting("checking what was restored");
    let (store, processors) = block_on(open(partial.path(), &manifest.store))?;
    drop(checking);
    partial.finish()?;
    let to = args.store.display();
    if args.json {
        let done = json!({
            "store": store, "was": manifest.store, "files": manifest.files.len(), "bytes": manifest.bytes(),
            "processors": processors, "folder": to.to_string(),
        });
        print(&format!("{done}\n"))?;
    } else {
        print_text(&format!(
            "store {} restored to {to}, as {store}: {}, {} bytes, all checked\n{}",
            manifest.store,
            count_of(manifest.files.len() as u64, "file"),
            manifest.bytes(),
            match processors {
                0 => "no processor has leases in it\n".to_owned(),
                1 => "1 processor has leases in it and goes on where it was\n".to_owned(),
                count => format!("{count} processors have leases in it and go on where they were\n"),
            }
        ))?;
    }
    Ok(Exit::Good)
}

/// Copies a file of the backup and compares it with the manifest.
fn copy(backup: &Path, partial: &Partial, entry: &FileEntry, progress: &Indicator) -> Result<()> {
    let from = backup.join(FILES).join(&entry.name);
    let failed = |error: io::Error| format!("copy {}: {error}", from.display());
    let mut source = File::open(&from).map_err(failed)?;
    let mut target = partial.create(&entry.name)?;
    let (mut hash, mut bytes, mut part) = (Sha256::new(), 0, vec![0; PART_BYTES]);
    loop {
        let count = source.read(&mut part).map_err(failed)?;
        let read = part.get(..count).unwrap_or_default();
        if read.is_empty() {
            break;
        }
        hash.update(read);
        target.write_all(read).map_err(failed)?;
        bytes += count as u64;
        progress.inc(count as u64);
    }
    target.sync_all().map_err(failed)?;
    if bytes != entry.bytes || hex(&hash.finalize()) != entry.sha256 {
        let shown = from.display();
        return Err(format!("{shown} is damaged: it is not what the manifest says; use another backup").into());
    }
    Ok(())
}

/// Opens the store, which gives it its identity and reads all of it, and lets processors whose leases are in it go on.
async fn open(folder: &Path, was: &str) -> Result<(String, usize)> {
    let engine = Engine::open(folder)?;
    engine.verify()?;
    let (from, to) = (StoreId::new(was)?, engine.store_id().clone());
    let catalog = engine.catalog();
    let mut processors = 0;
    for database in catalog.list_databases().await? {
        for info in catalog.list_containers(&database.name).await? {
            let container = catalog.container(&database.name, &info.spec.name).await?;
            let paths: Vec<&str> = container.identity().partition_key.paths().collect();
            // Leases lie in no other containers.
            if matches!(paths.as_slice(), ["/id"] | ["/partitionKey"]) {
                processors += changefeed::adopt_store(&container, &from, &to).await?;
            }
        }
    }
    drop(catalog);
    engine.close().await?;
    Ok((to.to_string(), processors))
}
