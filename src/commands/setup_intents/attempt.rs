//! The attempt to set a card up, which a create and a confirmation make alike, and how it ends,
//! there or on the page of the card's holder.

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;

use crate::commands::{
    Origin, expansions,
    holder_pages::holder_page,
    payment_methods::given::{attach_to, declined},
    replies::{STORED_DECLINE, error_reply, missing},
};
use crate::{
    domain::{
        event::EventType,
        ids::SetupIntentId,
        payment_method::{Attachment, PaymentMethod},
        setup_intent::{SetupIntent, SetupStatus, SetupStep, UnexpectedSetupStatus},
        test_cards::Decline,
    },
    idempotency::{Failure, Rejection, Reply},
    store,
    wire::{
        error::{ApiError, ErrorCode},
        intent_parameters::must_have_return_url,
        payment_methods::refused,
        setup_intents::SetupIntentView,
    },
};

/// A request for a setup intent, and how its reply looks.
pub(super) struct SetupAttempt<'a> {
    pub(super) origin: &'a Origin,
    pub(super) public_url: &'a str,
    /// Of the reply, unless the card declines.
    pub(super) status: u16,
    pub(super) expand: &'a Expansion,
}

impl SetupAttempt<'_> {
    /// The reply with the setup intent.
    pub(super) async fn show(
        &self,
        tx: &mut PgConnection,
        setup: &SetupIntent,
    ) -> Result<Reply, Rejection> {
        let id = setup.id.to_string();
        let (status, expand) = (self.status, self.expand);
        self.origin.show(tx, status, id, setup, expand).await
    }

    /// Tries to set `method` up. The caller has locked the setup intent, and then the method.
    pub(super) async fn attempt(
        &self,
        tx: &mut PgConnection,
        setup: SetupIntent,
        method: PaymentMethod,
        return_url: Option<String>,
    ) -> Result<Reply, Rejection> {
        let terms = &setup.terms;
        method.may_pay_for(terms.customer).map_err(refused)?;
        must_have_return_url(terms.automatic_payment_methods, return_url.as_deref())?;
        let setup = match setup.confirm(&method) {
            Err(status) => return Err(unconfirmable(self.origin, tx, &setup, status).await),
            Ok(SetupStep::Decline(decline)) => {
                return self.decline(tx, setup, &method, decline).await;
            }
            Ok(SetupStep::Authenticate) => {
                let account = self.origin.account;
                let page = holder_page(self.public_url, account, setup.id, return_url);
                let setup = setup.challenged(method.id, page);
                write(
                    self.origin,
                    tx,
                    &setup,
                    EventType::SetupIntentRequiresAction,
                )
                .await?
            }
            Ok(SetupStep::Succeed) => succeed(self.origin, tx, setup, method).await?,
        };
        self.show(tx, &setup).await
    }

    /// The card declines. That is an outcome to keep: the setup intent stays, with the error.
    async fn decline(
        &self,
        tx: &mut PgConnection,
        setup: SetupIntent,
        method: &PaymentMethod,
        decline: Decline,
    ) -> Result<Reply, Rejection> {
        let mut error = declined(decline, method)?;
        let setup = fail(self.origin, tx, setup, &error).await?;
        error.about.setup_intent = Some(whole(self.origin, tx, &setup, self.expand).await?);
        error.message.push_str(STORED_DECLINE);
        let mut reply = error_reply(&error)?;
        reply.resource_id = Some(setup.id.to_string());
        Ok(reply)
    }
}

/// Reads and locks the setup intent that the path names.
pub(super) async fn lock(
    origin: &Origin,
    tx: &mut PgConnection,
    id: &str,
) -> Result<SetupIntent, Rejection> {
    let none = || missing("intent", SetupIntentId::PREFIX);
    let id = SetupIntentId::parse(id).ok_or_else(none)?;
    let found = store::setup_intents::lock(tx, origin.account, id).await?;
    found.ok_or_else(none)
}

/// Makes the method ready, and attaches a new one to the customer, if there is one. The caller has
/// locked it. Nothing is written before a refusal.
pub(super) async fn succeed(
    origin: &Origin,
    tx: &mut PgConnection,
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
            attach_to(origin, tx, ready, customer).await?;
        }
        Some(_) | None => {
            store::payment_methods::update(tx, origin.account, ready).await?;
        }
    }
    let setup = setup.succeeded(id);
    write(origin, tx, &setup, EventType::SetupIntentSucceeded).await
}

/// Takes the method from the setup intent, which remembers why.
pub(super) async fn fail(
    origin: &Origin,
    tx: &mut PgConnection,
    setup: SetupIntent,
    error: &ApiError,
) -> Result<SetupIntent, Rejection> {
    let told = serde_json::to_string(&error.envelope().error).map_err(Failure::internal)?;
    let setup = setup.failed(Some(told));
    write(origin, tx, &setup, EventType::SetupIntentSetupFailed).await
}

/// Writes what has become of a setup intent, with its event.
pub(super) async fn write(
    origin: &Origin,
    tx: &mut PgConnection,
    setup: &SetupIntent,
    event_type: EventType,
) -> Result<SetupIntent, Rejection> {
    let setup = store::setup_intents::update(tx, origin.account, setup).await?;
    let view = SetupIntentView::from(&setup);
    origin.emit(tx, event_type, &view).await?;
    Ok(setup)
}

/// The refusal of a confirmation, by the status of the setup intent.
pub(super) async fn unconfirmable(
    origin: &Origin,
    tx: &mut PgConnection,
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
    unexpected(origin, tx, setup, message).await
}

/// The refusal of a verb that the setup intent's status doesn't allow, with the setup intent as it
/// is: the caller has locked it.
pub(super) async fn unexpected(
    origin: &Origin,
    tx: &mut PgConnection,
    setup: &SetupIntent,
    message: String,
) -> Rejection {
    match whole(origin, tx, setup, &Expansion::default()).await {
        Err(rejection) => rejection,
        Ok(whole) => {
            let mut error = ApiError::new(ErrorCode::SetupIntentUnexpectedState, message);
            error.about.setup_intent = Some(whole);
            error.into()
        }
    }
}

/// The setup intent as an error shows it.
async fn whole(
    origin: &Origin,
    tx: &mut PgConnection,
    setup: &SetupIntent,
    expand: &Expansion,
) -> Result<String, Rejection> {
    let view = expansions::view(tx, origin.audience(), setup, expand).await?;
    Ok(serde_json::to_string(&view).map_err(Failure::internal)?)
}
