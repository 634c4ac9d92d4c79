//! `POST /authenticate/…`: the card's holder has authenticated, or has failed to.
//!
//! Reads    the setup intent, its method; the customer, if a new method is to be theirs
//! Writes   the setup intent and its method
//! Emits    setup_intent.succeeded (after payment_method.attached) or .setup_failed
//! Refuses  nothing: a page that isn't waited for is a reply of its own
//! Fails    while a payment with a new method has no answer

use super::attempt::{fail, succeed};
use crate::{
    commands::{
        holder_pages::{authentication_failed, landing, no_longer_needed},
        payment_methods::given,
        prelude::*,
    },
    wire::payment_methods::refused,
};

/// Ends the wait for the holder of a card that is set up.
pub struct AuthenticateSetup {
    /// The setup intent that the page is for.
    pub id: SetupIntentId,
    /// What the holder was given.
    pub token: String,
    /// Whether the holder has authenticated.
    pub is_complete: bool,
}

impl Rules for AuthenticateSetup {
    fn reads(&self, seen: &SeenRows<'_>) -> Vec<RowId> {
        let mut rows = vec![RowId::Setup(self.id)];
        let setup = seen.get::<SetupIntent>(self.id);
        if let Some(setup) = setup.filter(|setup| setup.waits_for(&self.token)) {
            let (method, customer) = (setup.terms.payment_method, setup.terms.customer);
            rows.extend(given::reads(seen, &Ok(None), method, true, customer));
        }
        rows
    }

    fn decide(&self, draft: &mut Draft<'_>) -> Result<Verdict, Rejection> {
        let setup = draft.get::<SetupIntent>(self.id).cloned();
        let Some(setup) = setup.filter(|setup| setup.waits_for(&self.token)) else {
            return Ok(Verdict::Answered(no_longer_needed(self.id)));
        };
        let page = setup.holder_page.clone();
        let method = given::free(draft, setup.terms.payment_method, "payment_method")?;
        let setup = self.end(draft, setup, method)?;
        let of = ("setup_intent", setup.id.to_string(), &*setup.client_secret);
        let has_succeeded = setup.status == SetupStatus::Succeeded;
        landing(page.as_ref(), of, has_succeeded).map(Verdict::Answered)
    }
}

impl AuthenticateSetup {
    fn end(
        &self,
        draft: &mut Draft<'_>,
        setup: SetupIntent,
        method: PaymentMethod,
    ) -> Result<SetupIntent, Rejection> {
        let mut error = match method.may_pay_for(setup.terms.customer) {
            _ if !self.is_complete => {
                let code = ErrorCode::SetupIntentAuthenticationFailure;
                authentication_failed(code, "SetupIntent")
            }
            // It was attached elsewhere, used up or detached while its holder was away.
            Err(refusal) => refused(refusal),
            Ok(()) => match succeed(draft, setup.clone(), method.clone()) {
                // Nothing was drafted: the customer was deleted meanwhile, or has no room.
                Err(Rejection::Refused(_)) => ApiError::new(
                    ErrorCode::PaymentMethodUnexpectedState,
                    "The payment method could not be attached to the customer.",
                ),
                ended => return ended,
            },
        };
        error.about.payment_method = Some(whole(&method)?);
        fail(draft, setup, &error)
    }
}
