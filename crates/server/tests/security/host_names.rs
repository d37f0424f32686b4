//! With the public key, only names of this machine are served: a page in a browser may have made its own name point here.

use tokio::io::AsyncWriteExt as _;

use crate::support::{Ask, Wire, World, raw};

async fn status(world: &World, host: &str, origin: Option<&str>) -> String {
    let ask = Ask::get("/dbs");
    let mut head = format!("GET /dbs HTTP/1.1\r\nhost: {host}\r\n");
    for (name, value) in ask.signature(&world.keys) {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if let Some(origin) = origin {
        head.push_str(&format!("origin: {origin}\r\n"));
    }
    let mut stream = raw::connect(world.address()).await;
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let answer = raw::one_answer(&mut stream).await;
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn with_the_public_key_other_names_are_refused() {
    let world = World::with(|builder| builder.account_host("cosmos.test")).await;
    for (host, origin, expected) in [
        ("localhost:8081", None, "200"),
        ("127.0.0.1", Some("http://localhost:3000"), "200"),
        ("[::1]:8081", None, "200"),
        ("cosmos.test:8081", Some("https://cosmos.test"), "200"),
        ("attacker.example:8081", None, "403"),
        ("localhost", Some("http://attacker.example"), "403"),
        ("localhost", Some("null"), "403"),
        ("attacker.example", Some("http://attacker.example"), "403"),
    ] {
        assert_eq!(status(&world, host, origin).await, expected, "{host} {origin:?}");
    }
}

#[tokio::test]
async fn with_a_key_of_its_own_any_name_is_served() {
    let world = World::with_own_key().await;
    assert_eq!(status(&world, "attacker.example", None).await, "200");
}

#[tokio::test]
async fn on_http2_the_authority_counts() {
    let world = World::new().await;
    let mut client = world.client_by(&Wire::Two).await;
    client.send(Ask::get("/dbs")).await.expect(200);
    let refused = client.send(Ask::get("/dbs").with("host", "attacker.example")).await.expect(403);
    assert!(refused.text().contains("--account-host"), "{refused:?}");
}
