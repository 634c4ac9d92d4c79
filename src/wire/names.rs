//! Statuses and other enums of the domain as clients see them: one of a fixed set of names.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

use crate::domain::{
    checkout::{CheckoutStatus, StepName, StepState},
    order::OrderStatus,
};

macro_rules! names {
    ($($view:ident of $name:ident: $about:literal;)+) => {$(
        #[doc = $about]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $view(pub $name);

        impl Serialize for $view {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.as_str())
            }
        }

        impl PartialSchema for $view {
            fn schema() -> RefOr<Schema> {
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .description(Some($about))
                    .enum_values(Some($name::ALL.iter().map(|known| known.as_str())))
                    .into()
            }
        }

        impl ToSchema for $view {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )+};
}

names! {
    OrderStatusView of OrderStatus:
        "Where an order stands.\n\n```text\nopen ── pay ──▶ paid ── all of its charge refunded ──▶ refunded\n  └─── cancel ─▶ canceled\n```";
    CheckoutStatusView of CheckoutStatus: "Where a checkout stands.";
    StepNameView of StepName:
        "One step of a checkout: one transaction, or one operation in phases.";
    StepStateView of StepState: "How far a step is.";
}
