//! Four designs that look right, each of which charges twice after an event that it does not bear.
//!
//! A step is one statement of a design, and each run has one event. Beside these, the page
//! `/console/protocol` shows what the protocol's own models do after the same event.

mod told;

use stateright::{Model, Property};

/// A design that looks right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// It looks for the key, charges where it finds none, and saves the key.
    CheckThenAct,
    /// It takes a lease in a cache, and keeps its replies there.
    Lease,
    /// One transaction takes the key and charges, and another one saves the reply. A key without a
    /// reply, on which no server works, is done again.
    TwoTransactions,
    /// It keeps no record, and calls the provider under a fresh key each time.
    ProviderKey,
}

/// What happens, once in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The second request comes while a server works on the first.
    SecondClick,
    /// A server dies before the key is written.
    CrashBeforeClaim,
    /// A server dies after it wrote the key or charged, and before the last COMMIT.
    CrashBeforeCommit,
    /// A server dies after the last COMMIT, before it replies.
    CrashAfterCommit,
    /// The reply is lost on its way to the client.
    LostReply,
    /// A lease ends while its holder works.
    LeaseEndsEarly,
    /// A cache loses what it holds.
    CacheForgets,
    /// The provider charges, and its answer does not come in time.
    ProviderTimeout,
}

/// A statement of a design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Statement {
    Look,
    TakeLease,
    LookInCache,
    Charge,
    ClaimAndCharge,
    Call,
    Save,
    SaveInCache,
    Reply,
}

impl Design {
    /// All designs.
    pub const ALL: [Self; 4] = [
        Self::CheckThenAct,
        Self::Lease,
        Self::TwoTransactions,
        Self::ProviderKey,
    ];

    /// Its statements, each with what a crash before it is.
    fn program(self) -> &'static [(Statement, Event)] {
        use {Event as E, Statement as S};
        match self {
            Self::CheckThenAct => &[
                (S::Look, E::CrashBeforeClaim),
                (S::Charge, E::CrashBeforeClaim),
                (S::Save, E::CrashBeforeClaim),
                (S::Reply, E::CrashAfterCommit),
            ],
            Self::Lease => &[
                (S::TakeLease, E::CrashBeforeClaim),
                (S::LookInCache, E::CrashBeforeCommit),
                (S::Charge, E::CrashBeforeCommit),
                (S::SaveInCache, E::CrashAfterCommit),
                (S::Reply, E::CrashAfterCommit),
            ],
            Self::TwoTransactions => &[
                (S::ClaimAndCharge, E::CrashBeforeClaim),
                (S::Save, E::CrashBeforeCommit),
                (S::Reply, E::CrashAfterCommit),
            ],
            Self::ProviderKey => &[
                (S::Call, E::CrashBeforeClaim),
                (S::Charge, E::CrashBeforeCommit),
                (S::Reply, E::CrashAfterCommit),
            ],
        }
    }
}

impl Event {
    /// All events.
    pub const ALL: [Self; 8] = [
        Self::SecondClick,
        Self::CrashBeforeClaim,
        Self::CrashBeforeCommit,
        Self::CrashAfterCommit,
        Self::LostReply,
        Self::LeaseEndsEarly,
        Self::CacheForgets,
        Self::ProviderTimeout,
    ];
}

/// A design, and the event of its runs.
#[derive(Debug, Clone, Copy)]
pub struct Naive {
    /// The design.
    pub design: Design,
    /// The event.
    pub event: Event,
}

/// A state of [`Naive`]. There is one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NaiveState {
    /// The statement that each server is at.
    servers: [Option<usize>; 2],
    has_arrived: [bool; 2],
    has_happened: bool,
    /// The row of the key, and whether it has the reply.
    key: Option<bool>,
    /// The server that has the lease, or had it when it died.
    lease: Option<usize>,
    is_cached: bool,
    charges: u8,
    charges_at_provider: u8,
}

impl NaiveState {
    /// How often the customer paid.
    fn effects(&self) -> u8 {
        self.charges.max(self.charges_at_provider)
    }
}

/// A step of [`Naive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NaiveAction {
    /// A request comes to a server.
    Arrives(usize),
    /// The next statement of a server.
    Step(usize),
    /// The event, where it is one of a server.
    Strikes(usize),
    /// The lease ends.
    LeaseEnds,
    /// The cache loses what it holds.
    CacheForgets,
}

impl Naive {
    /// The next statement of a server.
    fn statement(&self, state: &NaiveState, server: usize) -> Option<(Statement, Event)> {
        self.design.program().get(state.servers[server]?).copied()
    }

    /// Whether the event can strike a server before this statement.
    fn may_strike(&self, (statement, crash): (Statement, Event)) -> bool {
        match self.event {
            Event::LostReply => statement == Statement::Reply,
            Event::ProviderTimeout => {
                self.design == Design::ProviderKey && statement == Statement::Charge
            }
            Event::CrashBeforeClaim | Event::CrashBeforeCommit | Event::CrashAfterCommit => {
                crash == self.event
            }
            Event::SecondClick | Event::LeaseEndsEarly | Event::CacheForgets => false,
        }
    }

    /// Executes a statement. `false`: the server has nothing more to do.
    fn execute(state: &mut NaiveState, server: usize, statement: Statement) -> bool {
        match statement {
            Statement::Look => return state.key != Some(true),
            Statement::TakeLease => match state.lease {
                Some(_) => return false,
                None => state.lease = Some(server),
            },
            Statement::LookInCache => {
                if state.is_cached {
                    state.lease = None;
                    return false;
                }
            }
            Statement::Charge => state.charges += 1,
            Statement::ClaimAndCharge => {
                let is_at_work = state.servers[1 - server].is_some();
                if state.key.is_some_and(|has_reply| has_reply || is_at_work) {
                    return false;
                }
                state.key = Some(false);
                state.charges += 1;
            }
            Statement::Call => state.charges_at_provider += 1,
            Statement::Save => state.key = Some(true),
            Statement::SaveInCache => {
                state.is_cached = true;
                state.lease = state.lease.filter(|holder| *holder != server);
            }
            Statement::Reply => return false,
        }
        true
    }
}

impl Model for Naive {
    type State = NaiveState;
    type Action = NaiveAction;

    fn init_states(&self) -> Vec<NaiveState> {
        vec![NaiveState {
            servers: [None; 2],
            has_arrived: [false; 2],
            has_happened: false,
            key: None,
            lease: None,
            is_cached: false,
            charges: 0,
            charges_at_provider: 0,
        }]
    }

    fn actions(&self, state: &NaiveState, actions: &mut Vec<NaiveAction>) {
        let is_at_work = |server: usize| state.servers[server].is_some();
        // A retry comes after the event. A second click is the event.
        let is_the_event = self.event == Event::SecondClick && state.has_arrived[0];
        let may_retry = is_the_event || state.has_happened;
        for (server, may_arrive) in [(0, true), (1, may_retry)] {
            if may_arrive && !state.has_arrived[server] {
                actions.push(NaiveAction::Arrives(server));
            }
            if let Some(next) = self.statement(state, server) {
                actions.push(NaiveAction::Step(server));
                if !state.has_happened && self.may_strike(next) {
                    actions.push(NaiveAction::Strikes(server));
                }
            }
        }
        // The lease of a dead server ends in time.
        let ends_early = self.event == Event::LeaseEndsEarly && !state.has_happened;
        if (state.lease).is_some_and(|holder| ends_early || !is_at_work(holder)) {
            actions.push(NaiveAction::LeaseEnds);
        }
        if self.event == Event::CacheForgets && state.is_cached && !state.has_happened {
            actions.push(NaiveAction::CacheForgets);
        }
    }

    fn next_state(&self, before: &NaiveState, action: NaiveAction) -> Option<NaiveState> {
        let mut state = before.clone();
        match action {
            NaiveAction::Arrives(server) => {
                state.has_arrived[server] = true;
                state.servers[server] = Some(0);
            }
            NaiveAction::Step(server) => {
                let (statement, _) = self.statement(before, server)?;
                let goes_on = Self::execute(&mut state, server, statement);
                let at = before.servers[server].filter(|_| goes_on);
                state.servers[server] = at.map(|at| at + 1);
            }
            NaiveAction::Strikes(server) => {
                state.has_happened = true;
                state.servers[server] = None;
            }
            NaiveAction::LeaseEnds => {
                let is_early = state
                    .lease
                    .is_some_and(|holder| state.servers[holder].is_some());
                state.has_happened |= is_early;
                state.lease = None;
            }
            NaiveAction::CacheForgets => {
                state.has_happened = true;
                state.is_cached = false;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::<Self>::always("one charge", |_, state| {
            state.effects() <= 1
        })]
    }
}
