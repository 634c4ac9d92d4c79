//! A card as people type it: its number, its expiry date and its security code.
//!
//! Promise: what can't be right is refused with Stripe's code and a message for the customer, and
//! before the processor is asked. It is a 402 like a decline, and stored like one. No charge was
//! asked for, so none is kept. Nothing that was typed is repeated.

use std::ops::RangeInclusive;

use charge_once_strict_params::card_numbers::{card_digits, has_check_digit};
use chrono::{Datelike, Utc};

use super::prelude::*;
use crate::domain::{
    expiry::{ExpiryMistake, LAST_YEAR, year_of_card},
    test_cards::{self, TEST_CARDS, TestCard},
};

/// How many digits the number of a card has.
const NUMBER_DIGITS: RangeInclusive<usize> = 12..=19;

/// The refusal of a field, in Stripe's words.
fn refused(field: &Field<'_, '_>, code: ErrorCode, message: &str) -> Error {
    code.as_refusal(field.fields.param(field.name), message)
}

/// The number of a test card; spaces and dashes between digits are allowed.
///
/// A number whose check digit is wrong was mistyped. One that could be a real card's is refused
/// before it gets here
/// ([`find_card_number`](charge_once_strict_params::card_numbers::find_card_number)).
pub struct CardNumber;

impl ValueKind for CardNumber {
    type Value = &'static TestCard;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<&'static TestCard>, Error> {
        let Some(typed) = field.fields.text(field.name, usize::MAX)? else {
            return Ok(None);
        };
        let digits = card_digits(&typed);
        let Some(digits) = digits.filter(|digits| NUMBER_DIGITS.contains(&digits.len())) else {
            let message = "This card number looks invalid.";
            return Err(refused(field, ErrorCode::InvalidNumber, message));
        };
        if !has_check_digit(&digits) {
            let message = "Your card number is incorrect.";
            return Err(refused(field, ErrorCode::IncorrectNumber, message));
        }
        let card = test_cards::by_number(&digits).map(Some);
        card.ok_or_else(|| field.invalid("Must be the number of a test card."))
    }

    fn schema() -> RefOr<Schema> {
        text()
            .description(Some(
                "The number of a test card. Any other card's is refused, and nothing of it is stored.",
            ))
            .enum_values(Some(TEST_CARDS.iter().filter_map(|card| card.number)))
            .into()
    }
}

/// The field that [`ExpiryYear`] finds the month in.
const MONTH: &str = "exp_month";

/// The month of an expiry date. A form may write it with a leading zero.
pub struct ExpiryMonth;

impl ValueKind for ExpiryMonth {
    type Value = i16;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i16>, Error> {
        let Some(typed) = field.fields.typed_number(field.name) else {
            return Ok(None);
        };
        let Some(number) = typed else {
            return Err(field.invalid("Must be the number of a month."));
        };
        let month = i16::try_from(number).ok();
        let month = month.filter(|month| (1..=12).contains(month)).map(Some);
        month.ok_or_else(|| mistaken(field, field.name, ExpiryMistake::Month))
    }

    fn schema() -> RefOr<Schema> {
        <Integer<1, 12> as ValueKind>::schema()
    }
}

/// The year of an expiry date, with four digits or its last two, which is read behind the
/// `exp_month` beside it. A date that has passed is refused.
///
/// The month ends by the clock of the process, in UTC. The refusal is stored, as every 402 is: a
/// date that has passed stays passed, so a retry would be refused for the same reason. And a stored
/// success is replayed after the date has passed, because it is read from its record.
pub struct ExpiryYear;

impl ValueKind for ExpiryYear {
    type Value = i16;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i16>, Error> {
        let Some(typed) = field.fields.typed_number(field.name) else {
            return Ok(None);
        };
        let Some(year) = typed else {
            return Err(field.invalid("Must be the number of a year."));
        };
        // Without a month, the year alone can tell.
        let month = field.fields.typed_number(MONTH).flatten().unwrap_or(12);
        let now = Utc::now();
        let now = (i64::from(now.year()), i64::from(now.month()));
        let year = year_of_card(year, month, now).map(Some);
        year.map_err(|mistake| match mistake {
            ExpiryMistake::Month => mistaken(field, MONTH, mistake),
            ExpiryMistake::Year => mistaken(field, field.name, mistake),
        })
    }

    fn schema() -> RefOr<Schema> {
        <Integer<0, LAST_YEAR> as ValueKind>::schema()
    }
}

/// The refusal of the field `name` beside or at `field`.
fn mistaken(field: &Field<'_, '_>, name: &str, mistake: ExpiryMistake) -> Error {
    let (code, message) = match mistake {
        ExpiryMistake::Month => (
            ErrorCode::InvalidExpiryMonth,
            "Your card's expiration month is invalid.",
        ),
        ExpiryMistake::Year => (
            ErrorCode::InvalidExpiryYear,
            "Your card's expiration year is invalid.",
        ),
    };
    code.as_refusal(field.fields.param(name), message)
}

/// The security code. It is checked, and kept nowhere.
pub struct Cvc;

impl ValueKind for Cvc {
    type Value = ();

    fn read(field: &mut Field<'_, '_>) -> Result<Option<()>, Error> {
        let Some(typed) = field.fields.text(field.name, usize::MAX)? else {
            return Ok(None);
        };
        if matches!(typed.len(), 3 | 4) && typed.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Some(()));
        }
        let message = "Your card's security code is invalid.";
        Err(refused(field, ErrorCode::InvalidCvc, message))
    }

    fn schema() -> RefOr<Schema> {
        text().pattern(Some("^[0-9]{3,4}$")).into()
    }
}

/// The word `card`, which tells a card from other sources.
pub struct CardObject;

impl TextKind for CardObject {
    type Value = ();
    const MUST_BE: &'static str = "Must be card.";

    fn parse(text: &str) -> Option<()> {
        (text == "card").then_some(())
    }

    fn schema() -> ObjectBuilder {
        text().pattern(Some("^card$"))
    }
}
