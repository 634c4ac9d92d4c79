//! Asks a server whether it is ready, so that a container needs no HTTP client of its own.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use super::BoxError;

const TIMEOUT: Duration = Duration::from_secs(3);

/// Asks the server that listens on `address` of this machine, by the name `host`. Fails if it
/// doesn't answer, or `/readyz` is not 200.
pub fn check(address: SocketAddr, host: &str) -> Result<(), BoxError> {
    let address = from_here(address);
    match ask(address, host) {
        Ok(reply) if reply.starts_with("HTTP/1.1 200 ") => Ok(()),
        Ok(reply) => {
            let status = reply.lines().next().unwrap_or_default();
            let status = status.trim_start_matches("HTTP/1.1 ");
            Err(format!("the server at {address} is not ready: it answers \"{status}\"").into())
        }
        Err(error) => Err(format!("no server answers at {address}: {error}").into()),
    }
}

/// The address as seen from this machine: a wildcard can be listened on, but not connected to.
fn from_here(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

/// What `/readyz` answers; its first line decides.
fn ask(address: SocketAddr, host: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let request = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply)?;
    Ok(String::from_utf8_lossy(&reply).into_owned())
}
