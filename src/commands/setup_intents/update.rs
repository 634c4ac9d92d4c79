//! `POST /setup_intents/{id}`: change what is set up, and for whom, before it has ended; and what
//! is written on it at any time.
//!
//! Locks    the setup intent, then its method
//! Writes   the setup intent, and a method that is made of a test card
//! Emits    nothing
//! Refuses  another method or customer for a setup intent that has ended; unknown ones; a method of
//!          another customer

use charge_once_strict_params::{Change, Params};
use sqlx::PgConnection;

use super::attempt::{lock, unexpected};
use crate::commands::{
    Origin,
    payment_methods::given::{self, find_customer, take},
    replies::{OK, checked},
};
use crate::{
    domain::{
        payment_method::PaymentMethod,
        setup_intent::{SetupChange, SetupIntent, UnexpectedSetupStatus},
    },
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{error::ApiError, payment_methods::refused, setup_intents::UpdateSetupIntentParams},
};

/// Updates a setup intent.
pub struct UpdateSetupIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The setup intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateSetupIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let update: UpdateSetupIntentParams = checked(&self.params)?;
        let (origin, account) = (&self.origin, self.origin.account);
        let before = lock(origin, tx, &self.id).await?;
        let method = match update.payment_method {
            Change::Keep => Change::Keep,
            Change::Unset => Change::Unset,
            Change::Set(named) => Change::Set(take(origin, tx, named.into(), true).await?),
        };
        let customer = match update.customer {
            Change::Keep => Change::Keep,
            Change::Unset => Change::Unset,
            Change::Set(id) => Change::Set(find_customer(tx, account, id, "customer").await?.id),
        };
        let change = SetupChange {
            customer,
            description: update.description,
            payment_method: match &method {
                Change::Keep => Change::Keep,
                Change::Unset => Change::Unset,
                Change::Set(method) => Change::Set(method.id),
            },
        };
        let mut setup = match before.clone().updated(change) {
            Ok(setup) => setup,
            Err(UnexpectedSetupStatus(status)) => {
                let message = format!(
                    "This SetupIntent's payment method and customer can't be updated because it has a \
                     status of {}.",
                    status.as_str()
                );
                return Err(unexpected(origin, tx, &before, message).await);
            }
        };
        setup.terms.metadata = update
            .metadata
            .apply(setup.terms.metadata)
            .map_err(ApiError::from)?;
        self.must_fit(tx, &before, &setup, method).await?;
        if setup != before {
            setup = store::setup_intents::update(tx, account, &setup).await?;
        }
        let id = setup.id.to_string();
        origin.show(tx, OK, id, &setup, &update.expand).await
    }
}

impl UpdateSetupIntent {
    /// The method must be usable by the customer, if either has changed.
    async fn must_fit(
        &self,
        tx: &mut PgConnection,
        before: &SetupIntent,
        after: &SetupIntent,
        given: Change<PaymentMethod>,
    ) -> Result<(), Rejection> {
        let (before, after) = (&before.terms, &after.terms);
        let is_same =
            before.customer == after.customer && before.payment_method == after.payment_method;
        let method = match (given, after.payment_method) {
            (Change::Set(method), _) => method,
            (Change::Keep, Some(id)) if !is_same => {
                given::lock(&self.origin, tx, Some(id), "payment_method").await?
            }
            (Change::Keep | Change::Unset, _) => return Ok(()),
        };
        Ok(method.may_pay_for(after.customer).map_err(refused)?)
    }
}
