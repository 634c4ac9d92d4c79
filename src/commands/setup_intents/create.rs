//! `POST /setup_intents`: begin to set a card up, and try it at once with `confirm`.
//!
//! Locks    the method, if one is named; then the customer, if the method is attached
//! Writes   one setup intent, and a method that is made on the way
//! Emits    setup_intent.created; with confirm also requires_action, succeeded (after
//!          payment_method.attached) or setup_failed
//! Refuses  parameters that are unknown or wrong; unknown customers and methods; a method of
//!          another customer
//! Declines a card that its issuer refuses: the setup intent stays

use std::sync::Arc;

use charge_once_strict_params::Params;
use chrono::DateTime;
use sqlx::PgConnection;
use uuid::Uuid;

use super::attempt::SetupAttempt;
use crate::commands::{
    Origin,
    holder_pages::client_secret,
    payment_methods::given::{find_customer, take},
    replies::{CREATED, checked},
};
use crate::{
    domain::{
        event::EventType,
        ids::SetupIntentId,
        payment_intent::FutureUsage,
        setup_intent::{SetupIntent, SetupTerms},
    },
    idempotency::{Command, Rejection, Reply},
    store,
    wire::{
        intent_parameters::{chosen_methods, nothing_to_confirm, without_confirm},
        payment_methods::{GivenMethod, refused},
        setup_intents::{CreateSetupIntentParams, SetupIntentView},
    },
};

/// Creates a setup intent.
pub struct CreateSetupIntent {
    /// The request's origin.
    pub origin: Origin,
    /// As decoded; checked here, so that a wrong one is a stored refusal.
    pub params: Params,
    /// What the address of a holder's page begins with.
    pub public_url: Arc<str>,
}

impl Command for CreateSetupIntent {
    async fn execute(&self, tx: &mut PgConnection) -> Result<Reply, Rejection> {
        let (origin, account) = (&self.origin, self.origin.account);
        let params: CreateSetupIntentParams = checked(&self.params)?;
        let confirm = params.confirm == Some(true);
        if params.return_url.is_some() && !confirm {
            return Err(without_confirm("return_url").into());
        }
        let methods = (
            params.automatic_payment_methods,
            params.payment_method_types,
        );
        let automatic_payment_methods = chosen_methods(methods.0, methods.1)?;
        let given = GivenMethod::of(params.payment_method, params.payment_method_data)?;
        let method = match given {
            Some(given) => Some(take(origin, tx, given, true).await?),
            None if confirm => return Err(nothing_to_confirm().into()),
            None => None,
        };
        let customer = match params.customer {
            Some(id) => Some(find_customer(tx, account, id, "customer").await?.id),
            None => None,
        };
        if let Some(method) = &method {
            method.may_pay_for(customer).map_err(refused)?;
        }
        let terms = SetupTerms {
            automatic_payment_methods,
            customer,
            description: params.description,
            metadata: params.metadata,
            payment_method: method.as_ref().map(|method| method.id),
            usage: params.usage.unwrap_or(FutureUsage::OffSession),
        };
        let id = SetupIntentId(Uuid::now_v7());
        // The database says when.
        let setup = SetupIntent::begun(id, client_secret(id), terms, DateTime::UNIX_EPOCH);
        let setup = store::setup_intents::insert(tx, account, &setup).await?;
        let view = SetupIntentView::from(&setup);
        origin
            .emit(tx, EventType::SetupIntentCreated, &view)
            .await?;
        let asked = SetupAttempt {
            origin,
            public_url: &self.public_url,
            status: CREATED,
            expand: &params.expand,
        };
        match method.filter(|_| confirm) {
            Some(method) => asked.attempt(tx, setup, method, params.return_url).await,
            None => asked.show(tx, &setup).await,
        }
    }
}
