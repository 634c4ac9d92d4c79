//! One event in two designs, step by step: one that looks right and charges twice, and the
//! protocol's own.
//!
//! Each step is an action of a model, and what is told of it is made from the model's state. The
//! console shows it (`crates/console/src/protocol.json`), and `docs/retries.md` draws some of it.

use std::fmt::Debug;

use stateright::Model;

use crate::{
    Bounds, Protocol,
    claims::{Claims, ClaimsAction},
    naive::{Design, Event, Naive, NaiveAction},
    phases::{PhasesAction, PhasesModel},
};

/// The key of the request.
pub(crate) const KEY: &str = "order-7";

/// The lane of each server, and of its client. The database is `D`, the cache `C`, and the provider
/// `P`. A `!` marks what goes wrong.
pub(crate) const LANES: [(&str, &str); 2] = [("A", "a"), ("B", "b")];

/// A row of a table: a name and a value.
pub(crate) type Row = (String, String);

pub(crate) fn row(of: &str, says: &str) -> Row {
    (of.to_owned(), says.to_owned())
}

pub(crate) fn charge(number: u8) -> Row {
    row(&format!("ch_{number}"), "20.00")
}

/// The lanes and words for a request that arrives.
pub(crate) fn arrival(server: usize, is_again: bool) -> Row {
    let (lane, client) = LANES[server];
    let says = match is_again {
        true => "sends the same request, with the same key.",
        false => "sends the request.",
    };
    let client_name = client.to_uppercase();
    row(
        &format!("{client}{lane}"),
        &format!("Client {client_name} {says}"),
    )
}

/// A model whose steps can be told to a reader who knows no code.
pub(crate) trait Told: Model<Action: Clone + Debug + PartialEq> {
    /// The lanes that a step goes through, and what happens.
    fn tell(&self, before: &Self::State, action: &Self::Action) -> (String, String);

    /// The process in whose line a step is drawn, and the step's name there. `None`: not drawn.
    fn short(&self, _: &Self::State, _: &Self::Action) -> Option<(usize, &'static str)> {
        None
    }

    /// The rows of each table.
    fn tables(&self, state: &Self::State) -> Vec<Vec<Row>>;

    /// How often the customer paid.
    fn effects(state: &Self::State) -> u8;

    /// Whether the next statement of a process waits for another transaction.
    fn is_waiting(&self, state: &Self::State, process: usize) -> bool;
}

/// A step of a script.
#[derive(Debug, Clone, Copy)]
enum Scripted<A> {
    /// What the model does.
    Does(A),
    /// What the model can't do yet: the statement of a process waits.
    Waits(usize),
    /// What happens outside of the model and changes nothing in it: its lanes, and words.
    Outside(&'static str, &'static str),
}

/// A script has parts, which begin at the same time in both designs.
type Script<A> = &'static [&'static [Scripted<A>]];

/// The protocol's model, with what it does.
enum Right {
    /// One transaction, which charges.
    Transaction(Script<ClaimsAction>),
    /// An operation at a provider.
    Operation(Script<PhasesAction>),
}

/// An event in two designs.
struct Scenario {
    event: Event,
    design: Design,
    left: Script<NaiveAction>,
    right: Right,
}

impl Scenario {
    /// The steps of both sides.
    fn play(&self) -> Result<[Vec<Vec<Step>>; 2], String> {
        let (event, design, bounds) = (self.event, self.design, Bounds::of(3, 2));
        let left = play(&Naive { design, event }, self.left)?;
        let right = match self.right {
            Right::Transaction(script) => play(&Claims::within(bounds, None), script)?,
            Right::Operation(script) => play(&PhasesModel::within(bounds, None), script)?,
        };
        match left.len() == right.len() {
            true => Ok([left, right]),
            false => Err("the designs have different numbers of parts".to_owned()),
        }
    }
}

/// A step, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    lanes: String,
    says: String,
    short: Option<(usize, &'static str)>,
    tables: Vec<Vec<Row>>,
    effects: u8,
}

/// Plays a script. An error if the model can't do it.
fn play<M: Told>(model: &M, script: Script<M::Action>) -> Result<Vec<Vec<Step>>, String> {
    let mut states = model.init_states();
    let mut state = states.pop().ok_or("the model has no first state")?;
    let mut parts = Vec::new();
    for part in script {
        let mut steps = Vec::new();
        for scripted in *part {
            let mut short = None;
            let (lanes, says) = match scripted {
                Scripted::Does(action) => {
                    let mut possible = Vec::new();
                    model.actions(&state, &mut possible);
                    let can = possible.contains(action);
                    let next = model.next_state(&state, action.clone()).filter(|_| can);
                    let next = next.ok_or_else(|| format!("the model can't do {action:?}"))?;
                    let told = model.tell(&state, action);
                    short = model.short(&state, action);
                    state = next;
                    told
                }
                Scripted::Waits(process) if model.is_waiting(&state, *process) => {
                    let lane = LANES[*process].0;
                    short = Some((*process, "waits"));
                    let says = "inserts the same key, and waits: the row of server A is there.";
                    (format!("{lane}D"), format!("Server {lane} {says}"))
                }
                Scripted::Waits(process) => return Err(format!("{process} does not wait")),
                Scripted::Outside(lanes, says) => row(lanes, says),
            };
            steps.push(Step {
                lanes,
                says,
                short,
                tables: model.tables(&state),
                effects: M::effects(&state),
            });
        }
        parts.push(steps);
    }
    let holds = |property: &stateright::Property<M>| (property.condition)(model, &state);
    let always = model.properties();
    let always = always
        .iter()
        .filter(|one| one.expectation == stateright::Expectation::Always);
    let broken = always.filter(|one| !holds(one)).count();
    let effects = parts.iter().flatten().last().map_or(0, |step| step.effects);
    // A design that looks right has one property, which it breaks.
    match (effects, broken) {
        (1, 0) | (2, 1) => Ok(parts),
        other => Err(format!("effects and broken properties: {other:?}")),
    }
}

impl Event {
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::SecondClick => [
                "second-click",
                "A second click",
                "The customer clicks twice, and both requests are at work at once.",
            ],
            Self::CrashBeforeClaim => [
                "crash-before-claim",
                "A crash before the key is written",
                "A server dies early, and the client sends its request again.",
            ],
            Self::CrashBeforeCommit => [
                "crash-before-commit",
                "A crash between the write and COMMIT",
                "A server dies in the middle of its work, and the client sends its request again.",
            ],
            Self::CrashAfterCommit => [
                "crash-after-commit",
                "A crash after COMMIT, before the reply",
                "A server dies when the work is done, and the client, which heard nothing, sends \
                 its request again.",
            ],
            Self::LostReply => [
                "lost-reply",
                "A lost reply",
                "The work is done, the connection breaks, and the client sends its request again.",
            ],
            Self::LeaseEndsEarly => [
                "lease-ends-early",
                "A lease that ends too early",
                "A server sleeps for longer than its lease, and another request comes meanwhile.",
            ],
            Self::CacheForgets => [
                "cache-forgets",
                "A cache that forgets",
                "A cache loses what it holds, and the client sends its request again.",
            ],
            Self::ProviderTimeout => [
                "provider-timeout",
                "A time-out at the provider",
                "The provider charges, its answer comes too late, and the client tries again.",
            ],
        }
    }
}

/// The texts about a design.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    name: &'static str,
    title: &'static str,
    how: &'static str,
    /// Why it charges as often as it does.
    why: &'static str,
    lanes: &'static str,
    tables: &'static [&'static str],
}

impl Words {
    fn json(self) -> String {
        let Self {
            name,
            title,
            how,
            why,
            lanes,
            tables,
        } = self;
        format!(
            "{{\"name\": {name:?}, \"title\": {title:?}, \"lanes\": {lanes:?}, \"tables\": {tables:?},\n \
             \"how\": {how:?},\n \"why\": {why:?}}}"
        )
    }
}

impl Design {
    fn words(self) -> Words {
        match self {
            Self::CheckThenAct => Words {
                name: "check-then-act",
                title: "Check, then act",
                how: "Look the key up. If it isn't there, charge, and save the key.",
                why: "Between the look and the saved key there is a gap. Each request that looks \
                      then finds nothing, and charges.",
                lanes: "aADBb",
                tables: &["Keys", "Charges"],
            },
            Self::Lease => Words {
                name: "lease",
                title: "A lease in a cache",
                how: "Take a lease on the key in a cache. Look there for a reply, charge, and keep \
                      the reply there.",
                why: "The cache knows nothing of the charge. Its lease ends and its reply goes, and \
                      the charge stays.",
                lanes: "aACDBb",
                tables: &["Charges", "Cache"],
            },
            Self::TwoTransactions => Words {
                name: "two-transactions",
                title: "Two transactions",
                how: "One transaction writes the key and charges. Another one saves the reply.",
                why: "A crash between the two leaves a charge without a reply. The next request \
                      can't tell whether there was a charge.",
                lanes: "aADBb",
                tables: &["Keys", "Charges"],
            },
            Self::ProviderKey => Words {
                name: "provider-key",
                title: "The provider's key only",
                how: "Keep no key. Call the provider under a fresh key each time, as many client \
                      libraries do by themselves.",
                why: "The provider recognizes a key that it has seen. A fresh key is another charge.",
                lanes: "aADPBb",
                tables: &["Charges", "Provider"],
            },
        }
    }
}

impl Right {
    fn words(&self) -> Words {
        match self {
            Self::Transaction(_) => Words {
                name: "one-transaction",
                title: "One transaction",
                how: "One transaction writes the key, the charge and the reply. A unique index on \
                      the key lets one request through, and others wait for it.",
                why: "Key, charge and reply exist together, or not at all. A request finds all \
                      three, or a free key.",
                lanes: "aADBb",
                tables: &["Keys", "Charges"],
            },
            Self::Operation(_) => Words {
                name: "operation",
                title: "An operation with a name",
                how: "Before the call, a transaction writes the key, and an operation with a name. \
                      Each attempt asks the provider under this name. After the call, another \
                      transaction writes the outcome.",
                why: "The name was committed before the first call. So each attempt asks under it, \
                      and the provider recognizes it.",
                lanes: "aADPBb",
                tables: &["Keys", "Charges", "Provider"],
            },
        }
    }
}

/// All scenarios as JSON. An error if a model can't do what its script says.
pub fn json() -> Result<String, String> {
    let mut designs: Vec<Words> = Vec::new();
    let mut scenarios = Vec::new();
    for scenario in SCENARIOS {
        let [left, right] = scenario.play()?;
        let sides = [scenario.design.words(), scenario.right.words()];
        for words in sides {
            if !designs.contains(&words) {
                designs.push(words);
            }
        }
        let [left_name, right_name] = sides.map(|words| words.name);
        let rows: Vec<String> = side_by_side(left, right).iter().map(row_json).collect();
        scenarios.push(format!(
            "{{\"event\": {:?}, \"designs\": [{left_name:?}, {right_name:?}], \"steps\": [\n{}\n]}}",
            scenario.event.words()[0],
            rows.join(",\n"),
        ));
    }
    let events = Event::ALL.map(|event| format!("{:?}", event.words()));
    let designs: Vec<String> = designs.into_iter().map(Words::json).collect();
    Ok(format!(
        "{{\"events\": [\n{}\n],\n\"designs\": [\n{}\n],\n\"scenarios\": [\n{}\n]}}\n",
        events.join(",\n"),
        designs.join(",\n"),
        scenarios.join(",\n"),
    ))
}

/// The drawings of `docs/retries.md`: each side of three scenarios. An error as of [`json`].
pub fn drawings() -> Result<Vec<String>, String> {
    let drawn = SCENARIOS.iter().filter(|one| {
        let own = (one.event, one.design);
        own == (Event::SecondClick, Design::CheckThenAct)
            || own == (Event::LeaseEndsEarly, Design::Lease)
            || own == (Event::CrashBeforeCommit, Design::TwoTransactions)
    });
    let sides: Result<Vec<_>, _> = drawn.map(Scenario::play).collect();
    Ok(sides?.iter().flatten().map(|side| drawing(side)).collect())
}

/// A line for each process. What is further to the right is later.
fn drawing(side: &[Vec<Step>]) -> String {
    let mut lines = LANES.map(|(process, _)| process.to_owned());
    let (mut at, mut effects) = (4, 0);
    for step in side.iter().flatten() {
        effects = step.effects;
        let Some((process, name)) = step.short else {
            continue;
        };
        let line = &mut lines[process];
        let length = line.chars().count();
        match length {
            1 => line.extend(std::iter::repeat_n(' ', at - length)),
            _ => {
                let dashes = "─".repeat(at - length - 3);
                line.extend([" ", dashes.as_str(), "▶ "]);
            }
        }
        line.push_str(name);
        at = line.chars().count() + 4;
    }
    let [a, b] = lines;
    let space = " ".repeat(at - b.chars().count());
    let count = if effects == 1 {
        "one charge"
    } else {
        "two charges"
    };
    format!("{a}\n{b}{space}{count}\n")
}

/// The event and the design of each scenario.
pub fn doubles() -> impl Iterator<Item = (Event, Design)> {
    SCENARIOS
        .iter()
        .map(|scenario| (scenario.event, scenario.design))
}

/// The steps of two designs. Where one has nothing to do in a part, the other one goes on alone.
fn side_by_side(left: Vec<Vec<Step>>, right: Vec<Vec<Step>>) -> Vec<[Option<Step>; 2]> {
    let mut rows = Vec::new();
    for (left, right) in left.into_iter().zip(right) {
        let length = left.len().max(right.len());
        let (mut left, mut right) = (left.into_iter(), right.into_iter());
        rows.extend((0..length).map(|_| [left.next(), right.next()]));
    }
    rows
}

/// What Rust writes of a text is JSON, for texts of the keyboard.
fn row_json(sides: &[Option<Step>; 2]) -> String {
    let side = |step: &Option<Step>| match step {
        None => "null".to_owned(),
        Some(step) => {
            let rows = |(of, says): &Row| format!("[{of:?},{says:?}]");
            let table = |table: &Vec<Row>| {
                let rows: Vec<String> = table.iter().map(rows).collect();
                format!("[{}]", rows.join(","))
            };
            let tables: Vec<String> = step.tables.iter().map(table).collect();
            let (lanes, says, effects) = (&step.lanes, &step.says, step.effects);
            format!("[{lanes:?},{says:?},[{}],{effects}]", tables.join(","))
        }
    };
    let [left, right] = sides;
    format!("[{},\n {}]", side(left), side(right))
}

mod scripts;
use scripts::SCENARIOS;
