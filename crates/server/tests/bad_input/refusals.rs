//! What every refusal has in common.

use serde_json::Value;

use crate::support::{Ask, Client, Reply, World, item, world::DOCS};

/// A request and the refusal it must meet: status and substatus.
pub(crate) type Case = (&'static str, Ask, u16, Option<u32>);

/// A world with two items under the key `a`, and a client.
pub(crate) async fn world() -> (World, Client) {
    let world = World::new().await;
    let mut client = world.client().await;
    for id in ["one", "two"] {
        client.send(Ask::post(DOCS, item(id, "a", 1)).key("a")).await.expect(201);
    }
    (world, client)
}

/// Sends each request over one connection and looks at its refusal and at what it left behind.
pub(crate) async fn assert_refused(world: &World, client: &mut Client, cases: impl IntoIterator<Item = Case>) {
    let mut wrong = Vec::new();
    for (what, ask, status, substatus) in cases {
        let before = world.state().await;
        let shown = format!("{what}: {} {}", ask.method, ask.path.chars().take(80).collect::<String>());
        let ask = ask.with("x-ms-activity-id", "11111111-2222-4333-8444-555555555555");
        let head = ask.method == "HEAD";
        let reply = client.send(ask).await;
        if (reply.status, reply.substatus()) == (status, substatus) {
            if !head {
                assert_shape(&reply, &shown);
            }
        } else {
            let told = (reply.status, reply.substatus());
            wrong.push(format!("{shown}: {told:?}, not {:?}: {}", (status, substatus), reply.text()));
        }
        assert_eq!(world.state().await, before, "{shown} changed something");
        client.send(Ask::get(format!("{DOCS}/one")).key("a")).await.expect(200);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The body and headers of a refusal.
pub(crate) fn assert_shape(reply: &Reply, what: &str) {
    let code = match reply.status {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 => "Conflict",
        410 => "Gone",
        412 => "PreconditionFailed",
        413 => "RequestEntityTooLarge",
        other => panic!("{what}: {other} is none of the refusals in use"),
    };
    let body = reply.json();
    assert_eq!(body["code"], code, "{what}");
    let message = body["message"].as_str().unwrap_or_else(|| panic!("{what}: {body}"));
    let (errors, rest) = message.split_once("\r\n").unwrap_or_else(|| panic!("{what}: {message}"));
    let errors: Value = serde_json::from_str(errors.strip_prefix("Message: ").unwrap()).unwrap();
    let sentence = errors["Errors"][0].as_str().unwrap_or_default();
    assert!(sentence.len() > 10, "{what}: says too little: {message}");
    assert!(sentence.len() < 1000, "{what}: repeats what came from outside: {sentence}");
    let activity = reply.header("x-ms-activity-id").unwrap();
    assert!(rest.starts_with(&format!("ActivityId: {activity}, ")), "{what}: {rest}");
    assert_eq!(reply.header("content-type"), Some("application/json"), "{what}");
    for name in ["x-ms-request-charge", "x-ms-version", "date"] {
        assert!(reply.header(name).is_some(), "{what}: {name} is missing");
    }
}
