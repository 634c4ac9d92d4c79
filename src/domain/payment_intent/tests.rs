//! Every verb in every status, and random walks beside a model that knows money only.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

use proptest::prelude::*;
use uuid::Uuid;

use super::super::{
    money::Currency,
    payment_method::sample as method,
    test_cards::{Decline, PROCESSING_ERROR},
};
use super::*;

const DECLINE: Decline = PROCESSING_ERROR;
const METHOD: PaymentMethodId = PaymentMethodId(Uuid::from_u128(1));
const CHARGE: ChargeId = ChargeId(Uuid::from_u128(2));

fn intent(capture_method: CaptureMethod) -> PaymentIntent {
    let terms = IntentTerms {
        amount: Money {
            minor_units: 2000,
            currency: Currency::parse("usd").unwrap(),
        },
        automatic_payment_methods: Some(AllowRedirects::Always),
        capture_method,
        confirmation_method: ConfirmationMethod::Automatic,
        customer: None,
        description: None,
        metadata: Metadata::new(),
        payment_method: None,
        receipt_email: None,
        request_three_d_secure: ThreeDSecure::Automatic,
        setup_future_usage: None,
        shipping: None,
        statement_descriptor_suffix: None,
    };
    let id = PaymentIntentId(Uuid::nil());
    PaymentIntent::begun(id, "secret".to_owned(), terms, DateTime::UNIX_EPOCH)
}

fn page() -> HolderPage {
    HolderPage {
        url: "token".to_owned(),
        return_url: None,
    }
}

/// The intent with other terms.
fn updated(
    intent: PaymentIntent,
    change: impl FnOnce(&mut IntentTerms),
) -> Result<PaymentIntent, UnexpectedStatus> {
    let mut terms = intent.terms.clone();
    change(&mut terms);
    intent.updated(terms, false)
}

/// The intent with another method.
fn with_method(intent: PaymentIntent) -> Result<PaymentIntent, UnexpectedStatus> {
    let mut terms = intent.terms.clone();
    terms.payment_method = Some(METHOD);
    intent.updated(terms, true)
}

const ON_SESSION: Confirmation = Confirmation {
    off_session: false,
    error_on_requires_action: false,
};

/// An intent in this status, reached by its verbs.
fn standing(status: IntentStatus) -> PaymentIntent {
    let new = intent(CaptureMethod::Automatic);
    match status {
        IntentStatus::RequiresPaymentMethod => new,
        IntentStatus::RequiresConfirmation => with_method(new).unwrap(),
        IntentStatus::RequiresAction => new.challenged(METHOD, page()),
        IntentStatus::Processing => {
            let before = with_method(new).unwrap();
            before.clone().processing(CHARGE, before)
        }
        IntentStatus::RequiresCapture => {
            let manual = with_method(intent(CaptureMethod::Manual)).unwrap();
            manual.answered(METHOD, CHARGE, Authorization::Approved, None)
        }
        IntentStatus::Succeeded => {
            with_method(new)
                .unwrap()
                .answered(METHOD, CHARGE, Authorization::Approved, None)
        }
        IntentStatus::Canceled => new.canceled(DateTime::UNIX_EPOCH),
    }
}

#[test]
fn each_verb_finds_its_statuses_and_refuses_the_others() {
    use IntentStatus::{
        Canceled, Processing, RequiresAction, RequiresCapture, RequiresConfirmation,
        RequiresPaymentMethod, Succeeded,
    };
    // Status, and whether it takes: an update of the amount, one of the description, a
    // confirmation, a capture, a cancellation.
    let table = [
        (RequiresPaymentMethod, [true, true, true, false, true]),
        (RequiresConfirmation, [true, true, true, false, true]),
        (RequiresAction, [true, true, true, false, true]),
        (Processing, [false, true, false, false, false]),
        (RequiresCapture, [false, true, false, true, true]),
        (Succeeded, [false, true, false, false, false]),
        (Canceled, [false, true, false, false, false]),
    ];
    assert_eq!(table.len(), IntentStatus::ALL.len());
    for (status, takes) in table {
        let intent = standing(status);
        assert_eq!(intent.status, status);
        let taken = [
            updated(intent.clone(), |terms| terms.amount.minor_units = 1).is_ok(),
            updated(intent.clone(), |terms| {
                terms.description = Some("new".to_owned())
            })
            .is_ok(),
            intent.confirm(&method("pm_card_visa"), ON_SESSION).is_ok(),
            intent.capture(None).is_ok(),
            intent.must_be_cancelable().is_ok(),
        ];
        assert_eq!(taken, takes, "{status:?}");
    }
}

#[test]
fn a_confirmation_asks_the_card_or_its_holder() {
    let new = standing(IntentStatus::RequiresPaymentMethod);
    let off_session = Confirmation {
        off_session: true,
        ..ON_SESSION
    };
    let no_action = Confirmation {
        error_on_requires_action: true,
        ..ON_SESSION
    };
    let table = [
        ("pm_card_visa", ON_SESSION, NextStep::Charge),
        ("pm_card_chargeDeclined", ON_SESSION, NextStep::Charge),
        ("pm_card_visa", off_session, NextStep::Charge),
        (
            "pm_card_authenticationRequired",
            ON_SESSION,
            NextStep::Authenticate,
        ),
        (
            "pm_card_authenticationRequired",
            no_action,
            NextStep::RefuseAction,
        ),
        (
            "pm_card_authenticationRequired",
            off_session,
            NextStep::DeclineOffSession,
        ),
    ];
    for (token, confirmation, step) in table {
        assert_eq!(
            new.confirm(&method(token), confirmation),
            Ok(step),
            "{token} {confirmation:?}"
        );
    }
    let mut any = new;
    any.terms.request_three_d_secure = ThreeDSecure::Any;
    let visa = method("pm_card_visa");
    assert_eq!(any.confirm(&visa, ON_SESSION), Ok(NextStep::Authenticate));
}

#[test]
fn an_authentication_counts_for_its_own_method_and_terms() {
    let card = method("pm_card_authenticationRequired");
    let waiting = standing(IntentStatus::RequiresAction);
    assert!(waiting.may_authenticate());
    let authenticated = waiting.authenticated();
    assert_eq!(authenticated.status, IntentStatus::RequiresConfirmation);
    assert_eq!(
        authenticated.confirm(&card, ON_SESSION),
        Ok(NextStep::Charge)
    );
    let other = PaymentMethod {
        id: PaymentMethodId(Uuid::from_u128(9)),
        ..card.clone()
    };
    assert_eq!(
        authenticated.confirm(&other, ON_SESSION),
        Ok(NextStep::Authenticate)
    );
    let dearer = updated(authenticated, |terms| terms.amount.minor_units = 9000).unwrap();
    assert_eq!(
        dearer.confirm(&card, ON_SESSION),
        Ok(NextStep::Authenticate)
    );
}

#[test]
fn a_change_of_what_a_holder_authenticates_for_voids_it_and_another_change_does_not() {
    let waiting = standing(IntentStatus::RequiresAction);
    let changed = updated(waiting.clone(), |terms| terms.amount.minor_units = 1).unwrap();
    assert_eq!(changed.status, IntentStatus::RequiresConfirmation);
    assert_eq!(changed.holder_page, None);
    let described = updated(waiting, |terms| terms.description = Some("new".to_owned())).unwrap();
    assert_eq!(described.status, IntentStatus::RequiresAction);
    assert_eq!(described.holder_page, Some(page()));
}

#[test]
fn a_decline_leaves_its_error_until_something_is_updated() {
    let declined = standing(IntentStatus::RequiresConfirmation).answered(
        METHOD,
        CHARGE,
        Authorization::Declined(DECLINE),
        Some("why".to_owned()),
    );
    assert_eq!(declined.status, IntentStatus::RequiresPaymentMethod);
    assert_eq!(declined.terms.payment_method, None);
    assert_eq!(declined.latest_charge, Some(CHARGE));
    assert_eq!(declined.charge, None);
    assert_eq!(declined.last_payment_error.as_deref(), Some("why"));
    let updated = updated(declined, |_| {}).unwrap();
    assert_eq!(updated.last_payment_error, None);
    assert_eq!(updated.status, IntentStatus::RequiresPaymentMethod);
}

#[test]
fn a_capture_takes_at_most_what_is_promised() {
    let promised = standing(IntentStatus::RequiresCapture);
    assert_eq!(promised.capture(None), Ok(2000));
    assert_eq!(promised.capture(Some(1)), Ok(1));
    assert_eq!(
        promised.capture(Some(2001)),
        Err(IntentCaptureRefusal::TooLarge { capturable: 2000 })
    );
}

/// What a client and a card do to an intent.
#[derive(Debug, Clone)]
enum Act {
    SetMethod,
    Confirm {
        token: &'static str,
        declines: bool,
        off_session: bool,
    },
    Authenticate {
        passes: bool,
    },
    Capture(Option<i64>),
    Cancel,
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let tokens = prop::sample::select(vec![
        "pm_card_visa",
        "pm_card_authenticationRequired",
        "pm_card_authenticationRequiredSetupForOffSession",
    ]);
    let confirm =
        (tokens, any::<bool>(), any::<bool>()).prop_map(|(token, declines, off_session)| {
            Act::Confirm {
                token,
                declines,
                off_session,
            }
        });
    let act = prop_oneof![
        Just(Act::SetMethod),
        confirm,
        any::<bool>().prop_map(|passes| Act::Authenticate { passes }),
        prop::option::of(1..3000_i64).prop_map(Act::Capture),
        Just(Act::Cancel),
    ];
    prop::collection::vec(act, 0..12)
}

/// What happened to the money, which is all that a customer cares about.
#[derive(Debug, Default)]
struct Ledger {
    promised: i64,
    taken: i64,
    closed: bool,
    approvals: u32,
}

fn answer(intent: PaymentIntent, ledger: &mut Ledger, declines: bool) -> PaymentIntent {
    if declines {
        let error = Some("declined".to_owned());
        return intent.answered(METHOD, CHARGE, Authorization::Declined(DECLINE), error);
    }
    ledger.approvals += 1;
    match intent.terms.capture_method {
        CaptureMethod::Manual => ledger.promised = 2000,
        CaptureMethod::Automatic | CaptureMethod::AutomaticAsync => ledger.taken = 2000,
    }
    intent.answered(METHOD, CHARGE, Authorization::Approved, None)
}

fn apply(intent: PaymentIntent, ledger: &mut Ledger, act: &Act) -> PaymentIntent {
    match act {
        Act::SetMethod => with_method(intent.clone()).unwrap_or(intent),
        Act::Confirm {
            token,
            declines,
            off_session,
        } => {
            let confirmation = Confirmation {
                off_session: *off_session,
                ..ON_SESSION
            };
            match intent.confirm(&method(token), confirmation) {
                Ok(NextStep::Charge) => answer(intent, ledger, *declines),
                Ok(NextStep::Authenticate) => intent.challenged(METHOD, page()),
                Ok(NextStep::DeclineOffSession | NextStep::RefuseAction) => {
                    intent.failed(Some("authentication_required".to_owned()))
                }
                Err(_) => intent,
            }
        }
        Act::Authenticate { passes } if intent.may_authenticate() => match passes {
            true => answer(intent, ledger, false),
            false => intent.failed(Some("authentication_failure".to_owned())),
        },
        Act::Authenticate { .. } => intent,
        Act::Capture(amount) => match intent.capture(*amount) {
            Ok(amount) => {
                ledger.taken = amount;
                ledger.promised = 0;
                intent.captured(amount)
            }
            Err(_) => intent,
        },
        Act::Cancel => match intent.must_be_cancelable() {
            Ok(()) => {
                ledger.promised = 0;
                ledger.closed = true;
                intent.canceled(DateTime::UNIX_EPOCH)
            }
            Err(_) => intent,
        },
    }
}

proptest! {
    #[test]
    fn whatever_is_done_to_an_intent_its_status_tells_where_the_money_is(
        manual in any::<bool>(),
        acts in acts(),
    ) {
        let capture = if manual { CaptureMethod::Manual } else { CaptureMethod::Automatic };
        let mut intent = intent(capture);
        let mut ledger = Ledger::default();
        for act in &acts {
            intent = apply(intent, &mut ledger, act);
            prop_assert_eq!(intent.amount_capturable, ledger.promised);
            prop_assert_eq!(intent.amount_received, ledger.taken);
            prop_assert!(ledger.approvals <= 1, "charged twice");
            let status = intent.status;
            prop_assert_eq!(status == IntentStatus::RequiresCapture, ledger.promised > 0);
            prop_assert_eq!(status == IntentStatus::Succeeded, ledger.taken > 0);
            prop_assert_eq!(status == IntentStatus::Canceled, ledger.closed);
            prop_assert_eq!(intent.canceled_at.is_some(), ledger.closed);
            prop_assert_eq!(intent.holder_page.is_some(), status == IntentStatus::RequiresAction);
            let without_method = status == IntentStatus::RequiresPaymentMethod;
            if status != IntentStatus::Canceled {
                prop_assert_eq!(intent.terms.payment_method.is_none(), without_method);
            }
        }
    }
}
