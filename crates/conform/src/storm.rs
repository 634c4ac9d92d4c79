//! Many clients at once, with lost replies, keys that are used for two requests, and crashes. All
//! that the clients were told is kept, and judged at the end.
//!
//! Promise: an attempt without an answer that stays is never taken for an outcome.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join, join_all};
use rand::seq::SliceRandom;
use tokio::sync::watch;

use crate::{
    api::{Api, Ask, Crash, Reply, UNCOUNTED, shell},
    checks::{Flaw, Parameters, Seen, same, succeeded, unknown},
    config::Difference,
    history::Attempt,
    proxy::{CutAt, Loss},
};

/// With `--kill` and `--start`, each time that an effect is there, and twice in a storm.
pub(crate) async fn with_crashes(api: &Api, with: &Parameters) -> Seen {
    let Some(crash) = &api.service.crash else {
        return unknown("no commands: --kill and --start");
    };
    let at_effects = crashes_at_effects(api, with.rounds, crash).await?;
    let stormy = storm(api, with, Some(crash)).await?;
    Ok(format!(
        "{at_effects} crashes right after an effect; {stormy}"
    ))
}

/// Kills the service as soon as an effect is counted: that is before its request is answered, if
/// that takes a moment. Returns how often.
async fn crashes_at_effects(api: &Api, rounds: usize, crash: &Crash) -> Result<usize, Flaw> {
    if api.config.count.is_none() {
        return Ok(0);
    }
    let kinds = api.config.slow.iter().chain([&api.config.effect]);
    let mut crashes = 0;
    for template in kinds.flat_map(|kind| std::iter::repeat_n(kind, rounds)) {
        let ask = api.ask(template);
        let round = async {
            let tally = api.tally(&[&ask]).await?;
            let killing = async {
                let has_effect = tally.begins().await?;
                shell(&crash.kill, false).await.map_err(Flaw::Unknown)?;
                Ok::<bool, Flaw>(has_effect)
            };
            let (told, has_effect) = join(api.attempt(&ask, api.url()), killing).await;
            let has_effect = has_effect?;
            shell(&crash.start, false).await.map_err(Flaw::Unknown)?;
            if !has_effect {
                return unknown("a request had no effect before the crash");
            }
            let answer = api.settle(&ask).await?;
            succeeded("a retry after a crash", &answer)?;
            match told {
                // A reply that a client has read was stored, and that did not outlive the crash.
                Ok(told) if told.is_success() => {
                    same(&told, &answer).map_err(|flaw| flaw.mended_by("shared"))
                }
                Ok(_) | Err(_) => Ok(()),
            }
        };
        api.with_effects(&ask, 1, round).await?;
        crashes += 1;
    }
    Ok(crashes)
}

/// Whether two requests can fight for one key. A status that also means "in use" would not tell the
/// loser from one that waits.
fn fights(api: &Api) -> bool {
    let promises = &api.config.promises;
    let tells = |status: &u16| promises.in_progress.contains(status);
    promises.other_body == Difference::Refused
        && !promises.reuse.is_empty()
        && !promises.reuse.iter().any(tells)
        && api.config.other.is_some()
        && !api.is_found_by("reuse_body")
}

pub(crate) async fn storm(api: &Api, with: &Parameters, crash: Option<&Crash>) -> Seen {
    let load = &api.config.load;
    let fights = fights(api);
    let mut keys = Vec::new();
    let mut plan = Vec::new();
    for number in 0..load.keys {
        let first = api.effect();
        let mut variants = vec![first.clone()];
        if fights && number % 4 == 0 {
            variants.push(api.rival(&first)?);
        }
        for (ask, visits) in variants.iter().zip(&with.visits) {
            plan.extend(std::iter::repeat_n(ask.clone(), *visits));
        }
        keys.push(variants);
    }
    plan.shuffle(&mut rand::rng());
    let asks: Vec<&Ask> = keys.iter().flatten().collect();
    let tally = api.tally(&asks).await?;

    let mut losses = Vec::new();
    for cut in CutAt::each(&with.cuts_ms) {
        losses.push(api.losing(cut).await?);
    }
    let next = AtomicUsize::new(0);
    let done = watch::Sender::new(0_usize);
    let client = || async {
        while let Some(ask) = plan.get(next.fetch_add(1, Ordering::Relaxed)) {
            visit(api, ask, &losses).await?;
            done.send_modify(|done| *done += 1);
        }
        Ok(())
    };
    let clients = join_all((0..load.clients).map(|_| client()));
    let crashes = async {
        let mut crashes = 0;
        let mut progress = done.subscribe();
        for third in [1, 2] {
            let reached = plan.len() * third / 3;
            let waiting = progress.wait_for(|done| *done >= reached);
            // A client that gives up ends the storm, and then no crash is waited for.
            let waiting = tokio::time::timeout(api.config.patience() * 4, waiting);
            if let Some(crash) = crash
                && waiting.await.is_ok()
            {
                shell(&crash.kill, false).await.map_err(Flaw::Unknown)?;
                shell(&crash.start, false).await.map_err(Flaw::Unknown)?;
                crashes += 1;
            }
        }
        Ok::<usize, Flaw>(crashes)
    };
    let (clients, crashes) = join(clients, crashes).await;
    let crashes = crashes?;
    clients.into_iter().collect::<Result<(), Flaw>>()?;

    // Every request is asked for again, when all is quiet.
    for ask in asks {
        api.settle(ask).await?;
    }
    judge(api, &keys, tally.made(keys.len() as u64).await?)?;
    let (keys, visits) = (keys.len(), plan.len());
    Ok(format!(
        "{keys} keys, {visits} requests, {crashes} crashes: one effect and one answer each"
    ))
}

/// Sends the request, as a client that loses every second reply and retries.
async fn visit(api: &Api, ask: &Ask, losses: &[Loss]) -> Result<(), Flaw> {
    let loses = rand::random::<u32>() as usize % 4;
    match losses.get(loses) {
        Some(loss) => drop(api.attempt_losing(ask, loss).await),
        None => drop(api.settle(ask).await?),
    }
    Ok(())
}

/// What must hold of each key: one request has the effect and one answer, and the other one is
/// refused every time.
fn judge(api: &Api, keys: &[Vec<Ask>], made: Option<Vec<u64>>) -> Result<(), Flaw> {
    let is_of_one = api.counts_one_request();
    let mut of_each = made.iter().flatten();
    for key in keys {
        let key_made: Vec<u64> = of_each.by_ref().take(key.len()).copied().collect();
        let made: &[u64] = if is_of_one { &key_made } else { &[] };
        let attempts = api.history.of(key.first().map_or("", Ask::key));
        judge_key(api, key, made, attempts)?;
    }
    match made {
        None => unknown(UNCOUNTED),
        // It counts all effects, whichever request they are of.
        Some(made) if !is_of_one && made.first() != Some(&(keys.len() as u64)) => {
            let (made, keys) = (made.first().copied().unwrap_or_default(), keys.len() as u64);
            Err(Flaw::miscounted(made, keys, Vec::new()))
        }
        Some(_) => Ok(()),
    }
}

/// `made`: the effects of each request, or nothing where all effects are counted together.
fn judge_key(api: &Api, key: &[Ask], made: &[u64], attempts: Vec<Attempt>) -> Result<(), Flaw> {
    let sum: u64 = made.iter().sum();
    if sum > 1 {
        return Err(Flaw::miscounted(sum, 1, attempts));
    }
    let seen = judge_answers(api, key, made, &attempts);
    seen.map_err(|flaw| flaw.because(attempts))
}

fn judge_answers(api: &Api, key: &[Ask], made: &[u64], attempts: &[Attempt]) -> Result<(), Flaw> {
    let mut winner: Option<(u32, &Reply)> = None;
    for attempt in attempts {
        let Ok(answer) = &attempt.told else { continue };
        let is_reuse = api.config.promises.reuse.contains(&answer.status) && key.len() > 1;
        if is_reuse || !(api.is_definite(answer) || api.is_marked(answer)) {
            continue;
        }
        if !answer.is_success() {
            let what = format!("a request that succeeds under a new key got {answer}");
            return Err(Flaw::violated(what).costing("failed"));
        }
        match winner {
            None => winner = Some((attempt.number, answer)),
            Some((first, _)) if first != attempt.number => {
                let flaw = Flaw::violated("two requests have succeeded under one key");
                return Err(flaw.costing("repeated"));
            }
            Some((_, first)) => same(first, answer)?,
        }
    }
    let Some((winner, _)) = winner else {
        let mut told = attempts
            .iter()
            .filter_map(|attempt| attempt.told.as_ref().ok());
        // Each was refused as another request with its key, which did not succeed either.
        let cost = match told.any(|answer| api.is_definite(answer)) {
            true => "failed",
            false => "endless",
        };
        return Err(Flaw::violated("no request has succeeded").costing(cost));
    };
    let of_winner = key.iter().zip(made).find(|(ask, _)| ask.number == winner);
    match of_winner {
        Some((_, 0)) => Err(Flaw::miscounted(0, 1, Vec::new())),
        _ => Ok(()),
    }
}
