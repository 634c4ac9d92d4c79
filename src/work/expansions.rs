//! The views of objects, with whole objects in the place of the references that `expand` names.
//!
//! For the replies of verbs and for reads alike. Takes no lock. Each member that is shown whole
//! is one query, for however many objects.

use std::collections::HashMap;

use charge_once_strict_params::Expansion;
use charge_once_strict_params::pages::Listed;
use futures_util::future::BoxFuture;
use serde::Serialize;
use sqlx::PgConnection;

use crate::{
    commands::{Object, Origin, Said},
    domain::{
        charge::Charge,
        customer::Customer,
        ids::{AccountId, ChargeId, CustomerId, PaymentIntentId, PaymentMethodId},
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
    match said {
        Said::Reply(reply) => Ok(reply),
        Said::Show { status, object } => plain(&object, origin, status),
    }
}

/// The reply of a verb, with what `expand` names shown whole.
pub(super) async fn reply(
    said: Said,
    expand: &Expansion,
    origin: &Origin,
    tx: &mut PgConnection,
) -> Result<Reply, Rejection> {
    match said {
        Said::Show { status, object } if !expand.is_empty() => {
            expanded(&object, origin, tx, status, expand).await
        }
        said @ (Said::Show { .. } | Said::Reply(_)) => plain_reply(said, origin),
    }
}

/// Makes replies of objects.
macro_rules! objects {
    ($($noun:ident)+) => {
        fn plain(object: &Object, origin: &Origin, status: u16) -> Result<Reply, Rejection> {
            match object {
                $(Object::$noun(object) => {
                    let view = <$noun as Shown>::View::from(object);
                    origin.reply(status, $noun::COLLECTION, object.id.to_string(), &view)
                })+
            }
        }

        async fn expanded(
            object: &Object,
            origin: &Origin,
            tx: &mut PgConnection,
            status: u16,
            expand: &Expansion,
        ) -> Result<Reply, Rejection> {
            let audience = Audience { account: origin.account, dialect: origin.asked_by.dialect };
            match object {
                $(Object::$noun(object) => {
                    let view = view(tx, audience, object, expand).await?;
                    origin.reply(status, $noun::COLLECTION, object.id.to_string(), &view)
                })+
            }
        }
    };
}

objects! { Charge Order PaymentIntent Refund SetupIntent PaymentMethod Customer }

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
fn fill<T: Clone>(reference: &mut Option<Expandable<T>>, whole: &HashMap<String, T>) {
    let id = match reference {
        Some(Expandable::Id(id)) => id,
        Some(Expandable::Object(_)) | None => return,
    };
    if let Some(object) = whole.get(id) {
        *reference = Some(Expandable::Object(Box::new(object.clone())));
    }
}

/// Makes functions that find objects and show them, by the ids that clients see.
macro_rules! by_id {
    ($($name:ident: $id:ty, $store:ident, $object:ty;)+) => {$(
        async fn $name(
            connection: &mut PgConnection,
            audience: Audience,
            ids: impl Iterator<Item = $id> + Send,
            expand: &Expansion,
        ) -> Result<HashMap<String, <$object as Shown>::View>, sqlx::Error> {
            let ids: Vec<$id> = ids.collect();
            let found = store::$store::find_all(connection, audience.account, &ids).await?;
            let (ids, found): (Vec<$id>, Vec<$object>) = found.into_iter().unzip();
            let views = <$object>::views(connection, audience, &found, expand).await?;
            let ids = ids.into_iter().map(|id| id.to_string());
            Ok(ids.zip(views).collect())
        }
    )+};
}

by_id! {
    charges_by_id: ChargeId, charges, Charge;
    customers_by_id: CustomerId, customers, Customer;
    intents_by_id: PaymentIntentId, payment_intents, PaymentIntent;
    methods_by_id: PaymentMethodId, payment_methods, PaymentMethod;
}

/// Makes nouns visible, each as a view in a collection: `Noun as View in "collection" { … }`. A
/// line `member: function, reference;` says which function finds the objects that this member can
/// show whole, and what refers to them. `with` names a function that shows more.
macro_rules! shown {
    ($($object:ident as $view:ident in $collection:literal $(with $more:ident)? {
        $($member:ident: $by_id:ident, $reference:expr;)*
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
                        let ids = objects.iter().filter_map($reference);
                        let whole = $by_id(connection, audience, ids, &expand).await?;
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
        customer: customers_by_id, |charge| CustomerId::parse(charge.customer.as_deref()?);
        payment_intent: intents_by_id, |charge| Some(charge.by_intent.as_ref()?.intent);
    }
    Refund as RefundView in "refunds" with show_charge {
        payment_intent: intents_by_id, |refund| refund.intent;
    }
    Order as OrderView in "orders" {
        charge: charges_by_id, |order| order.charge;
    }
    Customer as AnyCustomerView in "customers" with show_default_method {}
    PaymentMethod as PaymentMethodView in "payment_methods" {
        customer: customers_by_id, PaymentMethod::customer;
    }
    PaymentIntent as PaymentIntentView in "payment_intents" {
        customer: customers_by_id, |intent| intent.terms.customer;
        latest_charge: charges_by_id, |intent| intent.latest_charge;
        payment_method: methods_by_id, |intent| intent.terms.payment_method;
    }
    SetupIntent as SetupIntentView in "setup_intents" {
        customer: customers_by_id, |setup| setup.terms.customer;
        payment_method: methods_by_id, |setup| setup.terms.payment_method;
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

/// The charge of each refund, which always has one.
async fn show_charge(
    connection: &mut PgConnection,
    audience: Audience,
    refunds: &[Refund],
    expand: &Expansion,
    views: &mut [RefundView],
) -> Result<(), sqlx::Error> {
    if let Some(expand) = expand.under("charge") {
        let ids = refunds.iter().map(|refund| refund.charge);
        let charges = charges_by_id(connection, audience, ids, &expand).await?;
        for (view, refund) in views.iter_mut().zip(refunds) {
            if let Some(charge) = charges.get(&refund.charge.to_string()) {
                view.charge = Expandable::Object(Box::new(charge.clone()));
            }
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
        let methods = methods_by_id(connection, audience, ids, &expand).await?;
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
