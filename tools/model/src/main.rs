//! Explores the models and prints what it found: `[--wide] [GUARD…]`. With guards, it prints the
//! steps that break a property without each of them. `--scenarios` prints what the console shows.

use std::process::ExitCode;

use charge_once_idempotency_model::{
    Protocol, claims::Claims, counterexample, decisions::Decisions, explore, phases::PhasesModel,
    replay_cache::ReplayCacheModel, scenarios,
};

/// On as many cores as CI has.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let mut guards: Vec<String> = std::env::args().skip(1).collect();
    if guards.first().is_some_and(|first| first == "--scenarios") {
        return match scenarios::json() {
            Ok(json) => {
                print!("{json}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let is_wide = guards.first().is_some_and(|first| first == "--wide");
    guards.drain(..usize::from(is_wide));
    let runs = [
        run::<Claims>("claims", is_wide, &guards),
        run::<Decisions>("decisions", is_wide, &guards),
        run::<PhasesModel>("phases", is_wide, &guards),
        run::<ReplayCacheModel>("replay_cache", is_wide, &guards),
    ];
    match runs.into_iter().all(|holds| holds) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Whether all properties hold, or each wanted guard of this model is needed.
fn run<P: Protocol>(name: &str, is_wide: bool, guards: &[String]) -> bool {
    let mut holds = true;
    if guards.is_empty() {
        for bounds in if is_wide { P::WIDE } else { P::NARROW } {
            let found = explore(P::within(*bounds, None), THREADS);
            println!(
                "{name}: {} states in {:.1} s, {bounds:?}, depth {}",
                found.states,
                found.took.as_secs_f32(),
                found.depth
            );
            holds &= found.holds();
            for (property, steps) in found.broken {
                println!("{property} does not hold:\n{steps}");
            }
        }
    }
    for guard in P::GUARDS {
        if guards.contains(&format!("{guard:?}")) {
            match counterexample::<P>(*guard) {
                Some((property, steps)) => {
                    println!("{name} without {guard:?}: {property}\n{steps}")
                }
                None => holds = false,
            }
        }
    }
    holds
}
