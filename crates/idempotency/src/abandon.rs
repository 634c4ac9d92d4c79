//! Add-on: a client gives a key up, so that no request with it is executed later.
//!
//! Promise: of a request and of the one that gives up its key, one wins, by the unique index. What
//! was executed is told, and nothing is undone.

use std::{sync::Arc, time::Duration};

use sqlx::PgConnection;

use crate::{
    Failure, Fingerprint, Idempotency, Record, Rejection, Reply, Request, RunAgain,
    claim::{self, Claim},
    inspect::leases_of,
    reply::save,
};

/// What became of a key that was to be given up.
#[derive(Debug)]
pub enum Abandoned {
    /// No request with it is executed any more: the reply is its outcome. Or it was given up
    /// before.
    Now(Arc<Record>),
    /// A request with it ended before, with this outcome.
    Completed(Arc<Record>),
    /// A request with it is at work, in several transactions.
    Unfinished {
        /// It may have been executed, and its answer is not known.
        in_doubt: bool,
        /// How long until a reconciler continues it.
        continued_in: Option<Duration>,
    },
}

impl Idempotency {
    /// Gives a key up: each request that comes with it, whatever it asks for, gets `reply`.
    /// `request` is the one that gives up, with the key that it gives up; its fingerprint is not
    /// kept. Runs in the transaction of a command, and waits for a request with the key that is in
    /// its own, as for any locked row. Refused where a request with the key ended before, and its
    /// record has expired.
    pub async fn abandon(
        &self,
        tx: &mut PgConnection,
        request: &Request,
        reply: Reply,
    ) -> Result<Abandoned, Rejection> {
        let retention = request.retention(self.retention);
        let request = Request {
            fingerprint: Fingerprint::OF_ANY_REQUEST,
            ..request.clone()
        }
        .unsealed();
        match claim::claim(tx, &request, retention).await? {
            Claim::Mine(expired) => {
                if let Some(expired) = self.look_back(tx, "", (&request, expired)).await? {
                    // What the key's request made is told, and is not what this request made.
                    return Err(Rejection::Refused(Reply {
                        resource_id: None,
                        ..expired.answer
                    }));
                }
                let (account_id, key) = (request.account_id, request.key.as_str());
                let record = save(tx, account_id, key, (reply, None)).await?;
                Ok(Abandoned::Now(Arc::new(record)))
            }
            Claim::Completed(record) if record.is_of_any_request() => Ok(Abandoned::Now(record)),
            Claim::Completed(record) => Ok(Abandoned::Completed(record)),
            Claim::Unfinished(_) => {
                let keys = [request.key.as_str().to_owned()];
                let leases = leases_of(tx, request.account_id, &keys).await?;
                let lease = leases.first();
                Ok(Abandoned::Unfinished {
                    in_doubt: lease.is_some_and(|lease| lease.in_doubt),
                    continued_in: lease.map(|lease| lease.continued_in),
                })
            }
            // Swept in between, or locked: the statement has failed, and the transaction with it.
            Claim::HeldElsewhere | Claim::Vanished => Err(Failure {
                run_again: RunAgain::WhenUnlocked,
                ..Failure::busy("a request with the key that is given up is at work")
            }
            .into()),
        }
    }
}
