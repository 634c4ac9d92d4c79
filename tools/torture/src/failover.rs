//! The faults of a standby that takes over.
//!
//! Promise: whatever a client was told before is on the standby that takes over, or the checks
//! tell.

use std::time::Duration;

use rand::{RngExt, seq::IndexedRandom};
use rand_chacha::ChaCha12Rng;
use sqlx::AssertSqlSafe;

use crate::{
    cluster::DATABASE,
    nemesis::{pause, session},
    pair::{Comeback, End, Pair},
    proxy::NetworkFault,
    world::World,
};

/// What happens while the standby is cut off.
#[derive(Debug, Clone, Copy)]
enum Meanwhile {
    /// Requests wait.
    Nothing,
    /// A person cancels what waits. PostgreSQL then answers "ok" to COMMIT, with a warning.
    Canceled,
    /// A person ends the sessions that wait. What they committed is visible then.
    Ended,
    /// A person restarts the primary, because all requests hang. What waited is visible then.
    Restarted,
    /// The standby is killed.
    Killed,
}

/// A cancellation is twice as likely as each of the others, because only it is answered with "ok".
const MEANWHILE: [Meanwhile; 5] = [
    Meanwhile::Nothing,
    Meanwhile::Canceled,
    Meanwhile::Canceled,
    Meanwhile::Ended,
    Meanwhile::Restarted,
];

/// The primary ends and the standby takes over: at once, or after it was cut off for a while.
pub(crate) async fn fail_over(world: &World, random: &mut ChaCha12Rng) -> Option<String> {
    let pair = world.cluster.pair.as_ref()?;
    let meanwhile = match random.random_ratio(2, 3) {
        true => Some(*MEANWHILE.choose(random)?),
        false => None,
    };
    if let Some(meanwhile) = meanwhile {
        cut_off(world, pair, meanwhile, random).await;
    }
    let end = match random.random_range(0..3) {
        0 => End::Killed,
        1 => End::Stopped,
        _ => {
            // From now on, the old primary is alone.
            pair.link.inject(NetworkFault::Cut);
            End::LateBy(Duration::from_millis(random.random_range(100..1500)))
        }
    };
    let comeback = match random.random_ratio(2, 3) {
        true => Comeback::Rewound,
        false => Comeback::Afresh,
    };
    if let Err(error) = pair.fail_over(end, comeback).await {
        eprintln!("a failover was not made: {error:#}");
        return None;
    }
    let how = match end {
        End::Killed => "kill -9",
        End::Stopped => "immediate stop",
        End::LateBy(_) => "cut off, stopped late",
    };
    Some(match meanwhile {
        Some(meanwhile) => format!("failover: {how}; before it, {}", name_of(meanwhile)),
        None => format!("failover: {how}"),
    })
}

pub(crate) async fn lose_standby(world: &World, random: &mut ChaCha12Rng) -> Option<String> {
    let pair = world.cluster.pair.as_ref()?;
    let meanwhile = match random.random_ratio(1, 5) {
        true => Meanwhile::Killed,
        false => *MEANWHILE.choose(random)?,
    };
    cut_off(world, pair, meanwhile, random).await;
    pair.link.inject(NetworkFault::None);
    // What was on its way to it meanwhile arrives.
    pause(random, 200, 600).await;
    Some(format!("standby: {}", name_of(meanwhile)))
}

fn name_of(meanwhile: Meanwhile) -> &'static str {
    match meanwhile {
        Meanwhile::Nothing => "cut off",
        Meanwhile::Canceled => "cut off, waits canceled",
        Meanwhile::Ended => "cut off, waiting sessions ended",
        Meanwhile::Restarted => "cut off, primary restarted",
        Meanwhile::Killed => "cut off, killed",
    }
}

async fn cut_off(world: &World, pair: &Pair, meanwhile: Meanwhile, random: &mut ChaCha12Rng) {
    let fault = match random.random_ratio(1, 2) {
        true => NetworkFault::Cut,
        false => NetworkFault::Stalled,
    };
    pair.link.inject(fault);
    pause(random, 300, 1_500).await;
    let done = match meanwhile {
        Meanwhile::Nothing => Ok(()),
        Meanwhile::Canceled => {
            end_waits(world, "pg_cancel_backend", random).await;
            Ok(())
        }
        Meanwhile::Ended => {
            end_waits(world, "pg_terminate_backend", random).await;
            Ok(())
        }
        Meanwhile::Restarted => pair.restart_primary().await,
        Meanwhile::Killed => pair.kill_standby().await,
    };
    if let Err(error) = done {
        eprintln!("not every fault of the standby was made: {error:#}");
    }
    // Clients retry, and read.
    pause(random, 300, 1_500).await;
    // What was silent stays silent.
    pair.link.inject(NetworkFault::Cut);
}

/// Ends waits for the standby, several times, with a function of PostgreSQL that takes a session.
async fn end_waits(world: &World, function: &str, random: &mut ChaCha12Rng) {
    let query = format!(
        "SELECT {function}(pid) FROM pg_stat_activity
          WHERE datname = $1 AND wait_event = 'SyncRep'"
    );
    for _ in 0..random.random_range(1..5) {
        if let Some(mut session) = session(&world.cluster).await {
            let query = AssertSqlSafe(query.as_str());
            let ended = sqlx::query(query).bind(DATABASE).execute(&mut session);
            let _ = tokio::time::timeout(Duration::from_secs(2), ended).await;
        }
        pause(random, 50, 400).await;
    }
}
