//! Addresses that a webhook may reach. A name that leads to the inside of a network is refused where it is resolved, and
//! the connection goes to the very address that was checked, so that a second answer of the name server changes nothing.

use std::{
    future::Future,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
    vec::IntoIter,
};

use hyper_util::client::legacy::connect::dns::Name;
use tower_service::Service;

/// Resolves names to addresses outside of private networks.
#[derive(Clone, Copy, Debug)]
pub(super) struct PublicAddresses {
    pub(super) allow_private: bool,
}

impl Service<Name> for PublicAddresses {
    type Response = IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<IntoIter<SocketAddr>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            match found.iter().find(|address| !allow_private && !is_public(address.ip())) {
                Some(address) => Err(io::Error::other(format!(
                    "{name} leads to the private address {}: pass --allow-private if it is meant",
                    address.ip()
                ))),
                None => Ok(found.into_iter()),
            }
        })
    }
}

/// Whether a host in a URL is an address, and a private one: such a host is not resolved.
pub(super) fn is_private_literal(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|address| !is_public(address))
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(address) => is_public_v4(address),
            None => is_public_v6(address),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    // Shared by carriers 100.64/10, for benchmarks 198.18/15, this network 0/8, reserved 240/4.
    let is_special =
        first == 100 && second & 0xC0 == 64 || first == 198 && second & 0xFE == 18 || first == 0 || first >= 240;
    !(is_special
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let first = address.segments()[0];
    // Only 2000::/3 is routed; of it, 2001:db8 is for documents, 2002 and 64:ff9b carry IPv4 addresses that may be private.
    first & 0xE000 == 0x2000 && first != 0x2002 && !(first == 0x2001 && matches!(address.segments()[1], 0x0db8 | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_outside_are_public() {
        let public = ["1.1.1.1", "93.184.216.34", "100.63.0.1", "172.32.0.1", "2606:4700::1111"];
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "2002:7f00:1::",
            "64:ff9b::7f00:1",
            "2001:db8::1",
        ];
        for address in public {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in private {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
        assert!(is_private_literal("[::1]") && !is_private_literal("example.com"));
    }
}
