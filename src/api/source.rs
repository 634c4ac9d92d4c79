//! The parameter `source`: the card that is charged.

use charge_once_strict_params::{Error, Fields, TextOrFields, card_numbers::card_digits};

use crate::domain::{
    charge::Card,
    test_cards::{self, TOKEN_EXPIRY},
};

/// The one field that may hold a card number: a test card's.
pub const CARD_FIELD: &[&str] = &["source", "number"];

/// The card that is charged when the request names none.
const DEFAULT_SOURCE: &str = "tok_visa";

/// The parameter `source`. `tok_lostReply` is a token only if `allows_lost_reply`.
pub fn source(fields: &mut Fields<'_>, allows_lost_reply: bool) -> Result<Card, Error> {
    let unknown = fields.invalid("source", "Must be a test token such as tok_visa.");
    let (exp_month, exp_year) = TOKEN_EXPIRY;
    let by_token = match allows_lost_reply {
        true => test_cards::by_stored_token,
        false => test_cards::by_token,
    };
    match fields.text_or_object("source")? {
        None => by_token(DEFAULT_SOURCE),
        Some(TextOrFields::Text(text)) => by_token(text),
        Some(TextOrFields::Fields(card)) => return card_of_fields(card),
    }
    .map(|card| Card {
        card,
        exp_month,
        exp_year,
    })
    .ok_or(unknown)
}

/// `{object: "card", number, exp_month, exp_year, cvc}` with a test card's number.
fn card_of_fields(mut fields: Fields<'_>) -> Result<Card, Error> {
    if fields
        .text("object", usize::MAX)?
        .is_some_and(|object| object != "card")
    {
        return Err(fields.invalid("object", "Must be card."));
    }
    let Some(number) = fields.text("number", usize::MAX)? else {
        return Err(fields.missing("number"));
    };
    let card = card_digits(&number).and_then(|digits| test_cards::by_number(&digits));
    let Some(card) = card else {
        return Err(fields.invalid("number", "Must be the number of a test card."));
    };
    let Some(exp_month) = fields.integer("exp_month", 1..=12)? else {
        return Err(fields.missing("exp_month"));
    };
    let Some(exp_year) = fields.integer("exp_year", 2000..=2099)? else {
        return Err(fields.missing("exp_year"));
    };
    if let Some(cvc) = fields.text("cvc", usize::MAX)? {
        let plausible = matches!(cvc.len(), 3 | 4) && cvc.bytes().all(|b| b.is_ascii_digit());
        if !plausible {
            return Err(fields.invalid("cvc", "Must be three or four digits."));
        }
    }
    fields.finish()?;
    // Both fit: their ranges were checked above.
    let narrow = |number: i64| i16::try_from(number).unwrap_or(i16::MAX);
    Ok(Card {
        card,
        exp_month: narrow(exp_month),
        exp_year: narrow(exp_year),
    })
}
