//! The views of objects, with whole objects in the place of the references that `expand` names.
//!
//! For the replies of verbs and for reads alike. Takes no lock. Each member that is shown whole
//! is one query, for however many objects.

use std::{collections::HashMap, fmt::Display};

use charge_once_strict_params::Expansion;
use charge_once_strict_params::pages::Listed;
use futures_util::future::BoxFuture;
use serde::Serialize;
use sqlx::PgConnection;

use crate::{
    commands::{Noun, Object, Origin, Said},
    domain::{
        charge::Charge,
        customer::Customer,
        ids::{AccountId, ChargeId, CustomerId},
        order::Order,
        payment_intent::PaymentIntent,
        payment_method::PaymentMethod,
        refund::Refund,
        setup_intent::SetupIntent,
    },
    idempotency::{Rejection, Reply},
    store,
    wire::{
        charges::ChargeView,
        customers::AnyCustomerView,
        dialect::Dialect,
        list::{Expandable, List},
        orders::OrderView,
        payment_intents::PaymentIntentView,
        payment_methods::PaymentMethodView,
        refunds::RefundView,
        setup_intents::SetupIntentView,
    },
};

/// How many refunds an expanded charge shows; the list at its `url` has the rest.
const EXPANDED_REFUNDS_MAX: i64 = 10;

/// Who sees the objects.
#[derive(Debug, Clone, Copy)]
pub struct Audience {
    /// The account that the objects belong to.
    pub account: AccountId,
    /// Decides what paths in the views start with.
    pub dialect: Dialect,
}

/// Views that are being made.
pub type Views<'a, T> = BoxFuture<'a, Result<Vec<T>, sqlx::Error>>;

/// What clients can see.
pub trait Shown: Send + Sync + Sized {
    /// As they see it.
    type View: Serialize + Send;
    /// The last part of the path of its list.
    const COLLECTION: &'static str;

    /// Views of objects, in their order, with what `expand` names shown whole.
    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        objects: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, Self::View>;
}

/// The reply of a verb, where nothing else is to be read for it.
pub(super) fn plain_reply(said: Said, origin: &Origin) -> Result<Reply, Rejection> {
    let (status, object) = match said {
        Said::Reply(reply) => return Ok(reply),
        Said::Show { status, object } => (status, object),
    };
    match &*object {
        Object::Charge(of) => told(of, &ChargeView::from(of), status, origin),
        Object::Order(of) => told(of, &OrderView::from(of), status, origin),
        Object::PaymentIntent(of) => told(of, &PaymentIntentView::from(of), status, origin),
        Object::Refund(of) => told(of, &RefundView::from(of), status, origin),
        Object::SetupIntent(of) => told(of, &SetupIntentView::from(of), status, origin),
        Object::PaymentMethod(of) => told(of, &PaymentMethodView::from(of), status, origin),
        Object::Customer(of) => told(of, &AnyCustomerView::from(of), status, origin),
    }
}

/// The reply of a verb, with what `expand` names shown whole.
pub(super) async fn reply(
    said: Said,
    expand: &Expansion,
    origin: &Origin,
    tx: &mut PgConnection,
) -> Result<Reply, Rejection> {
    let (status, object) = match said {
        Said::Show { status, object } if !expand.is_empty() => (status, object),
        said @ (Said::Show { .. } | Said::Reply(_)) => return plain_reply(said, origin),
    };
    let audience = Audience {
        account: origin.account,
        dialect: origin.asked_by.dialect,
    };
    match &*object {
        Object::Charge(of) => told(of, &view(tx, audience, of, expand).await?, status, origin),
        Object::Order(of) => told(of, &view(tx, audience, of, expand).await?, status, origin),
        Object::PaymentIntent(of) => {
            told(of, &view(tx, audience, of, expand).await?, status, origin)
        }
        Object::Refund(of) => told(of, &view(tx, audience, of, expand).await?, status, origin),
        Object::SetupIntent(of) => told(of, &view(tx, audience, of, expand).await?, status, origin),
        Object::PaymentMethod(of) => {
            told(of, &view(tx, audience, of, expand).await?, status, origin)
        }
        Object::Customer(of) => told(of, &view(tx, audience, of, expand).await?, status, origin),
    }
}

/// The reply that shows an object.
fn told<T: Noun<Id: Display> + Shown>(
    object: &T,
    view: &<T as Shown>::View,
    status: u16,
    origin: &Origin,
) -> Result<Reply, Rejection> {
    origin.reply(status, T::COLLECTION, object.id().to_string(), view)
}

/// The view of one object.
pub async fn view<T: Shown>(
    connection: &mut PgConnection,
    audience: Audience,
    object: &T,
    expand: &Expansion,
) -> Result<T::View, sqlx::Error> {
    let objects = std::slice::from_ref(object);
    let mut views = T::views(connection, audience, objects, expand).await?;
    views.pop().ok_or(sqlx::Error::RowNotFound)
}

/// Puts whole objects in the place of a reference to one of them.
fn fill<'a, T: Clone + 'a>(
    reference: impl Into<Option<&'a mut Expandable<T>>>,
    whole: &HashMap<String, T>,
) {
    if let Some(reference) = reference.into()
        && let Expandable::Id(id) = &*reference
        && let Some(object) = whole.get(id)
    {
        *reference = Expandable::Object(Box::new(object.clone()));
    }
}

/// Views of the objects that were found, by the ids that clients see.
async fn by_id<Id: Display, T: Shown>(
    connection: &mut PgConnection,
    audience: Audience,
    found: HashMap<Id, T>,
    expand: &Expansion,
) -> Result<HashMap<String, T::View>, sqlx::Error> {
    let (ids, found): (Vec<Id>, Vec<T>) = found.into_iter().unzip();
    let views = T::views(connection, audience, &found, expand).await?;
    let ids = ids.into_iter().map(|id| id.to_string());
    Ok(ids.zip(views).collect())
}

/// Makes nouns visible, each as a view in a collection: `Noun as View in "collection" { … }`. A
/// line `member: table, reference;` says where the objects are that this member can show whole, and
/// what refers to them. `with` names a function that shows more. For example, this shows the charge
/// of an order: `Order as OrderView in "orders" { charge: charges, |order| order.charge; }`.
macro_rules! shown {
    ($($object:ident as $view:ident in $collection:literal $(with $more:ident)? {
        $($member:ident: $table:ident, $reference:expr;)*
    })+) => {$(
        impl Shown for $object {
            type View = $view;
            const COLLECTION: &'static str = $collection;

            fn views<'a>(
                connection: &'a mut PgConnection,
                audience: Audience,
                objects: &'a [Self],
                expand: &'a Expansion,
            ) -> Views<'a, $view> {
                Box::pin(async move {
                    let mut views: Vec<$view> = objects.iter().map($view::from).collect();
                    $($more(connection, audience, objects, expand, &mut views).await?;)?
                    $(if let Some(expand) = expand.under(stringify!($member)) {
                        let ids: Vec<_> = objects.iter().filter_map($reference).collect();
                        let found =
                            store::$table::find_all(connection, audience.account, &ids).await?;
                        let whole = by_id(connection, audience, found, &expand).await?;
                        for view in &mut views {
                            fill(&mut view.$member, &whole);
                        }
                    })*
                    Ok(views)
                })
            }
        }
    )+};
}

shown! {
    Charge as ChargeView in "charges" with show_refunds {
        customer: customers, |charge| CustomerId::parse(charge.customer.as_deref()?);
        payment_intent: payment_intents, |charge| Some(charge.by_intent.as_ref()?.intent);
    }
    Refund as RefundView in "refunds" {
        charge: charges, |refund| Some(refund.charge);
        payment_intent: payment_intents, |refund| refund.intent;
    }
    Order as OrderView in "orders" {
        charge: charges, |order| order.charge;
    }
    Customer as AnyCustomerView in "customers" with show_default_method {}
    PaymentMethod as PaymentMethodView in "payment_methods" {
        customer: customers, PaymentMethod::customer;
    }
    PaymentIntent as PaymentIntentView in "payment_intents" {
        customer: customers, |intent| intent.terms.customer;
        latest_charge: charges, |intent| intent.latest_charge;
        payment_method: payment_methods, |intent| intent.terms.payment_method;
    }
    SetupIntent as SetupIntentView in "setup_intents" {
        customer: customers, |setup| setup.terms.customer;
        payment_method: payment_methods, |setup| setup.terms.payment_method;
    }
}

/// The newest refunds of each charge.
async fn show_refunds(
    connection: &mut PgConnection,
    audience: Audience,
    charges: &[Charge],
    expand: &Expansion,
    views: &mut [ChargeView],
) -> Result<(), sqlx::Error> {
    if expand.under("refunds").is_some() {
        let ids: Vec<ChargeId> = charges.iter().map(|charge| charge.id).collect();
        let (account, most) = (audience.account, EXPANDED_REFUNDS_MAX);
        let refunds = store::refunds::newest_of_each(connection, account, &ids, most).await?;
        for (view, id) in views.iter_mut().zip(&ids) {
            view.refunds = Some(refunds_of(*id, refunds.get(id), audience));
        }
    }
    Ok(())
}

/// The default method of each customer who was not deleted.
async fn show_default_method(
    connection: &mut PgConnection,
    audience: Audience,
    customers: &[Customer],
    expand: &Expansion,
    views: &mut [AnyCustomerView],
) -> Result<(), sqlx::Error> {
    let settings = expand.under("invoice_settings");
    if let Some(expand) = settings.and_then(|of| of.under("default_payment_method")) {
        let ids = customers.iter().filter_map(|of| of.default_payment_method);
        let ids: Vec<_> = ids.collect();
        let methods = store::payment_methods::find_all(connection, audience.account, &ids).await?;
        let methods = by_id(connection, audience, methods, &expand).await?;
        for view in views {
            if let AnyCustomerView::Customer(view) = view {
                fill(&mut view.invoice_settings.default_payment_method, &methods);
            }
        }
    }
    Ok(())
}

/// The list in the member `refunds` of a charge.
pub(super) fn refunds_of(
    id: ChargeId,
    listed: Option<&Listed<Refund>>,
    audience: Audience,
) -> List<RefundView> {
    let url = format!("{}/charges/{id}/refunds", audience.dialect.prefix());
    let (data, has_more) = match listed {
        None => (&[][..], false),
        Some(listed) => (&listed.data[..], listed.has_more),
    };
    List::new(data.iter().map(RefundView::from).collect(), has_more, url)
}
