//! `POST /authenticate/…`: the card's holder has authenticated, or has failed to.
//!
//! Locks    the setup intent, then its method; then the customer, if the method is attached
//! Writes   the setup intent and its method
//! Emits    setup_intent.succeeded (after payment_method.attached) or .setup_failed
//! Refuses  nothing: a page that isn't waited for is a reply of its own

use sqlx::PgConnection;

use super::attempt::{fail, succeed};
use crate::commands::{
    Origin,
    holder_pages::{ReturnToShop, no_longer_needed},
    payment_methods::given,
};
use crate::{
    domain::{
        ids::SetupIntentId,
        payment_method::PaymentMethod,
        setup_intent::{SetupIntent, SetupStatus},
    },
    idempotency::{Command, Failure, Rejection, Reply},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        payment_methods::{PaymentMethodView, refused},
    },
};

/// Ends the wait for the holder of a card that is set up.
pub struct AuthenticateSetup {
    /// The account, and the request of the holder's page.
    pub origin: Origin,
    /// The setup intent that the page is for.
    pub id: SetupIntentId,
    /// What the holder was given.
    pub token: String,
    /// Whether the holder has authenticated.
    pub is_complete: bool,
}

impl Command for AuthenticateSetup {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let origin = &self.origin;
        let found = store::setup_intents::lock(tx, origin.account, self.id).await?;
        let waiting = found.filter(|setup| setup.waits_for(&self.token));
        let Some(setup) = waiting else {
            return Ok(no_longer_needed(self.id));
        };
        let gone = || Failure::internal("a setup intent that waits for its holder has no page");
        let page = setup.holder_page.clone().ok_or_else(gone)?;
        let method = setup.terms.payment_method;
        let method = given::lock(origin, tx, method, "payment_method").await?;
        let setup = self.end(tx, setup, method).await?;
        let landing = ReturnToShop {
            kind: "setup_intent",
            id: setup.id.to_string(),
            has_succeeded: setup.status == SetupStatus::Succeeded,
            client_secret: setup.client_secret,
        };
        landing.of(&page)
    }
}

impl AuthenticateSetup {
    async fn end(
        &self,
        tx: &mut PgConnection,
        setup: SetupIntent,
        method: PaymentMethod,
    ) -> Result<SetupIntent, Rejection> {
        let origin = &self.origin;
        let mut error = match method.may_pay_for(setup.terms.customer) {
            _ if !self.is_complete => ApiError::new(
                ErrorCode::SetupIntentAuthenticationFailure,
                "The provided PaymentMethod has failed authentication. You can provide \
                 payment_method_data or a new PaymentMethod to attempt to fulfill this SetupIntent again.",
            ),
            // It was attached elsewhere, used up or detached while its holder was away.
            Err(refusal) => refused(refusal),
            Ok(()) => match succeed(origin, tx, setup.clone(), method.clone()).await {
                // Nothing was written: the customer was deleted meanwhile, or has no room.
                Err(Rejection::Refused(_)) => ApiError::new(
                    ErrorCode::PaymentMethodUnexpectedState,
                    "The payment method could not be attached to the customer.",
                ),
                ended => return ended,
            },
        };
        let view = serde_json::to_string(&PaymentMethodView::from(&method));
        error.about.payment_method = Some(view.map_err(Failure::internal)?);
        fail(origin, tx, setup, &error).await
    }
}
