//! What most verbs name: their own shape, the entities with their ids, and how a request ends.

pub(super) use charge_once_strict_params::Change;
pub(super) use uuid::Uuid;

pub(super) use crate::{
    commands::{
        Draft, On, RowId, Rules, Said, SeenRows, Verdict, ask,
        replies::{CREATED, OK, STORED_DECLINE, error_reply, lost, whole},
        show,
    },
    domain::{
        charge::{Authorization, Card, Charge, ChargeStatus, NewCharge},
        checkout::Checkout,
        customer::Customer,
        event::EventType,
        ids::*,
        inventory::Inventory,
        metadata::Metadata,
        operation::{
            Answer, AskedBy, CardAuthorization, ConfirmedBy, OpenWork, Operation, Question,
            RefundRequest,
        },
        order::{Order, OrderStatus, OrderTerms},
        payment_intent::{FutureUsage, HolderPage, IntentStatus, PaymentIntent},
        payment_method::{Attachment, PaymentMethod},
        refund::{Refund, RefundStatus},
        setup_intent::{SetupIntent, SetupStatus, UnexpectedSetupStatus},
        test_cards::Decline,
    },
    idempotency::{Failure, Rejection, Reply},
    wire::error::{ApiError, ErrorCode},
};
