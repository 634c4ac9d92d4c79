//! The body of a request, read within limits.
//!
//! Promise: reading is bounded in bytes and in time. Actix sets no time limit of its own, so a
//! client that stops sending would hold its request open forever.

use actix_web::{
    ResponseError,
    http::{
        StatusCode,
        header::{
            CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
            TRANSFER_ENCODING,
        },
    },
    web::{Bytes, BytesMut, Payload},
};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

/// Why a body is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is compressed, or of a type that the service doesn't read, or doesn't say of which: 415.
    #[error("the media type is not supported")]
    UnsupportedType,
    /// It has more bytes than the limit: 413.
    #[error("the body is too large")]
    TooLarge,
    /// It did not arrive in time: 408.
    #[error("the body did not arrive in time")]
    Late,
    /// The connection broke or the framing is wrong: 400. A client that is still there learns that
    /// nothing was done.
    #[error("the body did not arrive whole")]
    Broken,
}

impl ResponseError for BodyError {
    fn status_code(&self) -> StatusCode {
        match self {
            Self::UnsupportedType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Late => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

/// The one `Content-Type` of a request, with its parameters; compressed bodies are refused. `None`:
/// there is neither a type nor a body.
pub fn media_type(headers: &HeaderMap) -> Result<Option<&str>, BodyError> {
    let is_encoded = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if headers.get_all(CONTENT_ENCODING).any(is_encoded) {
        return Err(BodyError::UnsupportedType);
    }
    let mut types = headers.get_all(CONTENT_TYPE);
    match (types.next().map(HeaderValue::to_str), types.next()) {
        (None, _) if !has_body(headers) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        (None | Some(_), _) => Err(BodyError::UnsupportedType),
    }
}

fn announced_length(headers: &HeaderMap) -> Option<&str> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = announced_length(headers);
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

/// Reads the whole body: at most `limit` bytes, and no longer than `until`.
pub async fn read_body(
    headers: &HeaderMap,
    mut payload: Payload,
    limit: usize,
    until: Instant,
) -> Result<Bytes, BodyError> {
    let announced = announced_length(headers).and_then(|length| length.parse().ok());
    if announced.is_some_and(|length: usize| length > limit) {
        return Err(BodyError::TooLarge);
    }
    let reading = async {
        let mut body = BytesMut::new();
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| BodyError::Broken)?;
            if body.len() + chunk.len() > limit {
                return Err(BodyError::TooLarge);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    };
    let read = timeout_at(until, reading).await;
    read.unwrap_or(Err(BodyError::Late))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]
    use actix_web::{FromRequest, dev, error::PayloadError, rt::System, test::TestRequest};
    use futures_util::{Stream, stream};

    use super::*;

    /// What is read of these pieces, where five bytes are allowed and there is no time to wait.
    fn read(
        pieces: impl Stream<Item = Result<Bytes, PayloadError>> + 'static,
    ) -> Result<Bytes, BodyError> {
        System::new().block_on(async {
            let request = TestRequest::default().to_http_request();
            let payload = Box::pin(pieces);
            let payload = Payload::from_request(&request, &mut dev::Payload::Stream { payload });
            let payload = payload.await.unwrap();
            read_body(request.headers(), payload, 5, Instant::now()).await
        })
    }

    #[test]
    fn a_body_is_read_whole_or_not_at_all() {
        let piece = |text: &'static str| Ok(Bytes::from(text));
        let broken = Err(PayloadError::Incomplete(None));
        for (pieces, expected) in [
            (vec![], Ok("".into())),
            (vec![piece("ab"), piece("cde")], Ok("abcde".into())),
            (vec![piece("ab"), piece("cdef")], Err(BodyError::TooLarge)),
            (vec![piece("ab"), broken], Err(BodyError::Broken)),
        ] {
            assert_eq!(read(stream::iter(pieces)), expected);
        }
        let endless = read(stream::iter([piece("ab")]).chain(stream::pending()));
        assert_eq!(endless, Err(BodyError::Late));
    }

    #[test]
    fn a_body_says_of_which_type_it_is() {
        let json = ("content-type", "application/json");
        let unsupported = Err(BodyError::UnsupportedType);
        for (headers, expected) in [
            (vec![], Ok(None)),
            (vec![("content-length", "0")], Ok(None)),
            (vec![("content-length", "2")], unsupported),
            (vec![("transfer-encoding", "chunked")], unsupported),
            (vec![json], Ok(Some("application/json"))),
            (
                vec![json, ("content-encoding", "identity")],
                Ok(Some("application/json")),
            ),
            (vec![json, ("content-encoding", "gzip")], unsupported),
            (vec![json, ("content-type", "text/plain")], unsupported),
        ] {
            let mut request = TestRequest::default();
            for header in &headers {
                request = request.append_header(*header);
            }
            let request = request.to_http_request();
            assert_eq!(media_type(request.headers()), expected, "{headers:?}");
        }
    }
}
