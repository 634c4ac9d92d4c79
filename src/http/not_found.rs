//! The reply where there is no route.

use std::sync::LazyLock;

use actix_web::{FromRequest, HttpRequest, HttpResponse, http::Method};
use charge_once_service::edge::{KnownRoute, KnownRoutes};
use utoipa::openapi::path::PathItem;

use super::{
    error::HttpResult,
    openapi,
    request::{Caller, app, below_prefix},
};
use crate::wire::{
    dialect::Dialect,
    error::{ApiError, ErrorCode},
    list::List,
    not_offered,
};

/// The paths of the API, as the document writes them.
pub(super) static KNOWN_ROUTES: LazyLock<KnownRoutes> = LazyLock::new(|| {
    let paths = openapi::document().paths.paths.into_iter();
    // Most servers don't have the routes for tests of retries.
    let paths = paths.filter(|(pattern, _)| !pattern.starts_with("/test/"));
    let known = paths.map(|(pattern, item)| KnownRoute {
        pattern,
        methods: methods(&item),
    });
    known.collect()
});

fn methods(item: &PathItem) -> String {
    let methods = [
        ("GET", item.get.is_some()),
        ("POST", item.post.is_some()),
        ("PUT", item.put.is_some()),
        ("DELETE", item.delete.is_some()),
    ];
    let present = methods.into_iter().filter(|(_, is_there)| *is_there);
    let names: Vec<_> = present.map(|(name, _)| name).collect();
    names.join(", ")
}

/// Answers 404. The message says what of Stripe's is not offered, or names the nearest route by its
/// pattern: the path may hold anything.
///
/// `EMPTY_LISTS` makes lists of Stripe's empty instead, for programs that read all that an account
/// has. No filter finds anything in them.
pub(super) async fn route_not_found(request: HttpRequest) -> HttpResult {
    let path = below_prefix(request.path());
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    if is_read
        && Dialect::of_path(request.path()) == Dialect::Stripe
        && not_offered::is_list(path)
        && app(&request)?.values.empty_lists
    {
        Caller::extract(&request).await?;
        let list = List::<()>::new(Vec::new(), false, request.path().to_owned());
        return Ok(HttpResponse::Ok().json(list));
    }
    let not_offered = not_offered::path(path, |pattern| KNOWN_ROUTES.get(pattern).is_some());
    let message = not_offered.unwrap_or_else(|| match KNOWN_ROUTES.nearest(path) {
        None => "There is nothing at this path. GET / lists where to begin.".to_owned(),
        Some(KnownRoute { pattern, methods }) => {
            format!("There is nothing at this path. The nearest route is {methods} {pattern}.")
        }
    });
    Err(ApiError::new(ErrorCode::RouteNotFound, message).into())
}
