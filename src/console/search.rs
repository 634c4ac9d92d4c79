//! What the search finds by a name.

use charge_once_console::{Found, Kind};
use charge_once_service::request_log::{self, RequestFilter};
use charge_once_strict_params::pages::{Cursor, Page};
use uuid::Uuid;

use super::{
    object_pages::{find, parse},
    uuid,
};
use crate::{
    database::PgConnection,
    domain::{customer::CustomersWith, ids::*},
    store,
    webhooks::deliveries,
    wire::events::key_of_client,
};

/// Customers with one e-mail address that a search finds.
const CUSTOMERS_MAX: i64 = 10;

/// Everything with this name, each found by an index. `is_key`: a key is recorded or in flight.
pub(super) async fn look_up(
    connection: &mut PgConnection,
    account: AccountId,
    name: String,
    is_key: bool,
) -> Result<Vec<Found>, sqlx::Error> {
    let mut found = Vec::new();
    let logged = request_log::list_of_key(&mut *connection, account.0, &name, 1).await?;
    if is_key || !logged.is_empty() {
        found.push(Found::Key(name.clone()));
    }
    let mut kinds = Kind::ALL.iter();
    if let Some((kind, id)) = kinds.find_map(|kind| Some((*kind, parse(*kind, &name)?)))
        && find(&mut *connection, account, kind, id).await?.is_some()
    {
        found.push(Found::Object(kind, name.clone()));
    }
    if let Some(id) = uuid::<RequestId>(&name) {
        let (all, behind) = (RequestFilter::default(), next(id));
        let first = request_log::list(&mut *connection, account.0, &all, behind, 1).await?;
        let request = first.into_iter().find(|request| request.id == id);
        found.extend(request.map(
            |request| match request.idempotency_key.and_then(key_of_client) {
                Some(key) => Found::Key(key),
                None => Found::Request {
                    before: RequestId(behind).to_string(),
                },
            },
        ));
    }
    if let Some(id) = uuid::<WebhookDeliveryId>(&name)
        && deliveries::find(&mut *connection, account.0, id)
            .await?
            .is_some()
    {
        found.push(Found::Delivery(name.clone()));
    }
    let orders = store::orders::named(&mut *connection, &[(account, name.clone())]).await?;
    let orders = orders.into_iter().map(|(_, order)| order.id.to_string());
    found.extend(orders.map(|id| Found::Object(Kind::Orders, id)));
    if name.contains('@') {
        let page = Page {
            limit: CUSTOMERS_MAX,
            cursor: Cursor::Start,
            created_from: None,
            created_before: None,
        };
        let asked = Some(CustomersWith::email(name));
        let customers = store::customers::list(connection, account, &page, asked).await?;
        let ids = customers.data.iter().map(|one| one.id.to_string());
        found.extend(ids.map(|id| Found::Object(Kind::Customers, id)));
    }
    Ok(found)
}

/// The next id, before which a list begins with this one.
fn next(id: Uuid) -> Uuid {
    Uuid::from_u128(id.as_u128().saturating_add(1))
}
