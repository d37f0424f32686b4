//! Methods that a resource does not have.

use crate::{
    refusals::{Case, assert_refused, world},
    support::{Ask, world::DOCS},
};

#[tokio::test]
async fn methods_that_a_resource_does_not_have_are_405() {
    let (world, mut client) = world().await;
    let one = format!("{DOCS}/one");
    let mut cases: Vec<Case> = Vec::new();
    for (path, allowed) in [
        ("/", &["GET"][..]),
        ("/dbs", &["GET", "POST"]),
        ("/dbs/db", &["GET", "DELETE"]),
        ("/dbs/db/colls", &["GET", "POST"]),
        ("/dbs/db/colls/c", &["GET", "PUT", "DELETE"]),
        (DOCS, &["GET", "POST"]),
        (one.as_str(), &["GET", "PUT", "PATCH", "DELETE"]),
        ("/dbs/db/colls/c/pkranges", &["GET"]),
        ("/offers", &["GET", "POST"]),
        ("/_changefeed/split", &["POST"]),
        ("/_changefeed/merge", &["POST"]),
        ("/_changefeed/throttle", &["POST"]),
        ("/_changefeed/verify", &["POST"]),
    ] {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "MERGE"] {
            if !allowed.contains(&method) {
                cases.push(("no such method", Ask::new(method, path).key("a"), 405, None));
            }
        }
    }
    assert_refused(&world, &mut client, cases).await;
}

#[tokio::test]
async fn scripts_are_refused_with_a_sentence_and_their_lists_are_empty() {
    let (world, mut client) = world().await;
    for (kind, member) in [
        ("sprocs", "StoredProcedures"),
        ("triggers", "Triggers"),
        ("udfs", "UserDefinedFunctions"),
        ("conflicts", "Conflicts"),
    ] {
        let path = format!("/dbs/db/colls/c/{kind}");
        let reply = client.send(Ask::get(&path)).await.expect(200);
        assert_eq!(reply.json()[member], serde_json::json!([]));
        let cases = ["POST", "PUT", "DELETE"].map(|method| ("a script", Ask::new(method, &path), 400, None));
        assert_refused(&world, &mut client, cases).await;
    }
}
