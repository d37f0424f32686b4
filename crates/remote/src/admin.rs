//! Calls to the server itself: verification, backups, faults. For the command.

use std::time::Duration;

use bytes::Bytes;
use changefeed_core::{Error, ErrorKind, Result};
use changefeed_protocol::PREFIX;
use http_body_util::Full;
use hyper::{Method, Request, header};

use crate::{
    server::Server,
    transport::{Failed, Limits},
};

impl Server {
    /// Makes the call `/_changefeed/{name}` once, with a body of JSON, and returns the body of the answer. `limit` is how
    /// long it may take.
    ///
    /// # Errors
    /// What the server refused, as a sentence, and those of the connection.
    #[doc(hidden)]
    pub async fn admin_call(&self, method: &str, name: &str, body: Vec<u8>, limit: Duration) -> Result<Bytes> {
        let transport = &self.client.transport;
        let method = Method::from_bytes(method.as_bytes()).map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, format!("the method {method}")).with_source(error)
        })?;
        let date = transport.date();
        let path = format!("/{PREFIX}/{name}");
        let authorization = transport.key.authorization(method.as_str(), PREFIX, &path[1..], &date);
        let request = Request::builder()
            .method(method)
            .uri(transport.endpoint.uri(&path)?)
            .header(header::AUTHORIZATION, authorization)
            .header("x-ms-date", date)
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| Error::new(ErrorKind::InvalidArgument, "make the request").with_source(error))?;
        let sent = transport.send(request, Limits::only(limit)).await;
        let answer = sent.map_err(|failed| match failed {
            Failed::Sent(error) if error.kind() == ErrorKind::Timeout => error.with_unknown_effect(),
            Failed::NotSent(error) | Failed::Sent(error) => error,
        })?;
        match answer.status.is_success() {
            true => Ok(answer.body.joined()),
            false => Err(answer.refused_admin_call(&transport.endpoint, transport.clock.wall())),
        }
    }
}
