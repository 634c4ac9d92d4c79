//! The person who looks at a page, by the cookie of their session.
//!
//! Promise: each page asks again whether the API key of its session is good, so a revoked key shows
//! nothing a few seconds later, and an account's pages count toward its rate limit like its
//! requests.

use std::{net::IpAddr, sync::Arc, time::Instant};

use actix_web::{
    FromRequest, HttpRequest,
    dev::Payload,
    http::header::{COOKIE, HeaderMap},
    web,
};
use futures_util::future::LocalBoxFuture;

use uuid::Uuid;

use super::{Console, Server, error::ConsoleError, locale::Locale, session::Token, sign_in};

pub(super) const COOKIE_NAME: &str = "charge_once_console";

pub(super) struct Visitor {
    /// Whose pages they see.
    pub(super) account: Uuid,
    /// What people call that account.
    pub(super) name: Arc<str>,
    /// How they write numbers.
    pub(super) locale: Locale,
    /// Whether its API key moves no real money.
    pub(super) is_test: bool,
    pub(super) api_key: Arc<str>,
    /// Whether faults act on the account, so that a reply of it can be lost.
    pub(super) may_lose_replies: bool,
}

impl FromRequest for Visitor {
    type Error = ConsoleError;
    type Future = LocalBoxFuture<'static, Result<Self, ConsoleError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        let wanted = sign_in::wanted(&request);
        let visitor = async move {
            let server = request.app_data::<web::Data<dyn Server>>();
            let console = request.app_data::<web::Data<Console>>();
            let (Some(server), Some(console)) = (server, console) else {
                return Err(ConsoleError::SignIn(None));
            };
            let token = token(request.headers()).ok_or(ConsoleError::SignIn(None))?;
            let session = console.sessions.of(token, Instant::now());
            let (name, api_key) = session.ok_or(ConsoleError::SignIn(None))?;
            let account = server.account_of(&api_key, client_of(&request)).await?;
            Ok(Self {
                account: account.id,
                name,
                locale: Locale::of(&request),
                is_test: account.is_test,
                api_key,
                may_lose_replies: account.may_lose_replies,
            })
        };
        Box::pin(async move {
            visitor.await.map_err(|error| match (error, wanted) {
                (ConsoleError::SignIn(_), wanted) => ConsoleError::SignIn(wanted),
                (error, _) => error,
            })
        })
    }
}

pub(super) fn client_of(request: &HttpRequest) -> Option<IpAddr> {
    request.peer_addr().map(|address| address.ip())
}

pub(super) fn token(headers: &HeaderMap) -> Option<Token> {
    let cookies = headers.get_all(COOKIE);
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    cookies
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE_NAME)
        .and_then(|(_, value)| Token::parse(value))
}
