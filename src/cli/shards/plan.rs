//! Which moves would even out what shards have to do. It moves nothing, and asks no database.
//!
//! Promise: each move takes from the busiest shard what brings it and the least busy one closest
//! together, and no account is named twice.

use std::{collections::HashSet, sync::Arc};

use uuid::Uuid;

use crate::database::shard_load::ShardLoad;

/// A move must take at least this part of the busiest shard's events from it: less is not worth a
/// copy.
const WORTH: i64 = 20;

/// A shard, and what could be taken from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Burden {
    pub(super) shard: Arc<str>,
    /// Of all its accounts, in an hour.
    pub(super) events: i64,
    /// Accounts that may move, and their events.
    movable: Vec<(Uuid, i64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Proposal {
    pub(super) account: Uuid,
    pub(super) from: Arc<str>,
    pub(super) to: Arc<str>,
    events: i64,
}

/// What shards have to do. A test account can't be moved, and one that moves already stays where
/// this move brings it.
pub(super) fn burdens<'s>(
    shards: impl Iterator<Item = (&'s Arc<str>, &'s ShardLoad)> + Clone,
) -> Vec<Burden> {
    let moves = shards.clone().flat_map(|(_, load)| &load.moves);
    let on_their_way: HashSet<_> = moves.map(|one| one.account_id).collect();
    let burden = |(shard, load): (&Arc<str>, &ShardLoad)| {
        let accounts = load.accounts.iter();
        let movable = accounts.filter(|one| !one.is_test && !on_their_way.contains(&one.id));
        Burden {
            shard: Arc::clone(shard),
            events: load.events(),
            movable: movable.map(|one| (one.id, one.events)).collect(),
        }
    };
    shards.map(burden).collect()
}

/// At most `limit` moves, one after the other. Afterwards, the burdens are as after the moves.
pub(super) fn plan(burdens: &mut [Burden], limit: usize) -> Vec<Proposal> {
    let mut proposals = Vec::new();
    while proposals.len() < limit {
        let Some(proposal) = next(burdens) else {
            break;
        };
        for burden in burdens.iter_mut() {
            if burden.shard == proposal.from {
                burden.events -= proposal.events;
                burden.movable.retain(|(id, _)| *id != proposal.account);
            } else if burden.shard == proposal.to {
                // It stays there: what is planned is no reason to move it again.
                burden.events += proposal.events;
            }
        }
        proposals.push(proposal);
    }
    proposals
}

fn next(burdens: &[Burden]) -> Option<Proposal> {
    let busiest = burdens.iter().max_by_key(|one| one.events)?;
    let idlest = burdens.iter().min_by_key(|one| one.events)?;
    let gap = busiest.events - idlest.events;
    // How much less the busier one of the two then has to do.
    let gain = |events: i64| events.min(gap - events);
    let (account, events) = *busiest
        .movable
        .iter()
        .max_by_key(|(_, events)| (gain(*events), -events))?;
    let is_worth_it = gain(events) > 0 && gain(events) * WORTH >= busiest.events;
    is_worth_it.then(|| Proposal {
        account,
        from: Arc::clone(&busiest.shard),
        to: Arc::clone(&idlest.shard),
        events,
    })
}

#[cfg(test)]
mod tests {
    use chrono::Utc;

    use super::*;
    use crate::database::{move_account::KnownMove, shard_load::AccountLoad};

    /// Shards called `a`, `b` and so on, with the events of their accounts, whose ids are 0, 1 and
    /// so on.
    fn loads(shards: &str) -> Vec<(Arc<str>, ShardLoad)> {
        let mut ids = 0_u128..;
        let mut account = |events: &str| {
            let id = Uuid::from_u128(ids.next().unwrap());
            AccountLoad {
                id,
                name: format!("account {id}"),
                is_test: false,
                events: events.parse().unwrap(),
                rows: None,
            }
        };
        let load = |accounts: &str| ShardLoad {
            bytes: 0,
            rows: 0,
            keys: 0,
            accounts: accounts.split_whitespace().map(&mut account).collect(),
            standbys: Vec::new(),
            moves: Vec::new(),
        };
        let names = ('a'..='z').map(|name| name.to_string().into());
        names.zip(shards.split(';').map(load)).collect()
    }

    /// The accounts that move, with where from and where to, and what each shard then has to do.
    fn planned(loads: &[(Arc<str>, ShardLoad)], limit: usize) -> (Vec<String>, Vec<i64>) {
        let mut burdens = burdens(loads.iter().map(|(name, load)| (name, load)));
        let told = plan(&mut burdens, limit).into_iter();
        let told = told.map(|one| format!("{} {}{}", one.account.as_u128(), one.from, one.to));
        let events = burdens.iter().map(|one| one.events);
        (told.collect(), events.collect())
    }

    #[test]
    fn the_account_moves_that_brings_two_shards_closest_together() {
        for (shards, limit, moves, then) in [
            ("60 30 10;", 1, "0 ab", "40 60"),
            // Of two that are as good, the smaller one is the smaller copy.
            ("50 30 20;20", 1, "1 ab", "70 50"),
            ("40 40 40 40;40;", 1, "3 ac", "120 40 40"),
            ("40 40 40 40;40;", 9, "3 ac,2 ab", "80 80 40"),
            // One as large as the gap, or larger, would only turn it around.
            ("50 50;50", 9, "", "100 50"),
            ("100;10", 9, "", "100 10"),
            ("100 6;10", 9, "1 ab", "100 16"),
            // Not worth a copy.
            ("100 4;10", 9, "", "104 10"),
            ("0 0;0", 9, "", "0 0"),
            ("70 30", 9, "", "100"),
            ("70 30;", 0, "", "100 0"),
        ] {
            let (told, events) = planned(&loads(shards), limit);
            let events: Vec<_> = events.iter().map(i64::to_string).collect();
            assert_eq!(
                (&*told.join(","), &*events.join(" ")),
                (moves, then),
                "{shards}"
            );
        }
    }

    #[test]
    fn what_can_t_move_or_moves_already_is_not_proposed() {
        let mut shards = loads("60 40 1;");
        assert_eq!(planned(&shards, 1).0, ["0 ab"]);
        for (_, load) in &mut shards {
            for account in &mut load.accounts {
                account.is_test = account.events == 60;
            }
        }
        assert_eq!(planned(&shards, 1).0, ["1 ab"]);
        // Its new home knows of it, too, and may be the only one that does.
        for (_, load) in shards.iter_mut().skip(1) {
            load.moves.push(KnownMove {
                account_id: Uuid::from_u128(1),
                name: None,
                state: "arriving".to_owned(),
                other: "a".to_owned(),
                since: Utc::now(),
                kept_bytes: None,
                is_worked_on: false,
            });
        }
        assert_eq!(planned(&shards, 1), (Vec::new(), vec![101, 0]));
    }

    #[test]
    fn no_account_moves_twice_and_the_busiest_shard_never_has_more_to_do() {
        // Numbers without a pattern, always the same.
        let mut number = 7_i64;
        for _ in 0..500 {
            let mut any = |limit: i64| {
                number = (number * 75 + 74) % 65_537;
                number % limit
            };
            let shards: Vec<String> = (0..any(5) + 2)
                .map(|_| (0..any(12)).map(|_| format!("{} ", any(1_000))).collect())
                .collect();
            let shards = shards.join(";");
            let loads = loads(&shards);
            let mut burdens = burdens(loads.iter().map(|(name, load)| (name, load)));
            let most = |burdens: &[Burden]| burdens.iter().map(|one| one.events).max();
            let all = |burdens: &[Burden]| burdens.iter().map(|one| one.events).sum::<i64>();
            let (mut before, sum) = (most(&burdens), all(&burdens));
            let mut moved = HashSet::new();
            while let [proposal] = &*plan(&mut burdens, 1) {
                assert!(moved.insert(proposal.account), "{shards}");
                assert!(most(&burdens) <= before, "{shards}");
                before = most(&burdens);
            }
            assert_eq!(all(&burdens), sum);
        }
    }
}
