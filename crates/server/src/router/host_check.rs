//! Checks host names while the key is public. A web page can make any name resolve to this machine (DNS rebinding); its
//! requests carry that name.

use std::net::{Ipv4Addr, Ipv6Addr};

use hyper::{HeaderMap, StatusCode, header};

use crate::error::{ApiError, ApiResult};

/// Refuses requests under other names than those of this machine and `own`.
///
/// # Errors
/// 403 for any other name.
pub(crate) fn check(headers: &HeaderMap, authority: Option<&str>, own: &[String]) -> ApiResult<()> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
    for host in text(header::HOST).into_iter().chain(authority) {
        if !is_known(host, own) {
            return Err(refused("Host", host));
        }
    }
    if let Some(origin) = text(header::ORIGIN) {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if !host.is_some_and(|host| is_known(host, own)) {
            return Err(refused("Origin", origin));
        }
    }
    Ok(())
}

fn refused(name: &str, value: &str) -> ApiError {
    let shown: String = value.chars().take(100).collect();
    let message = format!(
        "{name} is {shown:?}: with the emulator's public key only localhost, loopback addresses and the name given with \
         --account-host are served; use one of these, or a key of your own with --key-file"
    );
    ApiError::new(StatusCode::FORBIDDEN, message)
}

/// Returns `true` if a host, with or without a port, is this machine.
fn is_known(host: &str, own: &[String]) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    if let Some(address) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
        || own.iter().any(|own| own.eq_ignore_ascii_case(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine_are_known_and_others_are_not() {
        let own = ["cosmos.test".to_owned()];
        for known in [
            "localhost",
            "LOCALHOST:8081",
            "localhost.",
            "127.0.0.1",
            "127.8.8.8:1",
            "[::1]",
            "[::1]:8081",
            "account.localhost:80",
            "cosmos.test",
            "Cosmos.Test:443",
        ] {
            assert!(is_known(known, &own), "{known}");
        }
        for unknown in [
            "",
            "attacker.example",
            "attacker.example:8081",
            "localhost.attacker.example",
            "127.0.0.1.attacker.example",
            "10.0.0.1",
            "[::2]:80",
            "::1",
            "[::1",
            "notlocalhost",
            "cosmos.test.example",
            "localhost:x",
        ] {
            assert!(!is_known(unknown, &own), "{unknown}");
        }
    }
}
