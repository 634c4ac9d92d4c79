//! The simulated card processor's decision: which test card gets which answer.
//!
//! Promise: the answer depends on the card alone, so every run of a test sees the same.

/// What the processor answers about a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The money is there.
    Approve,
    /// Succeeds after a while, to show duplicates in flight.
    ApproveSlowly,
    /// Refused for good.
    Decline(Decline),
    /// The processor is down: nothing was decided.
    Outage,
}

/// When a card's issuer wants its holder to authenticate (3-D Secure) before money moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Not at all.
    Never,
    /// Each time; without its holder, the card declines.
    Always,
    /// Each time that the holder is there. Without the holder, once the card was set up for that,
    /// not any more.
    UntilSetUp,
    /// Each time that the holder is there; without the holder, not at all.
    OnSession,
}

/// The kinds of decline. The strings are for programs and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeclineCode {
    /// The issuer said no.
    CardDeclined,
    /// The issuer wants the card's holder to authenticate, who isn't there.
    AuthenticationRequired,
    /// The card has expired.
    ExpiredCard,
    /// The security code is wrong.
    IncorrectCvc,
    /// The card could not be processed.
    ProcessingError,
}

impl DeclineCode {
    /// Its name in replies, in the table and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CardDeclined => "card_declined",
            Self::AuthenticationRequired => "authentication_required",
            Self::ExpiredCard => "expired_card",
            Self::IncorrectCvc => "incorrect_cvc",
            Self::ProcessingError => "processing_error",
        }
    }
}

/// Why a card was declined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decline {
    /// The kind of decline, also the charge's failure code.
    pub code: DeclineCode,
    /// The issuer's reason.
    pub decline_code: Option<&'static str>,
    /// For the customer.
    pub message: &'static str,
}

/// The decline of an operation that breaks the processor's own rules.
pub const PROCESSING_ERROR: Decline = Decline {
    code: DeclineCode::ProcessingError,
    decline_code: None,
    message: "An error occurred while processing your card.",
};

/// The decline of a card whose holder would have to authenticate, and isn't there.
pub const AUTHENTICATION_REQUIRED: Decline = Decline {
    code: DeclineCode::AuthenticationRequired,
    decline_code: Some("authentication_required"),
    message: "Your card was declined. This transaction requires authentication.",
};

impl Decline {
    /// The decline that a processor's reply means. A reason that this build doesn't know is still a
    /// decline: a definite answer must not become doubt because its reason is unknown.
    pub fn named(code: &str, decline_code: Option<&str>) -> Self {
        TEST_CARDS
            .iter()
            .filter_map(TestCard::decline)
            .find(|known| known.code.as_str() == code && known.decline_code == decline_code)
            .unwrap_or(Self {
                code: DeclineCode::CardDeclined,
                decline_code: Some("generic_decline"),
                message: "Your card was declined.",
            })
    }
}

/// A card that the simulator knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestCard {
    /// As `source` names it; the first is the canonical one.
    pub tokens: &'static [&'static str],
    /// `None` for tokens without a number.
    pub number: Option<&'static str>,
    /// `visa`, `mastercard` or `amex`.
    pub brand: &'static str,
    /// What is kept of the number.
    pub last4: &'static str,
    /// What the processor answers.
    pub decision: Decision,
    /// When its issuer wants its holder to authenticate.
    pub authentication: Authentication,
    /// Whether the processor's answer is known before money is to move: a card that declines can't
    /// be kept for a customer then.
    pub is_checked_early: bool,
}

/// The expiry date of every token's card, a month that no test outlives.
pub const TOKEN_EXPIRY: (i16, i16) = (12, 2099);

const fn decline(
    code: DeclineCode,
    decline_code: Option<&'static str>,
    message: &'static str,
) -> Decision {
    Decision::Decline(Decline {
        code,
        decline_code,
        message,
    })
}

const fn declined(decline_code: &'static str) -> Decision {
    decline(
        DeclineCode::CardDeclined,
        Some(decline_code),
        "Your card was declined.",
    )
}

const fn card(
    tokens: &'static [&'static str],
    number: &'static str,
    brand: &'static str,
    decision: Decision,
) -> TestCard {
    TestCard {
        tokens,
        number: Some(number),
        brand,
        last4: number.split_at(number.len() - 4).1,
        decision,
        authentication: Authentication::Never,
        is_checked_early: true,
    }
}

const fn visa(tokens: &'static [&'static str], number: &'static str, of: Decision) -> TestCard {
    card(tokens, number, "visa", of)
}

/// A card whose issuer wants its holder to authenticate.
const fn authenticated(
    tokens: &'static [&'static str],
    number: &'static str,
    authentication: Authentication,
    decision: Decision,
) -> TestCard {
    TestCard {
        authentication,
        is_checked_early: false,
        ..visa(tokens, number, decision)
    }
}

/// A card that only its token names. It has no number to type in, and is shown as ending in 4242.
const fn without_number(tokens: &'static [&'static str], decision: Decision) -> TestCard {
    TestCard {
        number: None,
        ..visa(tokens, "4242", decision)
    }
}

const INSUFFICIENT_FUNDS: Decision = decline(
    DeclineCode::CardDeclined,
    Some("insufficient_funds"),
    "Your card has insufficient funds.",
);

/// Every test card.
pub const TEST_CARDS: &[TestCard] = &[
    visa(
        &["tok_visa", "pm_card_visa"],
        "4242424242424242",
        Decision::Approve,
    ),
    card(
        &["tok_mastercard", "pm_card_mastercard"],
        "5555555555554444",
        "mastercard",
        Decision::Approve,
    ),
    card(
        &["tok_amex", "pm_card_amex"],
        "378282246310005",
        "amex",
        Decision::Approve,
    ),
    visa(
        &[
            "tok_chargeDeclined",
            "pm_card_chargeDeclined",
            "pm_card_visa_chargeDeclined",
        ],
        "4000000000000002",
        declined("generic_decline"),
    ),
    visa(
        &[
            "tok_chargeDeclinedInsufficientFunds",
            "pm_card_chargeDeclinedInsufficientFunds",
            "pm_card_visa_chargeDeclinedInsufficientFunds",
        ],
        "4000000000009995",
        INSUFFICIENT_FUNDS,
    ),
    visa(
        &[
            "tok_visa_chargeDeclinedLostCard",
            "pm_card_visa_chargeDeclinedLostCard",
            "pm_card_chargeDeclinedLostCard",
        ],
        "4000000000009987",
        declined("lost_card"),
    ),
    visa(
        &[
            "tok_visa_chargeDeclinedStolenCard",
            "pm_card_visa_chargeDeclinedStolenCard",
            "pm_card_chargeDeclinedStolenCard",
        ],
        "4000000000009979",
        declined("stolen_card"),
    ),
    visa(
        &[
            "tok_chargeDeclinedExpiredCard",
            "pm_card_chargeDeclinedExpiredCard",
        ],
        "4000000000000069",
        decline(DeclineCode::ExpiredCard, None, "Your card has expired."),
    ),
    visa(
        &[
            "tok_chargeDeclinedIncorrectCvc",
            "pm_card_chargeDeclinedIncorrectCvc",
        ],
        "4000000000000127",
        decline(
            DeclineCode::IncorrectCvc,
            None,
            "Your card's security code is incorrect.",
        ),
    ),
    visa(
        &[
            "tok_chargeDeclinedProcessingError",
            "pm_card_chargeDeclinedProcessingError",
        ],
        "4000000000000119",
        Decision::Decline(PROCESSING_ERROR),
    ),
    visa(
        &[
            "tok_chargeDeclinedFraudulent",
            "pm_card_chargeDeclinedFraudulent",
        ],
        "4100000000000019",
        declined("fraudulent"),
    ),
    TestCard {
        is_checked_early: false,
        ..visa(
            &["tok_chargeCustomerFail", "pm_card_chargeCustomerFail"],
            "4000000000000341",
            declined("generic_decline"),
        )
    },
    authenticated(
        &[
            "tok_authenticationRequired",
            "pm_card_authenticationRequired",
        ],
        "4000002760003184",
        Authentication::Always,
        Decision::Approve,
    ),
    authenticated(
        &[
            "tok_authenticationRequiredOnSetup",
            "pm_card_authenticationRequiredOnSetup",
        ],
        "4000002500003155",
        Authentication::UntilSetUp,
        Decision::Approve,
    ),
    authenticated(
        &[
            "tok_authenticationRequiredSetupForOffSession",
            "pm_card_authenticationRequiredSetupForOffSession",
        ],
        "4000003800000446",
        Authentication::OnSession,
        Decision::Approve,
    ),
    authenticated(
        &[
            "tok_authenticationRequiredChargeDeclinedInsufficientFunds",
            "pm_card_authenticationRequiredChargeDeclinedInsufficientFunds",
        ],
        "4000008260003178",
        Authentication::Always,
        INSUFFICIENT_FUNDS,
    ),
    authenticated(
        &["tok_threeDSecure2Required", "pm_card_threeDSecure2Required"],
        "4000000000003220",
        Authentication::Always,
        Decision::Approve,
    ),
    authenticated(
        &[
            "tok_threeDSecureRequiredChargeDeclined",
            "pm_card_threeDSecureRequiredChargeDeclined",
        ],
        "4000008400001629",
        Authentication::Always,
        declined("generic_decline"),
    ),
    without_number(&["tok_slow"], Decision::ApproveSlowly),
    without_number(&["tok_outage"], Decision::Outage),
];

/// The card of a test of retries. Charges of it succeed, and the reply of the request that makes
/// one gets lost on its way to the client. It is in no list: only some accounts may name it.
pub const LOST_REPLY: &TestCard = &without_number(&["tok_lostReply"], Decision::Approve);

impl TestCard {
    /// The decline that is known before money is to move: such a card can't be kept for later.
    pub fn early_decline(&self) -> Option<Decline> {
        self.decline().filter(|_| self.is_checked_early)
    }

    fn decline(&self) -> Option<Decline> {
        match self.decision {
            Decision::Decline(decline) => Some(decline),
            Decision::Approve | Decision::ApproveSlowly | Decision::Outage => None,
        }
    }

    /// Its canonical token.
    pub fn token(&self) -> &'static str {
        self.tokens.first().copied().unwrap_or_default()
    }
}

/// The card behind a token.
pub fn by_token(token: &str) -> Option<&'static TestCard> {
    TEST_CARDS.iter().find(|card| card.tokens.contains(&token))
}

/// The card behind a token that was accepted before, also one that is in no list.
pub fn by_stored_token(token: &str) -> Option<&'static TestCard> {
    by_token(token).or_else(|| Some(LOST_REPLY).filter(|card| card.tokens.contains(&token)))
}

/// The card with this number, digits only.
pub fn by_number(digits: &str) -> Option<&'static TestCard> {
    TEST_CARDS.iter().find(|card| card.number == Some(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_decline_is_found_again_by_its_names_and_a_new_reason_is_still_a_decline() {
        for card in TEST_CARDS {
            if let Some(decline) = card.decline() {
                let found = Decline::named(decline.code.as_str(), decline.decline_code);
                assert_eq!(found, decline);
            }
        }
        let new = Decline::named("card_declined", Some("a_reason_of_tomorrow"));
        assert_eq!(new.decline_code, Some("generic_decline"));
    }

    #[test]
    fn every_token_names_one_card() {
        let mut tokens: Vec<_> = TEST_CARDS.iter().flat_map(|card| card.tokens).collect();
        let count = tokens.len();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), count);
    }

    #[test]
    fn the_card_that_loses_replies_is_known_where_it_was_accepted_before_and_nowhere_else() {
        assert_eq!(by_token("tok_lostReply"), None);
        assert_eq!(by_stored_token("tok_lostReply"), Some(LOST_REPLY));
        assert_eq!(by_stored_token("tok_visa"), by_token("tok_visa"));
        assert_eq!(by_stored_token("tok_none"), None);
    }
}
