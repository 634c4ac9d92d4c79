//! `POST /payment_intents/{id}`: change what is to be paid, or what is written on it.
//!
//! Locks    the intent, then the method
//! Writes   the intent; a new method, if its card comes with the request
//! Emits    nothing: Stripe has no event for it
//! Refuses  a change of the payment when its money was promised, or it was canceled; a customer or
//!          a method that isn't there; a method that may not be used for it
//! Fails    while an answer about the intent is out

use charge_once_strict_params::{Change, Params};
use sqlx::PgConnection;

use super::found::{lock, must_be_settled, unexpected};
use crate::commands::{
    Origin,
    mode::Mode,
    payment_methods::given::{self, find_customer, take},
    replies::{OK, checked},
};
use crate::{
    domain::{
        ids::{CustomerId, PaymentIntentId, PaymentMethodId},
        payment_intent::PaymentIntent,
        payment_method::PaymentMethod,
    },
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        error::ApiError,
        payment_intents::UpdatePaymentIntentParams,
        payment_methods::{GivenMethod, refused},
    },
};

/// Updates an intent.
pub struct UpdateIntent {
    /// The request's origin.
    pub origin: Origin,
    /// The intent, as the path names it.
    pub id: String,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
}

impl Command for UpdateIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let mut params: UpdatePaymentIntentParams = checked(&self.params)?;
        let given = params.given()?;
        let account = self.origin.account;
        let before = lock(tx, account, PaymentIntentId::parse(&self.id)).await?;
        let touches_the_payment = given.is_some() || params.touches_the_payment();
        // Whichever server began what is unfinished, this one only waits for it. If its processor
        // was never asked, the intent is made what it was, and this update would be undone with it.
        must_be_settled(tx, account, &before, Mode::Phases).await?;
        if touches_the_payment {
            let refuse = |status| unexpected(&before, "change the payment of", status);
            before.must_be_confirmable().map_err(refuse)?;
        }
        let customer = match params.customer {
            Change::Keep => Change::Keep,
            Change::Unset => Change::Unset,
            Change::Set(id) => Change::Set(find_customer(tx, account, id, "customer").await?.id),
        };
        let method = self.method(tx, &before, given, customer.clone()).await?;
        let expand = params.expand.clone();
        let metadata = params.metadata.clone().apply(before.terms.metadata.clone());
        let mut intent = before
            .clone()
            .updated(params.change(customer, method))
            .map_err(|status| unexpected(&before, "change the payment of", status))?;
        intent.terms.metadata = metadata.map_err(ApiError::from)?;
        if intent != before {
            intent = store::payment_intents::update(tx, account, &intent).await?;
        }
        let id = intent.id.to_string();
        self.origin.show(tx, OK, id, &intent, &expand).await
    }
}

impl UpdateIntent {
    /// The method that the request gives. It must fit the customer, and so must the one that the
    /// intent has if only the customer changes.
    async fn method(
        &self,
        tx: &mut PgConnection,
        before: &PaymentIntent,
        given: Option<GivenMethod>,
        customer: Change<CustomerId>,
    ) -> Result<Option<PaymentMethodId>, Rejection> {
        let is_other = customer != Change::Keep;
        let customer = customer.apply(before.terms.customer);
        let fits = |method: &PaymentMethod| method.may_pay_for(customer).map_err(refused);
        match (given, before.terms.payment_method) {
            (Some(given), _) => {
                let method = take(&self.origin, tx, given, false).await?;
                fits(&method)?;
                Ok(Some(method.id))
            }
            (None, Some(id)) if is_other => {
                let method = given::lock(&self.origin, tx, Some(id), "payment_method").await?;
                fits(&method)?;
                Ok(None)
            }
            (None, _) => Ok(None),
        }
    }
}
