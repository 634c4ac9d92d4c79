//! What a confirmation leads to: a charge, a page for the card's holder, or a decline.
//!
//! Promise: a decline is an outcome to keep. It is answered 402, and all that tells of it is
//! committed: the failed charge, the intent's `last_payment_error`, and the events. A refusal would
//! undo them.

use super::authenticate::lands;
use crate::{
    commands::{
        charges::create::{self as charges, record_answer},
        found_intents::{restore, unexpected},
        holder_pages::holder_page,
        payment_methods::given::{self, mark_used},
        prelude::*,
    },
    domain::{
        charge::IntentCharge,
        payment_intent::{Confirmation, IntentTerms, NextStep},
        test_cards::AUTHENTICATION_REQUIRED,
    },
    wire::payment_methods::refused,
};

/// A confirmation of an intent with a method.
pub(super) struct PaymentAttempt {
    /// What led to it.
    pub by: ConfirmedBy,
    /// As the request has changed it.
    pub intent: PaymentIntent,
    /// What is to be charged.
    pub method: PaymentMethod,
}

impl PaymentAttempt {
    /// Decides, and does what needs no answer of a card. A holder who is to authenticate comes back
    /// to `return_url`.
    pub(super) fn confirm(
        self,
        draft: &mut Draft<'_>,
        makes_method: bool,
        confirmation: Confirmation,
        return_url: Option<String>,
    ) -> Result<Verdict, Rejection> {
        let customer = self.intent.terms.customer;
        self.method.may_pay_for(customer).map_err(refused)?;
        let step = self
            .intent
            .confirm(&self.method, confirmation)
            .map_err(|status| unexpected(&self.intent, "confirm", status))?;
        let said = match step {
            NextStep::Charge => return self.ask(draft, makes_method),
            NextStep::Authenticate => self.challenge(draft, return_url)?,
            NextStep::DeclineOffSession => {
                let said = Authorization::Declined(AUTHENTICATION_REQUIRED);
                let charge = self.put_charge(draft, Some(said));
                self.end(draft, &charge, said)?
            }
            NextStep::RefuseAction => {
                let message = "This payment requires additional user action before it can be \
                               completed.";
                let error = ApiError {
                    decline_code: Some("authentication_not_handled".to_owned()),
                    ..ApiError::new(ErrorCode::AuthenticationRequired, message)
                };
                self.tell_of_creation(draft)?;
                self.fail(draft, error)?
            }
        };
        Ok(Verdict::Answered(said))
    }

    /// Asks the card. The charge is pending meanwhile, and the intent is processing, and as the
    /// request has changed it.
    pub(super) fn ask(
        self,
        draft: &mut Draft<'_>,
        makes_method: bool,
    ) -> Result<Verdict, Rejection> {
        let charge = self.put_charge(draft, None);
        if makes_method && draft.server.processor.is_some() {
            draft.put(PaymentMethod {
                made_for: Some(charge.id),
                ..self.method.clone()
            });
        }
        let before = draft.known::<PaymentIntent>(Some(self.intent.id), "an intent")?;
        let card = CardAuthorization::of(charge.id, &self.new_charge());
        let intent = draft.put(self.intent.processing(charge.id, before));
        let question = Question::IntentPayment(intent.id, self.by, card);
        Ok(ask(question))
    }

    fn new_charge(&self) -> NewCharge {
        let kept = &self.method.card;
        self.intent.charge_with(Card {
            test_card: self.method.test_card,
            exp_month: kept.exp_month,
            exp_year: kept.exp_year,
        })
    }

    /// Makes the charge of this attempt, with what it keeps of the method.
    fn put_charge(&self, draft: &mut Draft<'_>, said: Option<Authorization>) -> Charge {
        let (method, details) = (&self.method, &self.intent.terms.details);
        let of = IntentCharge {
            intent: self.intent.id,
            method: method.id,
            billing: method.billing.clone(),
            fingerprint: method.fingerprint.clone(),
            has_cvc: method.has_cvc,
            is_authenticated: self.by == ConfirmedBy::Holder
                || self.intent.is_authenticated_with(method.id),
            statement_descriptor_suffix: details.statement_descriptor_suffix.clone(),
        };
        let (id, new) = (ChargeId(Uuid::now_v7()), self.new_charge());
        let charge = Charge::made(id, &new, None, said, draft.now);
        draft.put(Charge {
            by_intent: Some(of),
            ..charge
        })
    }

    /// Writes down the card's answer. The method of a payment is used up by it, or attached to the
    /// customer that it is kept for.
    fn end(
        self,
        draft: &mut Draft<'_>,
        charge: &Charge,
        said: Authorization,
    ) -> Result<Said, Rejection> {
        self.tell_of_creation(draft)?;
        let intent = self.intent.clone();
        let intent = intent.answered(self.method.id, charge.id, said, None);
        if let Authorization::Declined(decline) = said {
            draft.emit(EventType::ChargeFailed, charge)?;
            let error = ApiError::declined(decline, charge.id.to_string());
            return Self { intent, ..self }.fail(draft, error);
        }
        draft.emit(EventType::ChargeSucceeded, charge)?;
        let kept_for = intent.keeps_method_for();
        let method = mark_used(draft, self.method, kept_for)?;
        if sets_up(&intent.terms) && !method.set_up {
            draft.put(PaymentMethod {
                set_up: true,
                ..method
            });
        }
        let event = if intent.status == IntentStatus::RequiresCapture {
            EventType::PaymentIntentAmountCapturableUpdated
        } else {
            EventType::PaymentIntentSucceeded
        };
        let intent = draft.put_with(event, intent)?;
        Ok(Said::show(status_of(self.by), intent))
    }

    /// Sends the holder to the page.
    fn challenge(
        self,
        draft: &mut Draft<'_>,
        return_url: Option<String>,
    ) -> Result<Said, Rejection> {
        self.tell_of_creation(draft)?;
        let page = holder_page(draft, self.intent.id, return_url)?;
        let intent = self.intent.challenged(self.method.id, page);
        let intent = draft.put_with(EventType::PaymentIntentRequiresAction, intent)?;
        Ok(Said::show(status_of(self.by), intent))
    }

    /// Takes the method from the intent, which keeps `error`, and answers with it, the method and
    /// the intent.
    pub(super) fn fail(
        self,
        draft: &mut Draft<'_>,
        mut error: ApiError,
    ) -> Result<Said, Rejection> {
        error.about.payment_method = Some(whole(&self.method)?);
        let kept = error.to_json().map_err(Failure::internal)?;
        let intent = self.intent.failed(Some(kept));
        let intent = draft.put_with(EventType::PaymentIntentPaymentFailed, intent)?;
        error.about.payment_intent = Some(whole(&intent)?);
        error.about.advice = Some(STORED_DECLINE);
        let mut reply = error_reply(&error)?;
        reply.resource_id = Some(intent.id.to_string());
        Ok(Said::Reply(reply))
    }

    /// Tells of a new intent, as it was before it was confirmed. Nothing was told of it yet: across
    /// a network, it would be undone with a request that the processor never got.
    fn tell_of_creation(&self, draft: &mut Draft<'_>) -> Result<(), Rejection> {
        if self.by != ConfirmedBy::Creation {
            return Ok(());
        }
        let unconfirmed = PaymentIntent {
            latest_charge: None,
            ..self.intent.clone()
        };
        draft.emit(EventType::PaymentIntentCreated, &unconfirmed)
    }
}

/// The rows that a card's answer needs, or the withdrawal of the question.
pub(in crate::commands) fn reads(
    seen: &SeenRows<'_>,
    intent: PaymentIntentId,
    card: &CardAuthorization,
) -> Vec<RowId> {
    let mut rows = vec![RowId::Intent(intent), RowId::Charge(card.charge)];
    let method = seen.get::<Charge>(card.charge).and_then(method_of);
    if let Some(intent) = seen.get::<PaymentIntent>(intent) {
        let (ready, keeps_for) = (sets_up(&intent.terms), intent.keeps_method_for());
        rows.extend(given::reads(seen, &Ok(None), method, ready, keeps_for));
    }
    rows
}

fn method_of(charge: &Charge) -> Option<PaymentMethodId> {
    charge.by_intent.as_ref().map(|of| of.method)
}

/// Writes down the processor's answer, and reports it.
pub(in crate::commands) fn answered(
    draft: &mut Draft<'_>,
    (intent, by): (PaymentIntentId, ConfirmedBy),
    card: &CardAuthorization,
    answer: Answer,
) -> Result<Said, Rejection> {
    let intent = draft
        .find::<PaymentIntent>(Some(intent), "intent")?
        .clone()
        .resumed();
    let (charge, said) = record_answer(draft, card, answer)?;
    let attempt = PaymentAttempt {
        by,
        intent: intent.clone(),
        method: draft.known(method_of(&charge), "the method of an intent's charge")?,
    };
    let ended = attempt.end(draft, &charge, said)?;
    match by {
        ConfirmedBy::Creation | ConfirmedBy::Confirmation => Ok(ended),
        ConfirmedBy::Holder => {
            let is_paid = said == Authorization::Approved;
            lands(&intent, is_paid)
        }
    }
}

/// Undoes what a question made that was never executed: the intent is as it was before, and a new
/// one is forgotten. So is the method that came with the request.
pub(in crate::commands) fn withdraw(
    draft: &mut Draft<'_>,
    (intent, by): (PaymentIntentId, ConfirmedBy),
    card: &CardAuthorization,
) -> Result<(), Rejection> {
    let charge = charges::withdraw(draft, card)?;
    match by {
        ConfirmedBy::Creation => draft.delete::<PaymentIntent>(intent),
        ConfirmedBy::Confirmation | ConfirmedBy::Holder => {
            restore(draft, intent)?;
        }
    }
    let method = method_of(&charge).and_then(|id| draft.get::<PaymentMethod>(id));
    if let Some(method) = method.filter(|method| method.made_for == Some(charge.id)) {
        let method = method.id;
        draft.delete::<PaymentMethod>(method);
    }
    Ok(())
}

/// Whether a payment by these terms makes its method ready for payments without its holder.
pub(super) fn sets_up(terms: &IntentTerms) -> bool {
    terms.setup_future_usage == Some(FutureUsage::OffSession)
}

fn status_of(by: ConfirmedBy) -> u16 {
    match by {
        ConfirmedBy::Creation => CREATED,
        ConfirmedBy::Confirmation | ConfirmedBy::Holder => OK,
    }
}
