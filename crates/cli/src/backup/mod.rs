//! `changefeed backup`: the files of a store at one moment, with a manifest of their checksums.

pub(crate) mod manifest;
pub(crate) mod partial;
mod source;

use std::fs::File;
use std::io::Write as _;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use self::{
    manifest::{FileEntry, Manifest, hex},
    partial::Partial,
    source::Source,
};
use crate::{
    args::BackupArgs,
    clock,
    count::count_of,
    exit::{Exit, Result, block_on, print, print_text},
    progress::Indicator,
    store::{Missing, Store},
};

/// The folder in a backup with the files of the store: a backup must not be taken for a store.
pub(crate) const FILES: &str = "files";

/// Makes a backup.
pub(crate) fn backup(args: &BackupArgs) -> Result<Exit> {
    let partial = Partial::begin(&args.to)?;
    let store = Store::open(&args.store, Missing::Refused)?;
    let manifest = block_on(async {
        let copied = copy(&store, &partial).await;
        store.close().await?;
        copied
    })?;
    partial.finish()?;
    let (files, bytes) = (manifest.files.len(), manifest.bytes());
    let to = args.to.display();
    if args.json {
        let done = json!({ "store": manifest.store, "files": files, "bytes": bytes, "to": to.to_string() });
        print(&format!("{done}\n"))?;
    } else {
        let files = count_of(files as u64, "file");
        print_text(&format!(
            "store {} copied to {to}: {files}, {bytes} bytes, all checked\nto restore it: changefeed restore --from \
             {to} --store NEW-FOLDER\n",
            manifest.store
        ))?;
    }
    Ok(Exit::Good)
}

async fn copy(store: &Store, partial: &Partial) -> Result<Manifest> {
    let waiting = Indicator::waiting("taking a snapshot");
    let source = Source::open(store).await?;
    drop(waiting);
    let total = source.files().iter().map(|(_, bytes)| bytes).sum();
    let progress = Indicator::of_bytes(total, "copied");
    partial.make_folder(FILES)?;
    let mut entries = Vec::new();
    for (name, bytes) in source.files() {
        let mut file = partial.create(&format!("{FILES}/{name}"))?;
        entries.push(copy_file(&source, (name, *bytes), &mut file, &progress).await?);
    }
    source.end().await?;
    drop(progress);
    let manifest = Manifest::new(source.store_id(), clock::now(), entries);
    partial.write(manifest::NAME, manifest.to_json().as_bytes())?;
    partial.sync_folder(FILES)?;
    Ok(manifest)
}

async fn copy_file(
    source: &Source,
    (name, bytes): (&str, u64),
    file: &mut File,
    progress: &Indicator,
) -> Result<FileEntry> {
    let mut hash = Sha256::new();
    let mut offset = 0;
    while offset < bytes {
        let part = source.read(name, offset).await?;
        if part.is_empty() {
            return Err(format!("{name} ended at byte {offset} of {bytes}: try again").into());
        }
        hash.update(&part);
        file.write_all(&part).map_err(|error| format!("write {name}: {error}"))?;
        offset += part.len() as u64;
        progress.inc(part.len() as u64);
    }
    file.sync_all().map_err(|error| format!("write {name}: {error}"))?;
    Ok(FileEntry { name: name.to_owned(), bytes, sha256: hex(&hash.finalize()) })
}
