//! The views of charges and refunds.

use serde::Serialize;

use super::{
    customers::AnyCustomerView, payment_intents::PaymentIntentView, payment_methods::CardChecks,
    people::BillingDetailsView,
};
use crate::{
    domain::{
        charge::{Charge, ChargeFailure, ChargeStatus, IntentCharge},
        ids::CardId,
        metadata::Metadata,
        refund::{Refund, RefundReason},
    },
    wire::list::{Expandable, List},
};

/// A charge, as clients see it. The members and their order are Stripe's.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Charge)]
pub struct ChargeView {
    /// `ch_…`
    #[schema(example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `charge`.
    #[schema(example = "charge")]
    pub object: &'static str,
    /// Minor units.
    #[schema(example = 2000)]
    pub amount: i64,
    /// Minor units taken so far.
    #[schema(example = 2000)]
    pub amount_captured: i64,
    /// Minor units given back so far.
    #[schema(example = 0)]
    pub amount_refunded: i64,
    /// Always null: there are no platforms here.
    #[schema(required = true, value_type = Option<String>)]
    pub application_fee_amount: (),
    /// Always null: there is no ledger of balances here.
    #[schema(required = true, value_type = Option<String>)]
    pub balance_transaction: (),
    /// Who the bill goes to; empty unless an intent made the charge.
    pub billing_details: ChargeBillingDetails,
    /// Whether the money has been taken.
    #[schema(example = true)]
    pub captured: bool,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "usd")]
    pub currency: String,
    /// The customer of its intent, whole with `expand[]=customer`; else your own reference.
    #[schema(required = true, no_recursion)]
    pub customer: Option<Expandable<AnyCustomerView>>,
    /// For people.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Always false.
    #[schema(example = false)]
    pub disputed: bool,
    /// Why the charge failed: an error code.
    #[schema(required = true)]
    pub failure_code: Option<String>,
    /// Why the charge failed, for people.
    #[schema(required = true)]
    pub failure_message: Option<String>,
    /// Always null.
    #[schema(required = true, value_type = Option<String>)]
    pub invoice: (),
    /// Always false: no real card is ever charged.
    #[schema(example = false)]
    pub livemode: bool,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// The order that this charge pays.
    #[schema(required = true)]
    pub order: Option<String>,
    /// What the card network said; null while it hasn't been heard.
    #[schema(required = true)]
    pub outcome: Option<ChargeOutcome>,
    /// Whether the money is promised or taken.
    #[schema(example = true)]
    pub paid: bool,
    /// The intent that made it; whole with `expand[]=payment_intent`.
    #[schema(required = true, no_recursion)]
    pub payment_intent: Option<Expandable<PaymentIntentView>>,
    /// The method of its intent.
    #[schema(required = true)]
    pub payment_method: Option<String>,
    /// The card, as newer clients read it.
    pub payment_method_details: PaymentMethodDetails,
    /// Where the receipt goes.
    #[schema(required = true)]
    pub receipt_email: Option<String>,
    /// Always null: receipts have no page here.
    #[schema(required = true, value_type = Option<String>)]
    pub receipt_url: (),
    /// Whether all of it was given back, or released.
    #[schema(example = false)]
    pub refunded: bool,
    /// The newest refunds; only with `expand[]=refunds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refunds: Option<List<RefundView>>,
    /// The card, as older clients read it; null if an intent made the charge.
    #[schema(required = true)]
    pub source: Option<CardSource>,
    /// On the card statement.
    #[schema(required = true)]
    pub statement_descriptor: Option<String>,
    /// Behind the seller's name on the card statement. Null unless an intent made the charge.
    #[schema(required = true)]
    pub statement_descriptor_suffix: Option<String>,
    /// `succeeded`, `pending` or `failed`.
    #[schema(example = "succeeded")]
    pub status: &'static str,
}

/// An object without members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// Who the bill of a charge goes to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum ChargeBillingDetails {
    /// As the payment method said.
    OfMethod(Box<BillingDetailsView>),
    /// A card by itself says nothing.
    OfSource(Empty),
}

/// What the card network said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ChargeOutcome {
    /// `approved_by_network` or `declined_by_network`.
    #[schema(example = "approved_by_network")]
    pub network_status: &'static str,
    /// The issuer's reason for a decline.
    #[schema(required = true)]
    pub reason: Option<String>,
    /// Always `normal`.
    #[schema(example = "normal")]
    pub risk_level: &'static str,
    /// For the seller.
    #[schema(example = "Payment complete.")]
    pub seller_message: &'static str,
    /// `authorized` or `issuer_declined`.
    #[serde(rename = "type")]
    #[schema(example = "authorized")]
    pub outcome_type: &'static str,
}

/// How the charge was paid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PaymentMethodDetails {
    /// The card. What only some charges show of it is not required.
    #[schema(value_type = MethodCardDetails)]
    pub card: ChargedCard,
    /// Always `card`.
    #[serde(rename = "type")]
    #[schema(example = "card")]
    pub method_type: &'static str,
}

/// All that is kept of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CardDetails {
    /// `visa`, `mastercard` or `amex`.
    pub brand: String,
    /// 1 to 12.
    pub exp_month: i16,
    /// Four digits.
    pub exp_year: i16,
    /// Always `credit`, as the test cards are.
    pub funding: &'static str,
    /// The last four digits of the number.
    pub last4: String,
}

/// The card of a charge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ChargedCard {
    /// A payment method's.
    OfMethod(Box<MethodCardDetails>),
    /// A source's.
    OfSource(CardDetails),
}

/// What a charge shows of a payment method's card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = CardDetails)]
pub struct MethodCardDetails {
    /// Minor units that were promised.
    #[schema(required = false)]
    pub amount_authorized: i64,
    /// `visa`, `mastercard` or `amex`.
    #[schema(example = "visa")]
    pub brand: String,
    /// What was compared with the bank's records.
    #[schema(required = false)]
    pub checks: CardChecks,
    /// Always `US`, as the test cards are.
    #[schema(example = "US", required = false)]
    pub country: &'static str,
    /// 1 to 12.
    #[schema(example = 12)]
    pub exp_month: i16,
    /// Four digits.
    #[schema(example = 2099)]
    pub exp_year: i16,
    /// Equal for two charges of the same card.
    #[schema(required = false)]
    pub fingerprint: String,
    /// Always `credit`, as the test cards are.
    #[schema(example = "credit")]
    pub funding: &'static str,
    /// The last four digits of the number.
    #[schema(example = "4242")]
    pub last4: String,
    /// As `brand`.
    #[schema(example = "visa", required = false)]
    pub network: String,
    /// How its holder authenticated, if that happened.
    #[schema(required = false)]
    pub three_d_secure: Option<ThreeDSecureResult>,
    /// Always null.
    #[schema(required = false, value_type = Option<String>)]
    pub wallet: (),
}

/// How a card's holder authenticated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ThreeDSecureResult {
    /// Always `challenge`.
    #[schema(example = "challenge")]
    pub authentication_flow: &'static str,
    /// Always `authenticated`.
    #[schema(example = "authenticated")]
    pub result: &'static str,
    /// Of the protocol.
    #[schema(example = "2.2.0")]
    pub version: &'static str,
}

impl MethodCardDetails {
    fn of(charge: &Charge, by_intent: &IntentCharge) -> Self {
        let card = &charge.card;
        let authenticated = ThreeDSecureResult {
            authentication_flow: "challenge",
            result: "authenticated",
            version: "2.2.0",
        };
        Self {
            amount_authorized: charge.amount.minor_units,
            brand: card.brand.clone(),
            checks: CardChecks::of(by_intent.has_cvc),
            country: "US",
            exp_month: card.exp_month,
            exp_year: card.exp_year,
            fingerprint: by_intent.fingerprint.clone(),
            funding: "credit",
            last4: card.last4.clone(),
            network: card.brand.clone(),
            three_d_secure: by_intent.is_authenticated.then_some(authenticated),
            wallet: (),
        }
    }
}

/// The card as a `source`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct CardSource {
    /// `card_…`
    pub id: String,
    /// Always `card`.
    #[schema(example = "card")]
    pub object: &'static str,
    /// `visa`, `mastercard` or `amex`.
    #[schema(example = "visa")]
    pub brand: String,
    /// 1 to 12.
    #[schema(example = 12)]
    pub exp_month: i16,
    /// Four digits.
    #[schema(example = 2099)]
    pub exp_year: i16,
    /// Always `credit`, as the test cards are.
    #[schema(example = "credit")]
    pub funding: &'static str,
    /// The last four digits of the number.
    #[schema(example = "4242")]
    pub last4: String,
}

impl From<&Charge> for ChargeView {
    fn from(charge: &Charge) -> Self {
        let failure = charge.failure.as_ref();
        let by_intent = charge.by_intent.as_ref();
        Self {
            id: charge.id.to_string(),
            object: "charge",
            amount: charge.amount.minor_units,
            amount_captured: charge.amount_captured,
            amount_refunded: charge.amount_refunded,
            application_fee_amount: (),
            balance_transaction: (),
            billing_details: match by_intent {
                Some(of) => ChargeBillingDetails::OfMethod(Box::new((&of.billing).into())),
                None => ChargeBillingDetails::OfSource(Empty {}),
            },
            captured: charge.captured,
            created: charge.created_at.timestamp(),
            currency: charge.amount.currency.to_string(),
            customer: charge.customer.clone().map(Expandable::Id),
            description: charge.description.clone(),
            disputed: false,
            failure_code: failure.map(|failure| failure.code.clone()),
            failure_message: failure.map(|failure| failure.message.clone()),
            invoice: (),
            livemode: false,
            metadata: charge.metadata.clone(),
            order: charge.order.map(|order| order.to_string()),
            outcome: ChargeOutcome::of(charge),
            paid: charge.is_paid(),
            payment_intent: by_intent.map(|of| Expandable::Id(of.intent.to_string())),
            payment_method: by_intent.map(|of| of.method.to_string()),
            payment_method_details: PaymentMethodDetails {
                card: match by_intent {
                    Some(of) => ChargedCard::OfMethod(Box::new(MethodCardDetails::of(charge, of))),
                    None => ChargedCard::OfSource(charge.into()),
                },
                method_type: "card",
            },
            receipt_email: charge.receipt_email.clone(),
            receipt_url: (),
            refunded: charge.is_refunded(),
            refunds: None,
            source: by_intent.is_none().then(|| charge.into()),
            statement_descriptor: charge.statement_descriptor.clone(),
            statement_descriptor_suffix: by_intent
                .and_then(|of| of.statement_descriptor_suffix.clone()),
            status: charge.status.as_str(),
        }
    }
}

impl From<&Charge> for CardDetails {
    fn from(charge: &Charge) -> Self {
        Self {
            brand: charge.card.brand.clone(),
            exp_month: charge.card.exp_month,
            exp_year: charge.card.exp_year,
            funding: "credit",
            last4: charge.card.last4.clone(),
        }
    }
}

impl From<&Charge> for CardSource {
    fn from(charge: &Charge) -> Self {
        Self {
            id: CardId(charge.id.0).to_string(),
            object: "card",
            brand: charge.card.brand.clone(),
            exp_month: charge.card.exp_month,
            exp_year: charge.card.exp_year,
            funding: "credit",
            last4: charge.card.last4.clone(),
        }
    }
}

impl ChargeOutcome {
    /// What the network said of a charge; `None` while it hasn't been heard.
    fn of(charge: &Charge) -> Option<Self> {
        let reason = |failure: &ChargeFailure| {
            let reason = failure.decline_code.as_ref().unwrap_or(&failure.code);
            reason.clone()
        };
        match charge.status {
            ChargeStatus::Pending => None,
            ChargeStatus::Failed => Some(Self {
                network_status: "declined_by_network",
                reason: charge.failure.as_ref().map(reason),
                risk_level: "normal",
                seller_message: "The bank did not approve this payment.",
                outcome_type: "issuer_declined",
            }),
            ChargeStatus::Succeeded => Some(Self {
                network_status: "approved_by_network",
                reason: None,
                risk_level: "normal",
                seller_message: "Payment complete.",
                outcome_type: "authorized",
            }),
        }
    }
}

/// A refund, as clients see it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Refund)]
pub struct RefundView {
    /// `re_…`
    #[schema(example = "re_01kar2w7n9e4xt8f5mq0v3z6yd")]
    pub id: String,
    /// Always `refund`.
    #[schema(example = "refund")]
    pub object: &'static str,
    /// Minor units.
    #[schema(example = 500)]
    pub amount: i64,
    /// Always null: there is no ledger of balances here.
    #[schema(required = true, value_type = Option<String>)]
    pub balance_transaction: (),
    /// The charge that was given back; whole with `expand[]=charge`.
    #[schema(no_recursion)]
    pub charge: Expandable<ChargeView>,
    /// Unix seconds.
    #[schema(example = 1_795_000_000)]
    pub created: i64,
    /// ISO 4217, lower case.
    #[schema(example = "usd")]
    pub currency: String,
    /// Your own names.
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: Metadata,
    /// The intent of its charge; whole with `expand[]=payment_intent`.
    #[schema(required = true, no_recursion)]
    pub payment_intent: Option<Expandable<PaymentIntentView>>,
    /// `duplicate`, `fraudulent`, `requested_by_customer` or null.
    #[schema(required = true)]
    pub reason: Option<&'static str>,
    /// `succeeded`; across a network also `pending` and `failed`.
    #[schema(example = "succeeded")]
    pub status: &'static str,
}

impl From<&Refund> for RefundView {
    fn from(refund: &Refund) -> Self {
        Self {
            id: refund.id.to_string(),
            object: "refund",
            amount: refund.amount.minor_units,
            balance_transaction: (),
            charge: Expandable::Id(refund.charge.to_string()),
            created: refund.created_at.timestamp(),
            currency: refund.amount.currency.to_string(),
            metadata: refund.metadata.clone(),
            payment_intent: refund
                .intent
                .map(|intent| Expandable::Id(intent.to_string())),
            reason: refund.reason.map(RefundReason::as_str),
            status: refund.status.as_str(),
        }
    }
}
