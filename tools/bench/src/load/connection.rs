//! One connection to a service, and the comparison of its replies.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Call;

/// How long a reply may take before the run is given up.
const REPLY_LIMIT: Duration = Duration::from_secs(60);

pub(super) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        // Its end shows at the sender.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            host: address.to_string(),
        })
    }

    /// Sends a request, compares its reply with the expected one, and returns the body.
    pub(super) async fn send(&mut self, call: &Call) -> anyhow::Result<Bytes> {
        let mut request = Request::builder()
            .method(call.method.clone())
            .uri(&call.path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", call.api_key));
        if let Some(key) = &call.idempotency_key {
            request = request
                .header("idempotency-key", key)
                .header("content-type", "application/json");
        }
        let request = request.body(Full::from(call.body.clone()))?;
        let exchange = async {
            self.sender.ready().await?;
            let reply = self.sender.send_request(request).await?;
            read(reply, call).await
        };
        tokio::time::timeout(REPLY_LIMIT, exchange)
            .await
            .with_context(|| format!("{} {}: no reply", call.method, call.path))?
    }
}

async fn read(reply: Response<Incoming>, call: &Call) -> anyhow::Result<Bytes> {
    let status = reply.status().as_u16();
    let is_replay = reply.headers().contains_key("idempotent-replayed");
    let body = reply.into_body().collect().await?.to_bytes();
    if status != call.status {
        let said = String::from_utf8_lossy(&body);
        bail!("{} {}: {status}: {said}", call.method, call.path);
    }
    ensure!(
        is_replay == call.is_replay,
        "{} {}: the reply is {} replay",
        call.method,
        call.path,
        if is_replay { "a" } else { "no" }
    );
    Ok(body)
}
