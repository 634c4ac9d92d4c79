//! What the pages about objects are made of: their lists, and each with what happened to it.

use charge_once_console::{Happened, Kind, Listed, Object, Refusal};
use charge_once_strict_params::{
    Expansion,
    pages::{Cursor, NamePage, Page},
};
use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    AccountPages, uuid,
    webhook_pages::{DELIVERIES_MAX, deliveries_of, delivery},
};
use crate::{
    database::PgConnection,
    domain::{checkout::Checkout, ids::*, inventory::sku},
    http::reads,
    store,
    webhooks::{Slice, deliveries, endpoints, events},
    wire::{
        charges::ChargeView,
        checkouts::CheckoutView,
        customers::AnyCustomerView,
        dialect::Dialect,
        events::{EventView, key_of_client},
        inventory::InventoryView,
        orders::OrderView,
        payment_intents::PaymentIntentView,
        payment_methods::PaymentMethodView,
        refunds::RefundView,
        setup_intents::SetupIntentView,
        webhook_endpoints::WebhookEndpointView,
    },
    work::expansions::{Audience, Shown},
};

impl AccountPages {
    pub(super) async fn listed_objects(
        &self,
        account: AccountId,
        kind: Kind,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Option<Listed>, Refusal> {
        if kind == Kind::Inventory {
            return self.levels(account, after, limit).await;
        }
        let cursor = match after {
            None => Cursor::Start,
            Some(id) => match parse(kind, id) {
                Some(id) => Cursor::StartingAfter(id),
                None => return Ok(None),
            },
        };
        let page = Page {
            limit,
            cursor,
            created_from: None,
            created_before: None,
        };
        let listed = self.of(account).await?.read(account, move |connection| {
            Box::pin(async move { list(connection, account, kind, &page).await })
        });
        Ok(listed.await?)
    }

    pub(super) async fn shown_object(
        &self,
        account: AccountId,
        kind: Kind,
        name: &str,
    ) -> Result<Option<Object>, Refusal> {
        if kind == Kind::Inventory {
            return self.level(account, name).await;
        }
        let Some(id) = parse(kind, name) else {
            return Ok(None);
        };
        let name = name.to_owned();
        let app = self.of(account).await?;
        let found = app.snapshot(account, move |connection| {
            Box::pin(async move { read_object(connection, account, kind, id, &name).await })
        });
        Ok(found.await?)
    }

    async fn levels(
        &self,
        account: AccountId,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Option<Listed>, Refusal> {
        let cursor = match after {
            None => Cursor::Start,
            // No level has a name that is no sku.
            Some(name) if sku(name.as_bytes()).is_none() => return Ok(None),
            Some(name) => Cursor::StartingAfter(name.to_owned()),
        };
        let page = NamePage { limit, cursor };
        let reading = self.of(account).await?.read(account, move |connection| {
            Box::pin(async move { store::inventory::list(connection, account, &page).await })
        });
        let found = reading.await?;
        let views: Vec<_> = found.data.iter().map(InventoryView::from).collect();
        Ok(Some(listed(&views, found.has_more)))
    }

    async fn level(&self, account: AccountId, name: &str) -> Result<Option<Object>, Refusal> {
        let Some(name) = sku(name.as_bytes()).map(str::to_owned) else {
            return Ok(None);
        };
        let found = self.of(account).await?.read(account, move |connection| {
            Box::pin(async move { store::inventory::find(connection, account, &name).await })
        });
        Ok(found.await?.map(|inventory| Object {
            json: json(&InventoryView::from(&inventory)),
            events: Vec::new(),
            deliveries: Vec::new(),
        }))
    }
}

pub(super) fn parse(kind: Kind, id: &str) -> Option<Uuid> {
    match kind {
        Kind::Charges => uuid::<ChargeId>(id),
        Kind::PaymentIntents => uuid::<PaymentIntentId>(id),
        Kind::Customers => uuid::<CustomerId>(id),
        Kind::PaymentMethods => uuid::<PaymentMethodId>(id),
        Kind::SetupIntents => uuid::<SetupIntentId>(id),
        Kind::Orders => uuid::<OrderId>(id),
        Kind::Refunds => uuid::<RefundId>(id),
        Kind::Checkouts => uuid::<CheckoutId>(id),
        Kind::Events => uuid::<EventId>(id),
        Kind::WebhookEndpoints => uuid::<WebhookEndpointId>(id),
        Kind::Inventory => None,
    }
}

/// The member of other objects' events that names such an object.
fn parent(kind: Kind) -> &'static str {
    match kind {
        Kind::Charges
        | Kind::Orders
        | Kind::Refunds
        | Kind::Checkouts
        | Kind::Inventory
        | Kind::Events
        | Kind::WebhookEndpoints => "charge",
        Kind::PaymentIntents => "payment_intent",
        Kind::Customers => "customer",
        Kind::PaymentMethods | Kind::SetupIntents => "payment_method",
    }
}

/// An object with what happened to it, and what was sent of that.
async fn read_object(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    id: Uuid,
    name: &str,
) -> Result<Option<Object>, sqlx::Error> {
    let Some((json, key)) = find(&mut *connection, account, kind, id).await? else {
        return Ok(None);
    };
    let events = match (kind, key) {
        (Kind::Events | Kind::WebhookEndpoints, _) => Vec::new(),
        // Its steps are other objects' events.
        (_, Some(key)) => events::list_of_key(&mut *connection, account.0, id, &key).await?,
        (_, None) => {
            let of = parent(kind);
            events::list_of_object(&mut *connection, account.0, id, name, of).await?
        }
    };
    let deliveries = if kind == Kind::Events {
        deliveries_of(connection, account, &[id]).await?
    } else if kind == Kind::WebhookEndpoints {
        let newest = Slice::newest(DELIVERIES_MAX);
        let found = deliveries::list(connection, account.0, id, &newest).await?;
        found.into_iter().map(delivery).collect()
    } else {
        Vec::new()
    };
    Ok(Some(Object {
        json,
        events: events.into_iter().map(happened).collect(),
        deliveries,
    }))
}

async fn list(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    page: &Page,
) -> Result<Option<Listed>, sqlx::Error> {
    // `all!(refunds)` reads the page of `store::refunds`, and shows each.
    macro_rules! all {
        ($store:ident) => {{
            let found = store::$store::list(&mut *connection, account, page, Default::default());
            let found = found.await?;
            let views = views(connection, account, &found.data).await?;
            Some(listed(&views, found.has_more))
        }};
    }
    Ok(match kind {
        Kind::Charges => all!(charges),
        Kind::PaymentIntents => all!(payment_intents),
        Kind::Customers => all!(customers),
        Kind::Events => {
            let slice = reads::slice(page);
            let found = page.cut(events::list(connection, account.0, &slice, None).await?);
            let views: Vec<_> = found.data.into_iter().map(EventView::from).collect();
            Some(listed(&views, found.has_more))
        }
        // Payment methods are listed by customer, and here through their customers' events;
        // endpoints with their deliveries, and levels of the inventory by name.
        Kind::PaymentMethods | Kind::WebhookEndpoints | Kind::Inventory => None,
        Kind::SetupIntents => all!(setup_intents),
        Kind::Orders => all!(orders),
        Kind::Refunds => all!(refunds),
        Kind::Checkouts => {
            let found =
                store::checkouts::list(connection, account, page, Default::default()).await?;
            let views: Vec<_> = found.data.iter().map(with_card).collect();
            Some(listed(&views, found.has_more))
        }
    })
}

/// A checkout with its card, which its view lacks.
fn with_card(checkout: &Checkout) -> Value {
    let mut view = json!(CheckoutView::from(checkout));
    if let Some(members) = view.as_object_mut() {
        let card = checkout.card.test_card;
        let card = json!({"brand": card.brand, "last4": card.last4});
        members.insert("card".to_owned(), card);
    }
    view
}

fn listed(views: &[impl Serialize], has_more: bool) -> Listed {
    Listed {
        objects: views.iter().map(json).collect(),
        has_more,
    }
}

/// What a list shows of objects. Charges and payment methods, which have the cards, are expanded.
pub(super) async fn views<T: Shown>(
    connection: &mut PgConnection,
    account: AccountId,
    objects: &[T],
) -> Result<Vec<T::View>, sqlx::Error> {
    let audience = Audience {
        account,
        dialect: Dialect::Ietf,
    };
    let expand = Expansion(["charge", "payment_method"].map(str::to_owned).to_vec());
    T::views(connection, audience, objects, &expand).await
}

/// An object as the API shows it. Of one that takes several steps, the key of its request too.
pub(super) async fn find(
    connection: &mut PgConnection,
    account: AccountId,
    kind: Kind,
    id: Uuid,
) -> Result<Option<(Vec<u8>, Option<String>)>, sqlx::Error> {
    // `shown!(orders, OrderId, OrderView)` finds the order in `store::orders`, and makes its view.
    macro_rules! shown {
        ($store:ident, $id:ident, $view:ident) => {{
            let found = store::$store::find(connection, account, $id(id)).await?;
            found.map(|object| (json(&$view::from(&object)), None))
        }};
    }
    Ok(match kind {
        Kind::Charges => shown!(charges, ChargeId, ChargeView),
        Kind::PaymentIntents => shown!(payment_intents, PaymentIntentId, PaymentIntentView),
        Kind::Customers => shown!(customers, CustomerId, AnyCustomerView),
        Kind::PaymentMethods => shown!(payment_methods, PaymentMethodId, PaymentMethodView),
        Kind::SetupIntents => shown!(setup_intents, SetupIntentId, SetupIntentView),
        Kind::Orders => shown!(orders, OrderId, OrderView),
        Kind::Refunds => shown!(refunds, RefundId, RefundView),
        Kind::Checkouts => {
            let found = store::checkouts::find(connection, account, CheckoutId(id)).await?;
            found.map(|checkout| {
                let view = json(&CheckoutView::from(&checkout));
                (view, Some(checkout.asked_by.idempotency_key))
            })
        }
        Kind::Events => {
            let found = events::find(connection, account.0, id).await?;
            found.map(|event| (json(&EventView::from(event)), None))
        }
        Kind::WebhookEndpoints => {
            let found = endpoints::find(connection, account.0, id).await?;
            found.map(|endpoint| (json(&WebhookEndpointView::from(&endpoint)), None))
        }
        Kind::Inventory => None,
    })
}

pub(super) fn json(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).unwrap_or_default()
}

pub(super) fn happened(event: events::Happened) -> Happened {
    Happened {
        id: EventId(event.id).to_string(),
        event_type: event.event_type,
        object_id: event.object_id,
        idempotency_key: key_of_client(event.idempotency_key),
        created_at: event.created_at,
    }
}
