//! Statuses and other enums of the domain as clients see them: one of a fixed set of names.

use charge_once_service::openapi::names;

use crate::domain::{
    checkout::{CheckoutStatus, StepName, StepState},
    order::OrderStatus,
};

names! {
    pub OrderStatusView of OrderStatus:
        "Where an order stands.\n\n```text\nopen ── pay ──▶ paid ── all of its charge refunded ──▶ refunded\n  └─── cancel ─▶ canceled\n```";
    pub CheckoutStatusView of CheckoutStatus: "Where a checkout stands.";
    pub StepNameView of StepName:
        "One step of a checkout: one transaction, or one operation in phases.";
    pub StepStateView of StepState: "How far a step is.";
}
