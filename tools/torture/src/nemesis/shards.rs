//! The faults of a service with several databases: one of them is gone, or cut off, and so is what
//! works beside the servers.

use std::sync::Mutex;

use chrono::Utc;
use rand::{
    RngExt,
    seq::{IndexedRandom, SliceRandom},
};
use rand_chacha::ChaCha12Rng;

use super::{FaultMade, Faults, inject, kill, network_fault, pause, stop_for_a_while};
use crate::{history, shards::Worker, world::World};

/// Each as often as it is dealt.
const DECK: [ShardFault; 7] = [
    ShardFault::Down,
    ShardFault::Down,
    ShardFault::CutOff,
    ShardFault::CutOff,
    ShardFault::KillWork,
    ShardFault::StopWork,
    ShardFault::ReplaceWork,
];

#[derive(Debug, Clone, Copy)]
enum ShardFault {
    Down,
    CutOff,
    KillWork,
    StopWork,
    ReplaceWork,
}

/// Makes faults until it is dropped. They meet those of the other decks.
pub(super) async fn rage(world: &World, random: &mut ChaCha12Rng, faults: &Mutex<Faults>) {
    if world.shards.is_empty() {
        return;
    }
    let mut deck = DECK;
    loop {
        deck.shuffle(random);
        for kind in deck {
            pause(random, 1_000, 4_000).await;
            let _is_allowed = world.moves.faults.read().await;
            let began = Utc::now();
            if let Some(name) = strike(world, kind, random).await {
                let ended = Utc::now();
                history::lock(faults).push(FaultMade { name, began, ended });
            }
        }
    }
}

/// Makes one fault and ends it. `None`: it was not made, or nothing met it.
async fn strike(world: &World, kind: ShardFault, random: &mut ChaCha12Rng) -> Option<String> {
    let database = random.random_range(0..world.clusters().len());
    let Worker { process, .. } = world.workers.choose(random)?;
    match kind {
        ShardFault::Down => {
            let cluster = *world.clusters().get(database)?;
            let is_down = cluster.take_down().await;
            pause(random, 1_000, 6_000).await;
            cluster.bring_up();
            is_down.then(|| "a shard is down".to_owned())
        }
        ShardFault::CutOff => {
            let fault = network_fault(random);
            let networks = world.networks_to(database);
            inject("all networks to a shard", networks, fault, random).await
        }
        ShardFault::KillWork => {
            let is_killed = kill(process, 3_000, random).await?;
            is_killed.then(|| "kill -9 of work".to_owned())
        }
        ShardFault::StopWork => {
            let is_stopped = stop_for_a_while(process, random).await;
            is_stopped.then(|| "SIGSTOP of work".to_owned())
        }
        ShardFault::ReplaceWork => {
            process.replace().await.ok()?;
            Some("restart of work".to_owned())
        }
    }
}
