//! Signing in with an API key, and out.

use std::time::Instant;

use actix_web::{
    HttpRequest, HttpResponse, ResponseError,
    http::{StatusCode, header::SET_COOKIE},
    web,
};
use maud::html;

use super::{
    Console,
    error::ConsoleError,
    form::Form,
    layout,
    session::LASTS,
    visitor::{COOKIE_NAME, token},
};
use crate::http::{App, request::authenticate};

/// Where a session begins.
pub(super) const PATH: &str = "/console/sign-in";

/// The form.
pub(super) async fn show() -> HttpResponse {
    page(StatusCode::OK, None)
}

/// Begins a session, if the API would serve the key.
pub(super) async fn sign_in(
    app: web::Data<App>,
    console: web::Data<Console>,
    form: Form,
) -> HttpResponse {
    let api_key = form.field("api_key");
    if let Err(error) = authenticate(&app, api_key).await {
        return page(error.status_code(), Some(error.message()));
    }
    let token = console.sessions.begin(api_key, Instant::now());
    let cookie = cookie(&token.reveal(), LASTS.as_secs());
    let mut response = layout::redirect("/console");
    layout::add_header(&mut response, SET_COOKIE, &cookie);
    response
}

/// Ends the session, if there is one.
pub(super) async fn sign_out(
    console: web::Data<Console>,
    request: HttpRequest,
    _: Form,
) -> Result<HttpResponse, ConsoleError> {
    if let Some(token) = token(request.headers()) {
        console.sessions.end(token);
    }
    let mut response = layout::redirect(PATH);
    layout::add_header(&mut response, SET_COOKIE, &cookie("", 0));
    Ok(response)
}

/// No script can read it, and no other site's page can have it sent. It has no `Secure`: this process
/// doesn't know whether a proxy in front of it speaks https.
fn cookie(value: &str, seconds: u64) -> String {
    format!("{COOKIE_NAME}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict")
}

fn page(status: StatusCode, problem: Option<&str>) -> HttpResponse {
    let body = html! {
        h1 { "Sign in" }
        p { "The console shows what became of an account's requests. An API key of the account opens it." }
        @if let Some(problem) = problem {
            p #problem .problem role="alert" { (problem) }
        }
        form method="post" action=(PATH) {
            label for="api_key" { "API key" }
            input #api_key name="api_key" type="password" autocomplete="current-password" required
                aria-describedby=[problem.map(|_| "problem")] spellcheck="false" autofocus;
            button type="submit" { "Sign in" }
        }
        p {
            "After " code { "make run" } " or " code { "docker compose up" } " the key is "
            code { "sk_test_charge_once_dev" } ", unless you chose another one."
        }
    };
    layout::bare_page(status, "Sign in", &body)
}
