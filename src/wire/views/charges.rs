//! The views of charges and refunds.

use serde::Serialize;

use super::{
    customers::AnyCustomerView, payment_intents::PaymentIntentView, payment_methods::CardChecks,
    people::BillingDetailsView,
};
use crate::{
    domain::{
        charge::{Charge, ChargeStatus, IntentCharge},
        ids::CardId,
        metadata::Metadata,
        refund::{Refund, RefundReason},
    },
    wire::{
        list::{Expandable, List},
        view::views,
    },
};

views! {
    /// A charge, as clients see it. The members and their order are Stripe's.
    pub struct ChargeView as Charge from charge: &Charge where {
        let failure = charge.failure.as_ref();
        let by_intent = charge.by_intent.as_ref();
    } {
        /// `ch_…`
        id: String [example = "ch_01kar2w7n9e4xt8f5mq0v3z6yd"] = charge.id.to_string();
        /// Always `charge`.
        always object: &'static str = "charge";
        /// Minor units.
        amount: i64 [example = 2000] = charge.amount.minor_units;
        /// Minor units taken so far.
        amount_captured: i64 [example = 2000] = charge.amount_captured;
        /// Minor units given back so far.
        amount_refunded: i64 [example = 0] = charge.amount_refunded;
        /// Always null: there are no platforms here.
        null application_fee_amount;
        /// Always null: there is no ledger of balances here.
        null balance_transaction;
        /// Who the bill goes to; empty unless an intent made the charge.
        billing_details: ChargeBillingDetails = match by_intent {
            Some(of) => ChargeBillingDetails::OfMethod(Box::new((&of.billing).into())),
            None => ChargeBillingDetails::OfSource(Empty {}),
        };
        /// Whether the money has been taken.
        captured: bool [example = true] = charge.captured;
        created = charge.created_at.timestamp();
        /// ISO 4217, lower case.
        currency: String [example = "usd"] = charge.amount.currency.to_string();
        /// The customer of its intent, whole with `expand[]=customer`; else your own reference.
        maybe customer: Expandable<AnyCustomerView> [no_recursion] =
            charge.customer.clone().map(Expandable::Id);
        /// For people.
        maybe description: String = charge.description.clone();
        /// Always false.
        always disputed: bool = false;
        /// Why the charge failed: an error code.
        maybe failure_code: String = failure.map(|failure| failure.code.clone());
        /// Why the charge failed, for people.
        maybe failure_message: String = failure.map(|failure| failure.message.clone());
        null invoice;
        livemode;
        metadata = charge.metadata.clone();
        /// The order that this charge pays.
        maybe order: String = charge.order.map(|order| order.to_string());
        /// What the card network said; null while it hasn't been heard.
        maybe outcome: ChargeOutcome =
            (charge.status != ChargeStatus::Pending).then(|| charge.into());
        /// Whether the money is promised or taken.
        paid: bool [example = true] = charge.is_paid();
        /// The intent that made it; whole with `expand[]=payment_intent`.
        expandable payment_intent: PaymentIntentView = by_intent.map(|of| of.intent);
        /// The method of its intent.
        maybe payment_method: String = by_intent.map(|of| of.method.to_string());
        /// The card, as newer clients read it.
        payment_method_details: PaymentMethodDetails = charge.into();
        /// Where the receipt goes.
        maybe receipt_email: String = charge.receipt_email.clone();
        /// Always null: receipts have no page here.
        null receipt_url;
        /// Whether all of it was given back, or released.
        refunded: bool [example = false] = charge.is_refunded();
        /// The newest refunds; only with `expand[]=refunds`.
        #[serde(skip_serializing_if = "Option::is_none")]
        refunds: Option<List<RefundView>> = None;
        /// The card, as older clients read it; null if an intent made the charge.
        maybe source: CardSource = by_intent.is_none().then(|| charge.into());
        /// On the card statement.
        maybe statement_descriptor: String = charge.statement_descriptor.clone();
        /// Behind the seller's name on the card statement. Null unless an intent made the charge.
        maybe statement_descriptor_suffix: String = by_intent.and_then(|of| of.statement_descriptor_suffix.clone());
        /// `succeeded`, `pending` or `failed`.
        status: &'static str [example = "succeeded"] = charge.status.as_str();
    }
}

/// An object without members.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

/// Who the bill of a charge goes to.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum ChargeBillingDetails {
    /// As the payment method said.
    OfMethod(Box<BillingDetailsView>),
    /// A card by itself says nothing.
    OfSource(Empty),
}

views! {
    /// What the card network said.
    pub struct ChargeOutcome as ChargeOutcome from charge: &Charge where {
        let failure = charge.failure.as_ref();
        let failure = failure.filter(|_| charge.status == ChargeStatus::Failed);
        let reason = failure.map(|failure| failure.decline_code.as_ref().unwrap_or(&failure.code));
        let (network_status, seller_message, outcome_type) = match charge.status {
            ChargeStatus::Failed => {
                let message = "The bank did not approve this payment.";
                ("declined_by_network", message, "issuer_declined")
            }
            // Of a pending one it is not shown.
            ChargeStatus::Pending | ChargeStatus::Succeeded => {
                ("approved_by_network", "Payment complete.", "authorized")
            }
        };
    } {
        /// `approved_by_network` or `declined_by_network`.
        network_status: &'static str [example = "approved_by_network"] = network_status;
        /// The issuer's reason for a decline.
        maybe reason: String = reason.cloned();
        /// Always `normal`.
        always risk_level: &'static str = "normal";
        /// For the seller.
        seller_message: &'static str [example = "Payment complete."] = seller_message;
        /// `authorized` or `issuer_declined`.
        #[serde(rename = "type")]
        outcome_type: &'static str [example = "authorized"] = outcome_type;
    }

    /// How the charge was paid.
    pub struct PaymentMethodDetails as PaymentMethodDetails from charge: &Charge {
        /// The card. What only some charges show of it is not required.
        card: ChargedCard [value_type = MethodCardDetails] = match &charge.by_intent {
            Some(of) => ChargedCard::OfMethod(Box::new(MethodCardDetails::of(charge, of))),
            None => ChargedCard::OfSource(charge.into()),
        };
        /// Always `card`.
        #[serde(rename = "type")]
        always method_type: &'static str = "card";
    }

    /// All that is kept of a card.
    pub struct SourceCardDetails as SourceCardDetails from charge: &Charge {
        /// `visa`, `mastercard` or `amex`.
        brand: String = charge.card.brand.clone();
        /// 1 to 12.
        exp_month: i16 = charge.card.exp_month;
        /// Four digits.
        exp_year: i16 = charge.card.exp_year;
        /// Always `credit`, as the test cards are.
        funding: &'static str = "credit";
        /// The last four digits of the number.
        last4: String = charge.card.last4.clone();
    }
}

/// The card of a charge.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum ChargedCard {
    /// A payment method's.
    OfMethod(Box<MethodCardDetails>),
    /// A source's.
    OfSource(SourceCardDetails),
}

views! {
    /// What a charge shows of a payment method's card.
    pub struct MethodCardDetails as CardDetails of(charge: &Charge, of: &IntentCharge) where {
        let card = &charge.card;
    } {
        /// Minor units that were promised.
        amount_authorized: i64 [required = false] = charge.amount.minor_units;
        /// `visa`, `mastercard` or `amex`.
        brand: String [example = "visa"] = card.brand.clone();
        /// What was compared with the bank's records.
        checks: CardChecks [required = false] = CardChecks::of(of.has_cvc);
        /// Always `US`, as the test cards are.
        country: &'static str [example = "US", required = false] = "US";
        /// 1 to 12.
        exp_month: i16 [example = 12] = card.exp_month;
        /// Four digits.
        exp_year: i16 [example = 2099] = card.exp_year;
        /// Equal for two charges of the same card.
        fingerprint: String [required = false] = of.fingerprint.clone();
        /// Always `credit`, as the test cards are.
        always funding: &'static str = "credit";
        /// The last four digits of the number.
        last4: String [example = "4242"] = card.last4.clone();
        /// As `brand`.
        network: String [example = "visa", required = false] = card.brand.clone();
        /// How its holder authenticated, if that happened.
        three_d_secure: Option<ThreeDSecureResult> [required = false] =
            of.is_authenticated.then(ThreeDSecureResult::of);
        /// Always null.
        wallet: () [required = false, value_type = Option<String>] = ();
    }

    /// How a card's holder authenticated.
    pub struct ThreeDSecureResult as ThreeDSecureResult of() {
        /// Always `challenge`.
        always authentication_flow: &'static str = "challenge";
        /// Always `authenticated`.
        always result: &'static str = "authenticated";
        /// Of the protocol.
        always version: &'static str = "2.2.0";
    }

    /// The card as a `source`.
    pub struct CardSource as CardSource from charge: &Charge {
        /// `card_…`
        id: String = CardId(charge.id.0).to_string();
        /// Always `card`.
        always object: &'static str = "card";
        /// `visa`, `mastercard` or `amex`.
        brand: String [example = "visa"] = charge.card.brand.clone();
        /// 1 to 12.
        exp_month: i16 [example = 12] = charge.card.exp_month;
        /// Four digits.
        exp_year: i16 [example = 2099] = charge.card.exp_year;
        /// Always `credit`, as the test cards are.
        always funding: &'static str = "credit";
        /// The last four digits of the number.
        last4: String [example = "4242"] = charge.card.last4.clone();
    }

    /// A refund, as clients see it.
    pub struct RefundView as Refund from refund: &Refund {
        /// `re_…`
        id: String [example = "re_01kar2w7n9e4xt8f5mq0v3z6yd"] = refund.id.to_string();
        /// Always `refund`.
        always object: &'static str = "refund";
        /// Minor units.
        amount: i64 [example = 500] = refund.amount.minor_units;
        /// Always null: there is no ledger of balances here.
        null balance_transaction;
        /// The charge that was given back; whole with `expand[]=charge`.
        charge: Expandable<ChargeView> [no_recursion] = Expandable::Id(refund.charge.to_string());
        created = refund.created_at.timestamp();
        /// ISO 4217, lower case.
        currency: String [example = "usd"] = refund.amount.currency.to_string();
        metadata = refund.metadata.clone();
        /// The intent of its charge; whole with `expand[]=payment_intent`.
        expandable payment_intent: PaymentIntentView = refund.intent;
        /// `duplicate`, `fraudulent`, `requested_by_customer` or null.
        maybe reason: &'static str = refund.reason.map(RefundReason::as_str);
        /// `succeeded`; across a network also `pending` and `failed`.
        status: &'static str [example = "succeeded"] = refund.status.as_str();
    }
}
