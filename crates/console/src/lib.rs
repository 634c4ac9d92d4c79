#![doc = include_str!("../README.md")]

mod deliveries;
mod endpoints;
mod error;
mod exchanges;
mod form;
mod in_flight;
mod keys;
mod layout;
mod locale;
mod masked;
mod members;
mod noun;
mod objects;
mod overview;
mod playground;
mod protocol;
mod report;
mod requests;
mod search;
mod server;
mod session;
mod sign_in;
mod steps;
mod timeline;
mod visitor;
mod workflows;

use std::{net::SocketAddr, sync::LazyLock};

use actix_web::{
    HttpRequest, HttpResponse, Resource, Route, guard,
    web::{self, ServiceConfig},
};
use percent_encoding::percent_decode_str;

use self::{error::ConsoleError, noun::Noun, playground::Playground, session::Sessions};
pub use self::{
    playground::{CardGroup, PlaygroundError, TestCard},
    server::{
        Account, Answer, Attempted, Delivery, Found, FoundDeliveries, FoundRequests, Happened,
        InFlight, Kind, LastCheck, Listed, Logged, Minute, OUTCOMES, Object, Refusal, Server,
        Story, WantedDeliveries, WantedOutcome, WantedRequests, WebhookEndpoint,
    },
};

/// What the pages are asked of.
type Asked = web::Data<dyn Server>;

/// What a handler answers.
type Page = Result<HttpResponse, ConsoleError>;

/// What the pages work with, beside the [`Server`].
#[derive(Debug)]
pub struct Console {
    sessions: Sessions,
    playground: Playground,
}

impl Console {
    /// For the server that listens on `address`, takes requests to `host`, is reached by others at
    /// `public_url`, and charges these test cards.
    pub fn new(
        address: SocketAddr,
        host: &str,
        public_url: &str,
        cards: Vec<CardGroup>,
    ) -> Result<Self, PlaygroundError> {
        Ok(Self {
            sessions: Sessions::default(),
            playground: Playground::new(address, host, public_url, cards)?,
        })
    }
}

/// The pages. They need a `Data<Console>` and a `Data<dyn Server>`. `allow` makes the resource at a
/// path that has these methods, and refuses others.
pub fn routes(config: &mut ServiceConfig, allow: fn(&'static str, &'static str) -> Resource) {
    const READ: &str = "GET, HEAD";
    config
        .service(allow("/console", READ).route(get().to(overview::show)))
        .service(allow("/console/live/overview", READ).route(get().to(overview::live)))
        .service(allow("/console/search", READ).route(get().to(search::show)))
        .service(allow("/console/requests", READ).route(get().to(requests::show)))
        .service(allow("/console/live", READ).route(get().to(requests::live)))
        .service(allow("/console/live/keys/{key}", READ).route(get().to(keys::live)))
        .service(allow("/console/keys/{key}", READ).route(get().to(keys::show)))
        .service(allow("/console/deliveries", READ).route(get().to(deliveries::show)))
        .service(
            allow("/console/deliveries/{id}/retry", "POST")
                .route(web::post().to(deliveries::retry)),
        )
        .service(allow("/console/deliveries/{id}", READ).route(get().to(deliveries::one)))
        .service(
            allow("/console/webhook_endpoints/new", "GET, HEAD, POST")
                .route(web::post().to(endpoints::make))
                .route(get().to(endpoints::new)),
        )
        .service(
            allow("/console/webhook_endpoints/{id}/pause", "POST")
                .route(web::post().to(endpoints::pause)),
        )
        .service(
            allow("/console/webhook_endpoints/{id}/test", "POST")
                .route(web::post().to(endpoints::test)),
        )
        .service(
            allow("/console/webhook_endpoints/{id}/retry", "POST")
                .route(web::post().to(endpoints::retry)),
        )
        .service(allow("/console/workflows", READ).route(get().to(workflows::show)))
        .service(allow("/console/in-flight", READ).route(get().to(in_flight::show)))
        .service(
            allow("/console/playground", "GET, HEAD, POST")
                .route(web::post().to(playground::act))
                .route(get().to(playground::show)),
        )
        .service(allow("/console/protocol", READ).route(get().to(protocol::show)))
        .service(
            allow("/console/report", "GET, HEAD, POST")
                .route(web::post().to(report::add))
                .route(get().to(report::show)),
        )
        .service(
            allow("/console/report/plans/{id}/delete", "POST")
                .route(web::post().to(report::delete)),
        )
        .service(
            allow("/console/sign-in", "GET, HEAD, POST")
                .route(web::post().to(sign_in::sign_in))
                .route(get().to(sign_in::show)),
        )
        .service(allow("/console/sign-out", "POST").route(web::post().to(sign_in::sign_out)))
        .service(allow("/console/style.css", READ).route(get().to(layout::style)))
        .service(allow("/console/script.js", READ).route(get().to(layout::script)));
    for (kind, list, one) in &*OF_KINDS {
        let kind = *kind;
        if Noun::of(kind).has_list() {
            let show =
                move |server, visitor, request| objects::list(kind, server, visitor, request);
            config.service(allow(list, READ).route(get().to(show)));
        }
        let show = move |server, visitor, request| objects::one(kind, server, visitor, request);
        config.service(allow(one, READ).route(get().to(show)));
    }
}

/// The paths of the list of each kind, and of one of them. What a resource takes is a path that
/// lives as long as the program.
static OF_KINDS: LazyLock<Vec<(Kind, String, String)>> = LazyLock::new(|| {
    let paths = Kind::ALL.iter().map(|kind| {
        let list = format!("/console/{}", Noun::of(*kind).path);
        (*kind, list.clone(), list + "/{id}")
    });
    paths.collect()
});

/// GET, and HEAD with it.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// The last segment of a path as it was sent: the router's own text is decoded but for `%`, `/` and
/// `+`.
fn last_segment(request: &HttpRequest) -> Vec<u8> {
    let segment = request.uri().path().rsplit('/').next().unwrap_or_default();
    percent_decode_str(segment).collect()
}

/// A member of the query, decoded; of several, the first.
fn query_value(request: &HttpRequest, name: &str) -> Option<String> {
    form_urlencoded::parse(request.query_string().as_bytes())
        .find(|(found, _)| found == name)
        .map(|(_, value)| value.into_owned())
}
