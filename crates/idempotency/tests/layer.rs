//! The layer of axum and the middleware of Actix: a handler in the transaction that claims its key.
#![cfg(all(feature = "axum", feature = "actix"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

mod support;

use std::{
    convert::Infallible,
    future::poll_fn,
    mem,
    pin::Pin,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use actix_web::{
    App, HttpResponse,
    body::{BodySize, MessageBody},
    error::ErrorUnauthorized,
    test, web,
};
use axum::{
    Extension, Router,
    body::{Body, Bytes},
    http::{HeaderMap, Request, StatusCode},
    response::{IntoResponse, Response},
    routing::{any, post},
};
use charge_once_idempotency::{Failure, Idempotency, IdempotentTx, SessionLimits, Settings};
use http_body_util::{BodyExt, Full};
use sqlx::{Connection, PgConnection, PgPool};
use support::{ACCOUNT, PATIENCE, count, execute, set_up, set_up_with, until, within_reason};
use tokio::{
    sync::Semaphore,
    task::{LocalSet, spawn_local},
};
use tower_service::Service;
use uuid::Uuid;

const RECORDS: &str = "SELECT count(*) FROM idempotency_keys";
const BOOKINGS: &str = "SELECT count(*) FROM bookings";

const LIMIT: usize = 1_000;

/// Between a test and the handlers.
struct Gate {
    reached: Semaphore,
    open: Semaphore,
    failed: AtomicBool,
    kept: Mutex<Option<IdempotentTx>>,
}

/// What the handlers of both frameworks do: book the seat that the body names, and then what its
/// last word says.
async fn act(
    tx: IdempotentTx,
    gate: &Gate,
    body: String,
) -> Result<(u16, String, Option<IdempotentTx>), Failure> {
    let mut tx = Some(tx);
    let booking = sqlx::query("INSERT INTO bookings (seat) VALUES ($1)").bind(&body);
    booking.execute(&mut **tx.as_mut().unwrap()).await?;
    let status = match body.rsplit(' ').next().unwrap() {
        "refuse" => 404,
        "fail" => match gate.failed.swap(true, Ordering::Relaxed) {
            false => 503,
            true => 201,
        },
        "panic" => panic!("as the test wants it"),
        "keep" => {
            *gate.kept.lock().unwrap() = tx.take();
            201
        }
        "wait" => {
            gate.reached.add_permits(1);
            gate.open.acquire().await.unwrap().forget();
            201
        }
        // Waits in a statement, the first time.
        "block" if !gate.failed.swap(true, Ordering::Relaxed) => {
            let block = "SELECT set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1)";
            let blocked = sqlx::query(block).execute(&mut **tx.as_mut().unwrap());
            blocked.await?;
            201
        }
        "swallow" => {
            let swallowed = sqlx::query("SELECT 1 / 0").execute(&mut **tx.as_mut().unwrap());
            assert!(swallowed.await.is_err());
            201
        }
        "leave" | "leave-and-fail" => {
            mem::forget(tx.as_mut().unwrap().begin().await?);
            if body.ends_with("fail") { 503 } else { 201 }
        }
        // sqlx rolls the transaction back, and this handler goes on. Every other time it is cured.
        "begin" | "begin-and-swallow" | "cancel"
            if !gate.failed.fetch_xor(true, Ordering::Relaxed) =>
        {
            let tx = tx.as_mut().unwrap();
            if body.ends_with("cancel") {
                // Until one is dropped before its answer has come.
                let mut is_dropped = false;
                while !is_dropped {
                    let mut begun = Box::pin(tx.begin());
                    is_dropped =
                        poll_fn(|context| Poll::Ready(begun.as_mut().poll(context).is_pending()))
                            .await;
                }
            } else {
                let swallowed = sqlx::query("SELECT 1 / 0").execute(&mut **tx);
                assert!(swallowed.await.is_err());
                assert!(tx.begin().await.is_err());
            }
            let again = sqlx::query("INSERT INTO bookings (seat) VALUES ($1)");
            let again = again.bind(format!("{body} again")).execute(&mut **tx).await;
            if !body.ends_with("swallow") {
                again?;
            }
            201
        }
        "much" => return Ok((201, "x".repeat(LIMIT + 1), None)),
        "stream" => return Ok((201, body, tx)),
        _ => 201,
    };
    Ok((status, body, None))
}

async fn axum_handler(
    tx: IdempotentTx,
    Extension(gate): Extension<Arc<Gate>>,
    body: String,
) -> Result<Response, Failure> {
    let (status, body, held) = act(tx, &gate, body).await?;
    // A body that has the transaction until it is read to its end.
    let body = Full::from(body).with_trailers(async move {
        drop(held);
        None
    });
    let status = StatusCode::from_u16(status).unwrap();
    Ok((status, [("x-one", "1")], Body::new(body)).into_response())
}

async fn actix_handler(
    tx: IdempotentTx,
    gate: web::Data<Gate>,
    body: String,
) -> Result<HttpResponse, Failure> {
    let (status, body, held) = act(tx, &gate, body).await?;
    let status = actix_web::http::StatusCode::from_u16(status).unwrap();
    let mut response = HttpResponse::build(status);
    response.insert_header(("x-one", "1"));
    let body = Some(body.into());
    Ok(response
        .message_body(Streamed { body, held })
        .unwrap()
        .map_into_boxed_body())
}

/// A body that has the transaction until it is read to its end.
struct Streamed {
    body: Option<Bytes>,
    held: Option<IdempotentTx>,
}

impl MessageBody for Streamed {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let next = self.body.take();
        if next.is_none() {
            self.held = None;
        }
        Poll::Ready(next.map(Ok))
    }
}

/// A handler that needs no transaction, and has none.
async fn untaken(body: String) -> (StatusCode, String) {
    (status_of_untaken(&body), body)
}

async fn actix_untaken(body: String) -> HttpResponse {
    let status = status_of_untaken(&body).as_u16();
    HttpResponse::build(actix_web::http::StatusCode::from_u16(status).unwrap()).body(body)
}

fn status_of_untaken(body: &str) -> StatusCode {
    match body.ends_with("refuse") {
        true => StatusCode::NOT_FOUND,
        false => StatusCode::OK,
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    status: u16,
    replayed: bool,
    retry_after: bool,
    original: Option<String>,
    one: Option<String>,
    body: Vec<u8>,
}

struct Asked {
    method: &'static str,
    path: &'static str,
    key: Option<String>,
    account: Option<Uuid>,
    body: String,
}

type Answering = Pin<Box<dyn Future<Output = Answer>>>;

/// An application under one of the frameworks.
#[derive(Clone)]
struct Server {
    name: &'static str,
    send: Rc<dyn Fn(Asked) -> Answering>,
    gate: Arc<Gate>,
}

impl Server {
    /// Posts the seat `verb`, with the name of the framework before it, under the key `key`.
    fn post(&self, key: &str, verb: &str) -> impl Future<Output = Answer> + use<> {
        self.ask("POST", "/bookings", Some(key), verb)
    }

    fn ask(
        &self,
        method: &'static str,
        path: &'static str,
        key: Option<&str>,
        verb: &str,
    ) -> impl Future<Output = Answer> + use<> {
        (self.send)(Asked {
            method,
            path,
            key: key.map(|key| format!("{}-{key}", self.name)),
            account: Some(ACCOUNT),
            body: format!("{} {verb}", self.name),
        })
    }

    async fn post_until_definite(self, key: &'static str, verb: &'static str) -> Answer {
        let posting = async {
            loop {
                let answer = self.post(key, verb).await;
                if answer.status != 409 {
                    return answer;
                }
                assert!(answer.retry_after, "{answer:?}");
                // The first request may need this thread.
                tokio::task::yield_now().await;
            }
        };
        within_reason("a definite answer", posting).await
    }
}

fn gate() -> Arc<Gate> {
    Arc::new(Gate {
        reached: Semaphore::new(0),
        open: Semaphore::new(0),
        failed: AtomicBool::new(false),
        kept: Mutex::default(),
    })
}

fn axum_server(idempotency: &Idempotency) -> Server {
    let layer = idempotency.layer(|parts| {
        let account = parts.headers.get("account").and_then(|id| id.to_str().ok());
        let account = account.and_then(|id| id.parse().ok());
        account.ok_or(StatusCode::UNAUTHORIZED)
    });
    let layer = layer.body_limit(LIMIT);
    let gate = gate();
    let nested = Router::new().route("/pay", post(axum_handler));
    let router = Router::new()
        .route("/bookings", any(axum_handler))
        .route("/untaken", any(untaken))
        .route_layer(layer.clone())
        // Inside, where the path has lost its beginning. Twice is once.
        .nest("/one", nested.clone().route_layer(layer.clone()))
        .nest("/two", nested.route_layer(layer.clone()).route_layer(layer))
        .layer(Extension(Arc::clone(&gate)));
    let send = move |asked: Asked| -> Answering {
        let mut router = router.clone();
        let mut request = Request::builder().method(asked.method).uri(asked.path);
        for (name, value) in headers(&asked) {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(asked.body)).unwrap();
        Box::pin(async move {
            let response = router.call(request).await.unwrap();
            let (head, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            answer(head.status.as_u16(), &head.headers, body)
        })
    };
    Server {
        name: "axum",
        send: Rc::new(send),
        gate,
    }
}

async fn actix_server(idempotency: &Idempotency) -> Server {
    let middleware = idempotency.middleware(|request| {
        let account = request.headers().get("account");
        let account = account.and_then(|id| id.to_str().ok()?.parse().ok());
        account.ok_or_else(|| ErrorUnauthorized("who?"))
    });
    let middleware = middleware.body_limit(LIMIT);
    let gate = gate();
    // Around the whole application, where requests are not routed yet.
    let app = App::new()
        .app_data(web::Data::from(Arc::clone(&gate)))
        .wrap(middleware.clone())
        .wrap(middleware)
        .route("/bookings", web::route().to(actix_handler))
        .route("/untaken", web::route().to(actix_untaken))
        .route("/{any}/pay", web::route().to(actix_handler));
    let app = Rc::new(test::init_service(app).await);
    let send = move |asked: Asked| -> Answering {
        let app = Rc::clone(&app);
        let mut request = test::TestRequest::with_uri(asked.path);
        request = request.method(asked.method.parse().unwrap());
        for (name, value) in headers(&asked) {
            request = request.insert_header((name, value));
        }
        let request = request.set_payload(asked.body).to_request();
        Box::pin(async move {
            let response = match test::try_call_service(&*app, request).await {
                Ok(response) => response.into_parts().1,
                Err(error) => error.error_response(),
            };
            let status = response.status().as_u16();
            let mut headers = HeaderMap::new();
            for (name, value) in response.headers() {
                let name: axum::http::HeaderName = name.as_str().parse().unwrap();
                headers.append(name, value.to_str().unwrap().parse().unwrap());
            }
            let body = actix_web::body::to_bytes(response.into_body()).await;
            answer(status, &headers, body.unwrap())
        })
    };
    Server {
        name: "actix",
        send: Rc::new(send),
        gate,
    }
}

fn headers(asked: &Asked) -> Vec<(&'static str, String)> {
    let key = asked.key.clone().map(|key| ("idempotency-key", key));
    let account = asked.account.map(|id| ("account", id.to_string()));
    let media_type = ("content-type", "text/plain".to_owned());
    key.into_iter().chain(account).chain([media_type]).collect()
}

fn answer(status: u16, headers: &HeaderMap, body: Bytes) -> Answer {
    let text = |name| {
        let value = headers.get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    Answer {
        status,
        replayed: text("idempotent-replayed").is_some(),
        retry_after: text("retry-after").is_some(),
        original: text("original-request"),
        one: text("x-one"),
        body: body.to_vec(),
    }
}

/// Runs a test with each framework: they share the database, and no key and no seat.
async fn with_each<F: Future<Output = ()>>(idempotency: &Idempotency, test: impl Fn(Server) -> F) {
    let testing = async {
        for server in [axum_server(idempotency), actix_server(idempotency).await] {
            test(server).await;
        }
    };
    LocalSet::new().run_until(testing).await;
}

/// The bookings and the records of a framework.
async fn rows(pool: &PgPool, server: &Server) -> (i64, i64) {
    let like = format!("{}%", server.name);
    let counted = sqlx::query_as(
        "SELECT (SELECT count(*) FROM bookings WHERE seat LIKE $1),
                (SELECT count(*) FROM idempotency_keys WHERE key LIKE $1)",
    );
    counted.bind(like).fetch_one(pool).await.unwrap()
}

#[sqlx::test(migrations = false)]
async fn a_reply_is_saved_with_what_its_handler_wrote_and_replayed(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let first = server.post("one", "book").await;
        assert_eq!((first.status, first.replayed), (201, false), "{first:?}");
        assert_eq!(first.one.as_deref(), Some("1"));
        assert!(first.original.is_some());
        let replay = Answer {
            replayed: true,
            ..first
        };
        assert_eq!(server.post("one", "book").await, replay);
        assert_eq!(server.post("one", "else").await.status, 422);
        assert_eq!(rows(&pool, &server).await, (1, 1));

        // The same seat: an error of the database, which the handler passed on by `?`.
        let defect = server.post("two", "book").await;
        assert_eq!((defect.status, defect.one), (500, None));
        let swallowed = server.post("three", "swallow").await;
        assert_eq!(swallowed.status, 500);
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn what_is_no_request_with_a_key_has_no_effect(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        for (method, key, status) in [
            ("POST", None, 400),
            ("PUT", Some(","), 400),
            ("DELETE", None, 400),
            // The layer does nothing, so the handler lacks its argument.
            ("GET", Some("one"), 500),
        ] {
            let answer = server.ask(method, "/bookings", key, "book").await;
            assert_eq!(answer.status, status, "{method}: {answer:?}");
        }
        let read = server.ask("GET", "/untaken", Some("one"), "book").await;
        assert_eq!((read.status, read.original), (200, None));
        let stranger = (server.send)(Asked {
            method: "POST",
            path: "/bookings",
            key: Some("one".to_owned()),
            account: None,
            body: "book".to_owned(),
        });
        assert_eq!(stranger.await.status, 401);
        assert_eq!(rows(&pool, &server).await, (0, 0));
        let deleted = server.ask("DELETE", "/bookings", Some("one"), "book");
        assert_eq!(deleted.await.status, 201);
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn another_path_or_query_is_another_request(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        for (path, status) in [
            ("/one/pay?a=1", 201),
            ("/two/pay?a=1", 422),
            ("/one/pay?a=2", 422),
            ("/one/pay", 422),
            ("/one/pay?a=1", 201),
        ] {
            let answer = server.ask("POST", path, Some("one"), "book").await;
            assert_eq!(answer.status, status, "{path}");
        }
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn fifty_racers_have_one_effect_and_equal_replies(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let racer = |_| spawn_local(server.clone().post_until_definite("one", "book"));
        let racers: Vec<_> = (0..50).map(racer).collect();
        let mut originals = 0;
        let mut first: Option<Answer> = None;
        for racer in racers {
            let mut answer = racer.await.unwrap();
            originals += u32::from(!answer.replayed);
            answer.replayed = true;
            assert_eq!(answer.status, 201);
            assert_eq!(first.get_or_insert(answer.clone()), &answer);
        }
        assert_eq!(originals, 1);
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_refusal_is_kept_without_its_writes_and_a_5xx_is_not_kept(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let refused = server.post("one", "refuse").await;
        assert_eq!((refused.status, refused.replayed), (404, false));
        let replay = Answer {
            replayed: true,
            ..refused
        };
        assert_eq!(server.post("one", "refuse").await, replay);
        assert_eq!(rows(&pool, &server).await, (0, 1));

        let failed = server.post("two", "fail").await;
        assert_eq!((failed.status, failed.original), (503, None));
        // The handler's own reply.
        assert_eq!(failed.body, format!("{} fail", server.name).into_bytes());
        assert_eq!(rows(&pool, &server).await, (0, 1));
        let again = server.post("two", "fail").await;
        assert_eq!((again.status, again.replayed), (201, false));
        assert_eq!(rows(&pool, &server).await, (1, 2));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_success_of_a_handler_that_never_took_the_transaction_is_not_kept(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let untaken = server.ask("POST", "/untaken", Some("one"), "book").await;
        assert_eq!((untaken.status, untaken.original), (500, None));
        assert_eq!(rows(&pool, &server).await, (0, 0));
        // A refusal, as an extractor in front of the transaction makes it, has no effect.
        let refused = server.ask("POST", "/untaken", Some("one"), "refuse").await;
        assert_eq!(refused.status, 404);
        assert_eq!(rows(&pool, &server).await, (0, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_transaction_that_outlives_its_handler_commits_nothing(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        for _ in 0..2 {
            let kept = server.clone().post_until_definite("one", "keep").await;
            assert_eq!((kept.status, kept.original), (500, None));
            let mut tx = server.gate.kept.lock().unwrap().take().unwrap();
            // It can still be used, for nothing.
            let seat = format!("{} later", server.name);
            let later = sqlx::query("INSERT INTO bookings (seat) VALUES ($1)").bind(seat);
            later.execute(&mut *tx).await.unwrap();
            // On a thread without a runtime, too.
            std::thread::spawn(|| drop(tx)).join().unwrap();
        }
        assert_eq!(rows(&pool, &server).await, (0, 0));
        let booked = server.clone().post_until_definite("two", "book").await;
        assert_eq!(booked.status, 201);
    })
    .await;
    assert_eq!(count(&pool, BOOKINGS).await, 2);
}

#[sqlx::test(migrations = false)]
async fn a_savepoint_that_a_handler_leaves_open_is_not_committed_and_not_handed_on(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    let options = pool.connect_options();
    let mut aside = PgConnection::connect_with(&options).await.unwrap();
    with_each(&idempotency, async |server| {
        let left = server.post("one", "leave").await;
        assert_eq!((left.status, left.original), (500, None));
        assert_eq!(rows(&pool, &server).await, (0, 0));
    })
    .await;
    // What is in doubt is closed, and what is rolled back is clean at once.
    let sql = "SELECT count(*) FROM pg_stat_activity
                WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let mut open = async || -> i64 {
        let counting = sqlx::query_scalar(sql).fetch_one(&mut aside);
        counting.await.unwrap()
    };
    until("the connections are closed", async || open().await == 0).await;
    let server = axum_server(&idempotency);
    assert_eq!(server.post("two", "leave-and-fail").await.status, 503);
    assert_eq!(open().await, 0);
    assert_eq!(rows(&pool, &server).await, (0, 0));
}

#[sqlx::test(migrations = false)]
async fn what_a_handler_writes_after_sqlx_rolled_its_transaction_back_is_refused(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        // The handler passes the refusal of its write on, or not.
        let ways = [("begin", 503), ("begin-and-swallow", 500), ("cancel", 503)];
        for (made, (verb, status)) in (0..).zip(ways) {
            let lost = server.post(verb, verb).await;
            assert_eq!((lost.status, lost.original), (status, None), "{verb}");
            assert_eq!(rows(&pool, &server).await, (made, made), "{verb}");
            let again = server.post(verb, verb).await;
            assert_eq!((again.status, again.replayed), (201, false), "{verb}");
            assert_eq!(rows(&pool, &server).await, (made + 1, made + 1), "{verb}");
        }
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_body_that_has_the_transaction_is_read_before_the_commit(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let streamed = server.post("one", "stream").await;
        assert_eq!(streamed.status, 201, "{streamed:?}");
        assert_eq!(
            streamed.body,
            format!("{} stream", server.name).into_bytes()
        );
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_panic_rolls_back_and_frees_the_key(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        for _ in 0..2 {
            let panicked = server.clone().post_until_definite("one", "panic").await;
            assert_eq!((panicked.status, panicked.original), (500, None));
        }
        assert_eq!(rows(&pool, &server).await, (0, 0));
    })
    .await;
    idempotency.drained().await;
}

#[sqlx::test(migrations = false)]
async fn a_disconnect_cancels_nothing_and_duplicates_are_told_to_wait(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let client = spawn_local(server.post("one", "wait"));
        let reached = server.gate.reached.acquire();
        within_reason("the handler waits", reached)
            .await
            .unwrap()
            .forget();
        let duplicate = server.post("one", "wait").await;
        assert_eq!((duplicate.status, duplicate.retry_after), (409, true));
        client.abort();
        assert!(client.await.unwrap_err().is_cancelled());
        assert_eq!(rows(&pool, &server).await, (0, 0));

        server.gate.open.add_permits(1);
        within_reason("the request ends", idempotency.drained()).await;
        assert_eq!(rows(&pool, &server).await, (1, 1));
        let replay = server.post("one", "wait").await;
        assert_eq!((replay.status, replay.replayed), (201, true));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_handler_that_takes_too_long_is_dropped(pool: PgPool) {
    let settings = Settings {
        database_deadline: Duration::from_secs(1),
        ..Settings::default()
    };
    let (pool, idempotency) = set_up_with(pool, 5, SessionLimits::default(), settings).await;
    with_each(&idempotency, async |server| {
        let late = server.post("one", "wait").await;
        assert_eq!((late.status, late.retry_after), (503, true));
        server.gate.open.add_permits(1);
        let again = server.clone().post_until_definite("one", "wait").await;
        assert_eq!((again.status, again.replayed), (201, false));
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_statement_that_outlives_the_deadline_writes_nothing_and_its_session_is_closed(
    pool: PgPool,
) {
    let limits = SessionLimits {
        statement: PATIENCE * 2,
        idle_in_transaction: PATIENCE * 4,
    };
    let settings = Settings {
        database_deadline: Duration::from_secs(1),
        ..Settings::default()
    };
    let (pool, idempotency) = set_up_with(pool, 5, limits, settings).await;
    let options = pool.connect_options();
    with_each(&idempotency, async |server| {
        let mut aside = PgConnection::connect_with(&options).await.unwrap();
        let lock = "SELECT pg_advisory_lock(1)";
        sqlx::query(lock).execute(&mut aside).await.unwrap();
        let late = server.post("one", "block").await;
        assert_eq!((late.status, late.retry_after), (503, true));
        let of_late = "SELECT pid FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event = 'advisory'";
        let of_late: i32 = sqlx::query_scalar(of_late)
            .fetch_one(&mut aside)
            .await
            .unwrap();
        // PostgreSQL notices when the statement ends, and frees the key then.
        assert_eq!(server.post("one", "block").await.status, 409);
        let unlock = "SELECT pg_advisory_unlock_all()";
        sqlx::query(unlock).execute(&mut aside).await.unwrap();
        let mut is_closed = async || -> bool {
            let left = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)";
            let left = sqlx::query_scalar(left).bind(of_late);
            left.fetch_one(&mut aside).await.unwrap()
        };
        until("its session is closed", async || is_closed().await).await;
        assert_eq!(rows(&pool, &server).await, (0, 0));
        let again = server.post("one", "block").await;
        assert_eq!((again.status, again.replayed), (201, false));
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn a_commit_that_is_refused_is_no_success(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let refuse = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
                $$ BEGIN RAISE check_violation; END $$;
            CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON bookings
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()";
        execute(&pool, refuse).await;
        let refused = server.post("one", "book").await;
        assert_eq!((refused.status, refused.original), (503, None));
        assert_eq!(rows(&pool, &server).await, (0, 0));
        execute(&pool, "DROP FUNCTION refuse CASCADE").await;
        let again = server.post("one", "book").await;
        assert_eq!((again.status, again.replayed), (201, false));
        assert_eq!(rows(&pool, &server).await, (1, 1));
    })
    .await;
}

#[sqlx::test(migrations = false)]
async fn bodies_are_bounded_both_ways(pool: PgPool) {
    let (pool, idempotency) = set_up(pool).await;
    with_each(&idempotency, async |server| {
        let large = server.post("one", &"x".repeat(LIMIT)).await;
        assert_eq!(large.status, 413);
        let much = server.post("two", "much").await;
        assert_eq!((much.status, much.original), (500, None));
        assert_eq!(rows(&pool, &server).await, (0, 0));
    })
    .await;
    assert_eq!(count(&pool, RECORDS).await, 0);
}
