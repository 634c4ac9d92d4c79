//! From the bytes of a request to decoded parameters.

use actix_web::http::header::HeaderMap;
use charge_once_service::edge::{BodyError, media_type};
use charge_once_strict_params::{
    Encoding, Error,
    card_numbers::{bytes_hold_card_number, find_card_number},
};
use serde_json::{Map, Value};

use super::error::HttpError;
use crate::{
    domain::test_cards,
    wire::{
        error::{ApiError, ErrorCode},
        metadata::MAPS,
        source::CARD_FIELDS,
    },
};

impl From<BodyError> for HttpError {
    fn from(error: BodyError) -> Self {
        let code = match error {
            BodyError::UnsupportedType => ErrorCode::UnsupportedMediaType,
            BodyError::TooLarge => ErrorCode::BodyTooLarge,
            BodyError::Late => ErrorCode::RequestTimeout,
            BodyError::Broken => {
                let message = "The body did not arrive whole.";
                return ApiError::new(ErrorCode::BodyInvalid, message).into();
            }
        };
        ApiError::explained(code).into()
    }
}

/// How a body is to be decoded, by its headers. 415 for what this service doesn't read.
pub fn encoding(headers: &HeaderMap) -> Result<Encoding, HttpError> {
    match media_type(headers)? {
        Some(text) => Encoding::of_media_type(text),
        // Nothing is an empty object in either encoding.
        None => Some(Encoding::Json),
    }
    .ok_or_else(|| BodyError::UnsupportedType.into())
}

/// Decodes a body. One that doesn't decode is a refusal that the command will store.
pub fn decode(encoding: Encoding, body: &[u8]) -> Result<Map<String, Value>, Error> {
    encoding.decode(body, MAPS)
}

/// The refusal of a card number, anywhere in a body: nothing of it may be stored or logged. `tree`
/// is what was decoded.
pub fn forbidden(tree: &Result<Map<String, Value>, Error>, body: &[u8]) -> Option<ApiError> {
    let param = match tree {
        Ok(tree) => {
            let is_test_card = |digits: &str| test_cards::by_number(digits).is_some();
            find_card_number(tree, CARD_FIELDS, is_test_card)?.param
        }
        Err(_) if bytes_hold_card_number(body) => None,
        Err(_) => return None,
    };
    Some(ApiError::explained(ErrorCode::CardNumberForbidden).with_param(param))
}
