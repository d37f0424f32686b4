//! `/_changefeed/backup`: the files of the store, part by part; bad calls are named.

use std::sync::Arc;

use changefeed_core::{Error, ErrorKind, Result};
use changefeed_server::{Health, Storage, StoredFiles};
use serde_json::json;

use crate::support::{Ask, World};

/// A store of two files, one of which is damaged.
#[derive(Debug)]
struct Files;

impl Storage for Files {
    fn health(&self) -> Health {
        Health::default()
    }

    fn verify(&self) -> Result<u64> {
        Ok(0)
    }

    fn snapshot(&self) -> Result<Arc<dyn StoredFiles>> {
        Ok(Arc::new(Self))
    }
}

impl StoredFiles for Files {
    fn store_id(&self) -> String {
        "s".to_owned()
    }

    fn files(&self) -> Vec<(String, u64)> {
        vec![("a".to_owned(), 5), ("b".to_owned(), 1)]
    }

    fn check(&self, name: &str) -> Result<()> {
        match name {
            "b" => Err(Error::new(ErrorKind::Corrupt, "b is damaged at byte 0")),
            _ => Ok(()),
        }
    }

    fn read(&self, _: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        Ok(b"hello".iter().skip(usize::try_from(offset).unwrap()).take(length).copied().collect())
    }
}

#[tokio::test]
async fn a_backup_is_listed_read_in_parts_and_ended() {
    let world = World::with(|builder| builder.storage(Arc::new(Files))).await;
    let mut client = world.client().await;
    let begun = client.send(Ask::post("/_changefeed/backup", "")).await.expect(200).json();
    assert_eq!((&begun["store"], &begun["files"][0]), (&json!("s"), &json!({ "name": "a", "bytes": 5 })));
    let backup = &begun["backup"];
    let read = |file: &str, offset: u64| {
        let body = json!({ "backup": backup, "file": file, "offset": offset }).to_string();
        Ask::post("/_changefeed/backup-read", &body)
    };
    assert_eq!(client.send(read("a", 0)).await.expect(200).text(), "hello");
    assert_eq!(client.send(read("a", 3)).await.expect(200).text(), "lo");
    let damaged = client.send(read("b", 0)).await.expect(500);
    assert!(damaged.text().contains("b is damaged at byte 0"), "{}", damaged.text());
    let end = json!({ "backup": backup }).to_string();
    client.send(Ask::post("/_changefeed/backup-end", &end)).await.expect(200);
    let over = client.send(read("a", 0)).await.expect(404);
    assert!(over.text().contains("begin another"), "{}", over.text());
}

#[tokio::test]
async fn calls_that_make_no_sense_are_refused_and_backups_are_few() {
    let world = World::with(|builder| builder.storage(Arc::new(Files))).await;
    let mut client = world.client().await;
    client.send(Ask::post("/_changefeed/backup-read", "{}")).await.expect(400);
    client.send(Ask::get("/_changefeed/backup")).await.expect(405);
    for _ in 0..4 {
        client.send(Ask::post("/_changefeed/backup", "")).await.expect(200);
    }
    let fifth = client.send(Ask::post("/_changefeed/backup", "")).await.expect(429);
    assert!(fifth.text().contains("wait until one has ended"), "{}", fifth.text());
    let none = World::new().await.client().await.send(Ask::post("/_changefeed/backup", "")).await.expect(400);
    assert!(none.text().contains("does not know the files of its store"), "{}", none.text());
}
