//! Every error that a client can meet, in one table.
//!
//! Promise: the reply, the page `/errors` and the OpenAPI document all come from [`ErrorCode`], so
//! they can't disagree. A message never echoes a value that the client sent, but for an id that
//! names nothing, in Stripe's words.

use charge_once_strict_params::{self as strict_params, ID_MAX_CHARS, card_numbers};
use serde::Serialize;
use serde_json::value::RawValue;
use strict_params::Reason;

use super::{
    dialect::Dialect,
    not_offered,
    views::{
        payment_intents::PaymentIntentView, payment_methods::PaymentMethodView,
        setup_intents::SetupIntentView,
    },
};
use crate::domain::{
    api_key::holds_secret,
    ids::{
        ChargeId, CheckoutId, CustomerId, ID_CHARS, ObjectId, OrderId, PaymentIntentId,
        PaymentMethodId, RefundId, SetupIntentId, WebhookEndpointId,
    },
    test_cards::{Decline, DeclineCode},
};

/// Makes [`ErrorCode`]: `RateLimited = "rate_limited", 429, RateLimit: "Too many requests.";`
/// makes the variant `RateLimited`, documented so, with that `code`, status and type.
macro_rules! error_codes {
    ($($name:ident = $code:literal, $status:literal, $kind:ident: $explanation:literal;)+) => {
        /// A reason for not answering 2xx. The strings are for programs and never change.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $(#[doc = $explanation] $name,)+
        }

        impl ErrorCode {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The error with this `code`.
            pub fn parse(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == code)
            }

            /// The `code` in the envelope.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code),+ }
            }

            /// The HTTP status, but for [`About::status`].
            pub fn status(self) -> u16 {
                match self { $(Self::$name => $status),+ }
            }

            /// The `type` in the envelope.
            pub fn error_type(self) -> ErrorType {
                match self { $(Self::$name => ErrorType::$kind),+ }
            }

            /// What it means and what to do, for `/errors` and the OpenAPI document.
            pub fn explanation(self) -> &'static str {
                match self { $(Self::$name => $explanation),+ }
            }
        }
    };
}

error_codes! {
    IdempotencyKeyRequired = "idempotency_key_required", 400, InvalidRequest:
        "Every POST, PUT and PATCH needs an Idempotency-Key header. Make a key once per operation, \
         before the first attempt, and send the same key with every retry.";
    IdempotencyKeyInvalid = "idempotency_key_invalid", 400, InvalidRequest:
        "The Idempotency-Key header is not one key of 1 to 255 bytes of visible ASCII without \
         quotes, backslashes and commas, it was sent twice, or it is undefined, null, None, nil or NaN, which \
         only a mistake in a program sends.";
    BodyInvalid = "body_invalid", 400, InvalidRequest:
        "The body could not be decoded as its media type says. Numbers are integers within \
         ±(2^53−1), members are unique, nesting is at most 32 deep.";
    HostNotAllowed = "host_not_allowed", 400, InvalidRequest:
        "The request names another host than this server's, in its Host header. On a loopback address, a server \
         takes localhost, 127.0.0.1 and [::1]: a page of another site could reach it through a browser under a \
         name of its own. Its operator can allow more hosts with ALLOWED_HOSTS.";
    ParameterMissing = "parameter_missing", 400, InvalidRequest:
        "A required parameter is absent or empty.";
    ParameterInvalid = "parameter_invalid", 400, InvalidRequest:
        "A parameter has the wrong type, form or range.";
    ParameterUnknown = "parameter_unknown", 400, InvalidRequest:
        "The endpoint has no such parameter. A typing mistake in a payment is a defect, so it is \
         refused instead of ignored. So is a parameter of Stripe's that charge-once doesn't offer.";
    AmountTooLarge = "amount_too_large", 400, InvalidRequest:
        "An amount, or an order's total, is more than 99999999 minor units.";
    ChargeAlreadyCaptured = "charge_already_captured", 400, InvalidRequest:
        "The charge was captured before. A charge is captured once; what was not taken then is \
         released.";
    ChargeAlreadyRefunded = "charge_already_refunded", 400, InvalidRequest:
        "All of the charge was refunded, or released before it was captured.";
    ChargeNotCaptured = "charge_not_captured", 400, InvalidRequest:
        "The charge was not captured, so there is no part of it to give back. A refund of its \
         whole amount releases it.";
    CaptureAmountTooLarge = "capture_amount_too_large", 400, InvalidRequest:
        "More would be captured than was authorized.";
    RefundAmountTooLarge = "refund_amount_too_large", 400, InvalidRequest:
        "More would be refunded than was captured.";
    OrderAlreadyPaid = "order_already_paid", 400, InvalidRequest:
        "The order was paid before. An order has one charge.";
    OrderCanceled = "order_canceled", 400, InvalidRequest:
        "The order was canceled, which is final.";
    OutOfStock = "out_of_stock", 400, InvalidRequest:
        "An item is not in stock in the quantity that was asked for. The checkout's charge was \
         given back and its order canceled; nothing was taken from the inventory.";
    PaymentIntentUnexpectedState = "payment_intent_unexpected_state", 400, InvalidRequest:
        "The payment intent's status doesn't allow this. The error holds the intent as it is: one that has \
         succeeded, or was canceled, may be just what you wanted.";
    SetupIntentUnexpectedState = "setup_intent_unexpected_state", 400, InvalidRequest:
        "The setup intent's status doesn't allow this. The error holds the setup intent as it is.";
    PaymentMethodUnexpectedState = "payment_method_unexpected_state", 400, InvalidRequest:
        "The payment method can't be used so: it belongs to another customer, to none, or was used up or \
         detached.";
    PaymentIntentAuthenticationFailure = "payment_intent_authentication_failure", 400, InvalidRequest:
        "The card's holder failed to authenticate. It is the code of an intent's last_payment_error: no reply has \
         it. Confirm with another method.";
    SetupIntentAuthenticationFailure = "setup_intent_authentication_failure", 400, InvalidRequest:
        "The card's holder failed to authenticate. It is the code of a setup intent's last_setup_error: no reply \
         has it. Confirm with another method.";
    CardNumberForbidden = "card_number_forbidden", 400, InvalidRequest:
        "The request holds a card number. Only test tokens, and test cards in source[number] and in the card[number] \
         of a payment method, may be sent. Nothing of the request was stored or logged.";
    ApiKeyMissing = "api_key_missing", 401, Authentication:
        "No API key was sent. Use Authorization: Bearer, or HTTP Basic with the key as the user \
         name and an empty password.";
    ApiKeyInvalid = "api_key_invalid", 401, Authentication:
        "The API key is unknown or revoked, or the Authorization header is malformed. Publishable keys aren't \
         offered: confirm from your server.";
    CardDeclined = "card_declined", 402, Card:
        "The card was declined; decline_code says why. The failed charge is kept. Another attempt \
         needs a new idempotency key.";
    AuthenticationRequired = "authentication_required", 402, Card:
        "The card's holder must authenticate, and isn't there to do so. Confirm a payment intent while they are.";
    ExpiredCard = "expired_card", 402, Card: "The card has expired.";
    IncorrectCvc = "incorrect_cvc", 402, Card: "The card's security code is incorrect.";
    IncorrectNumber = "incorrect_number", 402, Card:
        "The card's number was mistyped: its check digit is wrong. No charge was made. Another attempt needs a new \
         idempotency key.";
    InvalidNumber = "invalid_number", 402, Card:
        "What was sent is no number of a card: it doesn't have 12 to 19 digits, or has other characters than digits, \
         spaces, dashes and dots. No charge was made.";
    InvalidExpiryMonth = "invalid_expiry_month", 402, Card:
        "The month of the card's expiry date is not 1 to 12, or it has passed this year. No charge was made.";
    InvalidExpiryYear = "invalid_expiry_year", 402, Card:
        "The year of the card's expiry date has passed, or it is later than 2099. No charge was made.";
    InvalidCvc = "invalid_cvc", 402, Card:
        "The card's security code is not three or four digits. No charge was made.";
    ProcessingError = "processing_error", 402, Card:
        "The card could not be processed. The failed charge is kept.";
    ResourceMissing = "resource_missing", 404, InvalidRequest:
        "This account has no such object.";
    RouteNotFound = "route_not_found", 404, InvalidRequest:
        "There is nothing at this path. The message says so if Stripe has something there. Of Stripe's resources, \
         there are charges, customers, events, payment_intents, payment_methods, refunds, setup_intents and \
         webhook_endpoints.";
    MethodNotAllowed = "method_not_allowed", 405, InvalidRequest:
        "The path exists, but not with this method; the Allow header lists those it has.";
    RequestTimeout = "request_timeout", 408, InvalidRequest:
        "The body did not arrive in time. The key was not claimed: retry with the same key.";
    IdempotencyKeyInUse = "idempotency_key_in_use", 409, Idempotency:
        "The first request with this key has not finished. Retry with the same key after \
         Retry-After.";
    ResourceBusy = "resource_busy", 409, InvalidRequest:
        "Rows that the request needs stayed locked by other requests. Nothing was done or stored: \
         retry with the same key.";
    BodyTooLarge = "body_too_large", 413, InvalidRequest: "The body is larger than the limit.";
    UnsupportedMediaType = "unsupported_media_type", 415, InvalidRequest:
        "Send application/json or application/x-www-form-urlencoded in UTF-8, without a content \
         encoding.";
    IdempotencyKeyAbandoned = "idempotency_key_abandoned", 409, Idempotency:
        "The key was given up before a request with it was executed. This request did nothing, and \
         none with the key will. Send what is still wanted with a new key.";
    IdempotencyKeyExpired = "idempotency_key_expired", 409, Idempotency:
        "The key was used before, and its outcome is no longer kept. This request did nothing. resource names \
         what the first request made, if it made something. Read that before you send anything with a new key.";
    IdempotencyKeyReused = "idempotency_key_reused", 422, Idempotency:
        "The key belongs to another request: other parameters, another endpoint or another \
         encoding. Use a new key for a new operation.";
    RateLimited = "rate_limited", 429, RateLimit:
        "The account sends more requests than its limit allows, or one address sends API keys that don't exist. \
         Nothing was done and no key was claimed: retry with the same key after Retry-After.";
    InternalError = "internal_error", 500, Api:
        "A defect of the service. This request did not run, or we don't know if it ran. Retry with the same key, and \
         only with that key: it can't run twice.";
    ServiceUnavailable = "service_unavailable", 503, Api:
        "This request did not run, or we don't know if it ran. Retry with the same key, and only with that key: it \
         can't run twice.";
}

/// The families of errors; client libraries make an exception class of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorType {
    /// `invalid_request_error`
    InvalidRequest,
    /// `authentication_error`
    Authentication,
    /// `card_error`
    Card,
    /// `idempotency_error`
    Idempotency,
    /// `rate_limit_error`
    RateLimit,
    /// `api_error`
    Api,
}

impl ErrorType {
    /// The `type` in the envelope.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request_error",
            Self::Authentication => "authentication_error",
            Self::Card => "card_error",
            Self::Idempotency => "idempotency_error",
            Self::RateLimit => "rate_limit_error",
            Self::Api => "api_error",
        }
    }
}

impl ErrorCode {
    /// Where the code is explained: a path on this service.
    pub fn doc_url(self) -> String {
        format!("/errors#{}", self.as_str())
    }

    /// `Stripe-Should-Retry`: whether the same request with the same key is safe to send again and
    /// may then end otherwise.
    pub fn should_retry(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout
                | Self::IdempotencyKeyInUse
                | Self::ResourceBusy
                | Self::RateLimited
                | Self::InternalError
                | Self::ServiceUnavailable
        )
    }

    /// Whether a reply with it is an outcome, which is stored with the key. An error of a request
    /// that never had its key, or whose work has failed, is none.
    pub fn is_stored(self) -> bool {
        !(self.should_retry()
            || matches!(
                self,
                Self::IdempotencyKeyRequired
                    | Self::IdempotencyKeyInvalid
                    | Self::HostNotAllowed
                    | Self::CardNumberForbidden
                    | Self::ApiKeyMissing
                    | Self::ApiKeyInvalid
                    | Self::RouteNotFound
                    | Self::MethodNotAllowed
                    | Self::BodyTooLarge
                    | Self::UnsupportedMediaType
                    | Self::IdempotencyKeyReused
            ))
    }

    /// What a client does after it: it sends the same request with the `same_key`, one with a
    /// `new_key`, or the request `corrected`, whose key may be the same. Or it must `read_first`
    /// what was made.
    pub fn retry(self) -> &'static str {
        if self.should_retry() {
            "same_key"
        } else if self == Self::IdempotencyKeyExpired {
            "read_first"
        } else if self.is_stored() || self == Self::IdempotencyKeyReused {
            "new_key"
        } else {
            "corrected"
        }
    }

    /// The refusal of the parameter `param`, with the table's own explanation as its message.
    pub(super) fn as_refusal_of(self, param: Option<String>) -> strict_params::Error {
        self.as_refusal(param, self.explanation())
    }

    /// The refusal of the parameter `param`.
    pub(super) fn as_refusal(self, param: Option<String>, message: &str) -> strict_params::Error {
        strict_params::Error {
            reason: Reason::Named(self.as_str()),
            param,
            message: message.to_owned(),
        }
    }
}

impl From<strict_params::Error> for ApiError {
    fn from(error: strict_params::Error) -> Self {
        let code = match error.reason {
            Reason::Malformed => ErrorCode::BodyInvalid,
            Reason::Missing => ErrorCode::ParameterMissing,
            Reason::Unknown => ErrorCode::ParameterUnknown,
            Reason::NotOffered => {
                let message = not_offered::parameter(error.param.as_deref().unwrap_or_default());
                return Self::new(ErrorCode::ParameterUnknown, message).with_param(error.param);
            }
            Reason::Invalid => ErrorCode::ParameterInvalid,
            // Made by `as_refusal`, so the code is known.
            Reason::Named(code) => ErrorCode::parse(code).unwrap_or(ErrorCode::ParameterInvalid),
        };
        let mut refusal = Self::new(code, error.message).with_param(error.param);
        if code == ErrorCode::ResourceMissing {
            refusal.about.status = Some(NO_SUCH_PARAMETER);
        }
        refusal
    }
}

impl From<DeclineCode> for ErrorCode {
    fn from(code: DeclineCode) -> Self {
        match code {
            DeclineCode::CardDeclined => Self::CardDeclined,
            DeclineCode::AuthenticationRequired => Self::AuthenticationRequired,
            DeclineCode::ExpiredCard => Self::ExpiredCard,
            DeclineCode::IncorrectCvc => Self::IncorrectCvc,
            DeclineCode::ProcessingError => Self::ProcessingError,
        }
    }
}

/// One error, as a client sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// Decides status and type.
    pub code: ErrorCode,
    /// For the developer who reads it; for card errors, for the customer.
    pub message: String,
    /// The exact field at fault: `items[0][quantity]`.
    pub param: Option<String>,
    /// The issuer's reason, for a declined card.
    pub decline_code: Option<String>,
    /// The failed charge that a decline leaves.
    pub charge: Option<String>,
    /// What the error is about, and what to do about it.
    pub about: Box<About>,
}

/// What few errors have: objects, each as JSON, advice, and a status of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// What to do about the key, for the developer.
    pub advice: Option<&'static str>,
    /// The HTTP status below `/v1`, where Stripe's is another than the code's.
    pub status: Option<u16>,
    /// As it is after the request.
    pub payment_intent: Option<String>,
    /// The card that was declined.
    pub payment_method: Option<String>,
    /// As it is after the request.
    pub setup_intent: Option<String>,
    /// The id of what an earlier request with the key made.
    pub resource: Option<String>,
}

impl ApiError {
    /// An error about no particular field.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            param: None,
            decline_code: None,
            charge: None,
            about: Box::default(),
        }
    }

    /// An error with the table's own explanation as its message.
    pub fn explained(code: ErrorCode) -> Self {
        Self::new(code, code.explanation())
    }

    /// The value that a request sends as `param` can't be taken.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ParameterInvalid, message).with_param(param.to_owned())
    }

    /// The account has no object with this id, which `param` names; text that is no such id is
    /// answered alike.
    pub fn missing<Id: ObjectId>(dialect: Dialect, param: &str, id: &str) -> Self {
        let message = match dialect {
            Dialect::Ietf => format!(
                "This account has no such object. An id here is {}_ and {ID_CHARS} characters.",
                Id::PREFIX
            ),
            Dialect::Stripe => no_such::<Id>(id),
        };
        let mut error = Self::new(ErrorCode::ResourceMissing, message).with_param(param.to_owned());
        let is_in_path = matches!(param, "id" | "intent");
        error.about.status =
            (dialect == Dialect::Stripe && !is_in_path).then_some(NO_SUCH_PARAMETER);
        error
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.about.status.unwrap_or_else(|| self.code.status())
    }

    /// The decline of a card that was not charged.
    pub fn of_decline(decline: Decline) -> Self {
        Self {
            decline_code: decline.decline_code.map(str::to_owned),
            ..Self::new(decline.code.into(), decline.message)
        }
    }

    /// The decline that left the failed charge `charge`.
    pub fn declined(decline: Decline, charge: String) -> Self {
        Self {
            charge: Some(charge),
            ..Self::of_decline(decline)
        }
    }

    /// Names the field.
    #[must_use]
    pub fn with_param(mut self, param: impl Into<Option<String>>) -> Self {
        self.param = param.into();
        self
    }

    /// The error alone, as JSON, for an object that keeps it.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&self.envelope().error)
    }

    /// The body:
    /// `{"error":{"type","code","message","advice"?,"param"?,"decline_code"?,"charge"?,"doc_url"}}`
    /// with the objects that it is about.
    pub fn envelope(&self) -> Envelope<'_> {
        Envelope {
            error: EnvelopeError {
                error_type: self.code.error_type().as_str(),
                code: self.code.as_str(),
                message: &self.message,
                advice: self.about.advice,
                param: self.param.as_deref(),
                decline_code: self.decline_code.as_deref(),
                charge: self.charge.as_deref(),
                doc_url: self.code.doc_url(),
                payment_intent: json(self.about.payment_intent.as_deref()),
                payment_method: json(self.about.payment_method.as_deref()),
                setup_intent: json(self.about.setup_intent.as_deref()),
                resource: self.about.resource.as_deref(),
                resource_url: self.about.resource.as_deref().and_then(path_of),
            },
        }
    }
}

/// Where objects are read, by the prefix of their ids.
const PLACES: [(&str, &str); 9] = [
    (ChargeId::PREFIX, "charges"),
    (RefundId::PREFIX, "refunds"),
    (OrderId::PREFIX, "orders"),
    (CheckoutId::PREFIX, "checkouts"),
    (WebhookEndpointId::PREFIX, "webhook_endpoints"),
    (CustomerId::PREFIX, "customers"),
    (PaymentIntentId::PREFIX, "payment_intents"),
    (PaymentMethodId::PREFIX, "payment_methods"),
    (SetupIntentId::PREFIX, "setup_intents"),
];

/// The path of the object with this id.
fn path_of(id: &str) -> Option<String> {
    let (prefix, _) = id.rsplit_once('_')?;
    let (_, place) = PLACES.iter().find(|(known, _)| *known == prefix)?;
    Some(format!("/{place}/{id}"))
}

/// Stripe's status where a parameter names an object that is not there; in a path, it is 404.
const NO_SUCH_PARAMETER: u16 = 400;

/// Stripe's words for an id that names nothing. Programs look for their beginning. What may be a
/// secret or a card number isn't repeated.
pub(super) fn no_such<Id: ObjectId>(id: &str) -> String {
    let is_shown = id.chars().count() <= ID_MAX_CHARS
        && !id.contains(char::is_control)
        && !holds_secret(id)
        && !card_numbers::holds_card_number(id);
    match is_shown {
        true => format!("No such {}: '{id}'", Id::NOUN),
        false => format!("No such {}", Id::NOUN),
    }
}

/// The text as JSON. A view was written as it, so it is JSON.
fn json(text: Option<&str>) -> Option<&RawValue> {
    serde_json::from_str(text?).ok()
}

/// The shape of every reply that is not 2xx.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Error)]
pub struct Envelope<'a> {
    /// The error.
    pub error: EnvelopeError<'a>,
}

/// What went wrong.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ErrorDetail)]
pub struct EnvelopeError<'a> {
    /// The family of the error.
    #[serde(rename = "type")]
    #[schema(example = "invalid_request_error")]
    pub error_type: &'a str,
    /// The reason, for programs.
    #[schema(example = "parameter_missing")]
    pub code: &'a str,
    /// The reason, for people.
    pub message: &'a str,
    /// What to do about the idempotency key, for the developer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'a str>,
    /// The field at fault, such as `items[0][quantity]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub param: Option<&'a str>,
    /// The issuer's reason, for a declined card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decline_code: Option<&'a str>,
    /// The failed charge that a decline leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charge: Option<&'a str>,
    /// Where the code is explained, as a path on this service.
    #[schema(example = "/errors#parameter_missing")]
    pub doc_url: String,
    /// The payment intent that it is about, as it is after the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PaymentIntentView>, nullable = false, no_recursion)]
    pub payment_intent: Option<&'a RawValue>,
    /// The payment method that was declined.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<PaymentMethodView>, nullable = false, no_recursion)]
    pub payment_method: Option<&'a RawValue>,
    /// The setup intent that it is about, as it is after the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SetupIntentView>, nullable = false, no_recursion)]
    pub setup_intent: Option<&'a RawValue>,
    /// The id of what an earlier request with the key made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<&'a str>,
    /// Where to read it, as a path on this service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_url: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decline_has_one_name_in_the_error_and_in_the_failed_charge() {
        for code in [
            DeclineCode::CardDeclined,
            DeclineCode::AuthenticationRequired,
            DeclineCode::ExpiredCard,
            DeclineCode::IncorrectCvc,
            DeclineCode::ProcessingError,
        ] {
            let error = ErrorCode::from(code);
            assert_eq!(error.as_str(), code.as_str());
            assert_eq!(error.error_type(), ErrorType::Card);
        }
    }
}
