//! The connections of clients: how many, for how long, and one request at a time.
//!
//! Promise: a connection ends when its client stops sending or reading, whatever it has sent
//! before, and a request is answered before the next one on its connection is read.
//!
//! Actix's dispatcher parses requests and writes replies. Its timers end a slow first head and an
//! idle connection, and nothing else, so they are off, and a `stream::Connection` between the
//! socket and the dispatcher has its own.
//!
//! This module serves an Actix application as `actix_web::HttpServer` does, on connections with
//! limits. Use it where strangers reach Actix without a proxy, or where a lost reply is expensive.
//!
//! Unlike with Actix 4.18 alone:
//!
//! - A client that stops sending, or stops reading its reply, is disconnected at a deadline.
//! - A HEAD right behind a POST can't take the body from the POST's reply.
//! - `Upgrade: h2c`, which Java's HttpClient sends, is ignored.
//! - Malformed chunks get their reply.
//! - Connections beyond a limit wait, and leave files for the database.
//!
//! ```rust,no_run
//! use std::{net::TcpListener, time::Duration};
//!
//! use actix_web::{
//!     App, Error,
//!     body::BoxBody,
//!     dev::{ServiceRequest, ServiceResponse},
//!     error::ErrorBadRequest,
//!     middleware::{Next, from_fn},
//!     web,
//! };
//! use charge_once_service::connections::{
//!     ConnectionTimeouts, Files, Hosts, ServerSettings, connections_per_worker, server,
//! };
//!
//! async fn serve() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:8080")?;
//!     let hosts = web::Data::new(Hosts::of(listener.local_addr()?, &[]));
//!     let workers = 2;
//!     let settings = ServerSettings {
//!         timeouts: ConnectionTimeouts {
//!             // Longer than a proxy in front of it keeps idle connections.
//!             keep_alive: Duration::from_secs(75),
//!             request_head: Duration::from_secs(5),
//!             reply: Duration::from_secs(60),
//!         },
//!         workers,
//!         // Ten connections to a database, beside those of clients.
//!         connections_per_worker: connections_per_worker(&Files {
//!             workers,
//!             shared: 10,
//!             ..Files::default()
//!         }),
//!         drain_timeout: Duration::from_secs(30),
//!     };
//!     let app = move || {
//!         App::new()
//!             .app_data(hosts.clone())
//!             .wrap(from_fn(allowed_host))
//!             .route("/", web::get().to(|| async { "hello" }))
//!     };
//!     server(listener, app, settings, |failure| eprintln!("a connection failed: {failure:?}"))?.await
//! }
//!
//! /// Without it, a page of another site can ask a server on loopback through a browser (DNS
//! /// rebinding).
//! async fn allowed_host(
//!     hosts: web::Data<Hosts>,
//!     request: ServiceRequest,
//!     next: Next<BoxBody>,
//! ) -> Result<ServiceResponse<BoxBody>, Error> {
//!     if !hosts.take(request.head()) {
//!         return Err(ErrorBadRequest("the Host header names another host"));
//!     }
//!     next.call(request).await
//! }
//! ```
//!
//! It serves no WebSockets, TLS or HTTP/2. Set a deadline where a handler reads a body. Turn off
//! the logs of `actix_http::h1::dispatcher` and `actix_http::h1::decoder`: a port scan fills them.

mod capacity;
mod chunked;
mod deadline;
mod hosts;
mod replies;
mod requests;
mod stream;
#[cfg(test)]
mod tests;

use std::{fmt, io, net::TcpListener, time::Duration};

use actix_http::{ConnectionType, HttpService, KeepAlive, Request, Response, error::DispatchError};
use actix_server::Server;
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, apply_fn_factory, fn_service,
    map_config,
};
use actix_web::{
    Error,
    body::BoxBody,
    dev::{AppConfig, ServiceResponse},
    rt::net::TcpStream,
};
use replies::{OpenReply, Replies, ReplyBody};
use stream::Connection;

pub use capacity::{Files, connections_per_worker};
pub use hosts::{Hosts, is_loopback_address, parse_host, parse_hosts};
pub use replies::{NoReply, left_at};
pub use url::Host;

/// How long the dispatcher waits for a client that it has told to close the connection.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// When a connection ends whose client does nothing.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionTimeouts {
    /// Between two requests.
    pub keep_alive: Duration,
    /// For the head of a request, from its first byte on; then 408. A new connection has as long
    /// until that byte, and the rest of an unread body after the reply.
    pub request_head: Duration,
    /// For reading a reply, from the moment the connection is full.
    pub reply: Duration,
}

/// How connections are served.
#[derive(Debug, Clone, Copy)]
pub struct ServerSettings {
    /// When a connection ends.
    pub timeouts: ConnectionTimeouts,
    /// Worker threads; each runs an application of its own.
    pub workers: usize,
    /// Beyond it, new connections wait in the kernel's backlog. See [`connections_per_worker`].
    pub connections_per_worker: usize,
    /// How long requests may take to finish after the server was asked to stop.
    pub drain_timeout: Duration,
}

/// Why a connection ended that was to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// Its client sent what is no request, such as the first bytes of TLS, or of a scan of ports.
    Malformed,
    /// Its client left, or was too slow.
    Lost,
    /// A defect of the application, or of Actix.
    Internal,
}

impl Failure {
    fn of(error: &DispatchError) -> Self {
        let is_internal = matches!(
            error,
            DispatchError::Service(_)
                | DispatchError::Body(_)
                | DispatchError::Upgrade
                | DispatchError::InternalError
        );
        if is_internal {
            Self::Internal
        } else if matches!(error, DispatchError::Parse(_)) {
            Self::Malformed
        } else {
            Self::Lost
        }
    }
}

/// Serves an application, as `actix_web::HttpServer` does, on connections with limits. It ends when
/// it is told to by its handle; signals are up to the program. `failed` is told of each connection
/// that fails.
pub fn server<F, A, S>(
    listener: TcpListener,
    app: F,
    settings: ServerSettings,
    failed: impl Fn(Failure) + Clone + Send + 'static,
) -> io::Result<Server>
where
    F: Fn() -> A + Send + Clone + 'static,
    A: IntoServiceFactory<S, Request>,
    S: ServiceFactory<
            Request,
            Config = AppConfig,
            Response = ServiceResponse<BoxBody>,
            Error = Error,
            InitError: fmt::Debug,
            Service: Service<Request, Future: 'static>,
        > + 'static,
{
    let address = listener.local_addr()?;
    let server = Server::build()
        .workers(settings.workers)
        .max_concurrent_connections(settings.connections_per_worker)
        .shutdown_timeout(settings.drain_timeout.as_secs().max(1))
        .disable_signals();
    let stopping = server.graceful_shutdown_signal();
    let server = server.listen("http", listener, move || {
        let (stopping, failed) = (stopping.clone(), failed.clone());
        let app = map_config(app(), |()| AppConfig::default());
        let app = apply_fn_factory(app, |request: Request, app: &S::Service| {
            let open = OpenReply(request.conn_data::<Replies>().cloned());
            let answer = app.call(request);
            async move {
                let mut response = match answer.await {
                    Ok(response) => Response::from(response),
                    Err(error) => Response::from(error.error_response()),
                };
                if response.extensions().contains::<NoReply>() {
                    open.cut();
                }
                if open.is_last() {
                    let head = response.head_mut();
                    head.set_connection_type(ConnectionType::Close);
                }
                Ok(response.map_body(|_, body| ReplyBody::new(body, open)))
            }
        });
        let http = HttpService::build()
            .keep_alive(KeepAlive::Os)
            .client_request_timeout(Duration::ZERO)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            .local_addr(address)
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .on_connect_ext(|connection: &Connection<TcpStream>, data| {
                data.insert(connection.replies.clone());
            })
            .h1(app);
        let accept = fn_service(move |socket: TcpStream| async move {
            let client = socket.peer_addr().ok();
            Ok::<_, DispatchError>((Connection::new(socket, settings.timeouts), client))
        });
        accept.and_then(http).map_err(move |error: DispatchError| {
            let failure = Failure::of(&error);
            match failure {
                Failure::Internal => tracing::error!(%error, "a connection failed"),
                // Anyone can make many of these.
                Failure::Malformed | Failure::Lost => {
                    tracing::debug!(%error, "a connection ended early");
                }
            }
            failed(failure);
            error
        })
    })?;
    Ok(server.run())
}
