//! `/payment_intents`

use super::prelude::*;
use crate::{
    commands::{CancelIntent, CaptureIntent, ConfirmIntent, CreateIntent, UpdateIntent},
    wire::{
        intent_parameters::wrong_client_secret,
        payment_intents::{
            CancelPaymentIntentParams, CapturePaymentIntentParams, ConfirmPaymentIntentParams,
            CreatePaymentIntentParams, PaymentIntentView, UpdatePaymentIntentParams,
        },
    },
};

/// The longest `client_secret` that is worth comparing, in characters.
const SECRET_MAX_CHARS: usize = 255;

endpoints! { "Payment intents", PaymentIntentView;
    /// Create a payment intent
    ///
    /// One payment, through as many cards as it takes. With `confirm=true` the card is charged at
    /// once; if it declines, the intent stays, and the error holds all of it.
    create "createPaymentIntent": post "/payment_intents" (CreatePaymentIntentParams)
        => 201 "The payment intent.",
        Charging [ParameterMissing, AmountTooLarge, PaymentMethodUnexpectedState, ResourceMissing],
        CreateIntent;

    /// Update a payment intent
    ///
    /// What the request doesn't mention stays; an empty value unsets. What is to be paid changes
    /// only until money is promised, and voids an authentication that its holder has begun.
    update "updatePaymentIntent": post "/payment_intents/{id}" of id "The payment intent's id: pi_…"
        (UpdatePaymentIntentParams) => 200 "The payment intent.",
        Charging [
            AmountTooLarge, PaymentIntentUnexpectedState, PaymentMethodUnexpectedState,
            ResourceMissing,
        ],
        |params| UpdateIntent::of(&id, params);

    /// Confirm a payment intent
    ///
    /// Charges the card. If its holder must authenticate first, `next_action` says where. After a
    /// decline another attempt needs a new idempotency key, as the stored decline answers this one.
    confirm "confirmPaymentIntent": post "/payment_intents/{id}/confirm"
        of id "The payment intent's id: pi_…" (ConfirmPaymentIntentParams)
        => 200 "The payment intent.",
        Charging [
            ParameterMissing, PaymentIntentUnexpectedState,
            PaymentMethodUnexpectedState, ResourceMissing,
        ],
        |params| ConfirmIntent::of(&id, params);

    /// Capture a payment intent
    ///
    /// Takes money that was promised with `capture_method=manual`: all of it, or a part; the rest
    /// is released. Once only: the error of a second capture holds the intent, which has succeeded.
    capture "capturePaymentIntent": post "/payment_intents/{id}/capture"
        of id "The payment intent's id: pi_…" (CapturePaymentIntentParams)
        => 200 "The payment intent.",
        Mutating [
            AmountTooLarge, CaptureAmountTooLarge, PaymentIntentUnexpectedState,
            ResourceMissing,
        ],
        |params| CaptureIntent::of(&id, params);

    /// Cancel a payment intent
    ///
    /// Closes it for good; money that was promised is released. The error of a second cancellation
    /// holds the intent, which is canceled.
    cancel "cancelPaymentIntent": post "/payment_intents/{id}/cancel"
        of id "The payment intent's id: pi_…" (CancelPaymentIntentParams)
        => 200 "The payment intent.", Mutating [PaymentIntentUnexpectedState, ResourceMissing],
        |params| CancelIntent::of(&id, params);

    /// List payment intents
    page list "listPaymentIntents": "/payment_intents" of PaymentIntentId (ListPaymentIntentsQuery) [],
        query => query.customer,
        store::payment_intents::list;
}

parameters! {
    /// How a payment intent is shown.
    struct RetrievePaymentIntentQuery {
        /// The intent's own. It is compared, and not needed.
        client_secret: Option<Text<SECRET_MAX_CHARS>>,
        /// `latest_charge` shows the whole charge, and so on.
        expand: Expand<ExpandPaymentIntent>,
    }
}

/// Retrieve a payment intent
#[utoipa::path(
    get, path = "/payment_intents/{id}", tag = "Payment intents",
    operation_id = "retrievePaymentIntent",
    params(
        ("id" = String, Path, description = "The payment intent's id: pi_…"),
        RetrievePaymentIntentQuery,
    ),
    responses(
        (status = 200, description = "The payment intent.", body = PaymentIntentView),
        ObjectErrors,
    ),
)]
pub async fn retrieve(app: Data<App>, caller: Caller, request: HttpRequest) -> HttpResult {
    let query = query_params::<RetrievePaymentIntentQuery>(&request)?;
    let text = request.match_info().query("id");
    let missing = || ApiError::missing::<PaymentIntentId>(caller.dialect, "intent", text);
    let id = PaymentIntentId::parse(text).ok_or_else(missing)?;
    let found = reads::shown(&app, caller, query.expand, move |connection| {
        Box::pin(store::payment_intents::find(connection, caller.account, id))
    });
    let shown = found.await?.ok_or_else(missing)?;
    let secret = query.client_secret;
    if secret.is_some_and(|secret| secret != shown.client_secret) {
        return Err(wrong_client_secret().into());
    }
    Ok(HttpResponse::Ok().json(shown))
}

parameters! {
    /// Which payment intents are listed, and how.
    struct ListPaymentIntentsQuery {
        /// Only those that this customer pays: cus_…
        customer: Option<CustomerId>,
        /// `data.latest_charge` shows the whole charge in each, and so on.
        expand: Expand<ExpandPaymentIntents>,
    }
}
