//! Addresses of servers: listened on, and shown to people.

use std::net::{SocketAddr, TcpListener};

use super::ConfigError;

/// Takes the port before anything else is started, so that a port in use is told at once.
/// Connections wait until the server accepts them. Fails if the `variable` is no address that is
/// free.
pub fn listen(variable: &'static str, address: SocketAddr) -> Result<TcpListener, ConfigError> {
    TcpListener::bind(address).map_err(|error| ConfigError::Value {
        variable,
        expected: format!("an address that is free ({address}): {error}"),
    })
}

/// The URL by which a client on this machine reaches a server that listens there. A wildcard can be
/// listened on, but not connected to.
pub fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("http://localhost:{}", address.port()),
        false => format!("http://{address}"),
    }
}
