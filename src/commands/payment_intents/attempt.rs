//! What a confirmation leads to, once the intent and its method are locked: a charge, a page for
//! the card's holder, or a decline.
//!
//! Promise: a decline is an outcome to keep. It is answered 402, and all that tells of it is
//! committed: the failed charge, the intent's `last_payment_error`, and the events. A refusal would
//! undo them.

use charge_once_strict_params::Expansion;
use sqlx::PgConnection;
use uuid::Uuid;

use super::found::{unexpected, whole};
use crate::commands::{
    Origin, SeenRows, SlowLane,
    card_answers::authorize,
    payment_methods::given::mark_used,
    replies::{CREATED, OK, STORED_DECLINE, error_reply},
    work::in_transaction,
};
use crate::{
    domain::{
        charge::{Authorization, Card, Charge, IntentCharge, NewCharge},
        event::EventType,
        ids::ChargeId,
        operation::{Answer, Ask, CardAuthorization, Effect, Verb},
        payment_intent::{
            Confirmation, FutureUsage, HolderPage, IntentStatus, IntentTerms, NextStep,
            PaymentIntent,
        },
        payment_method::PaymentMethod,
        test_cards::AUTHENTICATION_REQUIRED,
    },
    idempotency::{BeginOutcome, Failure, Rejection, Reply},
    store,
    webhooks::{self, NewEvent},
    wire::{
        charges::ChargeView,
        error::{ApiError, ErrorCode},
        payment_intents::PaymentIntentView,
        payment_methods::{PaymentMethodView, refused},
    },
};

/// A confirmation of an intent with a method; this transaction has locked both.
pub(super) struct PaymentAttempt {
    /// Which verb confirms.
    pub verb: Verb,
    /// As the request has changed it.
    pub intent: PaymentIntent,
    /// What is to be charged.
    pub method: PaymentMethod,
    /// The request made the method.
    pub makes_method: bool,
    /// What the reply shows whole.
    pub expand: Expansion,
}

/// What follows a confirmation.
pub(super) enum ConfirmOutcome {
    /// It has ended: the holder is to authenticate, or the card can't be charged.
    Replied(Reply),
    /// The card is to be asked.
    Asks(Box<PaymentAttempt>),
}

impl PaymentAttempt {
    /// Decides, and does what needs no answer of a card. `page` is where the holder would
    /// authenticate.
    pub(super) async fn confirm(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        confirmation: Confirmation,
        page: HolderPage,
    ) -> Result<ConfirmOutcome, Rejection> {
        let customer = self.intent.terms.customer;
        self.method.may_pay_for(customer).map_err(refused)?;
        let step = self
            .intent
            .confirm(&self.method, confirmation)
            .map_err(|status| unexpected(&self.intent, "confirm", status))?;
        let reply = match step {
            NextStep::Charge => return Ok(ConfirmOutcome::Asks(Box::new(self))),
            NextStep::Authenticate => self.challenge(origin, tx, page).await?,
            NextStep::DeclineOffSession => {
                let said = Authorization::Declined(AUTHENTICATION_REQUIRED);
                let charge = self.write_charge(origin, tx, Some(said)).await?;
                self.answered(origin, tx, &charge, said).await?
            }
            NextStep::RefuseAction => {
                let message = "This payment requires additional user action before it can be \
                               completed.";
                let error = ApiError {
                    decline_code: Some("authentication_not_handled".to_owned()),
                    ..ApiError::new(ErrorCode::AuthenticationRequired, message)
                };
                self.fail(origin, tx, error, Vec::new()).await?
            }
        };
        Ok(ConfirmOutcome::Replied(reply))
    }

    /// Asks the simulated card, and writes down what it says.
    pub(super) async fn charge(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        slow_lane: &SlowLane,
    ) -> Result<Reply, Rejection> {
        let charge = ChargeId(Uuid::now_v7());
        let ask = Ask::Authorize(CardAuthorization::of(charge, &self.new_charge()));
        let said = match authorize(tx, &ask, slow_lane).await? {
            Answer::Done => Authorization::Approved,
            Answer::Declined(decline) => Authorization::Declined(decline),
        };
        let charge = self.write_charge(origin, tx, Some(said)).await?;
        self.answered(origin, tx, &charge, said).await
    }

    /// Writes down what the processor is to be asked. The charge is pending meanwhile, and the
    /// intent is processing, and as the request has changed it.
    pub(super) async fn write_down(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        operation: Uuid,
    ) -> Result<BeginOutcome, Rejection> {
        let account = origin.account;
        let charge = self.write_charge(origin, tx, None).await?;
        if self.makes_method {
            store::payment_methods::made_for(tx, account, self.method.id, charge.id).await?;
        }
        let ask = Ask::Authorize(CardAuthorization::of(charge.id, &self.new_charge()));
        let Self {
            verb,
            intent,
            expand,
            ..
        } = self;
        store::payment_intents::remember(tx, account, intent.id).await?;
        let intent = intent.processing(charge.id);
        let intent = store::payment_intents::update(tx, account, &intent).await?;
        let effect = Effect {
            intent: Some(intent.id),
            expand,
            ..Effect::of(verb, ask)
        };
        origin.begin_effect(tx, operation, effect).await
    }

    fn new_charge(&self) -> NewCharge {
        let kept = &self.method.card;
        self.intent.charge_with(Card {
            card: self.method.test_card,
            exp_month: kept.exp_month,
            exp_year: kept.exp_year,
        })
    }

    /// Writes the charge of this attempt, with what it keeps of the method.
    async fn write_charge(
        &self,
        origin: &Origin,
        tx: &mut PgConnection,
        said: Option<Authorization>,
    ) -> Result<Charge, Rejection> {
        let method = &self.method;
        let of = IntentCharge {
            intent: self.intent.id,
            method: method.id,
            billing: method.billing.clone(),
            fingerprint: method.fingerprint.clone(),
            has_cvc: method.has_cvc,
            is_authenticated: self.verb == Verb::AuthenticateIntent
                || self.intent.is_authenticated_with(method.id),
            statement_descriptor_suffix: self.intent.terms.statement_descriptor_suffix.clone(),
        };
        let (id, new) = (ChargeId(Uuid::now_v7()), self.new_charge());
        let reads = |_: &SeenRows<'_>| Vec::new();
        in_transaction(origin, None, tx, reads, |draft| {
            let charge = Charge::made(id, &new, None, said, draft.now);
            Ok(draft.put(Charge {
                by_intent: Some(of),
                ..charge
            }))
        })
        .await
    }

    /// Writes down the card's answer. The method of a payment is used up by it, or attached to the
    /// customer that it is kept for.
    pub(super) async fn answered(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        charge: &Charge,
        said: Authorization,
    ) -> Result<Reply, Rejection> {
        let mut events = self.created(origin)?;
        let view = ChargeView::from(charge);
        if let Authorization::Declined(decline) = said {
            events.push(origin.event(EventType::ChargeFailed, &view)?);
            let error = ApiError::declined(decline, charge.id.to_string());
            let intent = self.intent.answered(self.method.id, charge.id, said, None);
            let failed = Self { intent, ..self };
            return failed.fail_as(origin, tx, error, events).await;
        }
        events.push(origin.event(EventType::ChargeSucceeded, &view)?);
        webhooks::emit(tx, &events).await?;
        let Self {
            verb,
            intent,
            method,
            expand,
            ..
        } = self;
        let intent = intent.answered(method.id, charge.id, said, None);
        let kept_for = intent.keeps_method_for();
        let method = mark_used(origin, tx, method, kept_for).await?;
        if sets_up(&intent.terms) && !method.set_up {
            let set_up = PaymentMethod {
                set_up: true,
                ..method
            };
            store::payment_methods::update(tx, origin.account, set_up).await?;
        }
        let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
        let event_type = match intent.status {
            IntentStatus::RequiresCapture => EventType::PaymentIntentAmountCapturableUpdated,
            IntentStatus::RequiresPaymentMethod
            | IntentStatus::RequiresConfirmation
            | IntentStatus::RequiresAction
            | IntentStatus::Processing
            | IntentStatus::Succeeded
            | IntentStatus::Canceled => EventType::PaymentIntentSucceeded,
        };
        let view = PaymentIntentView::from(&intent);
        origin.emit(tx, event_type, &view).await?;
        origin
            .show(tx, status_of(verb), view.id, &intent, &expand)
            .await
    }

    /// Sends the holder to the page.
    async fn challenge(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        page: HolderPage,
    ) -> Result<Reply, Rejection> {
        let mut events = self.created(origin)?;
        let intent = self.intent.challenged(self.method.id, page);
        let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
        let view = PaymentIntentView::from(&intent);
        events.push(origin.event(EventType::PaymentIntentRequiresAction, &view)?);
        webhooks::emit(tx, &events).await?;
        origin
            .show(tx, status_of(self.verb), view.id, &intent, &self.expand)
            .await
    }

    /// Ends the attempt without a charge, for the reason in `error`.
    pub(super) async fn fail(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        error: ApiError,
        events: Vec<NewEvent>,
    ) -> Result<Reply, Rejection> {
        let mut all = self.created(origin)?;
        all.extend(events);
        self.fail_as(origin, tx, error, all).await
    }

    /// Takes the method from the intent, which keeps `error`, and answers with it, the method and
    /// the intent. `events` come first.
    async fn fail_as(
        self,
        origin: &Origin,
        tx: &mut PgConnection,
        mut error: ApiError,
        mut events: Vec<NewEvent>,
    ) -> Result<Reply, Rejection> {
        let method = serde_json::to_string(&PaymentMethodView::from(&self.method));
        error.about.payment_method = Some(method.map_err(Failure::internal)?);
        let kept = error.to_json().map_err(Failure::internal)?;
        let intent = self.intent.failed(Some(kept));
        let intent = store::payment_intents::update(tx, origin.account, &intent).await?;
        let view = PaymentIntentView::from(&intent);
        events.push(origin.event(EventType::PaymentIntentPaymentFailed, &view)?);
        webhooks::emit(tx, &events).await?;
        error.about.payment_intent = Some(whole(&intent)?);
        error.message.push_str(STORED_DECLINE);
        let mut reply = error_reply(&error)?;
        reply.resource_id = Some(view.id);
        Ok(reply)
    }

    /// The event that tells of a new intent, as it was before it was confirmed. Nothing was told of
    /// it yet: across a network, it would be undone with a request that the processor never got.
    fn created(&self, origin: &Origin) -> Result<Vec<NewEvent>, Rejection> {
        if self.verb != Verb::CreateIntent {
            return Ok(Vec::new());
        }
        let unconfirmed = PaymentIntent {
            latest_charge: None,
            ..self.intent.clone()
        };
        let view = PaymentIntentView::from(&unconfirmed);
        Ok(vec![origin.event(EventType::PaymentIntentCreated, &view)?])
    }
}

/// Whether a payment by these terms makes its method ready for payments without its holder.
pub(super) fn sets_up(terms: &IntentTerms) -> bool {
    terms.setup_future_usage == Some(FutureUsage::OffSession)
}

fn status_of(verb: Verb) -> u16 {
    if verb == Verb::CreateIntent {
        CREATED
    } else {
        OK
    }
}
