//! Every verb in every status. Random sequences of them are among the tests of `work/`.

use uuid::Uuid;

use super::super::{money::Currency, payment_method::sample as method};
use super::*;

const VISA: &str = "pm_card_visa";
const AUTHENTICATES: &str = "pm_card_authenticationRequired";
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
        details: IntentDetails::default(),
        metadata: Metadata::new(),
        payment_method: None,
        request_three_d_secure: ThreeDSecure::Automatic,
        setup_future_usage: None,
    };
    let id = PaymentIntentId(Uuid::nil());
    PaymentIntent::begun(id, "secret".to_owned(), terms, DateTime::UNIX_EPOCH)
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
        IntentStatus::RequiresAction => {
            let (url, return_url) = ("token".to_owned(), None);
            new.challenged(METHOD, HolderPage { url, return_url })
        }
        IntentStatus::Processing => {
            let before = with_method(new).unwrap();
            before.clone().processing(CHARGE, before)
        }
        IntentStatus::RequiresCapture => {
            let manual = with_method(intent(CaptureMethod::Manual)).unwrap();
            manual.answered(METHOD, CHARGE, Authorization::Approved, None)
        }
        IntentStatus::Succeeded => {
            let confirmed = with_method(new).unwrap();
            confirmed.answered(METHOD, CHARGE, Authorization::Approved, None)
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
        let described =
            |terms: &mut IntentTerms| terms.details.description = Some("new".to_owned());
        let taken = [
            updated(intent.clone(), |terms| terms.amount.minor_units = 1).is_ok(),
            updated(intent.clone(), described).is_ok(),
            intent.confirm(&method(VISA), ON_SESSION).is_ok(),
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
        (VISA, ON_SESSION, NextStep::Charge),
        ("pm_card_chargeDeclined", ON_SESSION, NextStep::Charge),
        (VISA, off_session, NextStep::Charge),
        (AUTHENTICATES, ON_SESSION, NextStep::Authenticate),
        (AUTHENTICATES, no_action, NextStep::RefuseAction),
        (AUTHENTICATES, off_session, NextStep::DeclineOffSession),
    ];
    for (token, confirmation, step) in table {
        let next = new.confirm(&method(token), confirmation);
        assert_eq!(next, Ok(step), "{token} {confirmation:?}");
    }
    let mut any = new;
    any.terms.request_three_d_secure = ThreeDSecure::Any;
    let asked = any.confirm(&method(VISA), ON_SESSION);
    assert_eq!(asked, Ok(NextStep::Authenticate));
}

#[test]
fn an_authentication_counts_for_its_own_method_and_terms() {
    let card = method(AUTHENTICATES);
    let waiting = standing(IntentStatus::RequiresAction);
    assert!(waiting.may_authenticate());
    let authenticated = waiting.authenticated();
    assert_eq!(authenticated.status, IntentStatus::RequiresConfirmation);
    let other = PaymentMethod {
        id: PaymentMethodId(Uuid::from_u128(9)),
        ..card.clone()
    };
    let dearer = updated(authenticated.clone(), |terms| {
        terms.amount.minor_units = 9000
    })
    .unwrap();
    for (intent, method, step) in [
        (&authenticated, &card, NextStep::Charge),
        (&authenticated, &other, NextStep::Authenticate),
        (&dearer, &card, NextStep::Authenticate),
    ] {
        assert_eq!(intent.confirm(method, ON_SESSION), Ok(step));
    }
}
