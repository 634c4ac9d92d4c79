//! `/metrics` for Prometheus, on an address of its own.
//!
//! Promise: it is never served where clients send requests. Scrapes run on a thread of their own:
//! however many there are, no request waits for one.

use std::{io, net::TcpListener, sync::Arc, time::Duration};

use crate::connections::{self, ConnectionTimeouts, Host, Hosts, is_loopback_address};
use actix_web::{App, HttpRequest, HttpResponse, Route, dev::Server, guard, web};

/// Connections at a time: some scrapers, and a person who looks.
const CONNECTIONS_MAX: usize = 16;

/// The version of the text that Prometheus reads.
const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Makes the text.
type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves scrapes until it is told to stop. `render` looks at what is looked at when it is asked
/// for, and ends with [`Registry::render`](super::Registry::render). `allowed_hosts`, which an
/// operator lists in the variable ALLOWED_HOSTS, count on a loopback address. Fails if the listener
/// can't be used.
pub fn server(
    listener: TcpListener,
    render: impl Fn() -> String + Send + Sync + 'static,
    allowed_hosts: &[Host],
    timeouts: ConnectionTimeouts,
    drain_timeout: Duration,
) -> io::Result<Server> {
    // Elsewhere, scrapers call by names that are not listed, such as the address of a pod.
    let address = listener.local_addr()?;
    let listed = match is_loopback_address(address) {
        true => allowed_hosts,
        false => &[],
    };
    let hosts = web::Data::new(Hosts::of(address, listed));
    let settings = connections::ServerSettings {
        timeouts,
        workers: 1,
        connections_per_worker: CONNECTIONS_MAX,
        drain_timeout,
    };
    let render = web::Data::new(Arc::new(render) as Render);
    let app = move || {
        let route = Route::new().guard(guard::Any(guard::Get()).or(guard::Head()));
        App::new()
            .app_data(render.clone())
            .app_data(hosts.clone())
            .service(web::resource("/metrics").route(route.to(show)))
    };
    connections::server(listener, app, settings, |_| {})
}

async fn show(
    request: HttpRequest,
    hosts: web::Data<Hosts>,
    render: web::Data<Render>,
) -> HttpResponse {
    if !hosts.take(request.head()) {
        return HttpResponse::BadRequest()
            .content_type("text/plain; charset=utf-8")
            .body("Host must be a name of this machine's loopback address, or one of ALLOWED_HOSTS.\n");
    }
    HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header(("cache-control", "no-store"))
        .body(render())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use std::{
        io::{Read, Write},
        net::TcpStream,
    };

    use super::*;

    fn ask(port: u16, path: &str, host: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[tokio::test]
    async fn metrics_are_served_to_hosts_of_this_machine_and_nothing_else_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_secs(5);
        let timeouts = ConnectionTimeouts {
            keep_alive: limit,
            request_head: limit,
            reply: limit,
        };
        let server = server(listener, || "up 1\n".to_owned(), &[], timeouts, limit).unwrap();
        let handle = server.handle();
        tokio::spawn(server);
        let asking = tokio::task::spawn_blocking(move || {
            let metrics = ask(port, "/metrics", "localhost");
            assert!(metrics.starts_with("HTTP/1.1 200 ") && metrics.ends_with("up 1\n"));
            assert!(ask(port, "/metrics", "shop.example").starts_with("HTTP/1.1 400 "));
            assert!(ask(port, "/", "localhost").starts_with("HTTP/1.1 404 "));
        });
        asking.await.unwrap();
        handle.stop(true).await;
    }
}
