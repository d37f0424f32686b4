//! Bytes on a socket, for what no well-behaved client sends.

use std::{net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use super::time;

pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    time::soon("connecting", TcpStream::connect(address)).await.unwrap()
}

/// Everything that comes until the other end closes.
pub(crate) async fn until_closed(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    let mut part = vec![0; 4096];
    time::soon("closing", async {
        // A connection that is cut is closed, too.
        while let Ok(count @ 1..) = stream.read(&mut part).await {
            all.extend_from_slice(&part[..count]);
        }
    })
    .await;
    all
}

/// One answer with its body, read to the last byte and no further.
pub(crate) async fn one_answer(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = time::soon("an answer", stream.read_u8()).await;
        head.push(byte.unwrap_or_else(|error| panic!("{error} after {:?}", String::from_utf8_lossy(&head))));
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(usize_of));
    let mut body = vec![0; length.unwrap_or(0)];
    time::soon("a body", stream.read_exact(&mut body)).await.unwrap();
    head + &String::from_utf8(body).unwrap()
}

fn usize_of(text: &str) -> usize {
    text.trim().parse().unwrap()
}

/// Sends bytes and returns everything that comes back until the other end closes.
pub(crate) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = connect(address).await;
    // The other end may refuse before it has read everything.
    drop(stream.write_all(bytes).await);
    drop(stream.shutdown().await);
    String::from_utf8_lossy(&until_closed(&mut stream).await).into_owned()
}

/// Sends one byte every `pause` until the other end closes; what came back, and how long it took.
pub(crate) async fn dribble<S>(stream: S, first: &[u8], each: &[u8], pause: Duration) -> (String, Duration)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    drop(writer.write_all(first).await);
    let endless = async {
        for byte in each.iter().cycle() {
            time::pause(pause).await;
            if writer.write_all(&[*byte]).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let (came, took) = time::timed(async {
        tokio::select! {
            came = until_closed(&mut reader) => came,
            () = endless => Vec::new(),
        }
    })
    .await;
    (String::from_utf8_lossy(&came).into_owned(), took)
}
