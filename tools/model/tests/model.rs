//! The protocol holds, and doesn't without any one of its guards.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test may stop at the first surprise"
)]

use std::path::Path;

use charge_once_idempotency_model::{
    Protocol,
    claims::Claims,
    counterexample,
    decisions::Decisions,
    explore,
    naive::{Design, Event, Naive},
    phases::PhasesModel,
    replay_cache::ReplayCacheModel,
    scenarios,
};
use stateright::{Checker, Model};

/// Explores a model whole.
fn holds<P: Protocol>() {
    for bounds in P::NARROW {
        let found = explore(P::within(*bounds, None), 2);
        println!("{bounds:?}: {} states in {:?}", found.states, found.took);
        assert!(found.holds(), "{found:#?}");
    }
}

/// Takes the guards out, one after the other, and prints the steps that break a property then.
fn needs_its_guards<P: Protocol>() {
    for guard in P::GUARDS {
        let Some((property, steps)) = counterexample::<P>(*guard) else {
            panic!("nothing happens without {guard:?}");
        };
        println!("without {guard:?}: {property}\n{steps}");
    }
}

#[test]
fn one_transaction_per_key_holds_in_every_state() {
    holds::<Claims>();
}

#[test]
fn one_transaction_per_key_needs_each_of_its_guards() {
    needs_its_guards::<Claims>();
}

#[test]
fn decisions_before_claims_hold_in_every_state() {
    holds::<Decisions>();
}

#[test]
fn decisions_before_claims_need_each_of_their_guards() {
    needs_its_guards::<Decisions>();
}

#[test]
fn phases_hold_in_every_state() {
    holds::<PhasesModel>();
}

#[test]
fn phases_need_each_of_their_guards() {
    needs_its_guards::<PhasesModel>();
}

#[test]
fn the_replay_cache_holds_in_every_state() {
    holds::<ReplayCacheModel>();
}

#[test]
fn the_replay_cache_needs_each_of_its_guards() {
    needs_its_guards::<ReplayCacheModel>();
}

fn guards<P: Protocol>() -> Vec<String> {
    let names = P::GUARDS.iter().map(|guard| format!("{guard:?}"));
    names.collect()
}

/// The page that explains the models shows one counterexample, and names every guard.
#[test]
fn the_page_shows_what_the_checker_finds() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/model.md");
    let page = std::fs::read_to_string(page).unwrap();
    let fence = PhasesModel::GUARDS.first().unwrap();
    let (_, steps) = counterexample::<PhasesModel>(*fence).unwrap();
    assert!(page.contains(&steps), "docs/model.md lacks:\n{steps}");
    let names = [
        guards::<Claims>(),
        guards::<Decisions>(),
        guards::<PhasesModel>(),
        guards::<ReplayCacheModel>(),
    ];
    for name in names.concat() {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/model.md lacks {name}"
        );
    }
}

/// The checker finds two charges where a scenario shows them, and nowhere else.
#[test]
fn each_design_that_looks_right_charges_twice_after_the_events_that_are_shown() {
    let mut found = Vec::new();
    for event in Event::ALL {
        for design in Design::ALL {
            let checker = Naive { design, event }.checker().spawn_bfs().join();
            if checker.discovery("one charge").is_some() {
                found.push((event, design));
            }
        }
        assert_eq!(
            found.last().map(|last| last.0),
            Some(event),
            "it hurts none"
        );
    }
    assert_eq!(found, scenarios::doubles().collect::<Vec<_>>());
}

/// Each step of both sides is what a model does, and the right side charges once.
#[test]
fn the_console_shows_what_the_models_do() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/console/src/protocol.json");
    let json = scenarios::json().unwrap();
    assert!(
        std::fs::read_to_string(&file).unwrap_or_default() == json,
        "run: cargo run --package charge-once-idempotency-model -- --scenarios > {}",
        "crates/console/src/protocol.json"
    );
}

/// The drawings of the essay are paths of the models.
#[test]
fn the_essay_draws_what_the_models_do() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/retries.md");
    let page = std::fs::read_to_string(page).unwrap();
    for drawing in scenarios::drawings().unwrap() {
        assert!(page.contains(&drawing), "docs/retries.md lacks:\n{drawing}");
    }
}
