//! The views of objects, with whole objects in the place of the references that `expand` names.
//!
//! For the replies of commands and for reads alike. Takes no lock. Each member that is shown whole
//! is one query, for however many objects.

use std::collections::HashMap;

use charge_once_pages::Listed;
use charge_once_strict_params::Expansion;
use futures_util::future::BoxFuture;
use serde::Serialize;
use sqlx::PgConnection;

use crate::{
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

impl Shown for Charge {
    type View = ChargeView;
    const COLLECTION: &'static str = "charges";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        charges: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, ChargeView> {
        Box::pin(async move {
            let mut views: Vec<ChargeView> = charges.iter().map(ChargeView::from).collect();
            if expand.under("refunds").is_some() {
                let ids: Vec<ChargeId> = charges.iter().map(|charge| charge.id).collect();
                let most = EXPANDED_REFUNDS_MAX;
                let refunds =
                    store::refunds::newest_of_each(connection, audience.account, &ids, most)
                        .await?;
                for (view, id) in views.iter_mut().zip(&ids) {
                    view.refunds = Some(refunds_of(*id, refunds.get(id), audience));
                }
            }
            if let Some(expand) = expand.under("customer") {
                let ids = charges
                    .iter()
                    .filter_map(|charge| charge.customer.as_deref());
                let ids = ids.filter_map(CustomerId::parse);
                let customers = customers_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.customer, &customers);
                }
            }
            if let Some(expand) = expand.under("payment_intent") {
                let ids = charges
                    .iter()
                    .filter_map(|charge| charge.by_intent.as_ref());
                let ids = ids.map(|of| of.intent);
                let intents = intents_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.payment_intent, &intents);
                }
            }
            Ok(views)
        })
    }
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

impl Shown for Refund {
    type View = RefundView;
    const COLLECTION: &'static str = "refunds";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        refunds: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, RefundView> {
        Box::pin(async move {
            let mut views: Vec<RefundView> = refunds.iter().map(RefundView::from).collect();
            if let Some(expand) = expand.under("charge") {
                let ids = refunds.iter().map(|refund| refund.charge);
                let charges = charges_by_id(connection, audience, ids, &expand).await?;
                for (view, refund) in views.iter_mut().zip(refunds) {
                    if let Some(charge) = charges.get(&refund.charge.to_string()) {
                        view.charge = Expandable::Object(Box::new(charge.clone()));
                    }
                }
            }
            if let Some(expand) = expand.under("payment_intent") {
                let ids = refunds.iter().filter_map(|refund| refund.intent);
                let intents = intents_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.payment_intent, &intents);
                }
            }
            Ok(views)
        })
    }
}

impl Shown for Order {
    type View = OrderView;
    const COLLECTION: &'static str = "orders";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        orders: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, OrderView> {
        Box::pin(async move {
            let mut views: Vec<OrderView> = orders.iter().map(OrderView::from).collect();
            if let Some(expand) = expand.under("charge") {
                let ids = orders.iter().filter_map(|order| order.charge);
                let charges = charges_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.charge, &charges);
                }
            }
            Ok(views)
        })
    }
}

impl Shown for Customer {
    type View = AnyCustomerView;
    const COLLECTION: &'static str = "customers";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        customers: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, AnyCustomerView> {
        Box::pin(async move {
            let mut views: Vec<AnyCustomerView> =
                customers.iter().map(AnyCustomerView::from).collect();
            let settings = expand.under("invoice_settings");
            if let Some(expand) = settings.and_then(|of| of.under("default_payment_method")) {
                let ids = customers.iter().filter_map(|of| of.default_payment_method);
                let methods = methods_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    if let AnyCustomerView::Customer(view) = view {
                        fill(&mut view.invoice_settings.default_payment_method, &methods);
                    }
                }
            }
            Ok(views)
        })
    }
}

impl Shown for PaymentMethod {
    type View = PaymentMethodView;
    const COLLECTION: &'static str = "payment_methods";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        methods: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, PaymentMethodView> {
        Box::pin(async move {
            let mut views: Vec<PaymentMethodView> =
                methods.iter().map(PaymentMethodView::from).collect();
            if let Some(expand) = expand.under("customer") {
                let ids = methods.iter().filter_map(PaymentMethod::customer);
                let customers = customers_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.customer, &customers);
                }
            }
            Ok(views)
        })
    }
}

impl Shown for PaymentIntent {
    type View = PaymentIntentView;
    const COLLECTION: &'static str = "payment_intents";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        intents: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, PaymentIntentView> {
        Box::pin(async move {
            let mut views: Vec<PaymentIntentView> =
                intents.iter().map(PaymentIntentView::from).collect();
            if let Some(expand) = expand.under("customer") {
                let ids = intents.iter().filter_map(|intent| intent.terms.customer);
                let customers = customers_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.customer, &customers);
                }
            }
            if let Some(expand) = expand.under("latest_charge") {
                let ids = intents.iter().filter_map(|intent| intent.latest_charge);
                let charges = charges_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.latest_charge, &charges);
                }
            }
            if let Some(expand) = expand.under("payment_method") {
                let ids = intents
                    .iter()
                    .filter_map(|intent| intent.terms.payment_method);
                let methods = methods_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.payment_method, &methods);
                }
            }
            Ok(views)
        })
    }
}

impl Shown for SetupIntent {
    type View = SetupIntentView;
    const COLLECTION: &'static str = "setup_intents";

    fn views<'a>(
        connection: &'a mut PgConnection,
        audience: Audience,
        setups: &'a [Self],
        expand: &'a Expansion,
    ) -> Views<'a, SetupIntentView> {
        Box::pin(async move {
            let mut views: Vec<SetupIntentView> =
                setups.iter().map(SetupIntentView::from).collect();
            if let Some(expand) = expand.under("customer") {
                let ids = setups.iter().filter_map(|setup| setup.terms.customer);
                let customers = customers_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.customer, &customers);
                }
            }
            if let Some(expand) = expand.under("payment_method") {
                let ids = setups.iter().filter_map(|setup| setup.terms.payment_method);
                let methods = methods_by_id(connection, audience, ids, &expand).await?;
                for view in &mut views {
                    fill(&mut view.payment_method, &methods);
                }
            }
            Ok(views)
        })
    }
}
