//! Errors of the console. Each is shown as a page, or leads to the page for signing in.

use actix_web::{HttpResponse, ResponseError, http::StatusCode};
use maud::html;

use super::{layout, server::Refusal, sign_in};

#[derive(Debug, thiserror::Error)]
pub(super) enum ConsoleError {
    /// The visitor has no session: they are sent to the page where one begins, and from there to
    /// the page at this path, if they asked for one.
    #[error("Sign in first.")]
    SignIn(Option<String>),
    /// A form that another site may have sent.
    #[error(
        "This form was not sent by a page of the console. Open the page again, and send it from \
         there. A proxy in front of charge-once must pass on the Host header."
    )]
    ForeignForm,
    #[error("This account has no such thing.")]
    Missing,
    /// The address or the form has something that this page doesn't know.
    #[error("{0}")]
    Unreadable(&'static str),
    /// Too many actions at once.
    #[error("The playground is busy. Try again in a moment.")]
    Busy,
    /// As the API would answer.
    #[error("{}", .0.says())]
    Api(Refusal),
}

impl From<Refusal> for ConsoleError {
    fn from(refusal: Refusal) -> Self {
        // A key that was revoked meanwhile.
        if refusal.0 == StatusCode::UNAUTHORIZED {
            Self::SignIn(None)
        } else {
            Self::Api(refusal)
        }
    }
}

impl Refusal {
    /// For a person, who sees neither headers nor the keys of requests.
    pub(super) fn says(self) -> &'static str {
        match self.0 {
            StatusCode::UNAUTHORIZED => {
                "This is no API key of this service: it was mistyped, or it is revoked. A secret key \
                 is needed, not a publishable one."
            }
            StatusCode::TOO_MANY_REQUESTS => "This is too much at once. Try again in a moment.",
            StatusCode::PAYLOAD_TOO_LARGE => "The form is too long.",
            StatusCode::REQUEST_TIMEOUT => "The form did not arrive in time. Send it again.",
            status if status.is_server_error() => {
                "The server can't answer this now. Try again in a moment."
            }
            _ => "The server does not take this.",
        }
    }
}

impl ResponseError for ConsoleError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::SignIn(_) => StatusCode::SEE_OTHER,
            Self::ForeignForm => StatusCode::FORBIDDEN,
            Self::Missing => StatusCode::NOT_FOUND,
            Self::Unreadable(_) => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Api(refusal) => refusal.0,
        }
    }

    fn error_response(&self) -> HttpResponse {
        if let Self::SignIn(wanted) = self {
            return layout::redirect(&sign_in::path_to(wanted.as_deref()));
        }
        let status = self.status_code();
        let title = status.canonical_reason().unwrap_or("Error");
        let body = html! {
            h1 { (title) }
            p { (self) }
            @if let Self::Missing = self {
                p {
                    "Compare the id with the one that the API answered, and sign in with an API key of the \
                     account that made it. Keys go when they expire, and rows of the log after a day."
                }
            }
            p { a href="/console" { "Back to the console" } }
        };
        layout::bare_page(status, title, &body)
    }
}
