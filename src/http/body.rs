//! From the bytes of a request to decoded parameters.
//!
//! Promise: reading is bounded in bytes and time, and nothing of a body with a card number is
//! stored.

use actix_web::{
    error::PayloadError,
    http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, TRANSFER_ENCODING},
    web::{Bytes, BytesMut, Payload},
};
use charge_once_strict_params::{
    Encoding, Params,
    card_numbers::{bytes_hold_card_number, find_card_number},
};
use futures_util::StreamExt;
use tokio::time::Instant;

use super::error::HttpError;
use crate::{
    domain::test_cards,
    wire::{
        error::{ApiError, ErrorCode},
        metadata::MAPS,
        source::CARD_FIELD,
    },
};

/// How a body is to be decoded, by its headers. 415 for what this service doesn't read.
pub fn encoding(headers: &HeaderMap) -> Result<Encoding, HttpError> {
    let unsupported = || HttpError::from(ApiError::explained(ErrorCode::UnsupportedMediaType));
    let encoded = headers
        .get_all(CONTENT_ENCODING)
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if encoded {
        return Err(unsupported());
    }
    let mut types = headers.get_all(CONTENT_TYPE);
    let Some(media_type) = types.next() else {
        // Nothing is an empty object in either encoding; anything else has to say what it is.
        return if has_body(headers) {
            Err(unsupported())
        } else {
            Ok(Encoding::Json)
        };
    };
    let encoding = match (media_type.to_str(), types.next()) {
        (Ok(text), None) => Encoding::of_media_type(text),
        (Ok(_) | Err(_), _) => None,
    };
    encoding.ok_or_else(unsupported)
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

/// Reads the whole body: at most `limit` bytes, and no longer than `until`. Actix sets no time
/// limit of its own, so a client that stops sending would hold its request open forever.
pub async fn read(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    until: Instant,
) -> Result<Bytes, HttpError> {
    let too_large = || HttpError::from(ApiError::explained(ErrorCode::BodyTooLarge));
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(too_large());
    }
    let reading = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(broken)?;
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    };
    tokio::time::timeout_at(until, reading)
        .await
        .unwrap_or_else(|_| Err(ApiError::explained(ErrorCode::RequestTimeout).into()))
}

/// The connection broke or the framing is wrong; a client that is still there learns that
/// nothing was done.
fn broken(_: PayloadError) -> HttpError {
    ApiError::new(ErrorCode::BodyInvalid, "The body did not arrive whole.").into()
}

/// Decodes a body. One that doesn't decode is a refusal that the command will store.
///
/// The exception is a card number, anywhere in it: that is refused here and now, before anything
/// of the request is stored or logged.
pub fn decode(encoding: Encoding, body: &[u8]) -> Result<Params, HttpError> {
    let tree = encoding.decode(body, MAPS);
    let forbidden = |param: Option<String>| {
        Err(ApiError::explained(ErrorCode::CardNumberForbidden)
            .with_param(param)
            .into())
    };
    match &tree {
        Ok(tree) => {
            let is_test_card = |digits: &str| test_cards::by_number(digits).is_some();
            if let Some(found) = find_card_number(tree, CARD_FIELD, is_test_card) {
                return forbidden(found.param);
            }
        }
        Err(_) if bytes_hold_card_number(body) => return forbidden(None),
        Err(_) => {}
    }
    Ok(Params::new(encoding, tree))
}
