//! What PostgreSQL's errors mean for the transaction that they end: the one table of it.
//!
//! Promise: whatever passes by itself is told as such. Its client retries with the same key, and an
//! answer in hand is written again. A code that is not in the table is a defect.

use crate::{
    FailureKind::{self, Busy, Unavailable},
    RunAgain::{self, AtOnce, InAnotherSession, Never, WhenUnlocked},
};

/// By code, or by class, which is the first two characters of a code.
/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
const MEANINGS: [(&str, FailureKind, RunAgain); 18] = [
    // lock_timeout.
    ("55P03", Busy, WhenUnlocked),
    // A serialization failure, and a deadlock's victim.
    ("40001", Unavailable, AtOnce),
    ("40P01", Unavailable, AtOnce),
    // "cached plan must not change result type", which a session says of a prepared statement until
    // it ends, once a migration has changed a column; and BEGIN READ WRITE on a standby.
    ("0A000", Unavailable, InAnotherSession),
    // A prepared statement is gone, or exists already: a pooler gave the client another session.
    ("26000", Unavailable, InAnotherSession),
    ("42P05", Unavailable, InAnotherSession),
    // The connection broke, as a pooler tells it.
    ("08", Unavailable, Never),
    // Read-only: a standby, or an old primary after a failover.
    ("25006", Unavailable, Never),
    // The session was idle in its transaction, or the transaction took too long.
    ("25P03", Unavailable, Never),
    ("25P04", Unavailable, Never),
    // Only a session's start is answered so: a password is changed, or a database is restored.
    ("28", Unavailable, Never),
    ("3D000", Unavailable, Never),
    // A full disk, too little memory, too many connections.
    ("53", Unavailable, Never),
    // The server doesn't accept this now: it recovers, or the database takes no connections.
    ("55000", Unavailable, Never),
    // In use by others: a database that is being copied.
    ("55006", Unavailable, Never),
    // A statement's time limit or a person has ended it (57014), or a server that stops or starts
    // (57P01 to 57P03); a database that was dropped, an idle session's limit.
    ("57", Unavailable, Never),
    // Errors outside PostgreSQL, such as those of a disk.
    ("58", Unavailable, Never),
    // A snapshot that is too old.
    ("72000", Unavailable, Never),
];

pub(crate) fn meaning(code: &str) -> (FailureKind, RunAgain) {
    let found = MEANINGS.iter().find(|(known, ..)| code.starts_with(known));
    found.map_or((FailureKind::Internal, Never), |(_, kind, run_again)| {
        (*kind, *run_again)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_by_itself_is_no_defect() {
        for (code, kind, run_again) in [
            ("55P03", Busy, WhenUnlocked),
            ("40P01", Unavailable, AtOnce),
            ("0A000", Unavailable, InAnotherSession),
            ("08P01", Unavailable, Never),
            ("28P01", Unavailable, Never),
            ("53300", Unavailable, Never),
            ("57014", Unavailable, Never),
            ("57P03", Unavailable, Never),
            ("58030", Unavailable, Never),
            // A rule of the schema, a transaction that was aborted, a table that is missing.
            ("23514", FailureKind::Internal, Never),
            ("25P02", FailureKind::Internal, Never),
            ("42P01", FailureKind::Internal, Never),
            ("", FailureKind::Internal, Never),
        ] {
            assert_eq!(meaning(code), (kind, run_again), "{code}");
        }
    }

    #[test]
    fn no_row_hides_another_one() {
        for (position, (code, kind, run_again)) in MEANINGS.iter().enumerate() {
            assert!([2, 5].contains(&code.len()), "{code}");
            let first = MEANINGS
                .iter()
                .position(|(known, ..)| code.starts_with(known));
            assert_eq!(first, Some(position), "{code}");
            assert_eq!(meaning(code), (*kind, *run_again));
        }
    }
}
