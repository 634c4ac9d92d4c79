//! What happens to objects.

/// Makes [`EventType`]: `OrderPaid = "order.paid": "Its charge succeeded.";` makes the variant
/// `OrderPaid`, documented so, with the name `"order.paid"`.
macro_rules! event_types {
    ($($name:ident = $text:literal: $about:literal;)+) => {
        /// What happened. The strings are for programs and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum EventType {
            $(#[doc = $about] $name,)+
        }

        impl EventType {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The type with this name.
            pub fn parse(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == name)
            }

            /// The `type` of the event.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }

            /// Whether its event tells what the object was before.
            pub fn is_change(self) -> bool {
                use EventType::{ChargeCaptured, ChargeRefunded, PaymentMethodDetached};
                let others = [ChargeCaptured, ChargeRefunded, PaymentMethodDetached];
                self.as_str().ends_with(".updated") || others.contains(&self)
            }

            /// What happened, in a sentence.
            pub fn about(self) -> &'static str {
                match self { $(Self::$name => $about),+ }
            }
        }
    };
}

event_types! {
    ChargeSucceeded = "charge.succeeded": "Money was taken, or promised where `captured` is false.";
    ChargeFailed = "charge.failed": "A card was declined.";
    ChargeCaptured = "charge.captured": "Promised money was taken.";
    ChargeUpdated = "charge.updated": "A charge's description, metadata or e-mail address changed.";
    ChargeRefunded = "charge.refunded": "Some or all of a charge was given back.";
    RefundCreated = "refund.created": "A refund was made.";
    RefundFailed = "refund.failed": "The processor refused to give the money back.";
    RefundUpdated = "refund.updated": "A refund's metadata changed.";
    PaymentIntentCreated = "payment_intent.created": "A payment was begun.";
    PaymentIntentRequiresAction = "payment_intent.requires_action":
        "A card's holder must authenticate before a payment.";
    PaymentIntentAmountCapturableUpdated = "payment_intent.amount_capturable_updated":
        "Money for a payment was promised, and can be captured.";
    PaymentIntentSucceeded = "payment_intent.succeeded": "The money of a payment was taken.";
    PaymentIntentPaymentFailed = "payment_intent.payment_failed":
        "A payment's card was declined, or its holder failed to authenticate.";
    PaymentIntentCanceled = "payment_intent.canceled":
        "A payment was given up; money that was promised is released.";
    SetupIntentCreated = "setup_intent.created": "The setup of a card was begun.";
    SetupIntentRequiresAction = "setup_intent.requires_action":
        "A card's holder must authenticate before the card is set up.";
    SetupIntentSucceeded = "setup_intent.succeeded": "A card is ready for later payments.";
    SetupIntentSetupFailed = "setup_intent.setup_failed":
        "A card was declined, or its holder failed to authenticate.";
    SetupIntentCanceled = "setup_intent.canceled": "The setup of a card was given up.";
    CustomerCreated = "customer.created": "A customer was made.";
    CustomerUpdated = "customer.updated": "What is known of a customer changed.";
    CustomerDeleted = "customer.deleted": "A customer was deleted.";
    PaymentMethodAttached = "payment_method.attached": "A customer got a payment method.";
    PaymentMethodUpdated = "payment_method.updated": "A payment method changed.";
    PaymentMethodDetached = "payment_method.detached": "A customer lost a payment method.";
    OrderCreated = "order.created": "An order was opened.";
    OrderUpdated = "order.updated": "An order's metadata changed.";
    OrderPaid = "order.paid": "An order got its charge.";
    OrderCanceled = "order.canceled": "An open order was closed for good.";
    OrderRefunded = "order.refunded": "All of an order's charge was given back.";
    CheckoutCompleted = "checkout.completed": "A checkout's order is paid and its items are allocated.";
    CheckoutCanceled = "checkout.canceled": "A checkout was declined or out of stock, and is undone.";
}
