//! What the kinds of objects are called.

use super::Kind;

pub(super) struct Noun {
    /// What its ids begin with; empty if they are names.
    pub(super) prefix: &'static str,
    pub(super) path: &'static str,
    pub(super) one: &'static str,
    pub(super) many: &'static str,
    /// What a line of its list is about. `None`: it has no list.
    pub(super) about: Option<&'static str>,
}

impl Noun {
    #[rustfmt::skip]
    pub(super) fn of(kind: Kind) -> Self {
        let amount = Some("Amount");
        let (prefix, path, one, many, about) = match kind {
            Kind::Charges => ("ch", "charges", "Charge", "Charges", amount),
            Kind::PaymentIntents => ("pi", "payment_intents", "Payment intent", "Payment intents", amount),
            Kind::Customers => ("cus", "customers", "Customer", "Customers", Some("E-mail address")),
            Kind::PaymentMethods => ("pm", "payment_methods", "Payment method", "Payment methods", None),
            Kind::SetupIntents => ("seti", "setup_intents", "Setup intent", "Setup intents", Some("For payments")),
            Kind::Orders => ("or", "orders", "Order", "Orders", amount),
            Kind::Refunds => ("re", "refunds", "Refund", "Refunds", amount),
            Kind::Checkouts => ("co", "checkouts", "Checkout", "Checkouts", amount),
            Kind::Inventory => ("", "inventory", "Inventory", "Inventory", Some("Left to sell")),
            Kind::Events => ("evt", "events", "Event", "Events", Some("About")),
            Kind::WebhookEndpoints => ("we", "webhook_endpoints", "Webhook endpoint", "Webhooks", None),
        };
        Self { prefix, path, one, many, about }
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
