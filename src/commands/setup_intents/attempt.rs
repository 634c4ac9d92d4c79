//! The attempt to set a card up, which a create and a confirmation make alike, and how it ends,
//! there or on the page of the card's holder.

use crate::{
    commands::{
        holder_pages::holder_page,
        payment_methods::given::{attach_to, declined},
        prelude::*,
    },
    domain::setup_intent::SetupStep,
    wire::{intent_parameters::must_have_return_url, payment_methods::refused},
};

/// A request that sets a method up.
pub(super) struct SetupAttempt {
    /// Where the holder returns to.
    pub(super) return_url: Option<String>,
    /// Of the reply, unless the card declines.
    pub(super) status: u16,
}

impl SetupAttempt {
    /// Tries to set `method` up.
    pub(super) fn run(
        self,
        draft: &mut Draft<'_>,
        setup: SetupIntent,
        method: PaymentMethod,
    ) -> Result<Said, Rejection> {
        let terms = &setup.terms;
        method.may_pay_for(terms.customer).map_err(refused)?;
        must_have_return_url(terms.automatic_payment_methods, self.return_url.as_deref())?;
        let setup = match setup.confirm(&method) {
            Err(status) => return Err(unconfirmable(&setup, status)),
            Ok(SetupStep::Decline(decline)) => return decline_of(draft, setup, &method, decline),
            Ok(SetupStep::Authenticate) => {
                let page = holder_page(draft, setup.id, self.return_url)?;
                let setup = setup.challenged(method.id, page);
                draft.put_with(EventType::SetupIntentRequiresAction, setup)?
            }
            Ok(SetupStep::Succeed) => succeed(draft, setup, method)?,
        };
        Ok(Said::show(self.status, setup))
    }
}

/// The card declines. That is an outcome to keep: the setup intent stays, with the error.
fn decline_of(
    draft: &mut Draft<'_>,
    setup: SetupIntent,
    method: &PaymentMethod,
    decline: Decline,
) -> Result<Said, Rejection> {
    let mut error = declined(decline, method)?;
    let setup = fail(draft, setup, &error)?;
    error.about.setup_intent = Some(whole(&setup)?);
    error.about.advice = Some(STORED_DECLINE);
    let mut reply = error_reply(&error)?;
    reply.resource_id = Some(setup.id.to_string());
    Ok(Said::Reply(reply))
}

/// Makes the method ready, and attaches a new one to the customer, if there is one. A refusal has
/// drafted nothing.
pub(super) fn succeed(
    draft: &mut Draft<'_>,
    setup: SetupIntent,
    method: PaymentMethod,
) -> Result<SetupIntent, Rejection> {
    let ready = PaymentMethod {
        set_up: method.set_up || setup.sets_up(),
        ..method
    };
    let id = ready.id;
    match setup.terms.customer {
        Some(customer) if ready.attachment == Attachment::New => {
            attach_to(draft, ready, customer)?;
        }
        Some(_) | None => {
            draft.put(ready);
        }
    }
    draft.put_with(EventType::SetupIntentSucceeded, setup.succeeded(id))
}

/// Takes the method from the setup intent, which remembers why.
pub(super) fn fail(
    draft: &mut Draft<'_>,
    setup: SetupIntent,
    error: &ApiError,
) -> Result<SetupIntent, Rejection> {
    let setup = setup.failed(Some(error.to_json().map_err(Failure::internal)?));
    draft.put_with(EventType::SetupIntentSetupFailed, setup)
}

/// The refusal of a confirmation, by the status of the setup intent.
pub(super) fn unconfirmable(
    setup: &SetupIntent,
    UnexpectedSetupStatus(status): UnexpectedSetupStatus,
) -> Rejection {
    let why = match status {
        SetupStatus::RequiresPaymentMethod => {
            "it's missing a payment method. Update the SetupIntent with a payment method and then confirm \
             it again"
        }
        SetupStatus::Succeeded => "it has already succeeded",
        SetupStatus::RequiresConfirmation | SetupStatus::RequiresAction | SetupStatus::Canceled => {
            "it has been canceled"
        }
    };
    let message = format!("You cannot confirm this SetupIntent because {why}.");
    unexpected(setup, message)
}

/// The refusal of a verb that the setup intent's status doesn't allow, with the setup intent as it
/// is.
pub(super) fn unexpected(setup: &SetupIntent, message: String) -> Rejection {
    let refused = whole(setup).map(|whole| {
        let mut error = ApiError::new(ErrorCode::SetupIntentUnexpectedState, message);
        error.about.setup_intent = Some(whole);
        error.into()
    });
    refused.unwrap_or_else(|failed| failed)
}
