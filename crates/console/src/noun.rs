//! What the kinds of objects are called.

use super::Kind;

pub(super) struct Noun {
    /// What its ids begin with; empty if they are names.
    pub(super) prefix: &'static str,
    pub(super) path: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// What its list shows of one, behind its id. Empty: it has no list.
    pub(super) columns: &'static [Column],
}

/// The head of a column, and the paths of the members one of which it shows: the first that an
/// object has. A column without any is left out.
pub(super) type Column = (&'static str, &'static str);

const AMOUNT: Column = ("Amount", "amount|data.object.amount");
const CARD: Column = (
    "Card",
    "payment_method_details.card|charge.payment_method_details.card|payment_method.card|\
     last_payment_error.payment_method.card|last_setup_error.payment_method.card|card",
);
const CREATED: Column = ("Created (UTC)", "created");
const CUSTOMER: Column = ("Customer", "customer|charge.customer");
const DESCRIPTION: Column = ("Description", "description|charge.description");
const ERROR: Column = (
    "Error",
    "failure_code|last_payment_error.code|last_setup_error.code",
);
const STATE: Column = ("State", "status");

/// What a list of requests shows of the payment that one is about.
pub(super) const OF_PAYMENT: &[Column] = &[AMOUNT, CARD, CUSTOMER, DESCRIPTION, ERROR];

impl Noun {
    #[rustfmt::skip]
    pub(super) fn of(kind: Kind) -> Self {
        let none: &[Column] = &[];
        let payment: &[_] = &[AMOUNT, STATE, CARD, CUSTOMER, DESCRIPTION, ERROR, CREATED];
        let person: &[_] = &[("E-mail address", "email"), ("Name", "name"), DESCRIPTION, CREATED];
        let setup: &[_] = &[STATE, CARD, CUSTOMER, DESCRIPTION, ERROR, ("For payments", "usage"), CREATED];
        let order: &[_] = &[AMOUNT, STATE, CARD, CUSTOMER, ("Your id", "client_order_id"), CREATED];
        let refund: &[_] = &[
            AMOUNT, STATE, CARD, CUSTOMER, DESCRIPTION, ("Reason", "reason"), ("Charge", "charge"), CREATED,
        ];
        let level: &[_] = &[("Left to sell", "quantity"), ("Changed (UTC)", "updated")];
        let event: &[_] = &[
            ("Type", "type"), ("About", "data.object.id|data.object.sku"), AMOUNT,
            ("Key", "request.idempotency_key"), CREATED,
        ];
        let (prefix, path, one, many, columns) = match kind {
            Kind::Charges => ("ch", "charges", "Charge", "Charges", payment),
            Kind::PaymentIntents => ("pi", "payment_intents", "Payment intent", "Payment intents", payment),
            Kind::Customers => ("cus", "customers", "Customer", "Customers", person),
            Kind::PaymentMethods => ("pm", "payment_methods", "Payment method", "Payment methods", none),
            Kind::SetupIntents => ("seti", "setup_intents", "Setup intent", "Setup intents", setup),
            Kind::Orders => ("or", "orders", "Order", "Orders", order),
            Kind::Refunds => ("re", "refunds", "Refund", "Refunds", refund),
            Kind::Checkouts => ("co", "checkouts", "Checkout", "Checkouts", payment),
            Kind::Inventory => ("", "inventory", "Inventory", "Inventory", level),
            Kind::Events => ("evt", "events", "Event", "Events", event),
            Kind::WebhookEndpoints => ("we", "webhook_endpoints", "Webhook endpoint", "Webhooks", none),
        };
        Self { prefix, path, one, many, columns }
    }

    pub(super) fn has_list(&self) -> bool {
        !self.columns.is_empty()
    }

    /// Where Swagger UI has the operation that retrieves one.
    pub(super) fn swagger_ui(&self) -> String {
        let words = self.one.split(' ').map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_uppercase() + rest
        });
        let words: String = words.collect();
        format!("/swagger-ui/#/{}/retrieve{words}", self.many)
    }
}
