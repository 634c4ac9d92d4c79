//! Why a request body could not be decoded.
//!
//! Promise: an error can be written to a reply and to a log as it is. It never
//! repeats a value the client sent, and names a field only through
//! [`ParamPath::to_param`](crate::api::param_path::ParamPath::to_param),
//! which leaves out names that are not safe to repeat.

/// A refused body: the field at fault, when there is one, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DecodeError {
    /// The bracketed name of the field at fault, such as `items[0][quantity]`.
    pub param: Option<String>,
    /// One sentence for the client's developer, free of anything the client sent.
    pub message: String,
}

impl DecodeError {
    /// An error about the field named `param`, or about the whole body.
    pub fn new(param: Option<String>, message: impl Into<String>) -> Self {
        Self {
            param,
            message: message.into(),
        }
    }
}
