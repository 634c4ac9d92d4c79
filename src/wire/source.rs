//! The parameter `source`: the card that is charged.

use std::borrow::Cow;

use charge_once_strict_params::{Fields, Parameter, Params, TextOrFields};
use serde_json::Value;
use utoipa::openapi::OneOfBuilder;

use super::{
    card::{CardNumber, CardObject, Cvc, ExpiryMonth, ExpiryYear},
    prelude::*,
};
use crate::domain::{
    charge::Card,
    test_cards::{self, Authentication, LOST_REPLY, TEST_CARDS, TOKEN_EXPIRY, TestCard},
};

/// The fields that may hold a card number: a test card's.
pub const CARD_FIELDS: &[&[&str]] = &[
    &["source", "number"],
    &["card", "number"],
    &["payment_method_data", "card", "number"],
];

/// The card that is charged when the request names none.
const DEFAULT_SOURCE: &str = "tok_visa";

/// What a request is granted whose `source` may be `tok_lostReply`. To others that is no token.
pub const LOST_REPLIES: &str = "lost replies";

/// Whether `source` names the card whose replies get lost, and may.
pub fn loses_its_reply(params: &Params) -> bool {
    let names_it = |mut fields: Fields<'_>| {
        let source = fields.given("source").and_then(Value::as_str);
        Ok(source == Some(LOST_REPLY.token()))
    };
    params.is_granted(LOST_REPLIES) && params.read(names_it).unwrap_or_default()
}

/// What is charged.
pub struct SourceParam;

impl Parameter for SourceParam {
    type Value = Card;

    fn read(field: &mut Field<'_, '_>) -> Result<Card, Error> {
        field.must_not_be_empty()?;
        let card = Self::given(field)?;
        match card.test_card.authentication {
            Authentication::Never => Ok(card),
            Authentication::Always | Authentication::UntilSetUp | Authentication::OnSession => {
                let param = field.fields.param(field.name);
                Err(ErrorCode::AuthenticationRequired.as_refusal_of(param))
            }
        }
    }

    fn schema(about: String) -> RefOr<Schema> {
        let default = format!("A test token, or a test card. Default: {DEFAULT_SOURCE}.");
        described(described(reference::<Self>(), default), about)
    }
}

impl SourceParam {
    /// The card, whether or not its holder must authenticate. A charge by itself has no way to ask
    /// for that.
    fn given(field: &mut Field<'_, '_>) -> Result<Card, Error> {
        let unknown = field.invalid("Must be a test token such as tok_visa.");
        let by_token = match field.fields.is_granted(LOST_REPLIES) {
            true => test_cards::by_stored_token,
            false => test_cards::by_token,
        };
        let card = match field.fields.text_or_object(field.name)? {
            None => by_token(DEFAULT_SOURCE),
            Some(TextOrFields::Text(text)) => by_token(text),
            Some(TextOrFields::Fields(mut card)) => {
                let parsed = CardParams::read(&mut card)?;
                card.finish()?;
                return Ok(parsed.into());
            }
        };
        Ok(card.ok_or(unknown)?.into())
    }
}

impl PartialSchema for SourceParam {
    fn schema() -> RefOr<Schema> {
        OneOfBuilder::new()
            .description(Some("What is charged."))
            .item(described(reference::<TestToken>(), "A test token."))
            .item(described(reference::<CardParams>(), "A test card."))
            .into()
    }
}

impl ToSchema for SourceParam {
    fn name() -> Cow<'static, str> {
        "Source".into()
    }
}

/// The name of a test card.
pub struct TestToken;

impl PartialSchema for TestToken {
    fn schema() -> RefOr<Schema> {
        let tokens = TEST_CARDS.iter().flat_map(|card| card.tokens);
        text()
            .description(Some(
                "A test token; each gets its own answer, always the same.",
            ))
            .enum_values(Some(tokens.copied()))
            .into()
    }
}

impl ToSchema for TestToken {}

parameters! {
    /// A test card by its number.
    pub struct CardParams as "Card" {
        /// Always card.
        object: Option<CardObject>,
        number: CardNumber,
        /// 1 to 12.
        exp_month: ExpiryMonth,
        /// Four digits, or the last two. A date that has passed is refused.
        exp_year: ExpiryYear,
        /// Three or four digits.
        cvc: Option<Cvc>,
    }
}

impl From<CardParams> for Card {
    fn from(params: CardParams) -> Self {
        Self {
            test_card: params.number,
            exp_month: params.exp_month,
            exp_year: params.exp_year,
        }
    }
}

/// A test card that was named instead of being written out.
impl From<&'static TestCard> for Card {
    fn from(test_card: &'static TestCard) -> Self {
        let (exp_month, exp_year) = TOKEN_EXPIRY;
        Self {
            test_card,
            exp_month,
            exp_year,
        }
    }
}
