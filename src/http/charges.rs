//! `/charges`

use super::prelude::*;
use crate::{
    commands::{CaptureCharge, CreateCharge, Update},
    domain::charge::Charge,
    store::charges::ChargeFilter,
    wire::charges::{CaptureChargeParams, ChargeView, CreateChargeParams, UpdateChargeParams},
};

endpoints! { "Charges", ChargeView;
    /// Charge a card
    create "createCharge": post "/charges" (
        CreateChargeParams "Amounts are in minor units: 2000 is 20.00 of a currency with cents."
    ) => 201 "The charge.", Charging [ParameterMissing, AmountTooLarge], CreateCharge;

    /// Update a charge
    ///
    /// Names of metadata that the request doesn't mention stay; an empty value unsets.
    update "updateCharge": post "/charges/{id}" of id "The charge's id: ch_…" (UpdateChargeParams)
        => 200 "The charge.", Mutating [ResourceMissing],
        |params| Update::<Charge> { id, params };

    /// Capture a charge
    ///
    /// Takes money that was promised with `capture=false`: all of it, or a part; the rest is
    /// released. Once only.
    capture "captureCharge": post "/charges/{id}/capture" of id "The charge's id: ch_…"
        (CaptureChargeParams) => 200 "The charge.",
        Mutating [
            ResourceMissing, AmountTooLarge, ChargeAlreadyCaptured,
            ChargeAlreadyRefunded, CaptureAmountTooLarge,
        ],
        |params| CaptureCharge::of(&id, params);

    /// Retrieve a charge
    one retrieve "retrieveCharge": "/charges/{id}" of ChargeId "The charge's id: ch_…"
        (ExpandCharge "`refunds` lists its refunds in it.") => ChargeView "The charge.",
        store::charges::find;

    /// List charges
    page list "listCharges": "/charges" of ChargeId (ListChargesQuery) [],
        query => ChargeFilter {
            customer: query.customer, order: query.order, intent: query.payment_intent,
        },
        store::charges::list;
}

parameters! {
    /// Which charges are listed, and how.
    struct ListChargesQuery {
        /// Only charges with this reference.
        customer: Option<Reference>,
        /// Only charges for this order: or_…
        order: Option<OrderId>,
        /// Only charges of this intent: pi_…
        payment_intent: Option<PaymentIntentId>,
        /// `data.refunds` lists the refunds in each.
        expand: Expand<ExpandCharges>,
    }
}
