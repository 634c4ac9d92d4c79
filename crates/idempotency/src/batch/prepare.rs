//! What a batch does between BEGIN and COMMIT: look, read, decide, claim, write.
//!
//! Promise: what is written was decided from locked rows, and from changes of members that have won
//! their claims.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    Shared,
    claims::{self, Lifetime},
    decide::{NamesRead, READ_ROUNDS_MAX, Rows},
    member::{Ended, Ending, Member, Pending, Stage},
};
use crate::{
    Failure, Idempotency, Outcome, Record, Rejection, Reply, Request, RunAgain, Verdict,
    claim::{self, Found, column},
    in_flight::Progress,
    phases::lease::{self, Lease},
    trace::{self, trace_span},
    transaction::compare,
};

/// Members and what they are told after COMMIT.
pub(super) type Answers<R> = Vec<(Member<R>, Ended)>;

/// A transaction that is ready for COMMIT.
pub(super) struct Prepared<R: Rows> {
    /// The members whose keys were free or leased, and those whose keys have records. The others
    /// have left the batch. Nothing to commit where it is empty.
    pub(super) answers: Answers<R>,
    /// The rows that are locked until then.
    pub(super) names: HashSet<R::Name>,
}

/// Why a transaction is not ready for COMMIT. Its members are dropped, so they run alone.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unprepared {
    #[error("a key was taken after its request had been decided, and others may have seen that")]
    SeenChangesLost,
    #[error("an answer could not be decided, and its lease was ended")]
    LeaseEnded,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<Unprepared> for Failure {
    fn from(unprepared: Unprepared) -> Self {
        match unprepared {
            Unprepared::SeenChangesLost | Unprepared::LeaseEnded => Self {
                run_again: RunAgain::AtOnce,
                ..Self::unavailable(unprepared)
            },
            // By itself, the request reads again.
            Unprepared::Database(sqlx::Error::RowNotFound) => Self {
                run_again: RunAgain::AtOnce,
                ..Self::unavailable("a row is not as it was read")
            },
            Unprepared::Database(error) => error.into(),
        }
    }
}

/// A member with its outcome.
struct Decided<R: Rows> {
    member: Member<R>,
    recorded: Verdict<Reply, Pending>,
    changes: Changes<R::Changes>,
}

/// What a decided member writes.
enum Changes<C> {
    Nothing,
    /// The members after it have seen it.
    Applied,
    /// It waits for the claim.
    Kept(C),
}

/// The transaction of a batch, after BEGIN.
pub(super) struct Preparation<'a, R: Rows> {
    pub(super) idempotency: &'a Idempotency,
    pub(super) shared: &'a Shared<R>,
    pub(super) tx: &'a mut PgConnection,
    /// Its time.
    pub(super) now: DateTime<Utc>,
    /// Not later than that.
    pub(super) began: Instant,
}

impl<R: Rows> Preparation<'_, R> {
    /// Everything but COMMIT.
    pub(super) async fn run(mut self, members: Vec<Member<R>>) -> Result<Prepared<R>, Unprepared> {
        let mut rows = R::default();
        let mut answers = Vec::new();
        // In the order of keys: two replicas whose batches share two keys would otherwise each wait
        // for what the other one has claimed.
        let (mut members, mut claiming) = self.end_leases(sorted(members)).await?;
        // A replay must lock nothing: it would wait for rows that it doesn't need. That is for
        // speed, and the claim decides. A request by itself finds out there for less.
        if claiming.len() + members.len() > 1 && claiming.iter().any(|one| names_any(one, &rows)) {
            claiming = answer_recorded(self.tx, claiming, &mut answers).await?;
            claiming = self.without_expired_keys(claiming).await?;
        }
        members.append(&mut claiming);
        // What a decision changes is locked when it is read. With a plain SELECT, two refunds could
        // both find that enough is left.
        let read = self.read(&mut rows, &mut members).await?;
        // Decide before claim: a refusal has written nothing, so it has nothing to undo, and the
        // key is written once, together with its reply.
        let decided = decide(&mut rows, &read, members, self.now)?;
        if !decided.is_empty() {
            // The unique index decides which decisions count. Until here, a duplicate in another
            // process may have decided the same.
            let lifetimes = self.record(ToRecord::of(&decided)).await?;
            // Only what has a claim is written.
            self.write(rows, decided, lifetimes, &mut answers).await?;
        }
        let names = read.0.iter().filter_map(R::lock).collect();
        Ok(Prepared { answers, names })
    }

    /// Without the members whose keys have expired: a request by itself is refused. The claim finds
    /// out, too, but then others may have been decided from what these would have changed.
    async fn without_expired_keys(
        &mut self,
        members: Vec<Member<R>>,
    ) -> Result<Vec<Member<R>>, sqlx::Error> {
        let Some(recall) = &self.idempotency.recall else {
            return Ok(members);
        };
        let requests = members.iter().map(|member| &member.request);
        let claimed = requests.map(|request| (request, None));
        let found = recall.look(self.tx, "", claimed.collect()).await?;
        let found = members.into_iter().zip(found);
        let (expired, new): (Vec<_>, Vec<_>) = found.partition(|(_, found)| found.is_some());
        for (member, _) in expired {
            member.end(Ended::Undecided);
        }
        Ok(new.into_iter().map(|(member, _)| member).collect())
    }

    /// Ends the leases of the members that complete something, before any row is locked, as where
    /// one does so alone. Returns these members and the others. A member whose lease is lost
    /// leaves.
    async fn end_leases(
        &mut self,
        members: Vec<Member<R>>,
    ) -> Result<(Vec<Member<R>>, Vec<Member<R>>), sqlx::Error> {
        let leases: Vec<_> = members.iter().filter_map(Member::lease).collect();
        if leases.is_empty() {
            return Ok((Vec::new(), members));
        }
        let ended = lease::end_all(self.tx, &leases).await?;
        let (mut completing, mut claiming) = (Vec::new(), Vec::new());
        for member in members {
            match member.lease().map(|lease| ended.contains(&lease.operation)) {
                Some(true) => completing.push(member),
                Some(false) => member.end(Ended::LeaseLost),
                None => claiming.push(member),
            }
        }
        Ok((completing, claiming))
    }

    /// Locks and reads what the members need, in rounds. Returns the names of those rows.
    async fn read(
        &mut self,
        rows: &mut R,
        members: &mut [Member<R>],
    ) -> Result<NamesRead<R::Name>, sqlx::Error> {
        let mut read = NamesRead::default();
        for _ in 0..READ_ROUNDS_MAX {
            let mut names = Vec::new();
            for member in &mut *members {
                let named = member.command.reads(rows);
                member.has_read |= !named.is_empty();
                names.extend(read.take_new(named));
            }
            if names.is_empty() {
                break;
            }
            // A COMMIT takes as long as the disk, and a statement waits for a lock only briefly.
            let locks: Vec<_> = names.iter().filter_map(R::lock).collect();
            self.shared.held_rows.let_go(&locks).await;
            rows.read(self.tx, names).await?;
        }
        Ok(read)
    }

    /// Writes the records of keys that are free or leased. Returns their lifetimes.
    async fn record(
        &mut self,
        to_record: ToRecord<'_>,
    ) -> Result<HashMap<claims::Id, Lifetime>, sqlx::Error> {
        let mut lifetimes = HashMap::new();
        if !to_record.claiming.is_empty() {
            lifetimes = self.claim(&to_record.claiming).await?;
        }
        if !to_record.completed.is_empty() {
            lifetimes.extend(claims::save(self.tx, &to_record.completed).await?);
        }
        Ok(lifetimes)
    }

    /// Claims keys. Returns those that were free.
    async fn claim(
        &mut self,
        claiming: &[(&Request, &Verdict<Reply, Pending>)],
    ) -> Result<HashMap<claims::Id, Lifetime>, sqlx::Error> {
        let since = Instant::now();
        let Idempotency {
            retention, recall, ..
        } = self.idempotency;
        let claimed = claims::insert(self.tx, claiming, retention, recall.as_deref());
        let how = |claimed: &Result<HashMap<_, _>, _>| {
            let claimed = claimed.as_ref().ok()?;
            Some(match claimed.len() == claiming.len() {
                true => "mine",
                false => "taken",
            })
        };
        let claimed = trace::step(trace_span!("claim"), claimed, how).await?;
        let took = since.elapsed();
        self.shared.observer.claimed_batch(claiming.len(), took);
        Ok(claimed)
    }

    /// Writes what the winners of the claims have changed, and answers the losers.
    async fn write(
        &mut self,
        mut rows: R,
        decided: Vec<Decided<R>>,
        mut lifetimes: HashMap<claims::Id, Lifetime>,
        answers: &mut Answers<R>,
    ) -> Result<(), Unprepared> {
        let has_others = decided.len() > 1;
        let (mut lost, mut begun, mut writes) = (Vec::new(), Vec::new(), false);
        for Decided {
            member,
            recorded,
            changes,
        } in decided
        {
            let Some(lifetime) = lifetimes.remove(&claims::id(&member.request)) else {
                // Its changes can't be taken back from the rows, and later members were decided
                // from them. Where there are no others, the rows are not written.
                if matches!(changes, Changes::Applied) && has_others {
                    return Err(Unprepared::SeenChangesLost);
                }
                lost.push(member);
                continue;
            };
            match changes {
                Changes::Nothing => {}
                Changes::Applied => writes = true,
                Changes::Kept(changes) => {
                    rows.apply(changes);
                    writes = true;
                }
            }
            // From here on, a duplicate in this process knows that the key is claimed.
            if member.lease().is_none() {
                member.leadership.advance(Progress::Executing);
            }
            match recorded {
                Verdict::Pending(Pending { operation, .. }) => begun.push((member, operation)),
                Verdict::Answered(reply) => {
                    let outcome = Outcome::Stored {
                        record: Arc::new(record(&member.request, reply, lifetime)),
                        replayed: false,
                        taken_over: false,
                    };
                    answers.push((member, Ended::Concluded(outcome)));
                }
            }
        }
        self.lease(begun, answers).await?;
        if !lost.is_empty() {
            for gone in answer_recorded(self.tx, lost, answers).await? {
                gone.end(Ended::Undecided);
            }
        }
        if writes {
            let how = |written: &Result<(), _>| written.is_ok().then_some("replied");
            trace::step(trace_span!("work"), rows.write(self.tx), how).await?;
        }
        Ok(())
    }

    /// Puts leases on the keys of members that have begun something.
    async fn lease(
        &mut self,
        begun: Vec<(Member<R>, Uuid)>,
        answers: &mut Answers<R>,
    ) -> Result<(), sqlx::Error> {
        let mut leases = Vec::new();
        for (member, operation) in begun {
            // The others were not decided: see `decide`.
            if let Stage::Begins { kind, length } = member.step {
                let lease = Lease::new(&member.request, kind, operation, self.began);
                leases.push((member, lease, length));
            }
        }
        if leases.is_empty() {
            return Ok(());
        }
        let taking = column(&leases, |(_, lease, length)| (lease, *length));
        let mut taken = lease::take_all(self.tx, &taking).await?;
        for (member, lease, _) in leases {
            let until = taken.remove(&lease.operation);
            let until = until.ok_or(sqlx::Error::RowNotFound)?;
            answers.push((member, Ended::Begun(Box::new((lease, until)))));
        }
        Ok(())
    }
}

/// What is to be written of the keys of decided members.
#[derive(Default)]
struct ToRecord<'a> {
    claiming: Vec<(&'a Request, &'a Verdict<Reply, Pending>)>,
    completed: Vec<(claims::Id, &'a Reply)>,
}

impl<'a> ToRecord<'a> {
    fn of<R: Rows>(decided: &'a [Decided<R>]) -> Self {
        let mut all = Self::default();
        for one in decided {
            match (one.member.lease(), &one.recorded) {
                (None, recorded) => all.claiming.push((&one.member.request, recorded)),
                (Some(_), Verdict::Answered(reply)) => {
                    all.completed.push((claims::id(&one.member.request), reply));
                }
                // It was not decided: see `decide`.
                (Some(_), Verdict::Pending(_)) => {}
            }
        }
        all
    }
}

/// In the order in which two replicas that claim the same keys must do it.
fn sorted<R>(mut members: Vec<Member<R>>) -> Vec<Member<R>> {
    members.sort_by_cached_key(|member| claims::id(&member.request));
    let mut sorted: Vec<Member<R>> = Vec::with_capacity(members.len());
    for member in members {
        // No two claims of a transaction may share a key: the second one would read what the first
        // one has not committed. In this process only one request with a key leads.
        match sorted.last() {
            Some(last) if last.request.entry_id() == member.request.entry_id() => {
                member.end(Ended::Undecided);
            }
            Some(_) | None => sorted.push(member),
        }
    }
    sorted
}

fn names_any<R: Rows>(member: &Member<R>, rows: &R) -> bool {
    !member.command.reads(rows).is_empty()
}

/// Decides one member after the other. What those change that read rows is seen by the ones after
/// them. A member that can't be decided leaves; one whose lease was ended takes the batch along,
/// since COMMIT would end the lease without an outcome.
fn decide<R: Rows>(
    rows: &mut R,
    read: &NamesRead<R::Name>,
    members: Vec<Member<R>>,
    now: DateTime<Utc>,
) -> Result<Vec<Decided<R>>, Unprepared> {
    let mut decided = Vec::new();
    let mut asked = HashSet::new();
    for mut member in members {
        let names = member.command.reads(rows);
        member.has_read |= !names.is_empty();
        let mut locks = names.iter().filter_map(R::lock);
        // What is unfinished about a row was read before a member began to ask about it. What the
        // members before it have changed may refer to a row that was not read, and three rounds may
        // not have been enough: to the member, such a row would not be there.
        let can_decide = !locks.any(|lock| asked.contains(&lock)) && read.has_all(&names);
        let ending = can_decide.then(|| member.command.decide(rows, now));
        let Ending { recorded, changes } = match (ending, &member.step) {
            (Some(Ok(ending)), Stage::Begins { .. }) => ending,
            (Some(Ok(ending)), _) if matches!(ending.recorded, Verdict::Answered(_)) => ending,
            // What was asked for can't be refused any more.
            (Some(Err(Rejection::Refused(reply))), Stage::Whole | Stage::Begins { .. }) => Ending {
                recorded: Verdict::Answered(reply),
                changes: None,
            },
            (_, Stage::Completes(_)) => return Err(Unprepared::LeaseEnded),
            (_, Stage::Whole | Stage::Begins { .. }) => {
                member.end(Ended::Undecided);
                continue;
            }
        };
        if let Verdict::Pending(_) = recorded {
            asked.extend(names.iter().filter_map(R::lock));
        }
        // The next member must see the rows as this one leaves them: both were read once, before
        // either decided. What rests on no row can wait for the claim, and is easy to throw away.
        let changes = match changes {
            None => Changes::Nothing,
            Some(changes) if member.has_read => {
                rows.apply(changes);
                Changes::Applied
            }
            Some(changes) => Changes::Kept(changes),
        };
        decided.push(Decided {
            member,
            recorded,
            changes,
        });
    }
    Ok(decided)
}

/// Answers the members whose keys have completed records, and returns those whose keys have no
/// rows. A record that is expired or unfinished is left to the request alone.
async fn answer_recorded<R>(
    tx: &mut PgConnection,
    members: Vec<Member<R>>,
    answers: &mut Answers<R>,
) -> Result<Vec<Member<R>>, sqlx::Error> {
    let requests: Vec<_> = members.iter().map(|member| &member.request).collect();
    let mut found = claim::read_all(tx, &requests).await?;
    let mut free = Vec::new();
    for member in members {
        let Request {
            account_id, key, ..
        } = &member.request;
        match found.remove(&(*account_id, key.as_str().to_owned())) {
            None => free.push(member),
            Some(Found::Completed(record)) => {
                let compared = compare(&member.request, record);
                let outcome = compared.unwrap_or_else(Outcome::Failed);
                answers.push((member, Ended::Concluded(outcome)));
            }
            Some(Found::Expired(_) | Found::Unfinished(_)) => member.end(Ended::Undecided),
        }
    }
    Ok(free)
}

/// The record that was written for a request, as it would be read.
fn record(request: &Request, reply: Reply, (created_at, expires_at): Lifetime) -> Record {
    Record {
        reply,
        request_id: request.request_id.clone(),
        method: request.method.clone(),
        path: request.path.clone(),
        label: request.label.clone(),
        fingerprint_version: request.fingerprint.version(),
        fingerprint: request.fingerprint.bytes().to_vec(),
        created_at,
        expires_at,
        is_sealed: false,
    }
}
