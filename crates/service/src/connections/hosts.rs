//! By which names clients may call a server.
//!
//! Promise: through a browser, no page of another site reaches a server that listens on loopback. A
//! site can let its name lead to 127.0.0.1 (DNS rebinding), but its page then sends that name as
//! `Host`.

use std::{net::SocketAddr, sync::Arc};

use actix_web::{dev::RequestHead, http::header::HOST};
use url::Host;

/// The names of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Hosts {
    listens_on_loopback: bool,
    allowed: Arc<[Host]>,
}

impl Hosts {
    /// Of the server that listens on `address`. `allowed` are the names that its operator lists.
    /// Without any, a server on loopback has the names of loopback, and another server has every
    /// name.
    pub fn of(address: SocketAddr, allowed: &[Host]) -> Self {
        Self {
            listens_on_loopback: is_loopback_address(address),
            allowed: allowed.into(),
        }
    }

    /// Whether a request may be for this server. HTTP/1.0 has requests without a host: no browser
    /// sends them.
    pub fn take(&self, request: &RequestHead) -> bool {
        if !self.listens_on_loopback && self.allowed.is_empty() {
            return true;
        }
        // A host in the target counts, and not the header then (RFC 9112, section 3.2.2).
        let target = request.uri.authority().map(|authority| authority.as_str());
        let header = || {
            let host = request.headers.get(HOST)?;
            Some(host.to_str().unwrap_or_default())
        };
        match target.or_else(header) {
            None => true,
            Some(text) => without_port(text)
                .and_then(parse_host)
                .is_some_and(|host| self.has(&host)),
        }
    }

    fn has(&self, host: &Host) -> bool {
        (self.listens_on_loopback && is_loopback(host)) || self.allowed.contains(host)
    }
}

/// Whether only programs on this machine reach a server that listens on `address`. The loopback
/// address of IPv4 may be written as one of IPv6.
pub fn is_loopback_address(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A host as the `Host` header has it, without its port: a name, or an IP address. A dot at the end
/// of a name means nothing.
pub fn parse_host(text: &str) -> Option<Host> {
    Host::parse(text.strip_suffix('.').unwrap_or(text)).ok()
}

/// A list of hosts with commas between them, as an operator writes it, or what it must be.
pub fn parse_hosts(text: &str) -> Result<Vec<Host>, String> {
    let names = text.split(',').map(str::trim);
    let hosts = names.map(|name| parse_host(name).filter(|_| !name.contains('*')));
    hosts.collect::<Option<_>>().ok_or_else(|| {
        "host names or IP addresses without ports and wildcards, with commas between them, such as \
         pay.example.com,[2001:db8::1]"
            .to_owned()
    })
}

fn without_port(text: &str) -> Option<&str> {
    match text.rsplit_once(':') {
        // The colon is one of an IPv6 address.
        Some(_) if text.ends_with(']') => Some(text),
        Some((host, port)) => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then_some(host)
        }
        None => Some(text),
    }
}

/// Browsers ask no name server for `localhost` and what is below it.
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(ip) => ip.is_loopback(),
        Host::Ipv6(ip) => ip.to_canonical().is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use actix_web::test::TestRequest;

    use super::*;

    fn takes(address: &str, allowed: &[&str], host: &str) -> bool {
        let allowed = allowed.iter().map(|name| parse_host(name).unwrap());
        let allowed: Vec<_> = allowed.collect();
        let hosts = Hosts::of(address.parse().unwrap(), &allowed);
        let request = TestRequest::default().insert_header((HOST, host));
        hosts.take(request.to_srv_request().head())
    }

    const LOOPBACK: [&str; 3] = ["127.0.0.1:8080", "[::1]:8080", "[::ffff:127.0.0.1]:8080"];

    #[test]
    fn on_loopback_a_server_has_the_names_of_loopback() {
        for address in LOOPBACK {
            let own = "localhost LocalHost:8080 localhost. app.localhost:1 127.0.0.1 127.0.0.1:80 \
                       127.255.0.3 [::1] [::1]:8080 [::ffff:127.0.0.1]:8080";
            for host in own.split(' ') {
                assert!(takes(address, &[], host), "{address}, {host}");
            }
            let other = ":8080 rebound.example rebound.example:8080 localhost.rebound.example \
                         127.0.0.1.rebound.example notlocalhost localhost:x user@localhost \
                         localhost/ 128.0.0.1 0.0.0.0 [::2] ::1";
            for host in other.split(' ').chain([""]) {
                assert!(!takes(address, &[], host), "{address}, {host}");
            }
        }
    }

    #[test]
    fn what_the_operator_lists_is_added_on_loopback_and_alone_elsewhere() {
        let allowed = ["Pay.example.com", "10.0.0.7"];
        for address in ["127.0.0.1:1", "0.0.0.0:1"] {
            for host in ["pay.example.com", "PAY.example.com.:443", "10.0.0.7:80"] {
                assert!(takes(address, &allowed, host), "{address}, {host}");
            }
            for host in ["example.com", "a.pay.example.com", "10.0.0.8"] {
                assert!(!takes(address, &allowed, host), "{address}, {host}");
            }
        }
        assert!(takes("127.0.0.1:1", &allowed, "localhost"));
        assert!(!takes("0.0.0.0:1", &allowed, "localhost"));
        for host in ["localhost", "rebound.example", "", "10.42.0.9:8080"] {
            assert!(takes("0.0.0.0:1", &[], host), "{host}");
            assert!(takes("192.168.0.2:1", &[], host), "{host}");
        }
    }
}
