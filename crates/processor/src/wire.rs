//! What goes over the network: instructions and replies, which `docs/processor.md` describes.
//!
//! Promise: every reply names its key and has one status of a closed list. An unknown status is
//! never mistaken for a known one.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Answer, test_cards::Decline};

/// Says until when an instruction may be executed. It is a header, so that every attempt sends the
/// same instruction.
pub(super) const NOT_AFTER: &str = "not-after";

/// The code of an instruction that is not executed because it came after its time.
pub(super) const LATE: &str = "late";

/// A time as [`NOT_AFTER`] has it: RFC 3339 in UTC, with milliseconds.
pub(super) fn format_not_after(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// What the processor is asked to do. References are its client's ids, amounts are minor units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum Instruction {
    /// Promise money, and take it at once where `capture` says so.
    Authorize {
        /// The charge that it is for: `ch_…`.
        charge: String,
        /// How much.
        amount: i64,
        /// ISO 4217, lower case.
        currency: String,
        /// The card, as the canonical test token.
        card: String,
        /// Whether to take the money at once.
        capture: bool,
    },
    /// Take promised money, once; the rest is released.
    Capture {
        /// The charge that promised it.
        charge: String,
        /// How much, at most what was promised.
        amount: i64,
    },
    /// Give money back, or release what was only promised.
    Refund {
        /// The charge that took it.
        charge: String,
        /// The refund that it is for: `re_…`.
        refund: String,
        /// How much.
        amount: i64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// Executed. Definite.
    Done,
    /// Refused. Definite.
    Declined,
    /// An earlier attempt with this key hasn't ended.
    InProgress,
    /// This attempt was not executed and will not be. It says nothing about other attempts.
    NotExecuted,
    /// The key is not known.
    NotFound,
    /// The key belongs to another instruction.
    AnotherInstruction,
    /// Not an instruction.
    Invalid,
    /// The processor doesn't know the outcome.
    Unknown,
}

impl Status {
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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Message {
    pub(super) key: Uuid,
    pub(super) status: Status,
    /// With [`Status::Declined`]: the error's code. With [`Status::NotExecuted`]: [`LATE`], if that
    /// is why.
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

    /// This attempt came after its time, and is not executed.
    pub(super) fn late(key: Uuid) -> Self {
        Self {
            code: Some(LATE.to_owned()),
            ..Self::new(key, Status::NotExecuted)
        }
    }

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
            // `done` with a code, or `declined` without one, is not a whole answer.
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
