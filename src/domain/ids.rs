//! Ids as types: a UUIDv7 behind a prefix that says what it is.
//!
//! Promise: an id of one kind can't be passed where another is meant, its text sorts in the order
//! of creation, and parsing accepts exactly what printing produces (TypeID's 26 characters).

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use type_safe_id::{StaticType, TypeSafeId};
use uuid::Uuid;

/// Characters of an id after its prefix and the underscore: 128 bits, five in each.
pub const ID_CHARS: usize = 26;

/// An id of any kind, for code that serves several.
pub trait ObjectId: Copy + fmt::Display {
    /// What every such id begins with, before the underscore.
    const PREFIX: &'static str;
    /// What such an object is called in messages: where Stripe has a name for it, by that.
    const NOUN: &'static str;

    /// `None` for anything that is not such an id.
    fn parse(text: &str) -> Option<Self>;

    /// The id without its kind.
    fn uuid(self) -> Uuid;
}

/// Makes types of ids: `ChargeId, ChargePrefix, "ch", "charge", "a charge";` makes
/// `pub struct ChargeId(pub Uuid)`, an [`ObjectId`] that is written as `ch_` and 26 characters.
macro_rules! ids {
    ($($name:ident, $prefix_type:ident, $prefix:literal, $noun:literal, $what:literal;)+) => {$(
        #[doc = concat!("The id of ", $what, ": `", $prefix, "_` and 26 characters.")]
        ///
        /// As JSON, it is what the column of a table holds: the UUID.
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub struct $name(pub Uuid);

        #[derive(Default)]
        struct $prefix_type;

        impl StaticType for $prefix_type {
            const TYPE: &'static str = $prefix;
        }

        impl $name {
            /// What every such id begins with, before the underscore.
            pub const PREFIX: &'static str = $prefix;

            /// `None` for anything that is not such an id.
            pub fn parse(text: &str) -> Option<Self> {
                text.parse::<TypeSafeId<$prefix_type>>().ok().map(|id| Self(id.uuid()))
            }
        }

        impl ObjectId for $name {
            const PREFIX: &'static str = Self::PREFIX;
            const NOUN: &'static str = $noun;

            fn parse(text: &str) -> Option<Self> {
                Self::parse(text)
            }

            fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                TypeSafeId::<$prefix_type>::from_uuid(self.0).fmt(f)
            }
        }
    )+};
}

ids! {
    AccountId, AccountPrefix, "acct", "account", "an account";
    ChargeId, ChargePrefix, "ch", "charge", "a charge";
    RefundId, RefundPrefix, "re", "refund", "a refund";
    OrderId, OrderPrefix, "or", "order", "an order";
    CheckoutId, CheckoutPrefix, "co", "checkout", "a checkout";
    EventId, EventPrefix, "evt", "event", "an event";
    WebhookEndpointId, WebhookEndpointPrefix, "we", "webhook endpoint", "a webhook endpoint";
    WebhookDeliveryId, WebhookDeliveryPrefix, "whd", "webhook delivery", "the delivery of an event to a webhook endpoint";
    CardId, CardPrefix, "card", "card", "the card of a charge";
    CustomerId, CustomerPrefix, "cus", "customer", "a customer";
    PaymentIntentId, PaymentIntentPrefix, "pi", "payment_intent", "a payment intent";
    PaymentMethodId, PaymentMethodPrefix, "pm", "PaymentMethod", "a payment method";
    SetupIntentId, SetupIntentPrefix, "seti", "setupintent", "a setup intent";
    FaultPlanId, FaultPlanPrefix, "flt", "fault plan", "a fault plan";
    RequestId, RequestPrefix, "req", "request", "one HTTP request";
}

impl RequestId {
    /// When it was made, by the clock of the machine that made it, to the millisecond.
    pub fn made_at(self) -> DateTime<Utc> {
        let timestamp = self.0.get_timestamp();
        let (seconds, nanos) = timestamp.map_or((0, 0), |timestamp| timestamp.to_unix());
        let seconds = i64::try_from(seconds).unwrap_or(0);
        DateTime::from_timestamp(seconds, nanos).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_what_it_prints_and_no_other_kind() {
        let uuid = Uuid::from_u128(0x0192_3f45_6789_7abc_8def_0123_4567_89ab);
        let printed = ChargeId(uuid).to_string();
        assert_eq!(printed.len(), "ch_".len() + 26);
        assert_eq!(ChargeId::parse(&printed), Some(ChargeId(uuid)));
        assert_eq!(OrderId::parse(&printed), None);
        let (upper, longer) = (printed.to_uppercase(), format!("{printed}0"));
        for wrong in ["", "ch_", "ch_1", &upper, &longer] {
            assert_eq!(ChargeId::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn text_sorts_as_the_uuid_does() {
        let earlier = ChargeId(Uuid::from_u128(1 << 100));
        let later = ChargeId(Uuid::from_u128((1 << 100) + 1));
        assert!(earlier.to_string() < later.to_string());
    }
}
