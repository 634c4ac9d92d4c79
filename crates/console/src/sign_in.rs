//! Signing in with an API key, and out.

use std::time::Instant;

use actix_web::{
    HttpRequest, HttpResponse,
    http::{Method, StatusCode, header::SET_COOKIE},
    web,
};
use maud::html;

use super::{
    Asked, Console, Page, Refusal,
    form::Form,
    layout, query_value,
    session::LASTS,
    visitor::{COOKIE_NAME, client_of, token},
};

/// Where a session begins.
const PATH: &str = "/console/sign-in";

/// Where it leads to, unless another page was asked for.
const START: &str = "/console";

/// What leads to the page that was asked for: a parameter of the address, and then a field of the
/// form.
const NEXT: &str = "next";

/// The page that a request asks for, if a person can be sent there after signing in.
pub(super) fn wanted(request: &HttpRequest) -> Option<String> {
    // A part of a page, which is asked for by its script.
    let is_page = request.method() == Method::GET && !request.path().starts_with("/console/live");
    // The filter of a list is a part of what was asked for.
    let asked = request.uri().path_and_query().map(|asked| asked.as_str());
    let asked = asked.filter(|asked| is_page && *asked != START);
    asked.map(str::to_owned)
}

/// Where a session begins that leads to this page, or to the first one.
pub(super) fn path_to(page: Option<&str>) -> String {
    let next = page.map(|page| format!("?{NEXT}={}", layout::encoded(page)));
    PATH.to_owned() + &next.unwrap_or_default()
}

/// A page of the console, and never one of another site, whatever the address or the form says.
fn next(wanted: &str) -> Option<&str> {
    let is_path = wanted.bytes().all(|byte| byte.is_ascii_graphic());
    let is_own = wanted.starts_with("/console/") || wanted.starts_with("/console?");
    (is_path && is_own).then_some(wanted)
}

pub(super) async fn show(request: HttpRequest) -> HttpResponse {
    let wanted = query_value(&request, NEXT).unwrap_or_default();
    page(StatusCode::OK, None, next(&wanted))
}

/// Begins a session, if the API would serve the key.
pub(super) async fn sign_in(
    server: Asked,
    console: web::Data<Console>,
    request: HttpRequest,
    form: Form,
) -> HttpResponse {
    let (api_key, next) = (form.field("api_key"), next(form.field(NEXT)));
    let known = async {
        let account = server.account_of(api_key, client_of(&request)).await?.id;
        Ok((account, server.name_of(account).await?))
    };
    let (account, name) = match known.await {
        Ok(known) => known,
        Err(Refusal(status)) => return page(status, Some(Refusal(status).says()), next),
    };
    // The browser forgets the token of its session before.
    if let Some(former) = token(request.headers()) {
        console.sessions.end(former);
    }
    let sessions = &console.sessions;
    let token = sessions.begin(account, &name, api_key, Instant::now());
    let cookie = cookie(&token.reveal(), LASTS.as_secs());
    let mut response = layout::redirect(next.unwrap_or(START));
    layout::add_header(&mut response, SET_COOKIE, &cookie);
    response
}

pub(super) async fn sign_out(console: web::Data<Console>, request: HttpRequest, _: Form) -> Page {
    if let Some(token) = token(request.headers()) {
        console.sessions.end(token);
    }
    let mut response = layout::redirect(PATH);
    layout::add_header(&mut response, SET_COOKIE, &cookie("", 0));
    Ok(response)
}

/// No script can read it, and no other site's page can have it sent. It has no `Secure`: this
/// process doesn't know whether a proxy in front of it speaks https.
fn cookie(value: &str, seconds: u64) -> String {
    format!("{COOKIE_NAME}={value}; Path=/console; Max-Age={seconds}; HttpOnly; SameSite=Strict")
}

fn page(status: StatusCode, problem: Option<&str>, next: Option<&str>) -> HttpResponse {
    let body = html! {
        h1 { "Sign in" }
        p { "The console shows what became of an account's requests. An API key of the account opens it." }
        @if let Some(problem) = problem {
            p #problem .problem role="alert" { (problem) }
        }
        form .sign-in method="post" action=(PATH) {
            label for="api_key" { "API key" }
            input #api_key name="api_key" type="password" autocomplete="current-password" required
                aria-describedby=[problem.map(|_| "problem")] spellcheck="false" autofocus;
            @if let Some(next) = next { input type="hidden" name=(NEXT) value=(next); }
            button type="submit" { "Sign in" }
        }
        p {
            "After " code { "make run" } " or " code { "docker compose up" } " the key is "
            code { "sk_test_ChargeOnceDevelopmentKey00" } ", unless you chose another one."
        }
    };
    layout::bare_page(status, "Sign in", &body)
}
