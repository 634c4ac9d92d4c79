//! The layer for axum. A handler runs in the task of its transaction, which a disconnect leaves
//! alone.

use std::{
    convert::Infallible,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequestParts, OriginalUri, Request},
    http::{StatusCode, header::CONTENT_TYPE, request::Parts},
    response::{IntoResponse, Response},
};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::time::timeout;
use tower_layer::Layer;
use tower_service::Service;
use uuid::Uuid;

use super::{
    Answer, Asked, BODY_LIMIT, BODY_WAIT, Handler, Home, answer, body_not_received, body_too_large,
    is_handled, kept, take,
};
use crate::{Failure, Idempotency, IdempotencyKey, IdempotentTx, Reply, http::failed};

const KEY: &str = "idempotency-key";

type AxumTenant = dyn Fn(&Parts) -> Result<Uuid, StatusCode> + Send + Sync;

impl Idempotency {
    /// A layer for axum's `route_layer`. Its handlers take an [`IdempotentTx`], and their replies
    /// are saved in the same transaction. `tenant` says whose key it is, or refuses the request.
    ///
    /// ```
    /// use axum::{Router, http::StatusCode, routing::post};
    /// use charge_once_idempotency::{Failure, Idempotency, IdempotentTx};
    ///
    /// async fn book(mut tx: IdempotentTx, seat: String) -> Result<StatusCode, Failure> {
    ///     let booking = sqlx::query("INSERT INTO bookings (seat) VALUES ($1)").bind(seat);
    ///     booking.execute(&mut *tx).await?;
    ///     Ok(StatusCode::CREATED)
    /// }
    ///
    /// fn app(idempotency: &Idempotency, tenant: uuid::Uuid) -> Router {
    ///     let layer = idempotency.layer(move |_| Ok(tenant));
    ///     Router::new().route("/bookings", post(book)).route_layer(layer)
    /// }
    /// ```
    pub fn layer(
        &self,
        tenant: impl Fn(&Parts) -> Result<Uuid, StatusCode> + Send + Sync + 'static,
    ) -> IdempotencyLayer {
        IdempotencyLayer {
            idempotency: self.clone(),
            tenant: Arc::new(tenant),
            body_limit: BODY_LIMIT,
        }
    }
}

/// What [`Idempotency::layer`] makes.
#[derive(Clone)]
pub struct IdempotencyLayer {
    idempotency: Idempotency,
    tenant: Arc<AxumTenant>,
    body_limit: usize,
}

impl IdempotencyLayer {
    /// The largest body of a request and of a reply, in bytes: 2 MiB unless it is set.
    #[must_use]
    pub fn body_limit(self, body_limit: usize) -> Self {
        Self { body_limit, ..self }
    }

    async fn answer<S: Handling>(self, mut inner: S, request: Request) -> Result<Response, Response>
    where
        S::Future: Send,
    {
        let (mut parts, body) = request.into_parts();
        let has_key = parts.headers.contains_key(KEY);
        if !is_handled(parts.method.as_str(), has_key, parts.extensions.get()) {
            return Ok(reply(&mut inner, Request::from_parts(parts, body)).await);
        }
        let tenant = (self.tenant)(&parts).map_err(StatusCode::into_response)?;
        let keys = parts.headers.get_all(KEY);
        let key = IdempotencyKey::of_headers(keys).map_err(|error| rendered(error.into()))?;
        let body = read(body, self.body_limit).await.map_err(rendered)?;
        // As it was asked for: a nested router strips what it is nested under.
        let original = parts.extensions.get::<OriginalUri>();
        let uri = original.map_or(&parts.uri, |original| &original.0);
        let asked = Asked {
            method: parts.method.as_str(),
            path: uri.path(),
            query: uri.query(),
            media_type: parts
                .headers
                .get(CONTENT_TYPE)
                .map(|value| value.as_bytes()),
            body: &body,
        };
        let asked = asked.request(tenant, key);
        let handler: Handler = Box::new(move |home| {
            Box::pin(async move {
                parts.extensions.insert(home);
                let request = Request::from_parts(parts, Body::from(body));
                let response = reply(&mut inner, request).await;
                reply_of(response, self.body_limit).await
            })
        });
        Ok(rendered(answer(&self.idempotency, asked, handler).await))
    }
}

/// What the layer can be put around: a route.
trait Handling: Service<Request, Response = Response, Error = Infallible> + Send + 'static {}

impl<S: Service<Request, Response = Response, Error = Infallible> + Send + 'static> Handling for S {}

async fn reply<S: Handling>(inner: &mut S, request: Request) -> Response {
    match inner.call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn rendered(answer: Answer) -> Response {
    answer.map(Body::from)
}

async fn read(body: Body, limit: usize) -> Result<Bytes, Answer> {
    match timeout(BODY_WAIT, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(body_too_large()),
        Ok(Err(_)) => Err(body_not_received(false)),
        Err(_) => Err(body_not_received(true)),
    }
}

/// What is kept of a response, whose body is read to its end.
async fn reply_of(response: Response, limit: usize) -> Result<Reply, Failure> {
    let (parts, body) = response.into_parts();
    if let Some(failure) = parts.extensions.get::<Failure>() {
        return Err(failure.clone());
    }
    let whole = Limited::new(body, limit).collect().await;
    let whole =
        whole.map_err(|error| Failure::internal(format!("the body of a reply: {error}")))?;
    let headers = parts.headers.iter();
    Ok(Reply {
        status: parts.status.as_u16(),
        headers: kept(headers.map(|(name, value)| (name.as_str(), value.as_bytes())))?,
        body: whole.to_bytes().to_vec(),
        resource_id: None,
    })
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        IdempotencyService { inner, layer }
    }
}

/// A route inside an [`IdempotencyLayer`].
#[derive(Clone)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S> Service<Request> for IdempotencyService<S>
where
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The clone need not be ready.
        let clone = self.inner.clone();
        let inner = mem::replace(&mut self.inner, clone);
        let answering = self.layer.clone().answer(inner, request);
        Box::pin(async move { Ok(answering.await.unwrap_or_else(|refusal| refusal)) })
    }
}

impl<S: Sync> FromRequestParts<S> for IdempotentTx {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        let home = parts.extensions.get::<Arc<Home>>();
        let has_key = parts.headers.contains_key(KEY);
        let taken = take(home, parts.method.as_str(), has_key);
        taken.map_err(|answer| rendered(*answer))
    }
}

/// An error of a handler: `?` makes it of an error of sqlx.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = rendered(failed(self.kind, self.retry_after));
        response.extensions_mut().insert(self);
        response
    }
}
