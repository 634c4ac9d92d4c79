//! Replies as commands save them: bodies, refusals and declines.

use charge_once_strict_params::{ParameterSet, Params};

use super::Noun;
use crate::{commands::prelude::*, domain::metadata::TooManyKeys, wire::error::ErrorType};

pub(crate) const OK: u16 = 200;
pub(crate) const CREATED: u16 = 201;

/// The advice with a stored refusal: without it, a client would correct its request, keep the key,
/// and meet "key reused". It is no part of the message, which shops show to people who pay.
pub(crate) const STORED_REFUSAL: &str = "This answer is kept under the idempotency key: send a corrected request with a new \
                              key.";

/// The advice with an intent's decline. The intent itself keeps the error without it.
pub(crate) const STORED_DECLINE: &str = "Another attempt needs a new idempotency key.";

/// The parameters of a command, or the refusal of a wrong one.
pub(crate) fn checked<P: ParameterSet>(params: &Params) -> Result<P, Rejection> {
    P::parse(params).map_err(|error| ApiError::from(error).into())
}

/// All of an object, for an error.
pub(crate) fn whole<N: Noun>(object: &N) -> Result<String, Rejection> {
    let view = serde_json::to_string(&N::View::from(object));
    Ok(view.map_err(Failure::internal)?)
}

/// A row that must be there isn't: `what` an earlier step or an earlier transaction made.
pub(crate) fn lost(what: &str) -> Rejection {
    Rejection::Failed(Failure::internal(format!("{what} is gone")))
}

/// The processor's definite no about a charge that stays as it was.
pub(crate) fn declined_by_processor(
    draft: &Draft<'_>,
    charge: ChargeId,
    decline: Decline,
) -> Result<Said, Rejection> {
    let charge = draft.known::<Charge>(Some(charge), "a charge")?;
    Ok(Said::Reply(declined(decline, &charge)?))
}

/// A decline is an outcome to keep, not a refusal to undo: its failed charge stays.
pub(crate) fn declined(decline: Decline, charge: &Charge) -> Result<Reply, Rejection> {
    let id = charge.id.to_string();
    let mut reply = error_reply(&ApiError::declined(decline, id.clone()))?;
    reply.resource_id = Some(id);
    Ok(reply)
}

/// The reply of an error that is a definite outcome.
pub(crate) fn error_reply(error: &ApiError) -> Result<Reply, Rejection> {
    debug_assert!(error.code.is_stored(), "{:?}", error.code);
    let mut reply = Reply::json(error.status(), &error.envelope())?;
    let described_by = format!("<{}>; rel=\"describedby\"", error.code.doc_url());
    reply.headers.push(("link".into(), described_by));
    Ok(reply)
}

/// The reply of an error that is stored, and says so where a corrected request may follow.
pub(crate) fn stored_refusal(mut error: ApiError) -> Result<Reply, Rejection> {
    if error.code.error_type() == ErrorType::InvalidRequest {
        error.about.advice = Some(STORED_REFUSAL);
    }
    error_reply(&error)
}

/// A change of metadata that leaves too many keys.
impl From<TooManyKeys> for Rejection {
    fn from(refusal: TooManyKeys) -> Self {
        ApiError::from(refusal).into()
    }
}

/// A deterministic refusal: nothing that the command wrote survives, the reply is stored.
impl From<ApiError> for Rejection {
    fn from(error: ApiError) -> Self {
        stored_refusal(error).map_or_else(|rejection| rejection, Rejection::Refused)
    }
}
