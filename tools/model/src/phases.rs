//! An effect at a processor: leases, fencing tokens, takeovers by retries and by the reconciler,
//! messages that are lost or late, and a person who resolves.
//!
//! A step is one transaction of `phases/`, or one thing that a network does; what happens inside of
//! a transaction that claims is in [`claims`](crate::claims). Of a lease, only how much of it is
//! left matters. The processor executes an operation at most once, and may forget it long
//! afterwards.

mod told;

use stateright::{Model, Property};

use crate::{Bounds, GIVEN_UP, Guarded, KEYS, NAMES, Protocol, arrivals, key_name, request_name};

/// Enough for every operation that a run can begin, and every key that it can ask under.
const OPERATIONS: usize = 6;

/// In the place of an operation, for a key that was given up.
const NO_OPERATION: u8 = OPERATIONS as u8;

/// How long a lease lasts, in ticks.
const LEASE: u8 = 2;

/// How often time goes on while a process works or a message is on its way. Where nothing else can
/// happen, it goes on for as long as a lease lasts.
const TICKS: u8 = 2;

/// `ROUNDS_MAX`, after the first one.
const ROUNDS_LEFT: u8 = 1;

/// What the model can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhasesGuard {
    /// `hold`: only the holder of the row's token completes or releases (the fencing token).
    Fence,
    /// `may_begin`: a request that lost its operation begins no second one.
    MayBegin,
    /// An operation that was taken over, or got no answer, is in doubt: "not executed" about the
    /// last attempt frees nothing.
    InDoubt,
    /// Silence is no answer. Without it, a call without an answer counts as not executed.
    SilenceIsUnknown,
    /// A takeover asks under the operation's own key. Without it, under a new one.
    OneDownstreamKey,
    /// The sweep deletes completed records only. Without it, rows in flight too.
    SweepPredicate,
    /// The first transaction is committed before the call. Without it, it is open meanwhile.
    CommitBeforeCall,
    /// The processor refuses what arrives after the sender's lease (`not_after`).
    NotAfter,
    /// An operation that the processor may have forgotten is only looked up (`send_again_within`).
    SendAgainWithin,
    /// A person resolves only what has only been looked up for long (`BY_HAND_AFTER`). Without it,
    /// as soon as no process has the lease.
    ByHandAfter,
    /// `abandon`: a key in flight is not given up. Without it, its row is overwritten.
    AbandonWaits,
    /// Operations that no request works on are taken over.
    Reconciler,
}

/// The model.
pub type PhasesModel = Guarded<PhasesGuard>;

/// A committed row of `idempotency_keys`, with its row of `idempotency_leases`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct KeyRow {
    fingerprint: u8,
    operation: u8,
    state: RowState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RowState {
    /// `left`: of the lease. 0: it is over.
    InFlight {
        token: u8,
        left: u8,
    },
    Completed {
        is_done: bool,
    },
}

impl KeyRow {
    fn is_in_flight(&self) -> bool {
        matches!(self.state, RowState::InFlight { .. })
    }

    fn is_lease_over(&self) -> bool {
        matches!(self.state, RowState::InFlight { left: 0, .. })
    }

    fn left_mut(&mut self) -> Option<&mut u8> {
        match &mut self.state {
            RowState::InFlight { left, .. } => Some(left),
            RowState::Completed { .. } => None,
        }
    }
}

/// A request at a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct PhasesRequest {
    key: u8,
    fingerprint: u8,
    number: u8,
    may_begin: bool,
    rounds_left: u8,
}

/// What a holder knows of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct HeldLease {
    key: u8,
    operation: u8,
    /// What it asks the processor under: the operation, if no guard is missing.
    asks_under: u8,
    token: u8,
    left: u8,
    in_doubt: bool,
    /// `None`: the reconciler, or a person.
    request: Option<PhasesRequest>,
    /// A guard is missing: the first transaction is still open.
    is_uncommitted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Called {
    Answered { is_done: bool },
    NotExecuted,
    Unknown,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    Idle,
    /// It claims again, after it lost its lease.
    Claiming(PhasesRequest),
    /// It is about to call.
    Holding(HeldLease),
    Calling(HeldLease),
    /// It is about to write what the call came to.
    Answered(HeldLease, Called),
    /// It asks the processor for a person.
    Deciding(HeldLease),
}

impl Holder {
    fn lease_mut(&mut self) -> Option<&mut HeldLease> {
        match self {
            Self::Holding(lease)
            | Self::Calling(lease)
            | Self::Answered(lease, _)
            | Self::Deciding(lease) => Some(lease),
            Self::Idle | Self::Claiming(_) => None,
        }
    }

    fn lease(mut self) -> Option<HeldLease> {
        self.lease_mut().copied()
    }
}

/// An instruction on its way to the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Message {
    asks_under: u8,
    /// How long the processor may still execute it.
    left: u8,
    /// The process that waits for the answer.
    awaited_by: Option<u8>,
}

/// What the processor knows of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum AtProcessor {
    Unknown,
    Done,
    Declined,
    /// It was done, and the processor no longer remembers.
    Forgotten,
}

/// What was begun, for the properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct BegunOperation {
    key: u8,
    window: u8,
    request: u8,
    at_processor: AtProcessor,
    /// It is so old that the processor may forget it.
    is_old: bool,
}

impl BegunOperation {
    fn had_effect(&self) -> bool {
        let what = self.at_processor;
        matches!(what, AtProcessor::Done | AtProcessor::Forgotten)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum BrokenPhase {
    EffectAgain,
    EffectOfARequestAgain,
    EffectOfAGivenUpKey,
    AnotherAnswer,
}

/// A state of [`PhasesModel`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PhasesState {
    rows: [Option<KeyRow>; KEYS],
    /// How many windows of each key are over.
    windows: [u8; KEYS],
    holders: [Holder; 2],
    messages: [Option<Message>; 3],
    operations: [Option<BegunOperation>; OPERATIONS],
    /// The operation, and whether it was done, that a client was told in this window.
    told: [Option<(u8, bool)>; KEYS],
    has_arrived: [bool; KEYS],
    requests_left: u8,
    faults_left: u8,
    ticks_left: u8,
    expiries_left: u8,
    agings_left: u8,
    broken: Option<BrokenPhase>,
}

impl PhasesState {
    fn leases(&self) -> impl Iterator<Item = HeldLease> {
        self.holders.iter().filter_map(|holder| holder.lease())
    }

    fn is_awaited_by(&self, process: usize) -> bool {
        let messages = self.messages.iter().flatten();
        let mut awaited_by = messages.filter_map(|one| one.awaited_by);
        awaited_by.any(|one| usize::from(one) == process)
    }

    /// Takes a fault, if this is one.
    fn fault(&mut self, is_one: bool) {
        self.faults_left -= u8::from(is_one);
    }
}

/// A step of [`PhasesModel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhasesAction {
    /// A request with this key and this fingerprint comes to a process, which claims its key;
    /// whether the process dies, or gives up, between COMMIT and its acknowledgment.
    Arrives(usize, u8, u8, bool),
    /// A process claims again after it lost its lease.
    ClaimsAgain(usize),
    /// A holder sends its instruction.
    Calls(usize),
    /// A holder learns that its instruction can't be sent.
    CannotSend(usize),
    /// The processor gets an instruction; whether it is done, if the processor executes it now, and
    /// whether the answer is lost.
    Delivered(usize, bool, bool),
    /// An instruction is lost.
    MessageLost(usize),
    /// A holder waits no longer.
    CallTimeout(usize),
    /// A process writes the outcome; whether COMMIT is executed and its acknowledgment is lost.
    Completes(usize, bool),
    /// A process dies.
    Dies(usize),
    /// The reconciler of a process takes over the operation of a key.
    Recovers(usize, u8),
    /// A person resolves the operation of a key, with a process that takes it over.
    Resolves(usize, u8),
    /// The person's process asks the processor what became of the operation.
    Decides(usize),
    /// A key is given up.
    Abandons(u8),
    /// A completed record expires, and is swept.
    Expires(u8),
    /// The sweep deletes a row in flight: a guard is missing.
    SweptInFlight(u8),
    /// An operation becomes so old that the processor may forget it, completed or not.
    Ages(u8),
    /// The processor forgets an old operation.
    Forgets(u8),
    /// Time goes on.
    TimeGoesOn,
}

impl PhasesModel {
    /// Begins an operation: its number.
    fn begin(state: &mut PhasesState, key: u8, request: u8) -> Option<u8> {
        let free = state.operations.iter().position(Option::is_none)?;
        state.operations[free] = Some(BegunOperation {
            key,
            window: state.windows[usize::from(key)],
            request,
            at_processor: AtProcessor::Unknown,
            is_old: false,
        });
        u8::try_from(free).ok()
    }

    /// The claim of a request, and the takeover of what it finds in flight.
    fn claim(&self, state: &mut PhasesState, request: PhasesRequest) -> Option<Holder> {
        let index = usize::from(request.key);
        let is_open = |lease: HeldLease| lease.key == request.key && lease.is_uncommitted;
        if state.leases().any(is_open) {
            // `Claim::HeldElsewhere`
            return Some(Holder::Idle);
        }
        match state.rows[index] {
            None if !request.may_begin && !self.lacks(PhasesGuard::MayBegin) => Some(Holder::Idle),
            None => {
                let operation = Self::begin(state, request.key, request.number)?;
                let is_uncommitted = self.lacks(PhasesGuard::CommitBeforeCall);
                if !is_uncommitted {
                    let (token, left) = (1, LEASE);
                    state.rows[index] = Some(KeyRow {
                        fingerprint: request.fingerprint,
                        operation,
                        state: RowState::InFlight { token, left },
                    });
                }
                Some(Holder::Holding(HeldLease {
                    key: request.key,
                    operation,
                    asks_under: operation,
                    token: 1,
                    left: LEASE,
                    in_doubt: false,
                    request: Some(request),
                    is_uncommitted,
                }))
            }
            Some(row) if ![request.fingerprint, GIVEN_UP].contains(&row.fingerprint) => {
                Some(Holder::Idle)
            }
            Some(row) => {
                if let RowState::Completed { is_done } = row.state {
                    Self::tell(state, request.key, row.operation, is_done);
                }
                let taken = self.take_over(state, request.key, Some(request));
                Some(taken.map_or(Holder::Idle, Holder::Holding))
            }
        }
    }

    /// `abandon`: a row that exists is told of, and a key in flight is 409.
    fn abandon(&self, state: &mut PhasesState, key: u8) {
        let index = usize::from(key);
        state.requests_left -= 1;
        let is_open = |lease: HeldLease| lease.key == key && lease.is_uncommitted;
        let is_overwritten =
            |row: KeyRow| row.is_in_flight() && self.lacks(PhasesGuard::AbandonWaits);
        match state.rows[index] {
            _ if state.leases().any(is_open) => return,
            Some(row) if !is_overwritten(row) => {
                if let RowState::Completed { is_done } = row.state {
                    Self::tell(state, key, row.operation, is_done);
                }
                return;
            }
            Some(_) | None => {}
        }
        let operations = state.operations.iter().flatten();
        let mut of_window =
            operations.filter(|one| (one.key, one.window) == (key, state.windows[index]));
        if of_window.any(BegunOperation::had_effect) {
            state.broken = Some(BrokenPhase::EffectOfAGivenUpKey);
        }
        state.rows[index] = Some(KeyRow {
            fingerprint: GIVEN_UP,
            operation: NO_OPERATION,
            state: RowState::Completed { is_done: false },
        });
        Self::tell(state, key, NO_OPERATION, false);
    }

    /// `take_over`: of a lease that is over. The operation is in doubt from here on.
    fn take_over(
        &self,
        state: &mut PhasesState,
        key: u8,
        request: Option<PhasesRequest>,
    ) -> Option<HeldLease> {
        let row = state.rows[usize::from(key)].as_mut()?;
        let operation = row.operation;
        let RowState::InFlight { token, left: 0 } = row.state else {
            return None;
        };
        // Fresh: no holder of this operation had it before.
        let (token, left) = (token + 1, LEASE);
        row.state = RowState::InFlight { token, left };
        let begun = state.operations[usize::from(operation)]?;
        let asks_under = match self.lacks(PhasesGuard::OneDownstreamKey) {
            true => Self::begin(state, key, begun.request)?,
            false => operation,
        };
        Some(HeldLease {
            key,
            operation,
            asks_under,
            token,
            left: LEASE,
            in_doubt: !self.lacks(PhasesGuard::InDoubt),
            request,
            is_uncommitted: false,
        })
    }

    /// `call`: nothing is sent with too little of the lease left.
    fn call(&self, state: &mut PhasesState, process: usize, lease: HeldLease) -> Option<Holder> {
        if lease.left == 0 {
            return Some(Holder::Answered(lease, Called::NotExecuted));
        }
        let begun = state.operations[usize::from(lease.asks_under)]?;
        if begun.is_old && !self.lacks(PhasesGuard::SendAgainWithin) {
            return Some(Holder::Answered(lease, Self::look_up(begun)));
        }
        let free = state.messages.iter_mut().find(|one| one.is_none())?;
        *free = Some(Message {
            asks_under: lease.asks_under,
            left: lease.left,
            awaited_by: u8::try_from(process).ok(),
        });
        Some(Holder::Calling(lease))
    }

    /// The processor gets an instruction, and answers.
    fn execute(&self, state: &mut PhasesState, message: Message, is_done: bool) -> Option<Called> {
        let index = usize::from(message.asks_under);
        let begun = state.operations[index]?;
        let is_late = message.left == 0 && !self.lacks(PhasesGuard::NotAfter);
        let known = Self::look_up(begun);
        if known != Called::Unknown {
            return Some(known);
        }
        if is_late {
            return Some(Called::NotExecuted);
        }
        if is_done {
            Self::have_effect(state, index, begun);
        }
        state.operations[index].as_mut()?.at_processor = match is_done {
            true => AtProcessor::Done,
            false => AtProcessor::Declined,
        };
        Some(Called::Answered { is_done })
    }

    fn have_effect(state: &mut PhasesState, index: usize, begun: BegunOperation) {
        let key = usize::from(begun.key);
        let is_given_up = state.rows[key].is_some_and(|row| row.operation == NO_OPERATION);
        if is_given_up && state.windows[key] == begun.window {
            state.broken = Some(BrokenPhase::EffectOfAGivenUpKey);
        }
        for (other, earlier) in state.operations.iter().enumerate() {
            let Some(earlier) = earlier.filter(BegunOperation::had_effect) else {
                continue;
            };
            if (earlier.key, earlier.window) == (begun.key, begun.window) {
                state.broken = Some(BrokenPhase::EffectAgain);
            } else if earlier.request == begun.request && other != index {
                state.broken = Some(BrokenPhase::EffectOfARequestAgain);
            }
        }
    }

    /// `complete_once`: what the process is, after it. `is_lost`: it does not hear of its COMMIT.
    fn complete(&self, state: &mut PhasesState, lease: HeldLease, called: Called) -> Holder {
        let index = usize::from(lease.key);
        let is_held = |row: &KeyRow| match row.state {
            RowState::InFlight { token, .. } => {
                (row.operation, token) == (lease.operation, lease.token)
                    || self.lacks(PhasesGuard::Fence)
            }
            RowState::Completed { .. } => false,
        };
        let fingerprint = match state.rows[index] {
            Some(row) if is_held(&row) => row.fingerprint,
            None if lease.is_uncommitted => lease.request.map_or(0, |request| request.fingerprint),
            None | Some(_) => {
                return match lease.request {
                    Some(request) if request.rounds_left > 0 => Holder::Claiming(PhasesRequest {
                        may_begin: false,
                        rounds_left: request.rounds_left - 1,
                        ..request
                    }),
                    Some(_) | None => Holder::Idle,
                };
            }
        };
        let is_certain = !lease.in_doubt
            && (called == Called::NotExecuted || self.lacks(PhasesGuard::SilenceIsUnknown));
        match called {
            Called::Answered { is_done } => {
                state.rows[index] = Some(KeyRow {
                    fingerprint,
                    operation: lease.operation,
                    state: RowState::Completed { is_done },
                });
                Self::tell(state, lease.key, lease.operation, is_done);
            }
            Called::NotExecuted | Called::Unknown if is_certain => state.rows[index] = None,
            Called::NotExecuted | Called::Unknown => {
                let row = state.rows[index].as_mut();
                if let Some(left) = row.and_then(KeyRow::left_mut) {
                    *left = 0;
                }
            }
        }
        Holder::Idle
    }

    /// An answer that is lost counts as told: its client asks again, which is another request.
    fn tell(state: &mut PhasesState, key: u8, operation: u8, is_done: bool) {
        let told = &mut state.told[usize::from(key)];
        if told.is_some_and(|told| told != (operation, is_done)) {
            state.broken = Some(BrokenPhase::AnotherAnswer);
        }
        *told = Some((operation, is_done));
    }

    /// What the processor still knows. "Not found" is no answer.
    fn look_up(begun: BegunOperation) -> Called {
        match begun.at_processor {
            AtProcessor::Done => Called::Answered { is_done: true },
            AtProcessor::Declined => Called::Answered { is_done: false },
            AtProcessor::Unknown | AtProcessor::Forgotten => Called::Unknown,
        }
    }

    /// A person finds out from those who run the processor what became of an operation.
    fn decide(state: &PhasesState, lease: HeldLease) -> Option<Holder> {
        let begun = state.operations[usize::from(lease.operation)]?;
        let called = match begun.at_processor {
            AtProcessor::Unknown => Called::NotExecuted,
            AtProcessor::Forgotten => Called::Answered { is_done: true },
            AtProcessor::Done | AtProcessor::Declined => Self::look_up(begun),
        };
        Some(Holder::Answered(lease, called))
    }

    /// What a client was told of a key is recorded, and an effect that it was told of was had.
    fn is_kept(state: &PhasesState, key: usize) -> bool {
        let Some((operation, is_done)) = state.told[key] else {
            return true;
        };
        let begun = state.operations.get(usize::from(operation));
        let had_effect = begun.is_some_and(|begun| begun.is_some_and(|one| one.had_effect()));
        let is_recorded =
            state.rows[key].is_some_and(|row| !row.is_in_flight() && row.operation == operation);
        is_recorded && (had_effect || !is_done)
    }

    /// Whether nothing is in flight, or something can still happen.
    fn goes_on(&self, state: &PhasesState) -> bool {
        let in_flight = state.rows.iter().flatten().any(KeyRow::is_in_flight);
        let is_at_rest = Self::has_idle_holders(state) && !in_flight;
        let mut actions = Vec::new();
        is_at_rest || {
            self.actions(state, &mut actions);
            !actions.is_empty()
        }
    }

    fn facts_of_processor(state: &PhasesState) -> Vec<String> {
        let mut facts = Vec::new();
        for (number, begun) in (1..).zip(state.operations.iter().flatten()) {
            if begun.at_processor != AtProcessor::Unknown {
                let (key, what) = (key_name(begun.key), begun.at_processor);
                facts.push(format!(
                    "at the processor, operation {number} of {key} is {what:?}"
                ));
            }
        }
        for message in state.messages.iter().flatten() {
            facts.push(format!(
                "the instruction for operation {} is on its way, in time for {} more",
                message.asks_under + 1,
                message.left
            ));
        }
        facts
    }

    fn no_longer_awaited(state: &mut PhasesState, process: usize) {
        for message in state.messages.iter_mut().flatten() {
            if message.awaited_by.map(usize::from) == Some(process) {
                message.awaited_by = None;
            }
        }
    }

    fn time_goes_on(state: &mut PhasesState) {
        let rows = state.rows.iter_mut().flatten();
        let leases = state.holders.iter_mut().filter_map(Holder::lease_mut);
        let messages = state.messages.iter_mut().flatten();
        let all = rows.filter_map(KeyRow::left_mut);
        let all = all.chain(leases.map(|lease| &mut lease.left));
        for left in all.chain(messages.map(|message| &mut message.left)) {
            *left = left.saturating_sub(1);
        }
    }

    fn has_idle_holders(state: &PhasesState) -> bool {
        state.holders.iter().all(|holder| *holder == Holder::Idle)
    }

    /// Retention is long: nothing that was sent before is in time by then, and no lease lasts.
    fn is_long_over(state: &PhasesState, key: u8) -> bool {
        let is_about = |asks_under: u8| {
            let begun = state.operations[usize::from(asks_under)];
            begun.is_some_and(|begun| begun.key == key)
        };
        let (mut messages, mut leases) = (state.messages.iter().flatten(), state.leases());
        messages.all(|one| one.left == 0 || !is_about(one.asks_under))
            && leases.all(|lease| lease.left == 0 || lease.key != key)
    }

    fn arrivals(&self, state: &PhasesState, process: usize, actions: &mut Vec<PhasesAction>) {
        if state.requests_left == 0 {
            return;
        }
        for (key, fingerprint) in arrivals(state.has_arrived) {
            let arrives = |is_lost| PhasesAction::Arrives(process, key, fingerprint, is_lost);
            actions.extend(Self::losses(state.faults_left > 0).map(arrives));
        }
        // It holds nothing, so that no process matters.
        let gives_up = process == 0 && self.gives_up(PhasesGuard::AbandonWaits);
        actions.extend(gives_up.then_some(PhasesAction::Abandons(0)));
    }

    /// What an acknowledgment or an answer can be: lost or not.
    fn losses(can_lose: bool) -> impl Iterator<Item = bool> {
        let both = [false, true].into_iter();
        both.filter(move |is_lost| !is_lost || can_lose)
    }

    /// What a process that is at work can do.
    fn work(state: &PhasesState, process: usize, actions: &mut Vec<PhasesAction>) {
        let has_fault = state.faults_left > 0;
        match state.holders[process] {
            Holder::Idle => return,
            Holder::Claiming(_) => actions.push(PhasesAction::ClaimsAgain(process)),
            Holder::Holding(_) => {
                actions.push(PhasesAction::Calls(process));
                if has_fault {
                    actions.push(PhasesAction::CannotSend(process));
                }
            }
            Holder::Calling(_) => {
                if has_fault || !state.is_awaited_by(process) {
                    actions.push(PhasesAction::CallTimeout(process));
                }
            }
            Holder::Answered(..) => {
                let completes = |is_lost| PhasesAction::Completes(process, is_lost);
                actions.extend(Self::losses(has_fault).map(completes));
            }
            Holder::Deciding(_) => actions.push(PhasesAction::Decides(process)),
        }
        if has_fault {
            actions.push(PhasesAction::Dies(process));
        }
    }

    fn networks(state: &PhasesState, actions: &mut Vec<PhasesAction>) {
        for (message, sent) in state.messages.iter().enumerate() {
            let Some(sent) = sent else { continue };
            let begun = state.operations[usize::from(sent.asks_under)];
            // It declines the first operation only, to keep the model small.
            let is_new = begun.is_some_and(|begun| begun.at_processor == AtProcessor::Unknown)
                && sent.asks_under == 0;
            // The loss of an answer that no process waits for changes nothing.
            let can_lose = state.faults_left > 0 && sent.awaited_by.is_some();
            let both = [true, false].into_iter();
            for is_done in both.filter(|is_done| *is_done || is_new) {
                let delivered = |is_lost| PhasesAction::Delivered(message, is_done, is_lost);
                actions.extend(Self::losses(can_lose).map(delivered));
            }
            if state.faults_left > 0 || sent.awaited_by.is_none() {
                actions.push(PhasesAction::MessageLost(message));
            }
        }
    }

    /// What happens to keys beside requests.
    fn keys(&self, state: &PhasesState, actions: &mut Vec<PhasesAction>) {
        for key in 0..2u8 {
            let row = state.rows[usize::from(key)];
            let is_completed = row.is_some_and(|row| !row.is_in_flight());
            if is_completed && state.expiries_left > 0 && Self::is_long_over(state, key) {
                actions.push(PhasesAction::Expires(key));
            }
            let Some(row) = row.filter(KeyRow::is_lease_over) else {
                continue;
            };
            if self.lacks(PhasesGuard::SweepPredicate) {
                actions.push(PhasesAction::SweptInFlight(key));
            }
            let idle = state.holders.iter().position(|one| *one == Holder::Idle);
            let Some(process) = idle else { continue };
            let begun = state.operations[usize::from(row.operation)];
            let is_old = begun.is_some_and(|begun| begun.is_old);
            let is_found = begun.is_some_and(|begun| Self::look_up(begun) != Called::Unknown);
            let is_sent_again = !is_old || self.lacks(PhasesGuard::SendAgainWithin);
            // A look-up that finds nothing changes nothing.
            if !self.lacks(PhasesGuard::Reconciler) && (is_sent_again || is_found) {
                actions.push(PhasesAction::Recovers(process, key));
            }
            if is_old || self.lacks(PhasesGuard::ByHandAfter) {
                actions.push(PhasesAction::Resolves(process, key));
            }
        }
        for (number, begun) in (0u8..).zip(&state.operations) {
            let Some(begun) = begun else { continue };
            let is_long_over = Self::is_long_over(state, begun.key);
            if !begun.is_old && is_long_over && state.agings_left > 0 {
                actions.push(PhasesAction::Ages(number));
            }
            if begun.is_old && begun.at_processor == AtProcessor::Done {
                actions.push(PhasesAction::Forgets(number));
            }
        }
    }

    /// `None`: no process hears of it.
    fn deliver(&self, state: &mut PhasesState, message: usize, is_done: bool) -> Option<()> {
        let sent = state.messages[message].take()?;
        let called = self.execute(state, sent, is_done)?;
        let holder = &mut state.holders[usize::from(sent.awaited_by?)];
        if let Holder::Calling(lease) = *holder {
            *holder = Holder::Answered(lease, called);
        }
        Some(())
    }

    /// The step of a process. `None`: it can't be made.
    fn step(&self, state: &mut PhasesState, process: usize, is_lost: bool) -> Option<()> {
        let next = match state.holders[process] {
            Holder::Idle => return None,
            Holder::Claiming(request) => {
                // While it claims, it holds nothing.
                state.holders[process] = Holder::Idle;
                self.claim(state, request)?
            }
            Holder::Holding(lease) => self.call(state, process, lease)?,
            Holder::Calling(lease) => {
                Self::no_longer_awaited(state, process);
                Holder::Answered(lease, Called::Unknown)
            }
            Holder::Answered(lease, called) => {
                let next = self.complete(state, lease, called);
                match is_lost {
                    // It tries again, and finds out by its token.
                    true => Holder::Answered(lease, called),
                    false => next,
                }
            }
            Holder::Deciding(lease) => Self::decide(state, lease)?,
        };
        state.holders[process] = next;
        Some(())
    }

    /// What the process is that a request came to.
    fn arrive(&self, state: &mut PhasesState, key: u8, fingerprint: u8) -> Option<Holder> {
        state.has_arrived[usize::from(key)] = true;
        state.requests_left -= 1;
        let request = PhasesRequest {
            key,
            fingerprint,
            number: state.requests_left,
            may_begin: true,
            rounds_left: ROUNDS_LEFT,
        };
        self.claim(state, request)
    }
}

impl Model for PhasesModel {
    type State = PhasesState;
    type Action = PhasesAction;

    fn init_states(&self) -> Vec<PhasesState> {
        vec![PhasesState {
            rows: [None; KEYS],
            windows: [0; KEYS],
            holders: [Holder::Idle; 2],
            messages: [None; 3],
            operations: [None; OPERATIONS],
            told: [None; KEYS],
            has_arrived: [false; KEYS],
            requests_left: self.bounds.requests,
            faults_left: self.bounds.faults,
            ticks_left: TICKS,
            expiries_left: 1,
            agings_left: 1,
            broken: None,
        }]
    }

    fn actions(&self, state: &PhasesState, actions: &mut Vec<PhasesAction>) {
        for process in 0..2 {
            // The processes are alike: the first request arrives at A.
            if state.holders[process] == Holder::Idle && (process == 0 || state.has_arrived[0]) {
                self.arrivals(state, process, actions);
            }
            Self::work(state, process, actions);
        }
        Self::networks(state, actions);
        self.keys(state, actions);
        let has_lease = |row: &KeyRow| row.is_in_flight() && !row.is_lease_over();
        let rows_wait = state.rows.iter().flatten().any(has_lease);
        let is_quiet = Self::has_idle_holders(state) && state.messages.iter().all(Option::is_none);
        // Where nothing else happens, a lease runs out all the same.
        if state.ticks_left > 0 && !is_quiet || is_quiet && rows_wait {
            actions.push(PhasesAction::TimeGoesOn);
        }
    }

    fn next_state(&self, before: &PhasesState, action: PhasesAction) -> Option<PhasesState> {
        let mut state = before.clone();
        match action {
            PhasesAction::Arrives(process, key, fingerprint, is_lost) => {
                state.fault(is_lost);
                let claimed = self.arrive(&mut state, key, fingerprint)?;
                state.holders[process] = if is_lost { Holder::Idle } else { claimed };
            }
            PhasesAction::ClaimsAgain(process)
            | PhasesAction::Calls(process)
            | PhasesAction::Decides(process) => self.step(&mut state, process, false)?,
            PhasesAction::CallTimeout(process) => {
                state.fault(state.is_awaited_by(process));
                self.step(&mut state, process, false)?;
            }
            PhasesAction::Completes(process, is_lost) => {
                state.fault(is_lost);
                self.step(&mut state, process, is_lost)?;
            }
            PhasesAction::CannotSend(process) => {
                state.fault(true);
                let lease = state.holders[process].lease()?;
                state.holders[process] = Holder::Answered(lease, Called::NotExecuted);
            }
            PhasesAction::Delivered(message, is_done, is_lost) => {
                state.fault(is_lost);
                if is_lost && let Some(sent) = &mut state.messages[message] {
                    sent.awaited_by = None;
                }
                self.deliver(&mut state, message, is_done);
            }
            PhasesAction::MessageLost(message) => {
                let lost = state.messages[message].take();
                state.fault(lost.is_some_and(|one| one.awaited_by.is_some()));
            }
            PhasesAction::Dies(process) => {
                state.fault(true);
                state.holders[process] = Holder::Idle;
                Self::no_longer_awaited(&mut state, process);
            }
            PhasesAction::Recovers(process, key) => {
                let lease = self.take_over(&mut state, key, None)?;
                state.holders[process] = Holder::Holding(lease);
            }
            PhasesAction::Resolves(process, key) => {
                let mut lease = self.take_over(&mut state, key, None)?;
                // What the person decides counts for every attempt.
                lease.in_doubt = false;
                state.holders[process] = Holder::Deciding(lease);
            }
            PhasesAction::Abandons(key) => self.abandon(&mut state, key),
            PhasesAction::Expires(key) => {
                let index = usize::from(key);
                state.expiries_left -= 1;
                state.rows[index] = None;
                state.told[index] = None;
                state.windows[index] += 1;
            }
            PhasesAction::SweptInFlight(key) => state.rows[usize::from(key)] = None,
            PhasesAction::Ages(number) => {
                state.agings_left -= 1;
                state.operations[usize::from(number)].as_mut()?.is_old = true;
            }
            PhasesAction::Forgets(number) => {
                let begun = state.operations[usize::from(number)].as_mut()?;
                begun.at_processor = AtProcessor::Forgotten;
            }
            PhasesAction::TimeGoesOn => {
                state.ticks_left = state.ticks_left.saturating_sub(1);
                Self::time_goes_on(&mut state);
            }
        }
        let messages = &mut state.messages;
        messages.sort_unstable_by_key(|one| (one.is_none(), *one));
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always("at most one effect per window", |_, state| {
                state.broken != Some(BrokenPhase::EffectAgain)
            }),
            always("at most one effect per request", |_, state| {
                state.broken != Some(BrokenPhase::EffectOfARequestAgain)
            }),
            always("a key that is given up has no effect", |_, state| {
                state.broken != Some(BrokenPhase::EffectOfAGivenUpKey)
            }),
            always("one answer per window", |_, state| {
                state.broken != Some(BrokenPhase::AnotherAnswer)
            }),
            always("nothing acknowledged is lost", |_, state| {
                (0..KEYS).all(|key| Self::is_kept(state, key))
            }),
            always("every key ends", Self::goes_on),
            sometimes("a released key is given up", |_, state| {
                let is_given_up = |row: KeyRow| row.operation == NO_OPERATION;
                state.operations[0].is_some_and(|begun| begun.window == state.windows[0])
                    && state.rows[0].is_some_and(is_given_up)
            }),
            sometimes("a late holder loses its lease", |_, state| {
                let mut holders = state.holders.iter();
                holders.any(|one| matches!(one, Holder::Claiming(_)))
            }),
            sometimes("a person resolves an operation", |_, state| {
                let mut holders = state.holders.iter();
                holders.any(|one| matches!(one, Holder::Deciding(_)))
            }),
            sometimes("a released key is used again", |_, state| {
                let of_window = |begun: &&BegunOperation| begun.key == 0 && begun.window == 0;
                state.windows[0] == 0
                    && state.operations.iter().flatten().filter(of_window).count() > 1
            }),
            sometimes("a retry takes an operation over", |_, state| {
                let is_retry = |lease: HeldLease| lease.token > 1 && lease.request.is_some();
                state.leases().any(is_retry)
            }),
        ]
    }
}

fn unheard(is_lost: bool) -> &'static str {
    match is_lost {
        true => ", and the acknowledgment is lost",
        false => "",
    }
}

impl Protocol for PhasesModel {
    type Guard = PhasesGuard;

    const GUARDS: &[PhasesGuard] = &[
        PhasesGuard::Fence,
        PhasesGuard::MayBegin,
        PhasesGuard::InDoubt,
        PhasesGuard::SilenceIsUnknown,
        PhasesGuard::OneDownstreamKey,
        PhasesGuard::SweepPredicate,
        PhasesGuard::CommitBeforeCall,
        PhasesGuard::NotAfter,
        PhasesGuard::SendAgainWithin,
        PhasesGuard::ByHandAfter,
        PhasesGuard::AbandonWaits,
        PhasesGuard::Reconciler,
    ];
    const NARROW: &[Bounds] = &[Bounds::of(2, 2)];
    const WIDE: &[Bounds] = &[Bounds::of(3, 2)];

    fn within(bounds: Bounds, without: Option<PhasesGuard>) -> Self {
        Self { without, bounds }
    }

    fn words(state: &PhasesState, action: &PhasesAction) -> String {
        let process = |process: usize, words: &str| format!("{} {words}", NAMES[process]);
        let instruction = |message: usize, words: &str| {
            let sent = state.messages[message].map_or(0, |sent| sent.asks_under + 1);
            format!("the instruction for operation {sent} {words}")
        };
        match *action {
            PhasesAction::Arrives(at, key, fingerprint, is_lost) => {
                let (request, unheard) = (request_name(key, fingerprint), unheard(is_lost));
                process(at, &format!("claims for {request}{unheard}"))
            }
            PhasesAction::ClaimsAgain(at) => process(at, "claims again"),
            PhasesAction::Calls(at) => process(at, "calls the processor"),
            PhasesAction::CannotSend(at) => process(at, "can't reach the processor"),
            PhasesAction::CallTimeout(at) => process(at, "gets no answer in time"),
            PhasesAction::Completes(at, is_lost) => {
                let unheard = unheard(is_lost);
                process(at, &format!("writes what its call came to{unheard}"))
            }
            PhasesAction::Dies(at) => process(at, "dies, and is started again"),
            PhasesAction::Recovers(at, key) => {
                let key = key_name(key);
                process(at, &format!("takes {key} over, as the reconciler"))
            }
            PhasesAction::Resolves(at, key) => {
                let key = key_name(key);
                process(at, &format!("takes {key} over, for a person"))
            }
            PhasesAction::Decides(at) => process(
                at,
                "gets the person's word, from those who run the processor",
            ),
            PhasesAction::Delivered(message, is_done, is_lost) => {
                let declines = if is_done { "" } else { ", which declines" };
                let lost = if is_lost {
                    ", and the answer is lost"
                } else {
                    ""
                };
                instruction(message, &format!("reaches the processor{declines}{lost}"))
            }
            PhasesAction::MessageLost(message) => instruction(message, "is lost"),
            PhasesAction::Abandons(key) => format!("a client gives {} up", key_name(key)),
            PhasesAction::Expires(key) => format!("{} expires, and is swept", key_name(key)),
            PhasesAction::SweptInFlight(key) => format!("the sweep deletes {}", key_name(key)),
            PhasesAction::Ages(number) => format!("operation {} is old now", number + 1),
            PhasesAction::Forgets(number) => {
                format!("the processor forgets operation {}", number + 1)
            }
            PhasesAction::TimeGoesOn => "time goes on".to_owned(),
        }
    }

    fn facts(state: &PhasesState) -> Vec<String> {
        let mut facts = Vec::new();
        let outcome = |operation: u8, is_done: bool| {
            if operation == NO_OPERATION {
                return "given up".to_owned();
            }
            let what = if is_done { "done" } else { "declined" };
            format!("operation {}, {what}", operation + 1)
        };
        for key in 0..2u8 {
            let (index, name) = (usize::from(key), key_name(key));
            facts.push(match state.rows[index] {
                None => format!("{name} is free"),
                Some(row) => match row.state {
                    RowState::InFlight { token, left } => format!(
                        "{name} is in flight: operation {}, token {token}, lease for {left} more",
                        row.operation + 1
                    ),
                    RowState::Completed { is_done } => {
                        format!("{name} is completed: {}", outcome(row.operation, is_done))
                    }
                },
            });
            if let Some((operation, is_done)) = state.told[index] {
                let outcome = outcome(operation, is_done);
                facts.push(format!("a client was told of {name}: {outcome}"));
            }
        }
        facts.extend(Self::facts_of_processor(state));
        for (holder, name) in state.holders.iter().zip(NAMES) {
            facts.push(match holder {
                Holder::Idle => format!("{name} is idle"),
                Holder::Claiming(_) => format!("{name} has lost its lease"),
                Holder::Answered(HeldLease { token, .. }, called) => {
                    format!("{name} has token {token}, and its call was {called:?}")
                }
                Holder::Holding(lease) | Holder::Calling(lease) | Holder::Deciding(lease) => {
                    let doubt = if lease.in_doubt { ", in doubt" } else { "" };
                    format!("{name} has token {}{doubt}", lease.token)
                }
            });
        }
        facts.extend(state.broken.map(|broken| match broken {
            BrokenPhase::EffectAgain => "broken: two effects in one window".to_owned(),
            BrokenPhase::EffectOfARequestAgain => "broken: two effects of one request".to_owned(),
            BrokenPhase::EffectOfAGivenUpKey => "broken: an effect of a key given up".to_owned(),
            BrokenPhase::AnotherAnswer => "broken: two answers in one window".to_owned(),
        }));
        facts
    }
}
