//! What happens in each scenario, in parts: the first request, what befalls it, and the second one.

use super::{
    Right::{Operation, Transaction},
    Scenario,
    Scripted::{self, Does, Outside, Waits},
};
use crate::{
    claims::ClaimsAction as C,
    naive::{Design, Event, NaiveAction as N},
    phases::PhasesAction as P,
};

/// The servers.
const A: usize = 0;
const B: usize = 1;

/// A design that looks right.
const FIRST: Scripted<N> = Does(N::Arrives(A));
const SECOND: Scripted<N> = Does(N::Arrives(B));
const STEP_A: Scripted<N> = Does(N::Step(A));
const STEP_B: Scripted<N> = Does(N::Step(B));
const STRIKES: Scripted<N> = Does(N::Strikes(A));
const LEASE_ENDS: Scripted<N> = Does(N::LeaseEnds);

/// The protocol in one transaction.
const ARRIVES_A: Scripted<C> = Does(C::Arrives(A, 0, 0));
const ARRIVES_B: Scripted<C> = Does(C::Arrives(B, 0, 0));
const STATEMENT_A: Scripted<C> = Does(C::Statement(A));
const STATEMENT_B: Scripted<C> = Does(C::Statement(B));
const COMMITS_A: Scripted<C> = Does(C::Commits(A));
const COMMITS_B: Scripted<C> = Does(C::Commits(B));
const ANSWERS_A: Scripted<C> = Does(C::Acknowledged(A));
const ANSWERS_B: Scripted<C> = Does(C::Acknowledged(B));
const CRASHES: Scripted<C> = Does(C::Crashes(A));

/// The protocol with a provider.
const CLAIMS_A: Scripted<P> = Does(P::Arrives(A, 0, 0, false));
const CLAIMS_B: Scripted<P> = Does(P::Arrives(B, 0, 0, false));
const CALLS_A: Scripted<P> = Does(P::Calls(A));
const CALLS_B: Scripted<P> = Does(P::Calls(B));
const DELIVERED: Scripted<P> = Does(P::Delivered(0, true, false));
const COMPLETES_A: Scripted<P> = Does(P::Completes(A, false));
const COMPLETES_B: Scripted<P> = Does(P::Completes(B, false));
const DIES: Scripted<P> = Does(P::Dies(A));
const TIME_GOES_ON: Scripted<P> = Does(P::TimeGoesOn);

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        event: Event::SecondClick,
        design: Design::CheckThenAct,
        left: &[&[FIRST, SECOND], &[STEP_A, STEP_B], &[STEP_A, STEP_B]],
        right: Transaction(&[
            &[ARRIVES_A, ARRIVES_B],
            &[STATEMENT_A, Waits(B)],
            &[STATEMENT_A, COMMITS_A, ANSWERS_A, STATEMENT_B, STATEMENT_B],
        ]),
    },
    Scenario {
        event: Event::SecondClick,
        design: Design::ProviderKey,
        left: &[&[FIRST], &[SECOND], &[STEP_A, STEP_B]],
        right: Operation(&[
            &[CLAIMS_A],
            &[CLAIMS_B],
            &[CALLS_A, DELIVERED, COMPLETES_A, CLAIMS_B],
        ]),
    },
    Scenario {
        event: Event::CrashBeforeClaim,
        design: Design::CheckThenAct,
        left: &[
            &[FIRST, STEP_A, STEP_A],
            &[STRIKES],
            &[SECOND, STEP_B, STEP_B],
        ],
        right: Transaction(&[
            &[ARRIVES_A],
            &[CRASHES],
            &[ARRIVES_B, STATEMENT_B, STATEMENT_B, COMMITS_B, ANSWERS_B],
        ]),
    },
    Scenario {
        event: Event::CrashBeforeCommit,
        design: Design::TwoTransactions,
        left: &[&[FIRST, STEP_A], &[STRIKES], &[SECOND, STEP_B]],
        right: Transaction(&[
            &[ARRIVES_A, STATEMENT_A, STATEMENT_A],
            &[CRASHES],
            &[
                ARRIVES_B,
                Waits(B),
                Does(C::OrphanRollsBack(0)),
                STATEMENT_B,
                STATEMENT_B,
                COMMITS_B,
                ANSWERS_B,
            ],
        ]),
    },
    Scenario {
        event: Event::CrashBeforeCommit,
        design: Design::ProviderKey,
        left: &[&[FIRST, STEP_A], &[STRIKES], &[SECOND, STEP_B]],
        right: Operation(&[
            &[CLAIMS_A, CALLS_A, DELIVERED],
            &[DIES, TIME_GOES_ON, TIME_GOES_ON],
            &[CLAIMS_B, CALLS_B, DELIVERED, COMPLETES_B],
        ]),
    },
    Scenario {
        event: Event::CrashAfterCommit,
        design: Design::Lease,
        left: &[
            &[FIRST, STEP_A, STEP_A, STEP_A],
            &[STRIKES, LEASE_ENDS],
            &[SECOND, STEP_B, STEP_B, STEP_B],
        ],
        right: Transaction(&[
            &[ARRIVES_A, STATEMENT_A, STATEMENT_A, COMMITS_A],
            &[CRASHES],
            &[ARRIVES_B, STATEMENT_B, STATEMENT_B],
        ]),
    },
    Scenario {
        event: Event::CrashAfterCommit,
        design: Design::ProviderKey,
        left: &[&[FIRST, STEP_A, STEP_A], &[STRIKES], &[SECOND, STEP_B]],
        right: Operation(&[
            &[CLAIMS_A, CALLS_A, DELIVERED, Does(P::Completes(A, true))],
            &[DIES],
            &[CLAIMS_B],
        ]),
    },
    Scenario {
        event: Event::LostReply,
        design: Design::ProviderKey,
        left: &[&[FIRST, STEP_A, STEP_A], &[STRIKES], &[SECOND, STEP_B]],
        right: Operation(&[
            &[CLAIMS_A, CALLS_A, DELIVERED, COMPLETES_A],
            &[Outside("Aa!", "The reply gets lost. Client A can't know.")],
            &[CLAIMS_B],
        ]),
    },
    Scenario {
        event: Event::LeaseEndsEarly,
        design: Design::Lease,
        left: &[
            &[FIRST, STEP_A, STEP_A],
            &[LEASE_ENDS],
            &[SECOND, STEP_B, STEP_B, STEP_B],
            &[STEP_A],
        ],
        right: Transaction(&[
            &[ARRIVES_A, STATEMENT_A],
            &[Does(C::Tick)],
            &[ARRIVES_B, Waits(B)],
            &[STATEMENT_A, COMMITS_A, ANSWERS_A, STATEMENT_B, STATEMENT_B],
        ]),
    },
    Scenario {
        event: Event::CacheForgets,
        design: Design::Lease,
        left: &[
            &[FIRST, STEP_A, STEP_A, STEP_A, STEP_A, STEP_A],
            &[Does(N::CacheForgets)],
            &[SECOND, STEP_B, STEP_B, STEP_B],
        ],
        right: Transaction(&[
            &[ARRIVES_A, STATEMENT_A, STATEMENT_A, COMMITS_A, ANSWERS_A],
            &[Outside(
                "A!",
                "Server A is started again. The key is a row, and stays.",
            )],
            &[ARRIVES_B, STATEMENT_B, STATEMENT_B],
        ]),
    },
    Scenario {
        event: Event::ProviderTimeout,
        design: Design::ProviderKey,
        left: &[&[FIRST, STEP_A], &[STRIKES], &[SECOND, STEP_B]],
        right: Operation(&[
            &[CLAIMS_A, CALLS_A, Does(P::Delivered(0, true, true))],
            &[Does(P::CallTimeout(A)), COMPLETES_A],
            &[CLAIMS_B, CALLS_B, DELIVERED, COMPLETES_B],
        ]),
    },
];
