//! Batches that decide in memory and claim their keys last, beside requests that claim theirs
//! first: what they lock, in which order, and what a lost claim takes with it.
//!
//! Each request takes one unit of a row that all share, and is refused where none is left. A batch
//! locks and reads the row, decides its members, claims their keys, writes, and commits. A request
//! alone claims its key, locks the row, decides, writes, and commits. Nothing here expires. What
//! that adds, and sessions that outlive their process, is in [`claims`](crate::claims).

use stateright::{Model, Property};

use crate::{Bounds, Guarded, KEYS, NAMES, Protocol, key_name};

/// How many units the row has at first: enough for one key, or for all.
const UNITS: [u8; 2] = [1, 2];

/// What the model can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionGuard {
    /// `FOR NO KEY UPDATE`: a row that is read is locked until its transaction ends. Without it, it
    /// is only read.
    RowLock,
    /// A decision goes with its claim. Without it, a batch doesn't look at what its claims came to,
    /// and writes what it decided for all members.
    WinnersOnly,
    /// A change whose claim is lost takes the whole batch with it. Without it, only its own member,
    /// though those after it may have seen it.
    WholeBatch,
    /// A batch waits for a key for a short time. Without it, until no other transaction holds it.
    ShortWait,
    /// A client is answered after COMMIT. Without it, when COMMIT is sent.
    AnswerAfterCommit,
}

/// The model.
pub type Decisions = Guarded<DecisionGuard>;

/// What a request is answered, and its key's record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DecidedReply {
    Taken,
    Refused,
}

/// What became of a member's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum KeyClaim {
    ToInsert,
    Mine,
    /// The key has a record.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct DecidingMember {
    key: u8,
    claim: KeyClaim,
    decided: Option<DecidedReply>,
}

impl DecidingMember {
    /// Whether its change is thrown away.
    fn has_lost_a_change(&self) -> bool {
        self.claim == KeyClaim::Lost && self.decided == Some(DecidedReply::Taken)
    }
}

/// What a transaction does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum DecisionStage {
    /// It reads the records of its members' keys. Only batches do.
    Looks,
    /// It locks and reads the row, and decides.
    Locks,
    Claims,
    /// It writes, and sends COMMIT.
    Writes,
    /// COMMIT is sent.
    Commits,
    /// COMMIT is executed, and its acknowledgment on the way.
    Answers,
}

impl DecisionStage {
    fn words(self) -> &'static str {
        match self {
            Self::Looks => "reads the records of its keys",
            Self::Locks => "locks the row, reads it, and decides",
            Self::Claims => "claims, INSERT … ON CONFLICT DO NOTHING",
            Self::Writes => "writes, and COMMIT is sent",
            Self::Commits => "PostgreSQL executes the COMMIT",
            Self::Answers => "answers",
        }
    }
}

/// A transaction, of a batch or of a request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecidingTransaction {
    is_alone: bool,
    stage: DecisionStage,
    /// What the row had when it was read.
    seen: u8,
    /// In the order in which they are decided.
    members: [Option<DecidingMember>; KEYS],
}

impl DecidingTransaction {
    fn begin(stage: DecisionStage, keys: [Option<u8>; KEYS]) -> Self {
        let member = |key| DecidingMember {
            key,
            claim: KeyClaim::ToInsert,
            decided: None,
        };
        Self {
            is_alone: stage == DecisionStage::Claims,
            stage,
            seen: 0,
            members: keys.map(|key| key.map(member)),
        }
    }

    fn alone(key: u8) -> Self {
        Self::begin(DecisionStage::Claims, [Some(key), None])
    }

    fn batch(keys: [Option<u8>; KEYS]) -> Self {
        Self::begin(DecisionStage::Looks, keys)
    }

    fn is(&self, stage: DecisionStage) -> bool {
        self.stage == stage
    }

    fn any(&self, is_wanted: impl Fn(&DecidingMember) -> bool) -> bool {
        self.members.iter().flatten().any(is_wanted)
    }

    fn holds_key(&self, key: u8) -> bool {
        !self.is(DecisionStage::Answers)
            && self.any(|one| one.key == key && one.claim == KeyClaim::Mine)
    }

    fn holds_row(&self) -> bool {
        let has_decided = self.any(|one| one.decided.is_some());
        has_decided && !self.is(DecisionStage::Answers)
    }

    /// The next claim: keys in order, so that no two batches wait for keys in a circle.
    fn next_claim(&mut self) -> Option<&mut DecidingMember> {
        let members = self.members.iter_mut().flatten();
        let ahead = members.filter(|one| one.claim == KeyClaim::ToInsert);
        ahead.min_by_key(|one| one.key)
    }

    /// What a transaction is called in traces.
    fn name(&self) -> String {
        let keys = self.members.iter().flatten().map(|one| key_name(one.key));
        let keys = keys.collect::<Vec<_>>().join(" and ");
        match self.is_alone {
            true => format!("{keys} alone"),
            false => format!("the batch of {keys}"),
        }
    }
}

/// A state of [`Decisions`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DecisionsState {
    records: [Option<DecidedReply>; KEYS],
    /// What is left in the row.
    left: u8,
    /// What it had at first.
    units: u8,
    /// How many changes were committed for each key.
    effects: [u8; KEYS],
    told: [Option<DecidedReply>; KEYS],
    /// By process and least key: a process has one for a key at a time (`in_flight.rs`).
    transactions: [[Option<DecidingTransaction>; KEYS]; 2],
    has_arrived: [bool; KEYS],
    requests_left: u8,
    faults_left: u8,
    is_broken: bool,
}

impl DecisionsState {
    /// The open transactions, with their places.
    fn open(&self) -> impl Iterator<Item = ((usize, usize), &DecidingTransaction)> {
        (0..2 * KEYS).filter_map(|place| {
            let (process, slot) = (place / KEYS, place % KEYS);
            let tx = self.transactions[process][slot].as_ref()?;
            Some(((process, slot), tx))
        })
    }

    fn any(&self, is_wanted: impl Fn(&DecidingTransaction) -> bool) -> bool {
        self.open().any(|(_, tx)| is_wanted(tx))
    }
}

/// A step of [`Decisions`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionsAction {
    /// A request that runs alone comes to a process, or those of a batch, which are decided in this
    /// order.
    Arrives(usize, DecidingTransaction),
    /// The next statement of a process's transaction.
    Statement(usize, usize),
    /// A batch has waited too long: it is rolled back, and its members run alone.
    FallsApart(usize, usize),
    /// A request alone has waited too long: 409 or 503, and its key is free.
    GivesUp(usize, usize),
    /// A process dies, and PostgreSQL rolls its transactions back.
    Crashes(usize),
}

impl Decisions {
    /// Whether the next statement of a transaction waits for another one.
    fn waits(&self, state: &DecisionsState, process: usize, slot: usize) -> bool {
        let Some(mut tx) = state.transactions[process][slot] else {
            return false;
        };
        let mut others = state.open().filter(|(at, _)| *at != (process, slot));
        match tx.stage {
            DecisionStage::Locks => {
                !self.lacks(DecisionGuard::RowLock) && others.any(|(_, other)| other.holds_row())
            }
            DecisionStage::Claims => tx
                .next_claim()
                .is_some_and(|one| others.any(|(_, other)| other.holds_key(one.key))),
            DecisionStage::Looks
            | DecisionStage::Writes
            | DecisionStage::Commits
            | DecisionStage::Answers => false,
        }
    }

    /// Whether a batch that waits is given up soon.
    fn falls_apart(&self, tx: &DecidingTransaction) -> bool {
        let is_for_row = tx.is(DecisionStage::Locks);
        !tx.is_alone && (is_for_row || !self.lacks(DecisionGuard::ShortWait))
    }

    fn put(state: &mut DecisionsState, process: usize, tx: DecidingTransaction) {
        let least = tx.members.iter().flatten().map(|one| one.key).min();
        if let Some(slot) = least {
            state.transactions[process][usize::from(slot)] = Some(tx);
        }
    }

    fn arrive(state: &mut DecisionsState, process: usize, tx: DecidingTransaction) {
        for member in tx.members.iter().flatten() {
            state.has_arrived[usize::from(member.key)] = true;
            state.requests_left -= 1;
        }
        Self::put(state, process, tx);
    }

    /// The batch is rolled back, and its members run alone.
    fn fall_apart(state: &mut DecisionsState, process: usize, tx: &DecidingTransaction) {
        for member in tx.members.iter().flatten() {
            let alone = DecidingTransaction::alone(member.key);
            Self::put(state, process, alone);
        }
    }

    /// For speed only: members whose keys have records are answered, and need no lock.
    fn look(state: &mut DecisionsState, tx: &mut DecidingTransaction) {
        for place in &mut tx.members {
            let key = place.map(|member| usize::from(member.key));
            if let Some(key) = key.filter(|key| state.records[*key].is_some()) {
                state.told[key] = state.records[key];
                *place = None;
            }
        }
        tx.stage = DecisionStage::Locks;
    }

    /// Reads the row, and decides each member in memory, which sees what those before it changed.
    fn decide(state: &DecisionsState, tx: &mut DecidingTransaction) {
        tx.seen = state.left;
        let mut left = tx.seen;
        for member in tx.members.iter_mut().flatten() {
            member.decided = Some(Self::decision(&mut left));
        }
        tx.stage = match tx.is_alone {
            true => DecisionStage::Writes,
            false => DecisionStage::Claims,
        };
    }

    fn decision(left: &mut u8) -> DecidedReply {
        match left.checked_sub(1) {
            Some(rest) => {
                *left = rest;
                DecidedReply::Taken
            }
            None => DecidedReply::Refused,
        }
    }

    /// INSERT … ON CONFLICT DO NOTHING, of one key. A request alone ends where it met a record.
    fn claim(state: &mut DecisionsState, tx: &mut DecidingTransaction) {
        let is_alone = tx.is_alone;
        if let Some(member) = tx.next_claim() {
            member.claim = match state.records[usize::from(member.key)] {
                None => KeyClaim::Mine,
                Some(_) => KeyClaim::Lost,
            };
        }
        let is_lost = tx.any(|one| one.claim == KeyClaim::Lost);
        tx.stage = match (is_alone, is_lost) {
            (true, true) => DecisionStage::Answers,
            (true, false) => DecisionStage::Locks,
            (false, _) if tx.next_claim().is_some() => DecisionStage::Claims,
            (false, _) => DecisionStage::Writes,
        };
    }

    fn commit(&self, state: &mut DecisionsState, tx: &mut DecidingTransaction) {
        let (mut rest, mut written) = (state.left, tx.seen);
        for member in tx.members.iter().flatten() {
            let key = usize::from(member.key);
            let is_won = member.claim == KeyClaim::Mine;
            if !is_won && !self.lacks(DecisionGuard::WinnersOnly) {
                continue;
            }
            // One after the other, on the committed row, the requests would be decided alike.
            state.is_broken |= Some(Self::decision(&mut rest)) != member.decided;
            let has_changed = u8::from(member.decided == Some(DecidedReply::Taken));
            written -= has_changed;
            state.effects[key] += has_changed;
            if is_won {
                state.records[key] = member.decided;
            }
        }
        // A row that nothing changed is not written.
        if written != tx.seen {
            state.left = written;
        }
        tx.stage = DecisionStage::Answers;
    }

    /// Each member has what it decided, or what is stored under its key. An answer that is lost
    /// counts as told: its client asks again, which is another request.
    fn answer(state: &mut DecisionsState, tx: &DecidingTransaction) {
        for member in tx.members.iter().flatten() {
            let reply = match member.claim {
                KeyClaim::Lost => state.records[usize::from(member.key)],
                KeyClaim::Mine | KeyClaim::ToInsert => member.decided,
            };
            state.told[usize::from(member.key)] = reply;
        }
    }

    fn statement(&self, state: &mut DecisionsState, process: usize, slot: usize) -> Option<()> {
        let mut tx = state.transactions[process][slot].take()?;
        match tx.stage {
            DecisionStage::Looks => Self::look(state, &mut tx),
            DecisionStage::Locks => Self::decide(state, &mut tx),
            DecisionStage::Claims => Self::claim(state, &mut tx),
            DecisionStage::Writes => {
                let goes_on =
                    self.lacks(DecisionGuard::WinnersOnly) || self.lacks(DecisionGuard::WholeBatch);
                if tx.any(DecidingMember::has_lost_a_change) && !goes_on {
                    Self::fall_apart(state, process, &tx);
                    return Some(());
                }
                if self.lacks(DecisionGuard::AnswerAfterCommit) {
                    Self::answer(state, &tx);
                }
                tx.stage = DecisionStage::Commits;
            }
            DecisionStage::Commits => self.commit(state, &mut tx),
            DecisionStage::Answers => {
                Self::answer(state, &tx);
                return Some(());
            }
        }
        Self::put(state, process, tx);
        Some(())
    }

    /// What a client was told of a key is recorded, unless a transaction has it now.
    fn is_told_right(state: &DecisionsState, key: u8) -> bool {
        let index = usize::from(key);
        state.told[index].is_none()
            || state.told[index] == state.records[index]
            || state.any(|tx| tx.holds_key(key))
    }

    /// Whether no transaction is open, or one can go on that is not at its limit: a fault is no way
    /// out of a circle.
    fn goes_on(&self, state: &DecisionsState) -> bool {
        let mut transactions = state.open();
        let can_go_on =
            |((process, slot), tx)| !self.waits(state, process, slot) || self.falls_apart(tx);
        transactions.any(can_go_on) || state.open().next().is_none()
    }

    /// Whether a batch waits for a key whose request waits for the row of the batch.
    fn has_a_circle(&self, state: &DecisionsState) -> bool {
        let is_waiting = |is_alone: bool, stage: DecisionStage| {
            state.open().any(|((process, slot), tx)| {
                (tx.is_alone, tx.stage) == (is_alone, stage) && self.waits(state, process, slot)
            })
        };
        is_waiting(true, DecisionStage::Locks) && is_waiting(false, DecisionStage::Claims)
    }

    fn arrivals(state: &DecisionsState, process: usize, actions: &mut Vec<DecisionsAction>) {
        // Keys have no order: the first one that is used is called 1.
        let keys = 0..=u8::from(state.has_arrived[0]);
        let is_free = |key: u8| {
            let mut open = state.transactions[process].iter().flatten();
            open.all(|tx| !tx.any(|one| one.key == key))
        };
        for key in keys.filter(|key| is_free(*key)) {
            let mut arrives = |tx| actions.push(DecisionsAction::Arrives(process, tx));
            if state.requests_left >= 1 {
                arrives(DecidingTransaction::alone(key));
                arrives(DecidingTransaction::batch([Some(key), None]));
            }
            if state.requests_left >= 2 && is_free(1 - key) {
                arrives(DecidingTransaction::batch([Some(key), Some(1 - key)]));
            }
        }
    }
}

impl Model for Decisions {
    type State = DecisionsState;
    type Action = DecisionsAction;

    fn init_states(&self) -> Vec<DecisionsState> {
        let state = |units| DecisionsState {
            records: [None; KEYS],
            left: units,
            units,
            effects: [0; KEYS],
            told: [None; KEYS],
            transactions: [[None; KEYS]; 2],
            has_arrived: [false; KEYS],
            requests_left: self.bounds.requests,
            faults_left: self.bounds.faults,
            is_broken: false,
        };
        UNITS.map(state).to_vec()
    }

    fn actions(&self, state: &DecisionsState, actions: &mut Vec<DecisionsAction>) {
        let has_fault = state.faults_left > 0;
        for process in 0..2 {
            // The processes are alike: the first request arrives at A.
            if process == 0 || state.has_arrived[0] {
                Self::arrivals(state, process, actions);
            }
            if has_fault && state.transactions[process].iter().any(Option::is_some) {
                actions.push(DecisionsAction::Crashes(process));
            }
        }
        for ((process, slot), tx) in state.open() {
            if !self.waits(state, process, slot) {
                actions.push(DecisionsAction::Statement(process, slot));
            } else if self.falls_apart(tx) {
                actions.push(DecisionsAction::FallsApart(process, slot));
            } else if tx.is_alone && has_fault {
                actions.push(DecisionsAction::GivesUp(process, slot));
            }
        }
    }

    fn next_state(&self, before: &DecisionsState, action: DecisionsAction) -> Option<Self::State> {
        let mut state = before.clone();
        match action {
            DecisionsAction::Arrives(process, tx) => Self::arrive(&mut state, process, tx),
            DecisionsAction::Statement(process, slot) => {
                self.statement(&mut state, process, slot)?;
            }
            DecisionsAction::FallsApart(process, slot) => {
                let tx = state.transactions[process][slot].take()?;
                Self::fall_apart(&mut state, process, &tx);
            }
            DecisionsAction::GivesUp(process, slot) => {
                state.faults_left -= 1;
                state.transactions[process][slot] = None;
            }
            DecisionsAction::Crashes(process) => {
                state.faults_left -= 1;
                state.transactions[process] = [None; KEYS];
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always("at most one effect per key", |_, state| {
                state.effects.iter().all(|count| *count <= 1)
            }),
            always("the row is what its effects left", |_, state| {
                state.left + state.effects.iter().sum::<u8>() == state.units
            }),
            always("a reply is stored with its effect", |_, state| {
                let mut keys = state.records.iter().zip(state.effects);
                keys.all(|(record, count)| (*record == Some(DecidedReply::Taken)) == (count > 0))
            }),
            always("a client is told what is stored", |_, state| {
                (0..2).all(|key| Self::is_told_right(state, key))
            }),
            always("a decision saw what is committed", |_, state| {
                !state.is_broken
            }),
            always("every request ends", Self::goes_on),
            sometimes("a batch waits in a circle", Self::has_a_circle),
            sometimes("a batch is thrown away with a lost claim", |_, state| {
                let is_lost = DecidingMember::has_lost_a_change;
                state.any(|tx| tx.is(DecisionStage::Writes) && tx.any(is_lost))
            }),
            sometimes("a batch commits without a lost refusal", |_, state| {
                state.any(|tx| {
                    let has = |claim| tx.any(|one| one.claim == claim);
                    tx.is(DecisionStage::Answers) && has(KeyClaim::Lost) && has(KeyClaim::Mine)
                })
            }),
            sometimes("a member is refused what another took", |_, state| {
                state.any(|tx| {
                    let has = |reply| tx.any(|one| one.decided == Some(reply));
                    let is_committed = tx.is(DecisionStage::Answers);
                    is_committed && has(DecidedReply::Taken) && has(DecidedReply::Refused)
                })
            }),
        ]
    }
}

impl Protocol for Decisions {
    type Guard = DecisionGuard;

    const GUARDS: &[DecisionGuard] = &[
        DecisionGuard::RowLock,
        DecisionGuard::WinnersOnly,
        DecisionGuard::WholeBatch,
        DecisionGuard::ShortWait,
        DecisionGuard::AnswerAfterCommit,
    ];
    const NARROW: &[Bounds] = &[Bounds::of(4, 2)];
    const WIDE: &[Bounds] = &[Bounds::of(6, 2)];

    fn within(bounds: Bounds, without: Option<DecisionGuard>) -> Self {
        Self { without, bounds }
    }

    fn words(state: &DecisionsState, action: &DecisionsAction) -> String {
        let name = |process: usize, slot: usize| {
            let tx = state.transactions[process][slot];
            let name = tx.map_or_else(String::new, |tx| tx.name());
            format!("{}, {name}", NAMES[process])
        };
        match *action {
            DecisionsAction::Arrives(process, tx) => {
                format!("{}, {}: arrives, and begins", NAMES[process], tx.name())
            }
            DecisionsAction::Statement(process, slot) => {
                let stage = state.transactions[process][slot].map(|tx| tx.stage);
                let words = stage.map_or("", DecisionStage::words);
                format!("{}: {words}", name(process, slot))
            }
            DecisionsAction::FallsApart(process, slot) => {
                let name = name(process, slot);
                format!("{name}: has waited, is rolled back, and its members run alone")
            }
            DecisionsAction::GivesUp(process, slot) => {
                format!("{}: lock_timeout, rolled back", name(process, slot))
            }
            DecisionsAction::Crashes(process) => {
                format!("{} dies, and is started again", NAMES[process])
            }
        }
    }

    fn facts(state: &DecisionsState) -> Vec<String> {
        let mut facts = vec![format!("the row has {} of {}", state.left, state.units)];
        for key in 0..2u8 {
            let (index, name) = (usize::from(key), key_name(key));
            facts.push(match state.records[index] {
                Some(reply) => format!("{name} is recorded: {reply:?}"),
                None => format!("{name} has no record"),
            });
            facts.push(format!("effects of {name}: {}", state.effects[index]));
            if let Some(reply) = state.told[index] {
                facts.push(format!("a client was told of {name}: {reply:?}"));
            }
        }
        for ((process, _), tx) in state.open() {
            let name = format!("{}, {}", NAMES[process], tx.name());
            for member in tx.members.iter().flatten() {
                let key = key_name(member.key);
                if member.claim != KeyClaim::ToInsert {
                    facts.push(format!("{name}: the claim of {key} is {:?}", member.claim));
                }
                if let Some(reply) = member.decided {
                    facts.push(format!("{name}: {key} is decided, {reply:?}"));
                }
            }
        }
        if state.is_broken {
            facts.push("broken: a decision on what never was".to_owned());
        }
        facts
    }
}
