//! One transaction per key: claim, `take_over` at expiry, batches, the sweep, and what a crash or a
//! lost acknowledgment leaves behind. Giving a key up is a claim whose record answers each request.
//! A run remembers keys for longer than it lasts, or not at all.
//!
//! A step is one statement of `claim.rs`, `memory.rs`, `transaction.rs`, `batch/prepare.rs` or
//! `expiry.rs`.
//! PostgreSQL does what it promises: an insert waits for another transaction's row of the same key,
//! each statement sees what is committed when it begins, and a COMMIT is whole or nothing.

mod told;

use stateright::{Model, Property};

use crate::{
    Bounds, GIVEN_UP, Guarded, KEYS, NAMES, Protocol, Record, arrivals, fingerprint_name,
    fingerprints, key_name, request_name,
};

/// How long a record lives, in ticks of the database's clock.
const RETENTION: u8 = 2;

/// When the clock stops: two windows of a key, and the beginning of a third.
const LAST_TICK: u8 = 4;

/// How often a transaction that met a vanished record begins again.
const ATTEMPTS_MAX: u8 = 2;

/// What the model can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimGuard {
    /// `insert`: the unique index decides. Without it, a claim looks for a committed row, and
    /// writes its own where it saw none.
    UniqueIndex,
    /// `claim`: a row that the insert met is read in a new statement. Without it, the claim goes on
    /// as it meant to, because the key was free a statement ago.
    ReadAfterConflict,
    /// `take_over`: only a record that is still expired. Without it, a racer that waited for the
    /// row takes the record of the one that it waited for.
    ConditionalTakeover,
    /// `sweep_batch`: one statement finds, locks and deletes. Without it, the sweep deletes the
    /// keys that it found, whatever they are by then.
    SweepPredicate,
    /// Expiry is judged by the transaction's `now()`. Without it, by the clock of the process, and
    /// that of B is a tick ahead.
    DatabaseClock,
    /// Effect and record commit together. Without it, the record follows in a second transaction.
    OneTransaction,
    /// A client is answered after COMMIT. Without it, when COMMIT is sent.
    AnswerAfterCommit,
    /// A COMMIT without an answer is unknown. Without it, the work runs again, under a fresh key.
    UnknownCommit,
    /// A record answers its own request only.
    Fingerprint,
    /// A replay is the stored bytes. Without it, it is rendered from what is true now.
    StoredBytes,
    /// A batch writes the rows of members whose keys were free. Without it, of all members.
    WinnersOnly,
    /// `abandon`: the same index decides. Without it, giving up looks for a committed record, and
    /// writes its own where it saw none.
    AbandonInserts,
    /// `insert` asks whether the key is remembered when it has the key. Without it, when its
    /// transaction begins.
    AsksAfterInsert,
    /// `recalled`: a record that has expired is remembered before it is swept.
    RecallsExpired,
    /// `sweep_batch` remembers keys in the statement that deletes their records. Without it, in the
    /// next one.
    RemembersAtOnce,
    /// PostgreSQL ends the session of a machine that vanished (`IDLE_IN_TRANSACTION_TIMEOUT`).
    IdleInTransactionTimeout,
}

/// What breaks only where keys are remembered.
const OF_MEMORY: [ClaimGuard; 3] = [
    ClaimGuard::AsksAfterInsert,
    ClaimGuard::RecallsExpired,
    ClaimGuard::RemembersAtOnce,
];

/// In the place of an execution: the key was remembered, and its request refused.
const REFUSED: u8 = u8::MAX;

/// The model.
pub type Claims = Guarded<ClaimGuard>;

/// How far a member of a transaction is. A request alone is its transaction's only member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum MemberState {
    ToInsert,
    /// The insert met a row.
    ToRead,
    /// The row was expired.
    ToTakeOver,
    /// The key is this transaction's.
    Mine,
    /// So is this one, which is remembered: to be refused.
    Remembered,
    /// A guard is missing: it executes though the key is not its own.
    Unclaimed,
    /// The batch has nothing to do for it.
    Lost,
    Committed {
        execution: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClaimingMember {
    key: u8,
    fingerprint: u8,
    /// What a look before the insert has found. Without memory, and with its guard, nothing.
    looked: bool,
    state: MemberState,
}

impl ClaimingMember {
    /// Whether the key's row is this transaction's.
    fn has_row(&self) -> bool {
        matches!(self.state, MemberState::Mine | MemberState::Remembered)
    }
}

/// A transaction, as PostgreSQL knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Transaction {
    now: u8,
    attempts_left: u8,
    members: [Option<ClaimingMember>; 2],
}

impl Transaction {
    fn is_batch(&self) -> bool {
        self.members[1].is_some()
    }

    fn first(&mut self, state: MemberState) -> Option<&mut ClaimingMember> {
        let mut members = self.members.iter_mut().flatten();
        members.find(|one| one.state == state)
    }

    fn has(&self, state: MemberState) -> bool {
        self.members.iter().flatten().any(|one| one.state == state)
    }

    fn holds(&self, key: u8) -> bool {
        let mut members = self.members.iter().flatten();
        members.any(|one| one.key == key && one.has_row())
    }

    fn set_all(&mut self, state: MemberState) {
        for member in self.members.iter_mut().flatten() {
            member.state = state;
        }
    }

    fn gives_up(&self) -> bool {
        let mut members = self.members.iter().flatten();
        members.any(|one| one.fingerprint == GIVEN_UP)
    }

    fn next_statement(&self) -> &'static str {
        if self.has(MemberState::ToInsert) {
            "claim, INSERT … ON CONFLICT DO NOTHING"
        } else if self.has(MemberState::ToRead) {
            "claim, reads the row that its insert met"
        } else if self.has(MemberState::ToTakeOver) {
            "take_over, UPDATE … WHERE expires_at <= now()"
        } else {
            "work, save, and COMMIT is sent"
        }
    }

    /// The key that its next statement may have to wait for.
    fn wanted_key(mut self) -> Option<u8> {
        let state = match self.has(MemberState::ToInsert) || self.has(MemberState::ToRead) {
            true => MemberState::ToInsert,
            false => MemberState::ToTakeOver,
        };
        self.first(state).map(|member| member.key)
    }
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Worker {
    Idle,
    Running(Transaction),
    /// COMMIT is sent.
    Committing(Transaction),
    /// COMMIT is executed, and its acknowledgment on the way.
    Committed(Transaction),
}

/// A transaction that PostgreSQL still has, and no process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Orphan {
    transaction: Transaction,
    /// A COMMIT is on its way.
    is_committing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ToldAnswer {
    execution: u8,
    /// The bytes, as far as they can differ: how many effects there were when they were rendered.
    bytes: u8,
    expires_at: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BrokenClaim {
    EffectAgain,
    EffectOfAGivenUpKey,
    AnotherAnswer,
}

/// A state of [`Claims`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClaimsState {
    clock: u8,
    rows: [Option<Record>; KEYS],
    /// Which keys have a tombstone. `None`: keys are not remembered.
    tombstones: Option<[bool; KEYS]>,
    workers: [Worker; 2],
    orphans: [Option<Orphan>; 2],
    sweep: Option<u8>,
    effects: u8,
    /// Until when the window of each key's last effect is open, or of its giving up. That of a key
    /// that will be remembered does not end.
    windows: [u8; KEYS],
    /// Whether the last window is that of a key that was given up.
    is_given_up: [bool; KEYS],
    told: [Option<ToldAnswer>; KEYS],
    has_arrived: [bool; KEYS],
    requests_left: u8,
    faults_left: u8,
    broken: Option<BrokenClaim>,
}

impl ClaimsState {
    fn has_tombstone(&self, key: u8) -> bool {
        self.tombstones.is_some_and(|of| of[usize::from(key)])
    }

    fn running(&self) -> impl Iterator<Item = &Transaction> {
        self.workers.iter().filter_map(|worker| match worker {
            Worker::Running(tx) => Some(tx),
            Worker::Idle | Worker::Committing(_) | Worker::Committed(_) => None,
        })
    }
}

/// A step of [`Claims`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimsAction {
    /// A request with this key and this fingerprint comes to a process, which begins.
    Arrives(usize, u8, u8),
    /// Two requests with these fingerprints, by key, come to a process, which begins a batch.
    Batch(usize, [u8; KEYS]),
    /// The next statement of a process.
    Statement(usize),
    /// The statement has waited too long for another transaction.
    LockTimeout(usize),
    /// PostgreSQL executes a COMMIT.
    Commits(usize),
    /// The process hears of it, and answers.
    Acknowledged(usize),
    /// The connection breaks between COMMIT and its acknowledgment.
    LosesAcknowledgment(usize),
    /// The process dies.
    Crashes(usize),
    /// A COMMIT of a process that is gone arrives.
    OrphanCommits(usize),
    /// PostgreSQL ends a session whose process is gone.
    OrphanRollsBack(usize),
    /// The sweep finds and locks an expired record.
    SweepLocks(u8),
    /// The sweep deletes it and commits.
    SweepCommits,
    /// The sweep dies.
    SweepDies,
    /// Time goes on.
    Tick,
}

impl Claims {
    /// Whether another transaction has the key's row, or its place in the index, for itself.
    fn is_locked(&self, state: &ClaimsState, key: u8, by_other_than: usize) -> bool {
        let of_worker = |index: usize| match state.workers[index] {
            Worker::Running(tx) | Worker::Committing(tx) => tx.holds(key),
            Worker::Idle | Worker::Committed(_) => false,
        };
        let sweep = state.sweep == Some(key)
            && state.rows[usize::from(key)].is_some()
            && !self.lacks(ClaimGuard::SweepPredicate);
        let mut orphans = state.orphans.iter().flatten();
        (0..2).any(|index| index != by_other_than && of_worker(index))
            || orphans.any(|orphan| orphan.transaction.holds(key))
            || sweep
    }

    /// Whether the next statement of a process waits for another transaction.
    fn waits(&self, state: &ClaimsState, process: usize, tx: &Transaction) -> bool {
        let inserts = match tx.gives_up() {
            true => ClaimGuard::AbandonInserts,
            false => ClaimGuard::UniqueIndex,
        };
        let looks_only = self.lacks(inserts) && tx.has(MemberState::ToInsert);
        let wanted = tx.wanted_key().filter(|_| !looks_only);
        wanted.is_some_and(|key| self.is_locked(state, key, process))
    }

    fn insert(&self, state: &ClaimsState, member: &mut ClaimingMember) {
        let is_remembered = match self.lacks(ClaimGuard::AsksAfterInsert) {
            true => member.looked,
            false => state.has_tombstone(member.key),
        };
        let inserts = match member.fingerprint {
            GIVEN_UP => ClaimGuard::AbandonInserts,
            _ => ClaimGuard::UniqueIndex,
        };
        let (guard, next) = match state.rows[usize::from(member.key)] {
            None if is_remembered => (inserts, MemberState::Remembered),
            None => (inserts, MemberState::Mine),
            Some(_) => (ClaimGuard::ReadAfterConflict, MemberState::ToRead),
        };
        member.state = match self.lacks(guard) {
            true => MemberState::Unclaimed,
            false => next,
        };
    }

    /// `read_all` of the members whose inserts met a row. `false`: a record vanished, which a
    /// request alone begins afresh for.
    fn read(&self, state: &mut ClaimsState, tx: &mut Transaction, judged_at: u8) -> bool {
        let is_batch = tx.is_batch();
        while let Some(member) = tx.first(MemberState::ToRead) {
            let row = state.rows[usize::from(member.key)];
            if !is_batch && row.is_none() {
                return false;
            }
            member.state = MemberState::Lost;
            let Some(row) = row else { continue };
            if row.expires_at <= judged_at {
                if !is_batch {
                    member.state = MemberState::ToTakeOver;
                }
                continue;
            }
            let is_its_own = row.fingerprint == member.fingerprint
                || [row.fingerprint, member.fingerprint].contains(&GIVEN_UP);
            if is_its_own || self.lacks(ClaimGuard::Fingerprint) {
                let bytes = match self.lacks(ClaimGuard::StoredBytes) {
                    true => state.effects,
                    false => row.execution,
                };
                Self::tell(state, *member, row.execution, bytes, row.expires_at);
                if !is_its_own {
                    state.broken = Some(BrokenClaim::AnotherAnswer);
                }
            }
        }
        true
    }

    /// `false`: the record is no longer expired, or gone.
    fn take_over(&self, state: &ClaimsState, member: &mut ClaimingMember, judged_at: u8) -> bool {
        let recalls = state.tombstones.is_some() && !self.lacks(ClaimGuard::RecallsExpired);
        member.state = match recalls {
            true => MemberState::Remembered,
            false => MemberState::Mine,
        };
        let row = state.rows[usize::from(member.key)];
        let is_expired = |row: Record| row.expires_at <= judged_at;
        row.is_some_and(|row| is_expired(row) || self.lacks(ClaimGuard::ConditionalTakeover))
    }

    /// The next step of a process's transaction. `None`: it has none.
    fn step(&self, state: &mut ClaimsState, process: usize) -> Option<()> {
        state.workers[process] = match state.workers[process] {
            Worker::Idle => return None,
            Worker::Running(tx) => self.statement(state, tx, process),
            Worker::Committing(mut tx) => {
                self.commit(state, &mut tx);
                Worker::Committed(tx)
            }
            Worker::Committed(tx) => {
                self.answer(state, &tx);
                Worker::Idle
            }
        };
        Some(())
    }

    /// The next statement of a transaction: what the process is, after it.
    fn statement(&self, state: &mut ClaimsState, mut tx: Transaction, process: usize) -> Worker {
        // What the process takes for `now()`.
        let is_ahead = self.lacks(ClaimGuard::DatabaseClock) && process == 1;
        let judged_at = tx.now + u8::from(is_ahead);
        let is_batch = tx.is_batch();
        let goes_on = if let Some(member) = tx.first(MemberState::ToInsert) {
            self.insert(state, member);
            if is_batch && member.state == MemberState::Remembered {
                // Given back: its request finds out by itself.
                member.state = MemberState::Lost;
            }
            true
        } else if tx.has(MemberState::ToRead) {
            self.read(state, &mut tx, judged_at)
        } else if let Some(member) = tx.first(MemberState::ToTakeOver) {
            self.take_over(state, member, judged_at)
        } else if tx.gives_up() && tx.has(MemberState::Remembered) {
            // `Abandoned::Remembered`: the claim is undone, and the client told of it.
            return Worker::Idle;
        } else {
            // Work, save, and COMMIT is sent.
            if self.lacks(ClaimGuard::AnswerAfterCommit) {
                for member in tx.members.into_iter().flatten() {
                    let (execution, expires_at) = (state.effects + 1, tx.now + RETENTION);
                    Self::tell(state, member, execution, execution, expires_at);
                }
            }
            return Worker::Committing(tx);
        };
        if !goes_on {
            // `Claim::Vanished`: begin afresh.
            let Some(attempts_left) = tx.attempts_left.checked_sub(1) else {
                return Worker::Idle;
            };
            (tx.now, tx.attempts_left) = (state.clock, attempts_left);
            tx.set_all(MemberState::ToInsert);
            self.look(state, &mut tx);
            return Worker::Running(tx);
        }
        let is_lost = |one: &ClaimingMember| one.state == MemberState::Lost;
        match tx.members.iter().flatten().all(is_lost) {
            true => Worker::Idle,
            false => Worker::Running(tx),
        }
    }

    /// What a claim must not rest on: whether its key is remembered, asked before the insert.
    fn look(&self, state: &ClaimsState, tx: &mut Transaction) {
        for member in tx.members.iter_mut().flatten() {
            member.looked =
                self.lacks(ClaimGuard::AsksAfterInsert) && state.has_tombstone(member.key);
        }
    }

    fn commit(&self, state: &mut ClaimsState, tx: &mut Transaction) {
        for member in tx.members.iter_mut().flatten() {
            if member.state == MemberState::Remembered {
                member.state = MemberState::Committed { execution: REFUSED };
                Self::record(state, *member, REFUSED, tx.now);
                continue;
            }
            let is_won = matches!(member.state, MemberState::Mine | MemberState::Unclaimed);
            if !is_won && !self.lacks(ClaimGuard::WinnersOnly) {
                continue;
            }
            let key = usize::from(member.key);
            let gives_up = member.fingerprint == GIVEN_UP;
            state.effects += u8::from(!gives_up);
            if state.windows[key] > state.clock {
                state.broken = Some(match gives_up || state.is_given_up[key] {
                    true => BrokenClaim::EffectOfAGivenUpKey,
                    false => BrokenClaim::EffectAgain,
                });
            }
            state.windows[key] = match state.tombstones {
                Some(_) => u8::MAX,
                None => tx.now + RETENTION,
            };
            state.is_given_up[key] = gives_up;
            if is_won {
                let execution = if gives_up { 0 } else { state.effects };
                member.state = MemberState::Committed { execution };
                if !self.lacks(ClaimGuard::OneTransaction) {
                    Self::record(state, *member, execution, tx.now);
                }
            }
        }
    }

    fn record(state: &mut ClaimsState, member: ClaimingMember, execution: u8, now: u8) {
        state.rows[usize::from(member.key)] = Some(Record {
            fingerprint: member.fingerprint,
            execution,
            expires_at: now + RETENTION,
        });
    }

    /// The process hears that its COMMIT was executed, and answers its clients.
    fn answer(&self, state: &mut ClaimsState, tx: &Transaction) {
        for member in tx.members.into_iter().flatten() {
            let MemberState::Committed { execution } = member.state else {
                continue;
            };
            if self.lacks(ClaimGuard::OneTransaction) {
                Self::record(state, member, execution, tx.now);
            }
            if !self.lacks(ClaimGuard::AnswerAfterCommit) {
                Self::tell(state, member, execution, execution, tx.now + RETENTION);
            }
        }
    }

    /// An answer that is lost counts as told: its client asks again, which is another request.
    fn tell(
        state: &mut ClaimsState,
        member: ClaimingMember,
        execution: u8,
        bytes: u8,
        expires_at: u8,
    ) {
        // Its window is over, and another one may be open.
        if expires_at <= state.clock {
            return;
        }
        let told = &mut state.told[usize::from(member.key)];
        let answer = ToldAnswer {
            execution,
            bytes,
            expires_at,
        };
        if told.is_some_and(|told| told.expires_at > state.clock && told != answer) {
            state.broken = Some(BrokenClaim::AnotherAnswer);
        }
        *told = Some(answer);
    }

    /// The process gives a transaction up, and PostgreSQL doesn't know yet.
    fn leave_behind(state: &mut ClaimsState, transaction: Transaction, is_committing: bool) {
        let holds = (0..2).any(|key| transaction.holds(key));
        let free = state.orphans.iter_mut().find(|orphan| orphan.is_none());
        if let Some(free) = free.filter(|_| holds || is_committing) {
            *free = Some(Orphan {
                transaction,
                is_committing,
            });
        }
    }

    /// No answer to COMMIT: the outcome is unknown, and the client gets 503.
    fn lose_acknowledgment(&self, state: &mut ClaimsState, process: usize) {
        let mut unknown = match state.workers[process] {
            Worker::Committing(tx) => {
                Self::leave_behind(state, tx, true);
                tx
            }
            Worker::Committed(tx) | Worker::Running(tx) => tx,
            Worker::Idle => return,
        };
        state.workers[process] = Worker::Idle;
        if self.lacks(ClaimGuard::UnknownCommit) {
            unknown.set_all(MemberState::Unclaimed);
            unknown.now = state.clock;
            state.workers[process] = Worker::Running(unknown);
        }
    }

    fn crash(state: &mut ClaimsState, process: usize) {
        match state.workers[process] {
            Worker::Running(tx) => Self::leave_behind(state, tx, false),
            Worker::Committing(tx) => Self::leave_behind(state, tx, true),
            Worker::Idle | Worker::Committed(_) => {}
        }
        state.workers[process] = Worker::Idle;
    }

    /// Transactions are short against the retention: none lasts for longer than a tick.
    fn may_tick(state: &ClaimsState) -> bool {
        let is_young = |tx: &Transaction| tx.now >= state.clock;
        let workers = state.workers.iter().all(|worker| match worker {
            Worker::Running(tx) | Worker::Committing(tx) => is_young(tx),
            Worker::Idle | Worker::Committed(_) => true,
        });
        let mut orphans = state.orphans.iter().flatten();
        state.clock < LAST_TICK && workers && orphans.all(|orphan| is_young(&orphan.transaction))
    }

    fn arrivals(&self, state: &ClaimsState, process: usize, actions: &mut Vec<ClaimsAction>) {
        let has_arrived = state.has_arrived;
        let gives_up = self.gives_up(ClaimGuard::AbandonInserts);
        if state.requests_left >= 1 && process == 1 && gives_up {
            actions.push(ClaimsAction::Arrives(process, 0, GIVEN_UP));
        }
        // The processes are alike, unless B's clock errs: the first request arrives at A, and a key
        // is given up at B.
        if process == 1 && !has_arrived[0] {
            return;
        }
        if state.requests_left >= 1 {
            let arrives = |(key, fingerprint)| ClaimsAction::Arrives(process, key, fingerprint);
            actions.extend(arrivals(has_arrived).map(arrives));
        }
        if state.requests_left >= 2 {
            for first in fingerprints(has_arrived, 0) {
                let batch = |second| ClaimsAction::Batch(process, [first, second]);
                actions.extend(fingerprints(has_arrived, 1).map(batch));
            }
        }
    }

    fn arrive(&self, state: &mut ClaimsState, process: usize, requests: [Option<(u8, u8)>; 2]) {
        let members = requests.map(|request| {
            let (key, fingerprint) = request?;
            state.has_arrived[usize::from(key)] |= fingerprint != GIVEN_UP;
            state.requests_left -= 1;
            Some(ClaimingMember {
                key,
                fingerprint,
                looked: false,
                state: MemberState::ToInsert,
            })
        });
        let mut tx = Transaction {
            now: state.clock,
            attempts_left: ATTEMPTS_MAX,
            members,
        };
        self.look(state, &mut tx);
        state.workers[process] = Worker::Running(tx);
    }

    fn sweep(&self, state: &mut ClaimsState, key: u8) {
        let index = usize::from(key);
        let deletes = state.rows[index].take().is_some();
        let is_late = self.lacks(ClaimGuard::RemembersAtOnce);
        // What is late remembers the key when it comes here again.
        state.sweep = (is_late && deletes).then_some(key);
        if let Some(tombstones) = &mut state.tombstones
            && state.sweep.is_none()
        {
            tombstones[index] = true;
        }
    }

    /// What a client was told of a key is recorded, unless a transaction has it now.
    fn is_kept(&self, state: &ClaimsState, key: u8) -> bool {
        let row = state.rows[usize::from(key)];
        state.told[usize::from(key)].is_none_or(|told| {
            told.expires_at <= state.clock
                || row.is_some_and(|row| row.execution == told.execution)
                || self.is_locked(state, key, 2)
        })
    }

    /// Whether no transaction is open, or something can still happen.
    fn goes_on(&self, state: &ClaimsState) -> bool {
        let is_idle = |worker: &Worker| *worker == Worker::Idle;
        let is_at_rest = state.workers.iter().all(is_idle)
            && state.orphans.iter().all(Option::is_none)
            && state.sweep.is_none();
        let mut actions = Vec::new();
        is_at_rest || {
            self.actions(state, &mut actions);
            !actions.is_empty()
        }
    }
}

impl Model for Claims {
    type State = ClaimsState;
    type Action = ClaimsAction;

    fn init_states(&self) -> Vec<ClaimsState> {
        let state = |tombstones| ClaimsState {
            clock: 0,
            rows: [None; KEYS],
            tombstones,
            workers: [Worker::Idle; 2],
            orphans: [None; 2],
            sweep: None,
            effects: 0,
            windows: [0; KEYS],
            is_given_up: [false; KEYS],
            told: [None; KEYS],
            has_arrived: [false; KEYS],
            requests_left: self.bounds.requests,
            faults_left: self.bounds.faults,
            broken: None,
        };
        let (forgets, remembers) = (state(None), state(Some([false; KEYS])));
        match self.without {
            // A scenario begins in the last one.
            None => vec![remembers, forgets],
            Some(guard) if OF_MEMORY.contains(&guard) => vec![remembers],
            Some(_) => vec![forgets],
        }
    }

    fn actions(&self, state: &ClaimsState, actions: &mut Vec<ClaimsAction>) {
        for process in 0..2 {
            match &state.workers[process] {
                Worker::Idle => self.arrivals(state, process, actions),
                Worker::Running(tx) => actions.push(match self.waits(state, process, tx) {
                    true => ClaimsAction::LockTimeout(process),
                    false => ClaimsAction::Statement(process),
                }),
                Worker::Committing(_) => actions.push(ClaimsAction::Commits(process)),
                Worker::Committed(_) => actions.push(ClaimsAction::Acknowledged(process)),
            }
            if state.faults_left > 0 && state.workers[process] != Worker::Idle {
                actions.push(ClaimsAction::Crashes(process));
                if !matches!(state.workers[process], Worker::Running(_)) {
                    actions.push(ClaimsAction::LosesAcknowledgment(process));
                }
            }
        }
        for (index, orphan) in state.orphans.iter().enumerate() {
            let Some(orphan) = orphan else { continue };
            if orphan.is_committing {
                actions.push(ClaimsAction::OrphanCommits(index));
            }
            if !self.lacks(ClaimGuard::IdleInTransactionTimeout) {
                actions.push(ClaimsAction::OrphanRollsBack(index));
            }
        }
        for key in 0..2 {
            let row = state.rows[usize::from(key)];
            let is_expired = row.is_some_and(|row| row.expires_at <= state.clock);
            // `SKIP LOCKED`
            if is_expired && state.sweep.is_none() && !self.is_locked(state, key, 2) {
                actions.push(ClaimsAction::SweepLocks(key));
            }
        }
        if let Some(key) = state.sweep {
            // With the guard, the sweep's own lock is the only one.
            let waits = self.lacks(ClaimGuard::SweepPredicate) && self.is_locked(state, key, 2);
            if !waits {
                actions.push(ClaimsAction::SweepCommits);
            }
            actions.push(ClaimsAction::SweepDies);
        }
        if Self::may_tick(state) {
            actions.push(ClaimsAction::Tick);
        }
    }

    fn next_state(&self, before: &ClaimsState, action: ClaimsAction) -> Option<ClaimsState> {
        let mut state = before.clone();
        match action {
            ClaimsAction::Arrives(process, key, fingerprint) => {
                self.arrive(&mut state, process, [Some((key, fingerprint)), None]);
            }
            ClaimsAction::Batch(process, [first, second]) => {
                self.arrive(&mut state, process, [Some((0, first)), Some((1, second))]);
            }
            ClaimsAction::Statement(process)
            | ClaimsAction::Commits(process)
            | ClaimsAction::Acknowledged(process) => self.step(&mut state, process)?,
            // `Claim::HeldElsewhere`: ROLLBACK, and 409. Members of a batch arrive again, alone.
            ClaimsAction::LockTimeout(process) => state.workers[process] = Worker::Idle,
            ClaimsAction::LosesAcknowledgment(process) => {
                state.faults_left -= 1;
                self.lose_acknowledgment(&mut state, process);
            }
            ClaimsAction::Crashes(process) => {
                state.faults_left -= 1;
                Self::crash(&mut state, process);
            }
            ClaimsAction::OrphanCommits(index) => {
                let mut orphan = state.orphans[index].take()?;
                self.commit(&mut state, &mut orphan.transaction);
            }
            ClaimsAction::OrphanRollsBack(index) => state.orphans[index] = None,
            ClaimsAction::SweepLocks(key) => state.sweep = Some(key),
            ClaimsAction::SweepCommits => {
                let key = state.sweep.take()?;
                self.sweep(&mut state, key);
            }
            ClaimsAction::SweepDies => state.sweep = None,
            ClaimsAction::Tick => state.clock += 1,
        }
        state.orphans.sort_by_key(Option::is_none);
        Some(state)
    }

    fn within_boundary(&self, state: &ClaimsState) -> bool {
        state.effects <= self.bounds.requests + 1
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always("at most one effect per window", |_, state| {
                state.broken != Some(BrokenClaim::EffectAgain)
            }),
            always("a key that is given up has no effect", |_, state| {
                state.broken != Some(BrokenClaim::EffectOfAGivenUpKey)
            }),
            always("one answer per window", |_, state| {
                state.broken != Some(BrokenClaim::AnotherAnswer)
            }),
            always("nothing acknowledged is lost", |model, state| {
                (0..2).all(|key| model.is_kept(state, key))
            }),
            always("every key ends", Self::goes_on),
            sometimes("an expired record is taken over", |_, state| {
                let is_stored = |key: &u8| state.rows[usize::from(*key)].is_some();
                let mut running = state.running();
                running.any(|tx| (0..2).filter(is_stored).any(|key| tx.holds(key)))
            }),
            sometimes(
                "a request with a key that was given up is answered",
                |_, state| {
                    let is_given_up = |row: Record| row.fingerprint == GIVEN_UP;
                    state.has_arrived[0]
                        && state.effects == 0
                        && state.rows[0].is_some_and(is_given_up)
                },
            ),
            sometimes("a remembered key is refused", |_, state| {
                let is_refusal = |told: ToldAnswer| told.execution == REFUSED;
                state.told[0].is_some_and(is_refusal)
            }),
            sometimes("a record vanishes", |_, state| {
                state.running().any(|tx| tx.attempts_left < ATTEMPTS_MAX)
            }),
            sometimes("a batch wins one key only", |_, state| {
                let is_lost = |tx: &Transaction| tx.has(MemberState::Lost);
                let mut workers = state.workers.iter();
                workers.any(|worker| matches!(worker, Worker::Committing(tx) if is_lost(tx)))
            }),
            sometimes("an unknown COMMIT is told of", |_, state| {
                // Its process is gone, and the retry was answered with what it had stored.
                state.effects == 1 && state.faults_left == 0 && state.told[0].is_some()
            }),
            sometimes("a key is used in three windows", |_, state| {
                let is_third = |row: Record| row.execution == 3 && row.expires_at > 2 * RETENTION;
                state.rows[0].is_some_and(is_third)
            }),
        ]
    }
}

impl Protocol for Claims {
    type Guard = ClaimGuard;

    const GUARDS: &[ClaimGuard] = &[
        ClaimGuard::UniqueIndex,
        ClaimGuard::ReadAfterConflict,
        ClaimGuard::ConditionalTakeover,
        ClaimGuard::SweepPredicate,
        ClaimGuard::DatabaseClock,
        ClaimGuard::OneTransaction,
        ClaimGuard::AnswerAfterCommit,
        ClaimGuard::UnknownCommit,
        ClaimGuard::Fingerprint,
        ClaimGuard::StoredBytes,
        ClaimGuard::WinnersOnly,
        ClaimGuard::AbandonInserts,
        ClaimGuard::AsksAfterInsert,
        ClaimGuard::RecallsExpired,
        ClaimGuard::RemembersAtOnce,
        ClaimGuard::IdleInTransactionTimeout,
    ];
    const NARROW: &[Bounds] = &[Bounds::of(3, 2)];
    const WIDE: &[Bounds] = &[Bounds::of(4, 1)];

    fn within(bounds: Bounds, without: Option<ClaimGuard>) -> Self {
        Self { without, bounds }
    }

    fn words(state: &ClaimsState, action: &ClaimsAction) -> String {
        let process = |process: usize, words: &str| format!("{}{words}", NAMES[process]);
        match *action {
            ClaimsAction::Arrives(at, key, GIVEN_UP) => {
                process(at, &format!(" begins to give {} up", key_name(key)))
            }
            ClaimsAction::Arrives(at, key, fingerprint) => format!(
                "{} arrives at {}, which begins",
                request_name(key, fingerprint),
                NAMES[at]
            ),
            ClaimsAction::Batch(at, fingerprints) => {
                let [first, second] = fingerprints.map(fingerprint_name);
                let at = NAMES[at];
                format!(
                    "requests {first} with key 1 and {second} with key 2 arrive at {at}, which \
                     begins a batch"
                )
            }
            ClaimsAction::Statement(of) => match &state.workers[of] {
                Worker::Running(tx) => format!("{}: {}", NAMES[of], tx.next_statement()),
                Worker::Idle | Worker::Committing(_) | Worker::Committed(_) => String::new(),
            },
            ClaimsAction::LockTimeout(of) => process(of, ": lock_timeout, held elsewhere"),
            ClaimsAction::Commits(of) => format!("PostgreSQL executes the COMMIT of {}", NAMES[of]),
            ClaimsAction::Acknowledged(of) => process(of, " hears of its COMMIT, and answers"),
            ClaimsAction::LosesAcknowledgment(of) => {
                process(of, " gets no answer to its COMMIT: unknown")
            }
            ClaimsAction::Crashes(of) => process(of, " dies, and is started again"),
            ClaimsAction::OrphanCommits(_) => {
                "PostgreSQL executes the COMMIT that was on its way".to_owned()
            }
            ClaimsAction::OrphanRollsBack(_) => {
                "PostgreSQL rolls back what was left behind".to_owned()
            }
            ClaimsAction::SweepLocks(key) => format!("the sweep finds {} expired", key_name(key)),
            ClaimsAction::SweepCommits => "the sweep deletes what it found".to_owned(),
            ClaimsAction::SweepDies => "the sweep dies".to_owned(),
            ClaimsAction::Tick => "the clock goes on".to_owned(),
        }
    }

    fn facts(state: &ClaimsState) -> Vec<String> {
        let mut facts = vec![format!("the clock shows {}", state.clock)];
        for key in 0..2u8 {
            let index = usize::from(key);
            let name = key_name(key);
            facts.push(match state.rows[index] {
                Some(row) => format!("{name} is recorded: {row}"),
                None if state.has_tombstone(key) => format!("{name} is remembered"),
                None => format!("{name} has no record"),
            });
            let told = state.told[index].map(|told| told.execution);
            if let Some(what @ (0 | REFUSED)) = told {
                let what = if what == REFUSED {
                    "expired"
                } else {
                    "given up"
                };
                facts.push(format!("a client was told that {name} is {what}"));
            } else if let Some(told) = state.told[index] {
                facts.push(format!(
                    "a client was told of {name}: execution {}, bytes {}",
                    told.execution, told.bytes
                ));
            }
        }
        facts.push(format!("effects committed: {}", state.effects));
        for (worker, name) in state.workers.iter().zip(NAMES) {
            let (what, tx) = match worker {
                Worker::Idle => {
                    facts.push(format!("{name} is idle"));
                    continue;
                }
                Worker::Running(tx) => ("is in a transaction", tx),
                Worker::Committing(tx) => ("has sent COMMIT", tx),
                Worker::Committed(tx) => ("has committed", tx),
            };
            let members = tx.members.iter().flatten();
            let members = members.map(|one| format!("{} {:?}", key_name(one.key), one.state));
            let members = members.collect::<Vec<_>>().join(", ");
            facts.push(format!("{name} {what}, now() = {}: {members}", tx.now));
        }
        facts.extend(state.broken.map(|broken| match broken {
            BrokenClaim::EffectAgain => "broken: two effects in one window".to_owned(),
            BrokenClaim::EffectOfAGivenUpKey => "broken: an effect of a key given up".to_owned(),
            BrokenClaim::AnotherAnswer => "broken: two answers in one window".to_owned(),
        }));
        facts
    }
}
