//! Makes one attempt to deliver a webhook.
//!
//! Promise: it connects only to checked addresses, follows no redirect, ends within its time limit,
//! and reads of the reply no more than its limits. A receiver decides about none of this, and
//! nothing that happens to the body of a reply changes what its status says.

use std::{
    error::Error,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant, SystemTime},
    vec,
};

use chrono::{DateTime, Utc};
use futures_util::future::{BoxFuture, Either, OptionFuture, select};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT},
    http::request::Builder,
};
use hyper_util::{
    client::legacy::connect::{HttpConnector, dns::Name},
    rt::TokioIo,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
pub use tokio_rustls::rustls::Error as TlsError;
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};
use tower_service::Service;
use url::Url;

use crate::{
    Attempt, Secret, Settings, is_public, literal_address,
    secret::{signature, standard_signature},
};

/// Bytes that are read before the final status: of a TLS handshake, of informational replies, of
/// which HTTP allows any number, and of the head of the reply.
const READ_MAX: usize = 64 * 1024;

/// Bytes that are kept of a reply's body.
const REPLY_MAX: usize = 1024;

/// How long the body is waited for after the head: most bodies come with it.
const REPLY_WAIT: Duration = Duration::from_millis(250);

/// What an account sees of a host that is not connected to.
const NO_PUBLIC_ADDRESS: &str = "the host has no public address";

/// Why a host can't be connected to. It is in the chain of causes of the client's error.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Unconnectable {
    #[error("refused: the host has a private, local or reserved address")]
    NotPublic,
    #[error("the host name has no address")]
    NoAddress,
}

/// Why an attempt has no status.
#[derive(Debug, Clone, Copy)]
struct Failed {
    /// As the account may see it. One text for an address that is refused and for none at all: an
    /// account must not learn which names the network of this service knows.
    told: &'static str,
    /// Whether the host has an address that is not public.
    is_refused: bool,
}

const NOT_PUBLIC: Failed = Failed {
    told: NO_PUBLIC_ADDRESS,
    is_refused: true,
};

impl From<&'static str> for Failed {
    fn from(told: &'static str) -> Self {
        let is_refused = false;
        Self { told, is_refused }
    }
}

/// The receiver has sent more than it may before the final status.
#[derive(Debug, thiserror::Error)]
#[error("more than {READ_MAX} bytes before the final status")]
struct TooLong;

/// What one attempt sends.
#[derive(Debug)]
pub struct Message<'a> {
    /// Where to.
    pub url: &'a str,
    /// What it is signed with.
    pub secret: &'a Secret,
    /// When it is signed, in unix seconds.
    pub at: i64,
    /// The `webhook-id`, if the headers of Standard Webhooks are sent too.
    pub standard_id: Option<&'a str>,
    /// The `event-object-version`, if the object has one.
    pub object_version: Option<i64>,
    /// JSON.
    pub body: Vec<u8>,
}

struct Answer {
    status: u16,
    retry_after: Option<Duration>,
    came_at: Instant,
    /// The beginning of the body.
    reply: Vec<u8>,
}

impl Answer {
    /// With `Retry-After`, as seconds or as a date, where the status gives it a meaning.
    fn of(status: u16, headers: &HeaderMap) -> Self {
        let asked = headers
            .get(RETRY_AFTER)
            .filter(|_| matches!(status, 429 | 503));
        let asked = asked.and_then(|value| value.to_str().ok());
        let until = |date: &str| {
            let date = DateTime::parse_from_rfc2822(date).ok()?;
            let now = DateTime::<Utc>::from(SystemTime::now());
            (date.with_timezone(&Utc) - now).to_std().ok()
        };
        Self {
            status,
            retry_after: asked.and_then(|text| {
                let seconds = text.parse().map(Duration::from_secs);
                seconds.ok().or_else(|| until(text))
            }),
            came_at: Instant::now(),
            reply: Vec::new(),
        }
    }
}

/// Sends attempts. Cheap to share.
#[derive(Clone)]
pub struct Sender {
    connector: HttpConnector<CheckedResolver>,
    tls: TlsConnector,
    settings: Settings,
}

impl Sender {
    /// Each attempt resolves, checks and connects for itself. There is no HTTP client above: one
    /// would read informational replies without an end, and follow them without a pause.
    ///
    /// Fails if the TLS library refuses its default protocol versions: a defect.
    pub fn new(settings: &Settings) -> Result<Self, TlsError> {
        let mut connector = HttpConnector::new_with_resolver(CheckedResolver {
            allow_private: settings.allow_private,
        });
        // The scheme is https too: TLS comes on top.
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // One address that is silent leaves time for the others.
        connector.set_connect_timeout(Some(settings.timeout));
        Ok(Self {
            connector,
            tls: TlsConnector::from(Arc::new(tls_config()?)),
            settings: *settings,
        })
    }

    /// Sends a message once.
    pub async fn send(&self, message: Message<'_>) -> Attempt {
        let (began, at, mut answer) = (Instant::now(), message.at, None);
        let posted = self.post(message, &mut answer);
        let posted = tokio::time::timeout(self.settings.timeout, posted).await;
        let failed = posted.unwrap_or(Err("timed out".into())).err();
        // Where there is an answer, only its body failed.
        let failed = failed.filter(|_| answer.is_none());
        let error = match &answer {
            Some(Answer {
                status: 300..400, ..
            }) => Some("redirects are not followed"),
            Some(_) => None,
            None => failed.map(|failed| failed.told),
        };
        let took = answer
            .as_ref()
            .map_or_else(Instant::now, |answer| answer.came_at)
            - began;
        Attempt {
            at,
            response_status: answer.as_ref().map(|answer| answer.status),
            error: error.map(str::to_owned),
            duration_ms: i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            is_refused: failed.is_some_and(|failed| failed.is_refused),
            retry_after: answer.as_ref().and_then(|answer| answer.retry_after),
            reply: answer
                .and_then(|answer| harmless(&answer.reply))
                .filter(|reply| {
                    self.settings
                        .keeps_replies
                        .is_some_and(|keeps| keeps(reply))
                }),
        }
    }

    /// Fills `answer` in as soon as its head is there.
    async fn post(&self, message: Message<'_>, answer: &mut Option<Answer>) -> Result<(), Failed> {
        const UNREADABLE: &str = "the URL can't be read";
        let url = Url::parse(message.url).map_err(|_| UNREADABLE)?;
        // An address is never resolved, and the setting may have changed since the endpoint was
        // made.
        if !self.settings.allow_private
            && literal_address(&url).is_some_and(|address| !is_public(address))
        {
            return Err(NOT_PUBLIC);
        }
        let uri: Uri = url.as_str().parse().map_err(|_| UNREADABLE)?;
        let host = uri.host().ok_or(UNREADABLE)?;
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        // Without a user name and a password, which no endpoint has.
        let authority = match uri.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let request = Request::post(target)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, self.settings.user_agent)
            .header(CONNECTION, "close");
        let request = self.signed(request, message).map_err(|_| UNREADABLE)?;
        let mut connector = self.connector.clone();
        let connected = async {
            poll_fn(|context| connector.poll_ready(context)).await?;
            connector.call(uri.clone()).await
        };
        let stream = connected
            .await
            .map_err(|error| explain_connecting(&error))?;
        // Below TLS, so that the handshake counts too.
        let stream = Limited {
            inner: stream.into_inner(),
            left: READ_MAX,
        };
        let keeps_reply = self.settings.keeps_replies.is_some();
        if url.scheme() != "https" {
            return Ok(answer_to(stream, request, answer, keeps_reply).await?);
        }
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|_| UNREADABLE)?;
        let stream = self.tls.connect(name, stream).await;
        let stream = stream.map_err(|error| explain_connecting(&error))?;
        Ok(answer_to(stream, request, answer, keeps_reply).await?)
    }

    fn signed(
        &self,
        mut request: Builder,
        message: Message<'_>,
    ) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let Message {
            secret,
            at,
            standard_id,
            object_version,
            body,
            url: _,
        } = message;
        request = request.header(self.settings.signature_header, signature(secret, at, &body));
        if let Some(id) = standard_id
            && let Some(signature) = standard_signature(secret, id, at, &body)
        {
            request = request
                .header("webhook-id", id)
                .header("webhook-timestamp", at)
                .header("webhook-signature", signature);
        }
        if let Some(version) = object_version {
            request = request.header("event-object-version", version);
        }
        if let Some(traceparent) = (self.settings.traceparent)() {
            request = request.header("traceparent", traceparent);
        }
        request.body(Full::new(Bytes::from(body)))
    }
}

/// Mozilla's root certificates, compiled in: TLS works the same in an image without any.
fn tls_config() -> Result<ClientConfig, TlsError> {
    let roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    };
    Ok(
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth(),
    )
}

fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> + 'a {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Sends the request, and reads the head of the reply, and the beginning of its body if that is
/// kept. The rest is dropped unread.
async fn answer_to(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    request: Request<Full<Bytes>>,
    answer: &mut Option<Answer>,
    keeps_reply: bool,
) -> Result<(), &'static str> {
    let (mut requests, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| explain_exchange(&error))?;
    let (response, connection) = (pin!(requests.send_request(request)), pin!(connection));
    // The connection is what reads and writes. Where it ends first, the response knows why.
    let (response, connection) = match select(response, connection).await {
        Either::Left((response, connection)) => (response, Some(connection)),
        Either::Right((_, response)) => (response.await, None),
    };
    let response = response.map_err(|error| explain_exchange(&error))?;
    let (status, headers) = (response.status().as_u16(), response.headers());
    let answer = answer.insert(Answer::of(status, headers));
    if keeps_reply {
        let reading = pin!(read_beginning(response.into_body(), &mut answer.reply));
        let reading = async {
            let connection = OptionFuture::from(connection);
            if let Either::Right((_, reading)) = select(reading, connection).await {
                reading.await;
            }
        };
        // What has come until then is kept.
        let _ = tokio::time::timeout(REPLY_WAIT, reading).await;
    }
    Ok(())
}

async fn read_beginning(mut body: Incoming, into: &mut Vec<u8>) {
    while into.len() < REPLY_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        let data = frame.data_ref().map_or(&[][..], |data| data);
        into.extend(data.iter().take(REPLY_MAX - into.len()));
    }
}

/// Bytes as a text without what would act on a screen or can't be stored. `None`: there is none.
fn harmless(bytes: &[u8]) -> Option<String> {
    let is_harmful = |one: char| {
        (one.is_control() && !matches!(one, '\n' | '\t'))
            // They have no width, or turn the direction of what follows.
            || matches!(one, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(one, '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let text = String::from_utf8_lossy(bytes);
    let text = text.chars().filter(|one| *one != '\r');
    let mut text: String = text
        .map(|one| match is_harmful(one) {
            true => char::REPLACEMENT_CHARACTER,
            false => one,
        })
        .collect();
    text.truncate(text.floor_char_boundary(REPLY_MAX));
    if bytes.len() >= REPLY_MAX {
        // Half of a number is recognized as none, of a card for example.
        let is_of_number = |one: char| one.is_ascii_digit() || matches!(one, ' ' | '-');
        text.truncate(text.trim_end_matches(is_of_number).len());
    }
    (!text.trim().is_empty()).then_some(text)
}

/// Why there is no connection, as the account may see it. The libraries' messages would reveal the
/// network of this service.
fn explain_connecting(error: &(dyn Error + 'static)) -> Failed {
    for cause in causes(error) {
        match cause.downcast_ref::<Unconnectable>() {
            Some(Unconnectable::NotPublic) => return NOT_PUBLIC,
            Some(Unconnectable::NoAddress) => return NO_PUBLIC_ADDRESS.into(),
            None => {}
        }
        match cause.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => return "connection refused".into(),
            Some(io::ErrorKind::TimedOut) => return "timed out".into(),
            Some(_) | None => {}
        }
    }
    "could not connect".into()
}

/// Why a connection brought no status, as the account may see it.
fn explain_exchange(error: &hyper::Error) -> &'static str {
    let is_too_long = causes(error).any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .is_some_and(|cause| cause.is::<TooLong>())
    });
    if is_too_long {
        "the reply is too long"
    } else if error.is_parse() {
        "the reply can't be read"
    } else {
        "connection lost"
    }
}

/// Resolves a name once, and gives the checked addresses to the connector. A hostile name server
/// could answer a second look-up with another address.
#[derive(Debug, Clone)]
struct CheckedResolver {
    allow_private: bool,
}

impl Service<Name> for CheckedResolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Unconnectable;
    type Future = BoxFuture<'static, Result<Self::Response, Unconnectable>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unconnectable>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let allow_private = self.allow_private;
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(|_| Unconnectable::NoAddress)?
                .collect();
            // One private address is enough to refuse: no honest name has addresses of both kinds.
            if !allow_private && addresses.iter().any(|address| !is_public(address.ip())) {
                return Err(Unconnectable::NotPublic);
            }
            if addresses.is_empty() {
                return Err(Unconnectable::NoAddress);
            }
            Ok(addresses.into_iter())
        })
    }
}

/// A stream that fails when more than `left` bytes have been read.
struct Limited<S> {
    inner: S,
    left: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        let read = buffer.filled().len() - before;
        self.left = self
            .left
            .checked_sub(read)
            .ok_or_else(|| io::Error::other(TooLong))?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_kept_without_what_acts_on_a_screen_and_within_its_limit() {
        for (bytes, kept) in [
            (&b""[..], None),
            (b" \r\n", None),
            (b"{\"ok\": true}\r\n", Some("{\"ok\": true}\n")),
            (
                b"a\0b\x1b[31mc\tdone",
                Some("a\u{fffd}b\u{fffd}[31mc\tdone"),
            ),
            ("\u{202e}drow".as_bytes(), Some("\u{fffd}drow")),
            (b"caf\xc3", Some("caf\u{fffd}")),
        ] {
            assert_eq!(harmless(bytes).as_deref(), kept, "{bytes:?}");
        }
        // Three bytes for each of one.
        let kept = harmless(&[0xff; REPLY_MAX]).unwrap_or_default();
        assert_eq!(kept.len(), REPLY_MAX / 3 * 3);
        // Half of a card's number.
        let number = b"4242 4242";
        let cut = [&vec![b'x'; REPLY_MAX - number.len()], &number[..]].concat();
        let kept = harmless(&cut).unwrap_or_default();
        assert_eq!(kept.len(), REPLY_MAX - number.len());
    }
}
