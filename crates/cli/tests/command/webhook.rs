//! `run --webhook`, with a receiver that is not always kind.

use std::{
    collections::BTreeMap,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Command,
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};

use crate::{
    process::{eventually, text},
    shop::{Shop, changes},
};

/// A request as it arrived.
#[derive(Clone, Debug)]
struct Call {
    headers: BTreeMap<String, String>,
    body: String,
}

/// What the receiver does with its n-th call.
type Behaviour = fn(usize, &mut TcpStream);

/// A receiver on a port of its own.
struct Receiver {
    url: String,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Receiver {
    fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let calls = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || serve(stream, &seen, behaviour));
            }
        });
        Self { url, calls }
    }

    fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// The lines of all changes in calls that were answered well.
    fn changes(&self, from: usize) -> Vec<String> {
        let list = |call: &Call| -> Vec<String> {
            let body: Value = serde_json::from_str(&call.body).unwrap();
            body["changes"].as_array().unwrap().iter().map(Value::to_string).collect()
        };
        self.calls().iter().skip(from).flat_map(list).collect()
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, seen: &Mutex<Vec<Call>>, behaviour: Behaviour) {
    let mut answers = stream.try_clone().unwrap();
    let mut requests = BufReader::new(stream);
    loop {
        let mut headers = BTreeMap::new();
        let mut line = String::new();
        while requests.read_line(&mut line).is_ok_and(|read| read > 2) {
            if let Some((name, value)) = line.split_once(": ") {
                headers.insert(name.to_lowercase(), value.trim().to_owned());
            }
            line.clear();
        }
        let Some(length) = headers.get("content-length").and_then(|length| length.parse().ok()) else { return };
        let mut body = vec![0; length];
        requests.read_exact(&mut body).unwrap();
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(Call { headers, body: String::from_utf8(body).unwrap() });
            seen.len() - 1
        };
        behaviour(number, &mut answers);
    }
}

fn answer(stream: &mut TcpStream, head: &str) {
    // A client that has gone needs no answer.
    let _ = stream.write_all(format!("HTTP/1.1 {head}\r\ncontent-length: 0\r\n\r\n").as_bytes());
}

#[test]
fn every_batch_reaches_the_receiver_signed_with_each_secret() {
    let shop = Shop::served();
    let ledger = shop.load(100).into_iter().collect();
    let receiver = Receiver::start(|_, stream| answer(stream, "204 No Content"));
    let secrets = shop.folder.write("secrets", "first-secret-of-20-bytes\nsecond-secret-of-20-bytes\n");
    let host = shop.host("a", &["--webhook", &receiver.url, "--allow-private", "--webhook-secret-file", &secrets]);
    eventually("all orders", || changes(&receiver.changes(0)) == ledger);
    shop.catches_up();
    host.stop();
    let call = receiver.calls().into_iter().next().unwrap();
    let header = |name: &str| call.headers.get(name).unwrap().as_str();
    assert_eq!(header("idempotency-key"), header("webhook-id"));
    let signed = format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), call.body);
    let signatures: Vec<&str> = header("webhook-signature").split(' ').collect();
    let expected = ["first-secret-of-20-bytes", "second-secret-of-20-bytes"].map(|secret| by_python(secret, &signed));
    assert_eq!(signatures, expected);
}

/// The signature by another program.
fn by_python(secret: &str, signed: &str) -> String {
    let script = "import base64, hmac, sys; secret, signed = (word.encode() for word in sys.argv[1:]); \
                  print(base64.b64encode(hmac.digest(secret, signed, 'sha256')).decode())";
    let output = Command::new("python3").args(["-c", script, secret, signed]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    format!("v1,{}", text(&output.stdout).trim())
}

#[tokio::test]
async fn a_receiver_gets_the_trace_of_a_batch_and_each_item_keeps_its_own() {
    let shop = Shop::served();
    let server = changefeed::remote::Server::connect(&shop.store(), changefeed::remote::EMULATOR_KEY).unwrap();
    let orders = server.database("shop").container("orders").partition_key("/customer").create().await.unwrap();
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let item = json!({ "id": "1", "customer": "ada", "traceparent": parent, "tracestate": "vendor=1" });
    orders.create(&item).await.unwrap();
    let receiver = Receiver::start(|_, stream| answer(stream, "204 No Content"));
    let host = shop.host("a", &["--webhook", &receiver.url, "--allow-private"]);
    eventually("a call", || !receiver.calls().is_empty());
    host.stop();
    let call = receiver.calls().into_iter().next().unwrap();
    assert_eq!((&*call.headers["traceparent"], &*call.headers["tracestate"]), (parent, "vendor=1"));
    let body: Value = serde_json::from_str(&call.body).unwrap();
    assert_eq!(body["changes"][0]["item"]["traceparent"], parent, "{body}");
}

#[test]
fn a_receiver_that_fails_redirects_or_hangs_gets_the_same_batch_again() {
    let shop = Shop::served();
    let ledger = shop.load(1).into_iter().collect();
    let receiver = Receiver::start(|number, stream| match number {
        0 => answer(stream, "500 Internal Server Error"),
        1 => answer(stream, "302 Found\r\nlocation: http://127.0.0.1:1/"),
        // No answer: the time limit ends it.
        2 => {}
        _ => answer(stream, "200 OK"),
    });
    let options = ["--allow-private", "--webhook-timeout", "2s"];
    let host = shop.logged_host("a", &[&["--webhook", &receiver.url], &options[..]].concat());
    eventually("a fourth attempt", || receiver.calls().len() >= 4);
    shop.logs("did not answer within 2s");
    shop.catches_up();
    host.stop();
    assert_eq!(changes(&receiver.changes(3)), ledger);
    let keys: Vec<String> = receiver.calls().iter().map(|call| call.headers["idempotency-key"].clone()).collect();
    assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[test]
fn errors_that_others_read_name_the_receiver_without_the_secrets_of_its_url() {
    let shop = Shop::served();
    shop.load(1);
    let receiver = Receiver::start(|_, stream| answer(stream, "500 Internal Server Error"));
    let url = format!("{}?token=c2VjcmV0", receiver.url);
    let host = shop.host("a", &["--webhook", &url, "--allow-private"]);
    let origin = receiver.url.trim_end_matches("/hook");
    let mut explained = String::new();
    eventually("a failed attempt", || {
        explained = text(&shop.run(&["explain"], &[]).stdout);
        explained.contains(&format!("{origin} answered 500 Internal Server Error\n"))
    });
    assert!(!explained.contains("c2VjcmV0") && !explained.contains("/hook"), "{explained}");
    host.stop();
}

#[test]
fn an_answer_without_end_is_cut_off() {
    let shop = Shop::served();
    shop.load(1);
    let receiver = Receiver::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n");
        let piece = vec![b'x'; 1 << 20];
        while stream.write_all(&piece).is_ok() {}
    });
    let host = shop.host("a", &["--webhook", &receiver.url, "--allow-private"]);
    shop.catches_up();
    host.stop();
    assert_eq!(receiver.calls().len(), 1);
}

#[test]
fn receivers_in_private_networks_must_be_allowed() {
    let shop = Shop::in_folder();
    shop.load(1);
    let refused = |url: &str, word: &str| {
        let output = shop.run(&["run"], &["--webhook", url, "--log", "off"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{url}: {said}");
        assert!(said.contains(word), "{url}: {said}");
    };
    refused("http://example.com/hook", "use https://");
    refused("https://169.254.169.254/latest", "private address");
    refused("https://[::1]/hook", "private address");
    refused("ftp://example.com/hook", "https://");
    refused("https://", "such as https://example.com/hook");
    // A name that leads inside is refused when it is resolved.
    let more = ["--webhook", "https://localhost/hook", "--once", "--from", "beginning"];
    let more = [&more[..], &["--dead-letters", "shop/rejected", "--dead-letter-after", "1"]].concat();
    let said = text(&shop.run(&["run"], &more).stderr);
    assert!(said.contains("leads to the private address"), "{said}");
}
