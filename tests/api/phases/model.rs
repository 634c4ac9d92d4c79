//! The states of a key, against a model: random sequences of requests, crashes and passing time.

use std::sync::LazyLock;

use charge_once::idempotency::{CallOutcome, Failure, Outcome, Phases, SweepPace, sweep};
use proptest::{prelude::*, test_runner::Config};
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest, prop_state_machine};
use tokio::runtime::Runtime;

use crate::support::{
    effects::request,
    far_side::{Far, LEASE, Network, Start, World},
    prelude::*,
};

/// What happens.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// A client's request, at a replica that may be new. `Far` is what its call would meet.
    Ask {
        content: &'static str,
        far: Far,
    },
    /// The reconciler takes over what waits for it.
    Recover {
        far: Far,
    },
    /// A person says that nothing was executed.
    Resolve,
    /// The holder of the lease has had its time.
    LeaseRunsOut,
    /// The retention passes.
    Expire,
    Sweep,
}

/// How a step must end, where that can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Nothing,
    Executed { status: u16 },
    Replayed { status: u16 },
    Reused,
    InUse,
    Failed,
    Recovered(bool),
    Resolved(bool),
}

#[derive(Debug, Clone, Copy)]
enum Key {
    Free,
    Completed(Completed),
    InFlight(InFlight),
}

#[derive(Debug, Clone, Copy)]
struct Completed {
    content: &'static str,
    status: u16,
    is_expired: bool,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    content: &'static str,
    is_over: bool,
    /// Whether the reconciler's pause is over too.
    is_due: bool,
    /// What the far side has done for this operation: executed or declined it.
    answer: Option<bool>,
}

/// The model: one key, and what the last step must come to.
#[derive(Debug, Clone)]
struct Model {
    key: Key,
    /// How many operations the far side has executed.
    effects: usize,
    expected: Expected,
}

impl Model {
    /// A holder calls the far side for an operation with this answer so far.
    fn call(&mut self, content: &'static str, mut answer: Option<bool>, far: Far, is_first: bool) {
        let had_effect = answer == Some(true);
        match far {
            Far::Executes | Far::DropsAfter => answer = answer.or(Some(true)),
            Far::Declines => answer = answer.or(Some(false)),
            Far::NotExecuted | Far::DropsBefore | Far::CallerDies | Far::ExecutesLater => {}
        }
        if answer == Some(true) && !had_effect {
            self.effects += 1;
        }
        let in_doubt = |is_over| {
            Key::InFlight(InFlight {
                content,
                is_over,
                is_due: false,
                answer,
            })
        };
        (self.key, self.expected) = match (far, answer) {
            (Far::Executes | Far::Declines, Some(executed)) => {
                let status = if executed { 201 } else { 402 };
                let completed = Key::Completed(Completed {
                    content,
                    status,
                    is_expired: false,
                });
                let expected = match is_first {
                    true => Expected::Executed { status },
                    false => Expected::Replayed { status },
                };
                (completed, expected)
            }
            (Far::NotExecuted, _) if is_first => (Key::Free, Expected::Failed),
            (Far::CallerDies, _) => (in_doubt(false), Expected::Failed),
            (_, _) => (in_doubt(true), Expected::Failed),
        };
    }

    fn ask(&mut self, asked: &'static str, far: Far) {
        match self.key {
            Key::Free => self.call(asked, None, far, true),
            Key::Completed(known) if known.is_expired => self.call(asked, None, far, true),
            Key::Completed(Completed { content, .. }) | Key::InFlight(InFlight { content, .. })
                if content != asked =>
            {
                self.expected = Expected::Reused;
            }
            Key::Completed(Completed { status, .. }) => {
                self.expected = Expected::Replayed { status };
            }
            Key::InFlight(known) if !known.is_over => self.expected = Expected::InUse,
            Key::InFlight(known) => self.call(asked, known.answer, far, false),
        }
    }
}

impl ReferenceStateMachine for Model {
    type State = Self;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Self> {
        let nothing = Self {
            key: Key::Free,
            effects: 0,
            expected: Expected::Nothing,
        };
        Just(nothing).boxed()
    }

    fn transitions(_: &Self) -> BoxedStrategy<Step> {
        let far = || {
            prop_oneof![
                3 => Just(Far::Executes),
                1 => Just(Far::Declines),
                1 => Just(Far::NotExecuted),
                1 => Just(Far::DropsBefore),
                1 => Just(Far::DropsAfter),
                1 => Just(Far::CallerDies),
            ]
        };
        let content = prop_oneof![3 => Just("A"), 1 => Just("B")];
        prop_oneof![
            6 => (content, far()).prop_map(|(content, far)| Step::Ask { content, far }),
            2 => far().prop_map(|far| Step::Recover { far }),
            1 => Just(Step::Resolve),
            3 => Just(Step::LeaseRunsOut),
            2 => Just(Step::Expire),
            1 => Just(Step::Sweep),
        ]
        .boxed()
    }

    fn apply(mut model: Self, step: &Step) -> Self {
        model.expected = Expected::Nothing;
        match (*step, &mut model.key) {
            (Step::Ask { content, far }, _) => model.ask(content, far),
            (Step::Recover { far }, Key::InFlight(known)) if known.is_due => {
                let (content, answer) = (known.content, known.answer);
                model.call(content, answer, far, false);
                // A panic of the far side reaches the reconciler's caller.
                model.expected = if far == Far::CallerDies {
                    Expected::Failed
                } else {
                    Expected::Recovered(true)
                };
            }
            (Step::Recover { .. }, _) => model.expected = Expected::Recovered(false),
            (Step::Resolve, Key::InFlight(known)) if known.is_over => {
                // A person who is right. What happens if a person is wrong is no promise.
                if known.answer.is_none() {
                    model.key = Key::Free;
                    model.expected = Expected::Resolved(true);
                }
            }
            (Step::Resolve, _) => model.expected = Expected::Resolved(false),
            (Step::LeaseRunsOut, Key::InFlight(known)) => {
                (known.is_over, known.is_due) = (true, true);
            }
            (Step::Expire, Key::Completed(known)) => known.is_expired = true,
            (Step::Sweep, Key::Completed(known)) if known.is_expired => model.key = Key::Free,
            (Step::LeaseRunsOut | Step::Expire | Step::Sweep, _) => {}
        }
        model
    }
}

/// One database for all cases. Each case begins with empty tables.
static SHARED: LazyLock<(Runtime, World)> = LazyLock::new(|| {
    let runtime = Runtime::new().unwrap();
    let world = runtime.block_on(World::new());
    (runtime, world)
});

/// The crate, a far side of its own, and the last answer that was stored.
struct Subject {
    network: Network,
    replica: Phases<Network>,
    answer: Vec<u8>,
    steps: usize,
}

impl Subject {
    async fn step(&mut self, world: &World, step: Step, expected: Expected) {
        self.steps += 1;
        // A replica of its own now and then: it knows nothing of the others' keys.
        if self.steps.is_multiple_of(3) {
            self.replica = self.start_replica(world);
        }
        self.network.ledger.script.lock().unwrap().clear();
        match step {
            Step::Ask { content, far } => {
                self.network.will(&[far]);
                let asked = request(content, Duration::ZERO);
                let outcome = self.replica.run(asked, Start { refuses: false }).await;
                self.compare(&outcome, expected);
            }
            Step::Recover { far } => {
                self.network.will(&[far]);
                let replica = self.replica.clone();
                let recovered = tokio::spawn(async move { replica.recover_one().await }).await;
                let recovered = recovered.map_or(Expected::Failed, |recovered| {
                    Expected::Recovered(recovered.unwrap())
                });
                assert_eq!(recovered, expected);
            }
            Step::Resolve => {
                let Expected::Resolved(expected) = expected else {
                    return;
                };
                let operation = "SELECT operation FROM idempotency_leases";
                let operations: Vec<Uuid> = world.database.values(operation).await;
                // Without a lease there is nothing to resolve.
                let operation = operations.first().copied().unwrap_or_else(Uuid::now_v7);
                let voided = Failure::unavailable("the far side has voided it");
                let resolving = self
                    .replica
                    .resolve(operation, async |_| CallOutcome::NotExecuted(voided));
                assert_eq!(resolving.await.unwrap(), expected);
            }
            Step::LeaseRunsOut => world.database.expire_leases().await,
            // Whatever its state: only a completed record may expire.
            Step::Expire => {
                let past = "UPDATE idempotency_keys SET created_at = now() - interval '2 days',
                                   expires_at = now() - interval '1 day'";
                world.database.execute(past).await;
            }
            Step::Sweep => {
                let mut connection = world.database.pool.acquire().await.unwrap();
                sweep(&mut connection, SweepPace::default()).await.unwrap();
            }
        }
    }

    fn compare(&mut self, outcome: &Outcome, expected: Expected) {
        let got = match outcome {
            Outcome::Stored {
                record, replayed, ..
            } => {
                let (status, body) = (record.reply.status, &record.reply.body);
                match (replayed, expected) {
                    // Completed by a takeover, and seen for the first time.
                    (true, Expected::Replayed { .. }) if self.answer.is_empty() => {
                        self.answer.clone_from(body);
                    }
                    (true, _) => assert_eq!(body, &self.answer),
                    (false, _) => self.answer.clone_from(body),
                }
                match replayed {
                    true => Expected::Replayed { status },
                    false => Expected::Executed { status },
                }
            }
            Outcome::Reused => Expected::Reused,
            Outcome::InUse { .. } => Expected::InUse,
            Outcome::Failed(_) => Expected::Failed,
            Outcome::Unfinished => panic!("phases judge every row"),
        };
        assert_eq!(got, expected);
    }

    fn start_replica(&self, world: &World) -> Phases<Network> {
        Phases::new(world.idempotency(), self.network.clone(), LEASE).unwrap()
    }
}

impl StateMachineTest for Subject {
    type SystemUnderTest = Self;
    type Reference = Model;

    fn init_test(_: &Model) -> Self {
        let (runtime, world) = &*SHARED;
        runtime.block_on(async {
            let empty = "TRUNCATE idempotency_keys, idempotency_leases, far_operations";
            world.database.execute(empty).await;
            let network = Network::default();
            Self {
                replica: Phases::new(world.idempotency(), network.clone(), LEASE).unwrap(),
                network,
                answer: Vec::new(),
                steps: 0,
            }
        })
    }

    fn apply(mut subject: Self, model: &Model, step: Step) -> Self {
        let (runtime, world) = &*SHARED;
        // An answer belongs to one completion: the next one has another. The reconciler's isn't
        // seen.
        let is_completed = matches!(model.key, Key::Completed(_));
        if !is_completed || matches!(step, Step::Recover { .. }) {
            subject.answer.clear();
        }
        runtime.block_on(subject.step(world, step, model.expected));
        subject
    }

    fn check_invariants(subject: &Self, model: &Model) {
        assert_eq!(subject.network.executed(), model.effects);
        let (runtime, world) = &*SHARED;
        let rows = match model.key {
            Key::Free => (0, 0),
            Key::Completed(_) => (1, 0),
            Key::InFlight(_) => (1, 1),
        };
        let counted = runtime.block_on(async {
            let keys = "SELECT count(*) FROM idempotency_keys";
            let leases = "SELECT count(*) FROM idempotency_leases";
            let database = &world.database;
            (database.count(keys).await, database.count(leases).await)
        });
        assert_eq!(counted, rows, "{:?}", model.key);
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 48, max_shrink_iters: 2000, ..Config::default() })]

    #[test]
    fn a_key_is_in_the_state_that_the_model_says(sequential 1..30 => Subject);
}
