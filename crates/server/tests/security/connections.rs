//! How many connections there may be, in all and from one address, and that their places become free again.

use std::{net::IpAddr, time::Duration};

use changefeed_server::{Builder, Limits};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream},
};

use crate::support::{Ask, World, raw, time};

fn at_most(all: usize, per_address: usize) -> impl FnOnce(Builder) -> Builder {
    let limits = Limits { max_connections: all, max_connections_per_address: per_address, ..Limits::default() };
    move |builder| builder.limits(limits)
}

async fn connect_from(world: &World, address: [u8; 4]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(address), 0).into()).unwrap();
    time::soon("connecting", socket.connect(world.address())).await.unwrap()
}

/// Whether the server answers on this connection; if not, it has closed it.
async fn answers(world: &World, stream: &mut TcpStream) -> bool {
    let asked = stream.write_all(&Ask::get("/").bytes(&world.keys)).await;
    let mut first = [0];
    let answer = time::soon("an answer or the end", stream.peek(&mut first)).await;
    if asked.is_err() || !matches!(answer, Ok(1)) {
        return false;
    }
    raw::one_answer(stream).await.starts_with("HTTP/1.1 200 ")
}

/// A connection that is served, once there is a place for it.
async fn served(world: &World, address: [u8; 4]) -> TcpStream {
    let mut tries = 0;
    loop {
        let mut stream = connect_from(world, address).await;
        if answers(world, &mut stream).await {
            return stream;
        }
        tries += 1;
        assert!(tries < 500, "no place becomes free");
        time::pause(Duration::from_millis(10)).await;
    }
}

const HERE: [u8; 4] = [127, 0, 0, 1];
const THERE: [u8; 4] = [127, 0, 0, 2];

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_places_become_free() {
    let world = World::with(at_most(3, 100)).await;
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(served(&world, HERE).await);
    }
    for address in [HERE, THERE] {
        let mut refused = connect_from(&world, address).await;
        assert!(!answers(&world, &mut refused).await, "a fourth connection");
    }
    for stream in &mut open {
        assert!(answers(&world, stream).await, "those that were there stay");
    }
    drop(open.pop());
    open.push(served(&world, THERE).await);
    let mut refused = connect_from(&world, HERE).await;
    assert!(!answers(&world, &mut refused).await, "the free place is taken again");
}

#[tokio::test]
async fn connections_of_one_address_beyond_its_limit_are_closed_while_others_get_in() {
    let world = World::with(at_most(100, 2)).await;
    let mut here = [served(&world, HERE).await, served(&world, HERE).await];
    let mut refused = connect_from(&world, HERE).await;
    assert!(!answers(&world, &mut refused).await, "a third connection of one address");
    let mut there = served(&world, THERE).await;
    assert!(answers(&world, &mut there).await);
    for stream in &mut here {
        assert!(answers(&world, stream).await, "those that were there stay");
    }
    drop(here);
    served(&world, HERE).await;
}

#[tokio::test]
async fn refused_connections_do_not_use_up_places() {
    let world = World::with(at_most(100, 1)).await;
    let kept = served(&world, HERE).await;
    for _ in 0..300 {
        let mut refused = connect_from(&world, HERE).await;
        assert!(!answers(&world, &mut refused).await);
    }
    served(&world, THERE).await;
    drop(kept);
    served(&world, HERE).await;
}

#[tokio::test]
async fn stopping_lets_a_request_finish_and_closes_idle_connections() {
    let limits = Limits { grace: time::LONG * 10, ..Limits::default() };
    let world = World::with(|builder| builder.limits(limits)).await;
    let mut idle = served(&world, HERE).await;
    let mut idle_two = world.client_by(&crate::support::Wire::Two).await;
    idle_two.send(Ask::get("/")).await.expect(200);
    let mut busy = connect_from(&world, HERE).await;
    let body = crate::support::item("last", "a", 1).to_string();
    let ask = Ask::post(crate::support::world::DOCS, "").key("a");
    let length = body.len().to_string();
    busy.write_all(&ask.head(&world.keys, &[("content-length", &length)])).await.unwrap();
    let (mut first, mut rest) = (served(&world, HERE).await, body.into_bytes());
    let stopping = world.server.stop();
    let finish = async {
        assert_eq!(raw::until_closed(&mut idle).await, b"", "nobody waits for idle connections");
        assert_eq!(raw::until_closed(&mut first).await, b"");
        busy.write_all(&rest).await.unwrap();
        rest.clear();
        String::from_utf8(raw::until_closed(&mut busy).await).unwrap()
    };
    let ((), answer) = time::soon("stopping", Box::pin(async { tokio::join!(stopping, finish) })).await;
    assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
    assert!(idle_two.try_send(Ask::get("/")).await.is_err(), "idle connections of HTTP/2 are closed, too");
    let container = world.engine.catalog().container("db", "c").await.unwrap();
    assert_eq!(container.list("").await.unwrap().len(), 1);
}
