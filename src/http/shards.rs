//! Which database a request works with, where a service has several.
//!
//! Promise: a handler's `App` is that of the database in which the request's account lives, or the
//! request is refused: by `request::caller`, or by the database itself, which has no such account.

use std::rc::Rc;

use actix_web::{
    Error, HttpMessage, HttpRequest,
    body::MessageBody,
    dev::{Extensions, ServiceRequest, ServiceResponse},
    http::StatusCode,
    middleware::Next,
    web::Data,
};
use charge_once_service::edge::routed_path;
use charge_once_service::request_log::Entry;

use super::{
    app::{App, Apps},
    error::HttpError,
    request::{client_of, work_begins},
};

/// The `App` of each database, as handlers extract it. One of these for each worker thread.
pub struct Homes(Vec<(Data<App>, Rc<Extensions>)>);

impl Homes {
    /// Of all databases.
    pub fn of(apps: &Apps) -> Self {
        let homes = apps.iter().map(|app| {
            let mut data = Extensions::new();
            data.insert(Data::clone(app));
            (Data::clone(app), Rc::new(data))
        });
        Self(homes.collect())
    }
}

/// The `App` of one database, for a handler that finds the account of its request itself.
pub(super) fn app_of(request: &HttpRequest, database: usize) -> Option<Data<App>> {
    let homes = request.app_data::<Rc<Homes>>()?;
    homes.0.get(database).map(|(app, _)| Data::clone(app))
}

/// Gives the handler the `App` of its request's account. The handler authenticates the request
/// itself, from memory. With one database, this does nothing.
pub async fn at_home<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let homes = request.app_data::<Rc<Homes>>().map(Rc::clone);
    if let Some(homes) = homes
        && let [(first, _), _, ..] = &*homes.0
    {
        let home = home_of(first, &request).await?;
        if let Some((app, data)) = home.and_then(|home| homes.0.get(home)) {
            if let Some(entry) = request.extensions().get::<Entry>()
                && let Some(log) = &app.request_log
            {
                entry.moves_to(log);
            }
            request.add_data_container(Rc::clone(data));
            let app = Data::clone(app);
            let response = next.call(request).await?;
            // The account's database may have said that it moves, so it is looked for anew.
            if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                app.api_keys.forget_home(response.request().headers());
            }
            return Ok(response);
        }
    }
    next.call(request).await
}

async fn home_of(app: &App, request: &ServiceRequest) -> Result<Option<usize>, HttpError> {
    let path = routed_path(request.request());
    // Probes are about the process, and not about who asks. A page is found by its token.
    if matches!(path, "/livez" | "/readyz") || path.starts_with("/authenticate/") {
        return Ok(None);
    }
    let request = request.request();
    let (client, until) = (client_of(request), work_begins(app, request));
    let keys = &app.api_keys;
    keys.home_of_request(request.headers(), client, until).await
}
