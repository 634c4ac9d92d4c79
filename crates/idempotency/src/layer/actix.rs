//! The middleware for Actix. A handler can't leave its worker's thread: it runs there in a task of
//! its own, which a disconnect leaves alone, and the transaction is sent to it.

use std::{
    future::{Future, Ready, ready},
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use actix_web::{
    Error, FromRequest, HttpMessage, HttpRequest, HttpResponse, ResponseError,
    body::{BoxBody, MessageBody, to_bytes_limited},
    dev::{Payload, Service, ServiceRequest, ServiceResponse, Transform, forward_ready},
    error::InternalError,
    http::{StatusCode, header::CONTENT_TYPE},
    rt, web,
};
use tokio::{sync::oneshot, time::timeout};
use uuid::Uuid;

use super::{
    Answer, Asked, BODY_LIMIT, BODY_WAIT, Handler, Home, answer, body_not_received, body_too_large,
    is_handled, kept, take,
};
use crate::{Failure, Idempotency, IdempotencyKey, IdempotentTx, Reply, http::failed};

const KEY: &str = "idempotency-key";

type ActixTenant = dyn Fn(&ServiceRequest) -> Result<Uuid, Error>;

impl Idempotency {
    /// A middleware for Actix's `wrap`. Its handlers take an [`IdempotentTx`], and their replies
    /// are saved in the same transaction. `tenant` says whose key it is, or refuses the request.
    ///
    /// ```
    /// use actix_web::{HttpResponse, web};
    /// use charge_once_idempotency::{Failure, Idempotency, IdempotentTx};
    ///
    /// async fn book(mut tx: IdempotentTx, seat: String) -> Result<HttpResponse, Failure> {
    ///     let booking = sqlx::query("INSERT INTO bookings (seat) VALUES ($1)").bind(seat);
    ///     booking.execute(&mut *tx).await?;
    ///     Ok(HttpResponse::Created().finish())
    /// }
    ///
    /// fn configure(app: &mut web::ServiceConfig, idempotency: &Idempotency, tenant: uuid::Uuid) {
    ///     let booking = web::resource("/bookings").route(web::post().to(book));
    ///     app.service(booking.wrap(idempotency.middleware(move |_| Ok(tenant))));
    /// }
    /// ```
    pub fn middleware(
        &self,
        tenant: impl Fn(&ServiceRequest) -> Result<Uuid, Error> + 'static,
    ) -> IdempotencyMiddleware {
        IdempotencyMiddleware {
            idempotency: self.clone(),
            tenant: Rc::new(tenant),
            body_limit: BODY_LIMIT,
        }
    }
}

/// What [`Idempotency::middleware`] makes.
#[derive(Clone)]
pub struct IdempotencyMiddleware {
    idempotency: Idempotency,
    tenant: Rc<ActixTenant>,
    body_limit: usize,
}

impl IdempotencyMiddleware {
    /// The largest body of a request and of a reply, in bytes: 2 MiB unless it is set.
    #[must_use]
    pub fn body_limit(self, body_limit: usize) -> Self {
        Self { body_limit, ..self }
    }

    async fn answer<S, B>(
        self,
        service: Rc<S>,
        mut request: ServiceRequest,
    ) -> Result<ServiceResponse, Error>
    where
        S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
        B: MessageBody + 'static,
    {
        let has_key = request.headers().contains_key(KEY);
        let home = request.extensions().get().cloned();
        if !is_handled(request.method().as_str(), has_key, home.as_ref()) {
            let response = service.call(request).await?;
            return Ok(response.map_into_boxed_body());
        }
        let tenant = (self.tenant)(&request)?;
        let key = match IdempotencyKey::of_headers(request.headers().get_all(KEY)) {
            Ok(key) => key,
            Err(error) => return Ok(request.into_response(rendered(error.into()))),
        };
        let body = match read(&mut request, self.body_limit).await {
            Ok(body) => body,
            Err(refusal) => return Ok(request.into_response(rendered(refusal))),
        };
        let media_type = request.headers().get(CONTENT_TYPE);
        let asked = Asked {
            method: request.method().as_str(),
            path: request.uri().path(),
            query: request.uri().query(),
            media_type: media_type.map(|value| value.as_bytes()),
            body: &body,
        };
        let asked = asked.request(tenant, key);
        request.set_payload(Payload::from(body));

        let (hand_over, handed_over) = oneshot::channel();
        let (tell, told) = oneshot::channel();
        let handling = rt::spawn(handle(service, request, handed_over, tell, self.body_limit));
        let handler: Handler = Box::new(move |home| {
            Box::pin(async move {
                // If the worker has ended, its reply doesn't come, either.
                let _ = hand_over.send(home);
                told.await.unwrap_or_else(|_| {
                    let ended = "the handler panicked, or its worker has ended";
                    Err(Failure::internal(ended))
                })
            })
        });
        let response = rendered(answer(&self.idempotency, asked, handler).await);
        match handling.await {
            Ok(Some(request)) => Ok(ServiceResponse::new(request, response)),
            // The handler took the request along when it ended.
            Ok(None) | Err(_) => Err(InternalError::from_response("no request", response).into()),
        }
    }
}

/// Runs the handler when the key is claimed, unless it is claimed by another request or the
/// transaction ends first. Returns the request where it is left.
async fn handle<S, B>(
    service: Rc<S>,
    request: ServiceRequest,
    handed_over: oneshot::Receiver<Arc<Home>>,
    mut tell: oneshot::Sender<Result<Reply, Failure>>,
    limit: usize,
) -> Option<HttpRequest>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error>,
    B: MessageBody + 'static,
{
    let Ok(home) = handed_over.await else {
        return Some(request.into_parts().0);
    };
    request.extensions_mut().insert(home);
    let handling = async {
        let (request, response) = match service.call(request).await {
            Ok(response) => {
                let (request, response) = response.map_into_boxed_body().into_parts();
                (Some(request), response)
            }
            Err(error) => (None, HttpResponse::from_error(error)),
        };
        (request, reply_of(response, limit).await)
    };
    tokio::select! {
        (request, reply) = handling => {
            let _ = tell.send(reply);
            request
        }
        () = tell.closed() => None,
    }
}

async fn read(request: &mut ServiceRequest, limit: usize) -> Result<web::Bytes, Answer> {
    let payload = request.extract::<web::Payload>().await;
    let payload = payload.map_err(|_| body_not_received(false))?;
    match timeout(BODY_WAIT, payload.to_bytes_limited(limit)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_))) => Err(body_not_received(false)),
        Ok(Err(_)) => Err(body_too_large()),
        Err(_) => Err(body_not_received(true)),
    }
}

/// What is kept of a response, whose body is read to its end.
async fn reply_of(response: HttpResponse, limit: usize) -> Result<Reply, Failure> {
    let error = response.error();
    if let Some(failure) = error.and_then(|error| error.as_error::<Failure>()) {
        return Err(failure.clone());
    }
    let status = response.status().as_u16();
    let headers = response.headers().iter();
    let headers = kept(headers.map(|(name, value)| (name.as_str(), value.as_bytes())))?;
    let cause = match to_bytes_limited(response.into_body(), limit).await {
        Ok(Ok(body)) => {
            return Ok(Reply {
                status,
                headers,
                body: body.to_vec(),
                resource_id: None,
            });
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it is too large".to_owned(),
    };
    Err(Failure::internal(format!("the body of a reply: {cause}")))
}

fn rendered(answer: Answer) -> HttpResponse {
    let (head, body) = answer.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16());
    let mut response = HttpResponse::build(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    for (name, value) in &head.headers {
        response.append_header((name.as_str(), value.as_bytes()));
    }
    response.body(body)
}

impl<S, B> Transform<S, ServiceRequest> for IdempotencyMiddleware
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Transform = IdempotentService<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        let service = Rc::new(service);
        let middleware = self.clone();
        ready(Ok(IdempotentService {
            service,
            middleware,
        }))
    }
}

/// A service inside an [`IdempotencyMiddleware`].
pub struct IdempotentService<S> {
    service: Rc<S>,
    middleware: IdempotencyMiddleware,
}

impl<S, B> Service<ServiceRequest> for IdempotentService<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody + 'static,
{
    type Response = ServiceResponse;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<ServiceResponse, Error>>>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let service = Rc::clone(&self.service);
        Box::pin(self.middleware.clone().answer(service, request))
    }
}

impl FromRequest for IdempotentTx {
    type Error = Error;
    type Future = Ready<Result<Self, Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let home = request.extensions().get::<Arc<Home>>().cloned();
        let has_key = request.headers().contains_key(KEY);
        let taken = take(home.as_ref(), request.method().as_str(), has_key);
        ready(taken.map_err(|answer| {
            InternalError::from_response("no transaction", rendered(*answer)).into()
        }))
    }
}

/// An error of a handler: `?` makes it of an error of sqlx.
impl ResponseError for Failure {
    fn status_code(&self) -> StatusCode {
        self.error_response().status()
    }

    fn error_response(&self) -> HttpResponse<BoxBody> {
        rendered(failed(self.kind, self.retry_after))
    }
}
