//! Answers from memory: what a process remembers, and whether it may still use it, by a reading of
//! the database's clock and two clocks of the machine that err.
//!
//! How a key is claimed is in [`claims`](crate::claims). Here, a request that memory doesn't answer
//! is executed, or replayed, in one step. No process looks at another one's memory, so only A has
//! one. B asks the database for everything (`REPLAY_CACHE=0`), and takes over what has expired.

use stateright::{Model, Property};

use crate::{Bounds, Guarded, KEYS, NAMES, Protocol, Record, arrivals, key_name, request_name};

/// How long a record lives, in ticks of the database's clock.
const RETENTION: u8 = 5;

/// `LAST_MOMENTS`: when the database is asked again. Clocks err by so much in a run.
const LAST_MOMENTS: u8 = 1;

/// `READING_MAX_AGE`
const READING_MAX_AGE: u8 = 1;

/// `READ_LIMIT`: the longest that a reading may take.
const READ_LIMIT: u8 = 1;

/// When the database's clock stops.
const LAST_TICK: u8 = 6;

/// What the model can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheGuard {
    /// `LAST_MOMENTS`: shortly before a record expires, the database is asked.
    LastMoments,
    /// Of two clocks, the one that went further counts. Without it, only the one that stops while
    /// the machine sleeps.
    TwoClocks,
    /// A reading's age counts from before the question. Without it, from when the answer came.
    BeforeTheQuestion,
    /// `READING_MAX_AGE`: an old reading says nothing.
    ReadingMaxAge,
    /// An entry is used only while the server is up that it came from.
    SameServer,
    /// That server is the one that was up when the request began. Without it, when it ended.
    ServerOfTheBeginning,
    /// Only outcomes whose COMMIT was acknowledged get in.
    OnlyStored,
    /// The fingerprint is compared.
    Fingerprint,
}

/// The model.
pub type ReplayCacheModel = Guarded<CacheGuard>;

/// The age of a reading, by the two clocks of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Age {
    since_boot: u8,
    wall: u8,
}

/// What the database said about its clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClockReading {
    age: Age,
    database: u8,
    server: u8,
}

/// A reading that is being taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Question {
    /// Since just before it was asked.
    age: Age,
    /// How long it has taken.
    ticks: u8,
    /// The clock and the server, as soon as the database has looked.
    answer: Option<(u8, u8)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Remembered {
    record: Record,
    server: u8,
}

/// A request that memory could not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Executing {
    key: u8,
    fingerprint: u8,
    /// The server that was up when it began, as far as it was known.
    server: Option<u8>,
    /// What was stored, or found.
    outcome: Option<Record>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Memory {
    reading: Option<ClockReading>,
    question: Option<Question>,
    remembered: [Option<Remembered>; KEYS],
    executing: Option<Executing>,
}

/// A state of [`ReplayCacheModel`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CacheState {
    clock: u8,
    server: u8,
    /// When another server took over, without the last commits.
    failed_over_at: Option<u8>,
    records: [Option<Record>; KEYS],
    executions: u8,
    memory: Memory,
    has_arrived: [bool; KEYS],
    requests_left: u8,
    faults_left: u8,
    clock_errors_left: u8,
    was_answered: bool,
    is_broken: bool,
}

/// A step of [`ReplayCacheModel`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheAction {
    /// A request with this key and this fingerprint comes to a process: it is answered from memory,
    /// or begins.
    Arrives(usize, u8, u8),
    /// The database executes or replays it.
    Executes,
    /// Its COMMIT fails.
    Fails,
    /// The process remembers the outcome.
    Remembers,
    /// A process asks for the database's clock.
    Asks,
    /// The database reads its clock.
    Reads,
    /// The process gets the answer.
    GetsReading,
    /// Another server takes over, which lacks this key's record.
    FailsOver(u8),
    /// A process dies.
    Dies,
    /// Time goes on; whether the clock since boot stands still (the machine sleeps, or is frozen),
    /// and whether the wall clock is set back by as much.
    TimePasses(bool, bool),
}

impl ReplayCacheModel {
    /// `DatabaseClock::showing`: the latest that the database's clock can show, and the server.
    fn showing(&self, memory: &Memory) -> Option<(u8, u8)> {
        let reading = memory.reading?;
        let age = match self.lacks(CacheGuard::TwoClocks) {
            true => reading.age.since_boot,
            false => reading.age.since_boot.max(reading.age.wall),
        };
        let is_too_old = age > READING_MAX_AGE && !self.lacks(CacheGuard::ReadingMaxAge);
        (!is_too_old).then_some((reading.database + age, reading.server))
    }

    /// `look_up`: the record that a request is judged by, if memory has it and may use it.
    fn look_up(&self, memory: &Memory, key: u8) -> Option<Record> {
        let Remembered { record, server } = memory.remembered[usize::from(key)]?;
        let (latest, showing) = self.showing(memory)?;
        let last_moments = match self.lacks(CacheGuard::LastMoments) {
            true => 0,
            false => LAST_MOMENTS,
        };
        let is_of_server = showing == server || self.lacks(CacheGuard::SameServer);
        (is_of_server && latest < record.expires_at - last_moments).then_some(record)
    }

    /// Answers from memory, and judges that by what the database has at this moment.
    fn answer(&self, state: &mut CacheState, record: Record, key: u8, fingerprint: u8) {
        let is_replayed = record.fingerprint == fingerprint || self.lacks(CacheGuard::Fingerprint);
        let is_right = match state.records[usize::from(key)] {
            Some(stored) if stored.expires_at > state.clock => {
                stored.execution == record.execution
                    && is_replayed == (stored.fingerprint == fingerprint)
            }
            Some(_) | None => false,
        };
        // A failover is noticed after the age of a reading at the latest, and a clock that errs
        // makes it seem younger.
        let is_noticed = state.failed_over_at.is_none_or(|failed_over_at| {
            state.clock > failed_over_at + READING_MAX_AGE + LAST_MOMENTS
        });
        state.was_answered = true;
        state.is_broken |= !is_right && is_noticed;
    }

    fn execute(state: &mut CacheState, executing: &mut Executing) {
        let record = &mut state.records[usize::from(executing.key)];
        let alive = record.filter(|record| record.expires_at > state.clock);
        let found = alive.unwrap_or_else(|| {
            state.executions += 1;
            Record {
                execution: state.executions,
                fingerprint: executing.fingerprint,
                expires_at: state.clock + RETENTION,
            }
        });
        *record = Some(found);
        executing.outcome = Some(found);
    }

    /// A request is answered from memory, or begins. B has no memory.
    fn arrive(&self, state: &mut CacheState, process: usize, key: u8, fingerprint: u8) {
        state.requests_left -= 1;
        state.has_arrived[usize::from(key)] = true;
        let showing = self.showing(&state.memory);
        let mut executing = Executing {
            key,
            fingerprint,
            server: showing.map(|(_, server)| server),
            outcome: None,
        };
        if process == 1 {
            Self::execute(state, &mut executing);
            return;
        }
        match self.look_up(&state.memory, key) {
            Some(record) => self.answer(state, record, key, fingerprint),
            None => state.memory.executing = Some(executing),
        }
    }

    /// A request of A has ended: what it stored, or found, gets in.
    fn remember(&self, memory: &mut Memory) -> Option<()> {
        let executing = memory.executing.take()?;
        let server = match self.lacks(CacheGuard::ServerOfTheBeginning) {
            true => self.showing(memory).map(|(_, server)| server),
            false => executing.server,
        };
        if let (Some(record), Some(server)) = (executing.outcome, server) {
            memory.remembered[usize::from(executing.key)] = Some(Remembered { record, server });
        }
        Some(())
    }

    fn age_readings(&self, memory: &mut Memory, is_asleep: bool, is_set_back: bool) {
        let reading = memory.reading.iter_mut().map(|one| &mut one.age);
        let question = memory.question.iter_mut().map(|one| &mut one.age);
        for age in reading.chain(question) {
            age.since_boot += u8::from(!is_asleep);
            age.wall += u8::from(!is_set_back);
        }
        memory.question = memory.question.take().and_then(|mut question| {
            question.ticks += 1;
            (question.ticks <= READ_LIMIT).then_some(question)
        });
        // What says nothing any more is the same as none.
        if self.showing(memory).is_none() {
            memory.reading = None;
        }
    }
}

impl Model for ReplayCacheModel {
    type State = CacheState;
    type Action = CacheAction;

    fn init_states(&self) -> Vec<CacheState> {
        vec![CacheState {
            clock: 0,
            server: 0,
            failed_over_at: None,
            records: [None; KEYS],
            executions: 0,
            memory: Memory::default(),
            has_arrived: [false; KEYS],
            requests_left: self.bounds.requests,
            faults_left: self.bounds.faults,
            clock_errors_left: LAST_MOMENTS,
            was_answered: false,
            is_broken: false,
        }]
    }

    fn actions(&self, state: &CacheState, actions: &mut Vec<CacheAction>) {
        let has_fault = state.faults_left > 0;
        let memory = &state.memory;
        if state.requests_left > 0 {
            for process in 0..2 {
                if process == 0 && memory.executing.is_some() {
                    continue;
                }
                let arrives = |(key, fingerprint)| CacheAction::Arrives(process, key, fingerprint);
                actions.extend(arrivals(state.has_arrived).map(arrives));
            }
        }
        match memory.executing {
            None => {}
            Some(Executing { outcome: None, .. }) => {
                actions.push(CacheAction::Executes);
                if has_fault {
                    actions.push(CacheAction::Fails);
                }
            }
            Some(_) => actions.push(CacheAction::Remembers),
        }
        match memory.question {
            // `READ_AGAIN_AFTER`
            None if memory.reading.is_none_or(|one| one.age != Age::default()) => {
                actions.push(CacheAction::Asks);
            }
            None => {}
            Some(Question { answer: None, .. }) => actions.push(CacheAction::Reads),
            Some(_) => actions.push(CacheAction::GetsReading),
        }
        if has_fault {
            actions.push(CacheAction::Dies);
            if state.failed_over_at.is_none() {
                let is_there = |key: &u8| state.records[usize::from(*key)].is_some();
                actions.extend((0..2).filter(is_there).map(CacheAction::FailsOver));
            }
        }
        if state.clock < LAST_TICK {
            for is_asleep in [false, true] {
                for is_set_back in [false, true] {
                    if !is_set_back || state.clock_errors_left > 0 {
                        actions.push(CacheAction::TimePasses(is_asleep, is_set_back));
                    }
                }
            }
        }
    }

    fn next_state(&self, before: &CacheState, action: CacheAction) -> Option<CacheState> {
        let mut state = before.clone();
        let takes_a_fault = matches!(
            action,
            CacheAction::Fails | CacheAction::FailsOver(_) | CacheAction::Dies
        );
        state.faults_left -= u8::from(takes_a_fault);
        match action {
            CacheAction::Arrives(process, key, fingerprint) => {
                self.arrive(&mut state, process, key, fingerprint);
            }
            CacheAction::Executes => {
                let mut executing = state.memory.executing?;
                Self::execute(&mut state, &mut executing);
                let mut outcome = executing.outcome.into_iter();
                let is_its_own = outcome.any(|one| one.fingerprint == executing.fingerprint);
                // A reuse is no stored outcome of this request.
                state.memory.executing = is_its_own.then_some(executing);
            }
            CacheAction::Fails => {
                let mut executing = state.memory.executing.take()?;
                if self.lacks(CacheGuard::OnlyStored) {
                    Self::execute(&mut state.clone(), &mut executing);
                    state.memory.executing = Some(executing);
                }
            }
            CacheAction::Remembers => self.remember(&mut state.memory)?,
            CacheAction::Asks => state.memory.question = Some(Question::default()),
            CacheAction::Reads => {
                state.memory.question.as_mut()?.answer = Some((state.clock, state.server));
            }
            CacheAction::GetsReading => {
                let Question { age, answer, .. } = state.memory.question.take()?;
                let (database, server) = answer?;
                let counts = !self.lacks(CacheGuard::BeforeTheQuestion);
                state.memory.reading = Some(ClockReading {
                    age: if counts { age } else { Age::default() },
                    database,
                    server,
                });
            }
            CacheAction::FailsOver(key) => {
                state.server += 1;
                state.failed_over_at = Some(state.clock);
                state.records[usize::from(key)] = None;
            }
            CacheAction::Dies => state.memory = Memory::default(),
            CacheAction::TimePasses(is_asleep, is_set_back) => {
                state.clock += 1;
                state.clock_errors_left -= u8::from(is_set_back);
                self.age_readings(&mut state.memory, is_asleep, is_set_back);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let always = Property::<Self>::always;
        let sometimes = Property::<Self>::sometimes;
        vec![
            always("memory says what the database would say", |_, state| {
                !state.is_broken
            }),
            sometimes("memory answers", |_, state| state.was_answered),
            sometimes("another process takes over a remembered key", |_, state| {
                let both = state.memory.remembered[0].zip(state.records[0]);
                let is_newer =
                    both.is_some_and(|(one, stored)| stored.execution > one.record.execution);
                is_newer && state.failed_over_at.is_none()
            }),
        ]
    }
}

impl Protocol for ReplayCacheModel {
    type Guard = CacheGuard;

    const GUARDS: &[CacheGuard] = &[
        CacheGuard::LastMoments,
        CacheGuard::TwoClocks,
        CacheGuard::BeforeTheQuestion,
        CacheGuard::ReadingMaxAge,
        CacheGuard::SameServer,
        CacheGuard::ServerOfTheBeginning,
        CacheGuard::OnlyStored,
        CacheGuard::Fingerprint,
    ];
    const NARROW: &[Bounds] = &[Bounds::of(2, 1), Bounds::of(3, 0)];
    const WIDE: &[Bounds] = &[Bounds::of(3, 1)];

    fn within(bounds: Bounds, without: Option<CacheGuard>) -> Self {
        Self { without, bounds }
    }

    fn words(_: &CacheState, action: &CacheAction) -> String {
        match *action {
            CacheAction::Arrives(process, key, fingerprint) => {
                let request = request_name(key, fingerprint);
                format!("{request} arrives at {}", NAMES[process])
            }
            CacheAction::Executes => "the database serves the request of A".to_owned(),
            CacheAction::Fails => "the COMMIT of A fails".to_owned(),
            CacheAction::Remembers => "A has its outcome".to_owned(),
            CacheAction::Asks => "A asks for the database's clock".to_owned(),
            CacheAction::Reads => "the database reads its clock for A".to_owned(),
            CacheAction::GetsReading => "A gets the reading".to_owned(),
            CacheAction::FailsOver(key) => {
                let key = key_name(key);
                format!("another server takes over, without the record of {key}")
            }
            CacheAction::Dies => "A dies, and is started again".to_owned(),
            CacheAction::TimePasses(is_asleep, is_set_back) => {
                let sleeps = is_asleep.then_some("; the machine of A sleeps");
                let errs = is_set_back.then_some("; the wall clock of A is set back");
                format!("time goes on{}{}", sleeps.unwrap_or(""), errs.unwrap_or(""))
            }
        }
    }

    fn facts(state: &CacheState) -> Vec<String> {
        let mut facts = vec![format!("the database's clock shows {}", state.clock)];
        for key in 0..2u8 {
            let (index, name) = (usize::from(key), key_name(key));
            facts.push(match state.records[index] {
                Some(stored) => format!("{name} is recorded: {stored}"),
                None => format!("{name} has no record"),
            });
            if let Some(remembered) = state.memory.remembered[index] {
                facts.push(format!("A remembers of {name}: {}", remembered.record));
            }
        }
        if let Some(reading) = state.memory.reading {
            let Age { since_boot, wall } = reading.age;
            facts.push(format!(
                "A has read {} of server {}; since then {since_boot} passed since boot, and {wall} \
                 by its wall clock",
                reading.database,
                reading.server + 1,
            ));
        }
        if let Some(executing) = state.memory.executing {
            let what = match executing.outcome {
                Some(_) => "has an outcome",
                None => "executes",
            };
            facts.push(format!("A {what} of {}", key_name(executing.key)));
        }
        if state.was_answered {
            facts.push("a request was answered from memory".to_owned());
        }
        if state.is_broken {
            facts.push("broken: the database would have said something else".to_owned());
        }
        facts
    }
}
