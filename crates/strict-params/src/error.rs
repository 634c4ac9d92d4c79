//! Why a body or a parameter is refused.

/// A refused body or parameter.
///
/// It can be written to a reply and to a log as it is: it never repeats a value that the client
/// sent, and names no field whose name is long, is not plain ASCII, or could be a card number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What is wrong, for programs.
    pub reason: Reason,
    /// The bracketed name of the field at fault, such as `items[0][quantity]`.
    pub param: Option<String>,
    /// For the client's developer. It names the field too.
    pub message: String,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The body or the query can't be decoded.
    Malformed,
    /// A required parameter is not there.
    Missing,
    /// There is no such parameter.
    Unknown,
    /// There is none, and the program said that clients may expect it
    /// ([`Params::not_offered`](crate::Params::not_offered)).
    NotOffered,
    /// A parameter's value is not allowed.
    Invalid,
    /// A refusal with a code of the application's own. This crate makes none.
    Named(&'static str),
}

impl Error {
    /// A refusal of the value of `param`; `message` says what the value must be.
    pub fn invalid(param: Option<String>, message: &str) -> Self {
        Self::about(Reason::Invalid, param, message)
    }

    pub(crate) fn malformed(param: Option<String>, message: &str) -> Self {
        Self::about(Reason::Malformed, param, message)
    }

    fn about(reason: Reason, param: Option<String>, message: &str) -> Self {
        let message = match &param {
            None => message.to_owned(),
            Some(param) => format!("Invalid parameter: {param}. {message}"),
        };
        Self {
            reason,
            param,
            message,
        }
    }
}
