//! A handler of a web framework, run in the transaction that claims its key.
//!
//! Promise: what a handler writes through [`IdempotentTx`] and its reply are committed together or
//! not at all. A success is kept only if the transaction was taken, and given back.

#[cfg(feature = "actix")]
pub(crate) mod actix;
#[cfg(feature = "axum")]
pub(crate) mod axum;

use std::{
    convert::Infallible,
    fmt,
    future::Future,
    mem,
    ops::{Deref, DerefMut},
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Response, StatusCode};
use sqlx::PgConnection;
use tokio::{runtime::Handle, time::Instant};
use uuid::Uuid;

use crate::{
    Failure, FailureKind, FingerprintInput, GuardedConnection, HeaderError, Idempotency,
    IdempotencyKey, Outcome, Parameters, Rejection, Reply, Request, RunAgain, Verdict,
    http::{NO_OUTCOME, canonical, error, failed, head},
    lock,
    transaction::Work,
};

/// The largest body of a request and of a reply, unless the application says otherwise: 2 MiB.
const BODY_LIMIT: usize = 2 << 20;

/// How long a client may take to send its body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// The longest that a handler waits for a row. It runs once: nothing would begin its wait again.
const ONE_LONG_WAIT: &str = "SET LOCAL lock_timeout = '1s'";

/// What concerns a connection or a moment, and no reply.
const NOT_KEPT: [&str; 6] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
];

/// The transaction that claims the key of a request, as an argument of its handler. Statements run
/// on it by `&mut *tx`. It ends with the handler: neither commit it nor keep it.
///
/// A `begin` on it that fails, since an error before it was swallowed, or whose future is dropped,
/// makes sqlx roll all of it back. The request then fails, and where the session is as
/// [`pin_session`](crate::pin_session) makes it, what the handler writes after that is refused.
pub struct IdempotentTx {
    connection: GuardedConnection,
    home: Arc<Home>,
}

impl Deref for IdempotentTx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for IdempotentTx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

impl Drop for IdempotentTx {
    fn drop(&mut self) {
        self.home.give_back(self.connection.hand_on());
    }
}

impl GuardedConnection {
    /// Hands the connection on, in doubt. What is left is empty until it comes back.
    fn hand_on(&mut self) -> Self {
        Self {
            pooled: self.pooled.take(),
            turn: self.turn.take(),
            clean: false,
            observer: Arc::clone(&self.observer),
        }
    }
}

/// A failure tells a client no more than this.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NO_OUTCOME)
    }
}

/// Where a handler finds the transaction, and where it goes when the handler drops it.
struct Home {
    place: Mutex<Whereabouts>,
    /// Closing a connection takes a runtime, which the thread that drops it may not have.
    runtime: Handle,
}

enum Whereabouts {
    Here {
        connection: GuardedConnection,
        was_taken: bool,
    },
    Taken,
    /// The handler has ended.
    Closed,
}

impl Home {
    fn new(connection: GuardedConnection, runtime: Handle) -> Arc<Self> {
        let was_taken = false;
        let place = Mutex::new(Whereabouts::Here {
            connection,
            was_taken,
        });
        Arc::new(Self { place, runtime })
    }

    fn take(self: &Arc<Self>) -> Option<IdempotentTx> {
        let mut place = lock(&self.place);
        match mem::replace(&mut *place, Whereabouts::Taken) {
            Whereabouts::Here { connection, .. } => Some(IdempotentTx {
                connection,
                home: Arc::clone(self),
            }),
            other @ (Whereabouts::Taken | Whereabouts::Closed) => {
                *place = other;
                None
            }
        }
    }

    fn give_back(&self, connection: GuardedConnection) {
        let mut place = lock(&self.place);
        if matches!(*place, Whereabouts::Taken) {
            *place = Whereabouts::Here {
                connection,
                was_taken: true,
            };
            return;
        }
        drop(place);
        let _context = self.runtime.enter();
        drop(connection);
    }

    /// The connection, and whether it was taken. `None`: the handler has ended and kept it.
    fn close(&self) -> Option<(GuardedConnection, bool)> {
        match mem::replace(&mut *lock(&self.place), Whereabouts::Closed) {
            Whereabouts::Here {
                connection,
                was_taken,
            } => Some((connection, was_taken)),
            Whereabouts::Taken | Whereabouts::Closed => None,
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _context = self.runtime.enter();
        self.close();
    }
}

type Replying = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send>>;
type Handler = Box<dyn FnOnce(Arc<Home>) -> Replying + Send>;

/// A request, and the handler that it is for.
struct Handled {
    /// `None`: it has run.
    handler: Mutex<Option<Handler>>,
    /// A reply that is not kept.
    passed_on: Mutex<Option<Reply>>,
    runtime: Handle,
}

impl Work for Handled {
    type Pending = Infallible;

    async fn work(
        &self,
        tx: &mut GuardedConnection,
        request: &Request,
        _: Instant,
    ) -> Result<Verdict<Reply, Infallible>, Rejection> {
        let Some(handler) = lock(&self.handler).take() else {
            let once = "the transaction was rolled back, and a handler runs once";
            return Err(Failure::unavailable(once).into());
        };
        sqlx::raw_sql(ONE_LONG_WAIT).execute(&mut **tx).await?;
        let home = Home::new(tx.hand_on(), self.runtime.clone());
        let replied = handler(Arc::clone(&home)).await;
        let Request { method, path, .. } = request;
        let given_back = home.close();
        let reply = match (replied, &given_back) {
            (Ok(_), None) => {
                let kept = format!("the handler of {method} {path} has kept its IdempotentTx");
                return Err(Failure::internal(kept).into());
            }
            (replied, _) => replied,
        };
        let was_taken = given_back.is_some_and(|(connection, was_taken)| {
            *tx = connection;
            was_taken
        });
        let reply = reply.map_err(once)?;
        match reply.status {
            200..=399 if !was_taken => {
                let untaken = format!("the handler of {method} {path} never took an IdempotentTx");
                Err(Failure::internal(untaken).into())
            }
            200..=399 => Ok(Verdict::Answered(reply)),
            status @ (408 | 425 | 429 | 500..=599) => {
                *lock(&self.passed_on) = Some(reply);
                Err(Failure::of_status(status).into())
            }
            400..=499 => Err(Rejection::Refused(reply)),
            status => Err(Failure::internal(format!("no reply is kept with {status}")).into()),
        }
    }
}

/// A handler is not run again. A session that would fail again is not used again, either.
fn once(failure: Failure) -> Failure {
    let run_again = match failure.run_again {
        RunAgain::InAnotherSession => RunAgain::InAnotherSession,
        RunAgain::AtOnce | RunAgain::WhenUnlocked | RunAgain::Never => RunAgain::Never,
    };
    Failure {
        run_again,
        ..failure
    }
}

impl Failure {
    /// What duplicates in flight are told of a reply that is not kept.
    fn of_status(status: u16) -> Self {
        let cause = format!("the handler replied with {status}");
        match status {
            408 | 425 | 429 => Self::busy(cause),
            502..=504 => Self::unavailable(cause),
            _ => Self::internal(cause),
        }
    }
}

/// Runs the handler at most once for the request's account and key, and answers.
async fn answer(idempotency: &Idempotency, request: Request, handler: Handler) -> Answer {
    let handled = Arc::new(Handled {
        handler: Mutex::new(Some(handler)),
        passed_on: Mutex::default(),
        runtime: idempotency.runtime.clone(),
    });
    let outcome = idempotency.run_work(request, Arc::clone(&handled)).await;
    let passed_on = lock(&handled.passed_on).take();
    match (outcome, passed_on) {
        (Outcome::Failed(_), Some(reply)) => {
            let response = head(&reply).body(reply.body);
            response.unwrap_or_else(|_| failed(FailureKind::Internal, None))
        }
        (outcome, _) => outcome.into(),
    }
}

type Answer = Response<Vec<u8>>;

/// Whether a request is the layer's. Inside another layer, which has a home for the transaction,
/// none is.
fn is_handled(method: &str, has_key: bool, home: Option<&Arc<Home>>) -> bool {
    home.is_none()
        && match method {
            "POST" | "PUT" | "PATCH" => true,
            "DELETE" => has_key,
            _ => false,
        }
}

/// The transaction for a handler that asks for it, or the answer in its place.
fn take(
    home: Option<&Arc<Home>>,
    method: &str,
    has_key: bool,
) -> Result<IdempotentTx, Box<Answer>> {
    let Some(home) = home else {
        if method == "DELETE" && !has_key {
            return Err(Box::new(HeaderError::Missing.into()));
        }
        tracing::error!(method, "IdempotentTx is asked for outside the layer");
        return Err(Box::new(failed(FailureKind::Internal, None)));
    };
    home.take().ok_or_else(|| {
        tracing::error!(method, "IdempotentTx is asked for twice, or too late");
        Box::new(failed(FailureKind::Internal, None))
    })
}

/// A request as HTTP has it.
struct Asked<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    media_type: Option<&'a [u8]>,
    body: &'a [u8],
}

impl Asked<'_> {
    /// A JSON body is compared as [`Request::json`] does, and a query or another body byte by byte.
    fn request(&self, account_id: Uuid, key: IdempotencyKey) -> Request {
        let media_type = String::from_utf8_lossy(self.media_type.unwrap_or_default());
        let media_type = media_type.split(';').next().unwrap_or_default();
        let media_type = media_type.trim().to_ascii_lowercase();
        let is_json = media_type.is_empty() || media_type.ends_with("json");
        let canonical = is_json.then(|| canonical(self.body)).flatten();
        let input = FingerprintInput {
            method: self.method,
            path: self.path,
            query: match self.query {
                Some(query) => Parameters::Raw(query.as_bytes()),
                None => Parameters::Canonical(b"{}"),
            },
            media_type: if is_json { "json" } else { &media_type },
            parameters: match &canonical {
                Some(canonical) => Parameters::Canonical(canonical),
                None => Parameters::Raw(self.body),
            },
        };
        Request::new(account_id, key, &input)
    }
}

/// The headers of a reply that are kept with it.
fn kept<'a>(
    headers: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Result<Vec<(String, String)>, Failure> {
    let kept = headers.filter(|(name, _)| !NOT_KEPT.contains(name));
    let texts = kept.map(|(name, value)| {
        let is_ascii = |text: &&str| text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let text = str::from_utf8(value).ok().filter(is_ascii);
        let text =
            text.ok_or_else(|| Failure::internal(format!("the header {name} is no text")))?;
        Ok((name.to_owned(), text.to_owned()))
    });
    texts.collect()
}

fn body_too_large() -> Answer {
    let too_large = "The body is too large.";
    error(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", too_large)
}

fn body_not_received(is_late: bool) -> Answer {
    let (status, message) = match is_late {
        true => (StatusCode::REQUEST_TIMEOUT, "The body took too long."),
        false => (StatusCode::BAD_REQUEST, "The body is not whole."),
    };
    error(status, "body_incomplete", message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

    use super::*;

    fn fingerprint(
        media_type: Option<&str>,
        query: Option<&str>,
        body: &str,
    ) -> crate::Fingerprint {
        let asked = Asked {
            method: "POST",
            path: "/bookings",
            query,
            media_type: media_type.map(str::as_bytes),
            body: body.as_bytes(),
        };
        let key = IdempotencyKey::parse(b"one").unwrap();
        asked.request(Uuid::nil(), key).fingerprint
    }

    /// A handler can move from `run` to the layer while clients retry.
    #[test]
    fn json_is_compared_as_run_does_and_anything_else_by_its_bytes() {
        let key = IdempotencyKey::parse(b"one").unwrap();
        let run = Request::json(Uuid::nil(), key, "POST", "/bookings", br#"{"seat":12}"#);
        for media_type in [
            None,
            Some("application/json"),
            Some("Application/JSON; charset=utf-8"),
        ] {
            let same = fingerprint(media_type, None, r#"{ "seat": 12.0 }"#);
            assert_eq!(same, run.fingerprint, "{media_type:?}");
            assert_ne!(fingerprint(media_type, Some(""), r#"{"seat":12}"#), same);
            assert_ne!(fingerprint(media_type, None, r#"{"seat":13}"#), same);
        }
        let text = |body| fingerprint(Some("text/plain"), None, body);
        assert_ne!(text("12"), text("12.0"));
        assert_ne!(text("12"), fingerprint(None, None, "12"));
    }

    #[test]
    fn headers_that_no_reply_can_have_are_refused_before_it_is_saved() {
        let of = |name, value| kept([(name, value)].into_iter());
        assert_eq!(of("x", b"1").unwrap(), [("x".to_owned(), "1".to_owned())]);
        assert_eq!(of("connection", b"close").unwrap(), []);
        assert!(of("x", "\u{e9}".as_bytes()).is_err() && of("x", b"\xff").is_err());
    }
}
