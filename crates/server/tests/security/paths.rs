//! Paths and ids that try to be something else.

use std::path::{Path, PathBuf};

use changefeed_embedded::Engine;
use changefeed_server::auth::Keys;
use serde_json::json;
use tokio::io::AsyncWriteExt;

use crate::support::{Ask, World, item, raw, world::DOCS};

#[tokio::test]
async fn hostile_paths_are_refused_and_change_nothing() {
    let world = World::new().await;
    let mut client = world.client().await;
    client.send(Ask::post(DOCS, item("one", "a", 1)).key("a")).await.expect(201);
    let before = world.state().await;
    for (path, status) in [
        ("/dbs/..%2f..%2fetc", 400),
        ("/dbs/db/colls/c/docs/..%2F..%2Fone", 400),
        ("/dbs/db%5c..%5cdb", 400),
        ("/dbs/db/colls/c/docs/%c0%af", 400),
        ("/dbs/db/colls/c/docs/%e0%80%af", 400),
        ("/dbs/db/colls/c/docs/%f0%80%80%af", 400),
        ("/dbs/db/colls/c/docs/%ed%a0%80", 400),
        ("/dbs/db/colls/c/docs/%ff", 400),
        ("/dbs/db/colls/c/docs/a%23b", 400),
        ("/dbs//colls/c/docs/one", 400),
        ("/dbs/db//c/docs/one", 400),
        ("/dbs/db/colls//docs/one", 400),
        ("//dbs/db", 400),
        ("/dbs/db/colls/c/docs//", 400),
        // Decoded once: these are names like any others, and nothing has them.
        ("/dbs/db/colls/c/docs/%252e%252e%252fone", 404),
        ("/dbs/db/colls/c/docs/a%00b", 404),
        ("/dbs/db/colls/c/docs/%0d%0aset-cookie:a", 404),
        ("/dbs/db/colls/c/docs/%7f", 404),
        ("/dbs/db/colls/c/docs/a%3fb", 404),
        ("/dbs/db/colls/c/docs/..", 404),
        ("/dbs/db/colls/c/docs/%2e%2e", 404),
        ("/dbs/%2e%2e/colls/c/docs/one", 404),
        ("/dbs/db/../db/colls/c/docs/one", 404),
        ("/DBS/db/COLLS/c/DOCS/one", 404),
        ("/dbs/db/colls/c/docs/one/attachments", 404),
        ("/etc/passwd", 404),
        ("/_changefeed", 404),
        ("/_changefeed/shutdown", 404),
    ] {
        let reply = client.send(Ask::get(path).key("a")).await;
        assert_eq!(reply.status, status, "{path}: {reply:?}");
        let code = if status == 400 { "BadRequest" } else { "NotFound" };
        assert_eq!(reply.json()["code"], code, "{path}");
        assert_eq!(reply.header("set-cookie"), None, "{path}");
        client.send(Ask::get(format!("{DOCS}/one")).key("a")).await.expect(200);
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn bytes_that_no_path_may_have_are_refused() {
    let world = World::new().await;
    for path in [&b"/dbs/\0"[..], b"/dbs/\xff", b"/dbs/\xc0\xaf", b"/dbs/a b", b"/dbs/\x1b[31m", b"*", b"dbs"] {
        let mut stream = raw::connect(world.address()).await;
        let head = [b"GET ", path, b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"].concat();
        stream.write_all(&head).await.unwrap();
        let came = String::from_utf8(raw::until_closed(&mut stream).await).unwrap();
        assert!(came.starts_with("HTTP/1.1 4"), "{:?}: {came}", String::from_utf8_lossy(path));
    }
}

#[tokio::test]
async fn ids_of_1023_bytes_are_good_and_longer_ones_and_names_of_256_characters_are_not() {
    let world = World::new().await;
    let mut client = world.client().await;
    let (longest, escaped) = ("i".repeat(1023), "%E2%82%AC".repeat(341));
    for (id, path) in [(&longest, &longest), (&"€".repeat(341), &escaped)] {
        client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(201);
        client.send(Ask::get(format!("{DOCS}/{path}")).key("a")).await.expect(200);
    }
    let before = world.state().await;
    for length in [256, 1024, 7000] {
        let id = "i".repeat(length);
        if length > 1023 {
            client.send(Ask::post(DOCS, item(&id, "a", 1)).key("a")).await.expect(400);
            client.send(Ask::get(format!("{DOCS}/{id}")).key("a")).await.expect(400);
        }
        client.send(Ask::post("/dbs", json!({ "id": id }))).await.expect(400);
        client
            .send(Ask::post("/dbs/db/colls", json!({ "id": id, "partitionKey": { "paths": ["/pk"] } })))
            .await
            .expect(400);
        let reply = client.send(Ask::get(format!("/dbs/{id}"))).await;
        assert!(matches!(reply.status, 400 | 404), "{reply:?}");
    }
    let reply = client.send(Ask::get(format!("/dbs/{}", "i".repeat(9000)))).await.expect(400);
    assert!(reply.text().contains("longer than 8 KiB"), "{}", reply.text());
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn ids_with_characters_that_no_path_can_name_are_refused_in_bodies() {
    let world = World::new().await;
    let before = world.state().await;
    let mut client = world.client().await;
    for id in ["", "a/b", "a\\b", "a#b", "../x"] {
        client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(400);
    }
    for id in ["", "a/b", "a\\b", "a?b", "a#b", "../x", "a\0b", "a\nb", "a\u{7f}b"] {
        client.send(Ask::post("/dbs", json!({ "id": id }))).await.expect(400);
        let container = json!({ "id": id, "partitionKey": { "paths": ["/pk"] } });
        client.send(Ask::post("/dbs/db/colls", container)).await.expect(400);
    }
    assert_eq!(world.state().await, before);
}

#[tokio::test]
async fn ids_of_items_may_hold_question_marks_and_control_characters_as_in_azure() {
    let world = World::new().await;
    let mut client = world.client().await;
    for (id, encoded) in
        [("a?b", "a%3Fb"), ("a\0b", "a%00b"), ("\r\nset-cookie: a", "%0D%0Aset-cookie:%20a"), ("\u{7f}\t", "%7F%09")]
    {
        let path = format!("{DOCS}/{encoded}");
        let created = client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(201);
        assert!(created.header("set-cookie").is_none(), "{created:?}");
        assert_eq!(client.send(Ask::get(path.clone()).key("a")).await.expect(200).json()["id"], id);
        client.send(Ask::put(path.clone(), item(id, "a", 2)).key("a")).await.expect(200);
        client.send(Ask::delete(path.clone()).key("a")).await.expect(204);
        client.send(Ask::get(path).key("a")).await.expect(404);
    }
}

#[tokio::test]
async fn strange_but_legal_names_work_everywhere() {
    let world = World::new().await;
    let mut client = world.client().await;
    for (name, encoded) in [
        ("a b+c", "a%20b+c"),
        ("50%", "50%25"),
        ("%2e%2e%2f", "%252e%252e%252f"),
        ("..", ".."),
        ("colls", "colls"),
        ("é✓", "%C3%A9%E2%9C%93"),
        ("a'&\"<script>", "a%27%26%22%3Cscript%3E"),
    ] {
        client.send(Ask::post("/dbs", json!({ "id": name }))).await.expect(201);
        let container = json!({ "id": name, "partitionKey": { "paths": ["/pk"], "version": 2 } });
        client.send(Ask::post(format!("/dbs/{encoded}/colls"), container)).await.expect(201);
        let docs = format!("/dbs/{encoded}/colls/{encoded}/docs");
        client.send(Ask::post(&docs, item(name, "a", 1)).key("a")).await.expect(201);
        let reply = client.send(Ask::get(format!("{docs}/{encoded}")).key("a")).await.expect(200);
        assert_eq!(reply.json()["id"], name);
        client.send(Ask::delete(format!("{docs}/{encoded}")).key("a")).await.expect(204);
        client.send(Ask::delete(format!("/dbs/{encoded}"))).await.expect(204);
    }
}

/// All files under a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(files(&path));
        }
        all.push(path);
    }
    all
}

#[tokio::test]
async fn a_name_is_never_the_name_of_a_file() {
    let folder = std::env::temp_dir().join(format!("changefeed-server-names-{}", std::process::id()));
    let store = folder.join("outer").join("store");
    std::fs::create_dir_all(&store).unwrap();
    let engine = Engine::open(&store).unwrap();
    let catalog = engine.catalog();
    let world = World::over(engine, catalog, Keys::emulator(), |builder| builder).await;
    let mut client = world.client().await;
    for name in ["..", "...", "%2e%2e%2f%2e%2e%2f", "marker-name", "-rf", "~", "$(touch x)", "CON", "LOCK"] {
        client.send(Ask::post("/dbs", json!({ "id": name }))).await.expect(201);
        let encoded = percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string();
        let container = json!({ "id": name, "partitionKey": { "paths": ["/pk"], "version": 2 } });
        client.send(Ask::post(format!("/dbs/{encoded}/colls"), container)).await.expect(201);
        let docs = format!("/dbs/{encoded}/colls/{encoded}/docs");
        client.send(Ask::post(docs, item(name, "a", 1)).key("a")).await.expect(201);
    }
    let all = files(&folder);
    for path in &all {
        let inside = path.starts_with(&store) || store.starts_with(path);
        assert!(inside, "{} lies beside the store", path.display());
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(!name.contains("marker-name") && !name.contains('%') && !name.contains('$'), "{name}");
    }
    assert!(all.iter().any(|path| path.is_file()), "the store is on disk");
    world.server.stop().await;
    world.engine.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
