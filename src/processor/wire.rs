//! What the simulated processor says on the wire; `docs/processor.md` describes it.
//!
//! Promise: every reply names the key that it is about, and says in one word what is known. A word
//! that isn't here can't be read as one that is.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Answer;
use crate::domain::test_cards::Decline;

/// What is known of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// Executed. Definite.
    Done,
    /// Refused for good. Definite.
    Declined,
    /// An earlier send of this key hasn't ended.
    InProgress,
    /// This send was not executed and will not be. Says nothing about others.
    NotExecuted,
    /// Nobody remembers this key.
    NotFound,
    /// The key belongs to another instruction.
    AnotherInstruction,
    /// Not an instruction.
    Invalid,
    /// The processor itself doesn't know.
    Unknown,
}

impl Status {
    /// The HTTP status that the word comes with.
    pub(super) fn http(self) -> u16 {
        match self {
            Self::Done | Self::Declined => 200,
            Self::InProgress => 409,
            Self::NotExecuted => 503,
            Self::NotFound => 404,
            Self::AnotherInstruction => 422,
            Self::Invalid => 400,
            Self::Unknown => 500,
        }
    }
}

/// The body of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    /// Which key it is about.
    pub(super) key: Uuid,
    /// What is known.
    pub(super) status: Status,
    /// With [`Status::Declined`] only: the error's code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    /// With [`Status::Declined`] only: the issuer's reason, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) decline_code: Option<String>,
}

impl Message {
    /// Anything but an answer.
    pub(super) fn new(key: Uuid, status: Status) -> Self {
        Self {
            key,
            status,
            code: None,
            decline_code: None,
        }
    }

    /// A definite answer.
    pub(super) fn answer(key: Uuid, answer: Answer) -> Self {
        match answer {
            Answer::Done => Self::new(key, Status::Done),
            Answer::Declined(decline) => Self {
                code: Some(decline.code.as_str().to_owned()),
                decline_code: decline.decline_code.map(str::to_owned),
                ..Self::new(key, Status::Declined)
            },
        }
    }

    /// The definite answer in it, if it is one and whole.
    pub(super) fn definite(&self) -> Option<Answer> {
        match (self.status, self.code.as_deref()) {
            (Status::Done, None) => Some(Answer::Done),
            (Status::Declined, Some(code)) => {
                let decline = Decline::named(code, self.decline_code.as_deref());
                Some(Answer::Declined(decline))
            }
            // Done and yet with a code, or declined without one: not a whole answer.
            (Status::Done, Some(_)) | (Status::Declined, None) => None,
            (
                Status::InProgress
                | Status::NotExecuted
                | Status::NotFound
                | Status::AnotherInstruction
                | Status::Invalid
                | Status::Unknown,
                _,
            ) => None,
        }
    }
}
