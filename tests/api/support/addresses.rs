//! Local addresses that no other test can take, whether or not something listens on them.

use std::{fmt, net::TcpListener, sync::atomic::AtomicU16};

use tokio::net::TcpSocket;

use crate::support::prelude::*;

/// A local address that refuses connections for as long as this value lives.
///
/// The port is bound, and nothing listens on it. A port that was given back would refuse
/// connections too, but only until the kernel gives it to another server: the tests run side by
/// side, and each starts servers.
pub struct RefusedAddress {
    address: SocketAddr,
    _bound: TcpSocket,
}

impl RefusedAddress {
    pub fn reserve() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self {
            address: socket.local_addr().unwrap(),
            _bound: socket,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{self}")
    }
}

impl fmt::Display for RefusedAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(formatter)
    }
}

/// Below the ports that the kernel chooses from: 32768 and more on Linux, 49152 and more elsewhere.
const LASTING_PORT_END: u16 = 32_000;

/// A free address for a process that dies and may come back to it.
///
/// The kernel gives its port to no connection and to no listener that lets the kernel choose, so
/// nothing else takes it while the process is dead. Each call returns another address.
pub fn lasting_address() -> String {
    static NEXT_OFFSET: AtomicU16 = AtomicU16::new(0);
    // Two runs of the tests at the same time begin at different ports.
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = std::iter::repeat_with(|| first + NEXT_OFFSET.fetch_add(1, Ordering::Relaxed))
        .take_while(|port| *port < LASTING_PORT_END);
    let free = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let port = free.expect("a free port");
    format!("127.0.0.1:{port}")
}
