//! Many clients at once, with lost replies, keys that are used for two requests, and crashes. All
//! that the clients were told is kept, and judged at the end.
//!
//! Promise: an attempt without an answer that stays is never taken for an outcome.

use std::{
    fmt::Write,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::future::{join, join_all};
use rand::seq::SliceRandom;
use tokio::sync::watch;

use crate::{
    api::{Api, Ask, Crash, Reply, UNCOUNTED, lock, shell},
    checks::{Flaw, Seen},
    proxy::{CutAt, Proxy},
};

/// What one client did and was told.
struct Visit {
    variant: usize,
    began: Duration,
    ended: Duration,
    /// `None`: the reply was lost on purpose.
    answer: Option<Reply>,
}

/// A key, the one or two requests that are sent under it, and what became of them.
struct KeyHistory {
    variants: Vec<Ask>,
    visits: Mutex<Vec<Visit>>,
}

impl KeyHistory {
    /// The history as a text: what was sent when, and what came back.
    fn describe(&self) -> String {
        let mut text = String::new();
        for visit in lock(&self.visits).iter() {
            let answer = visit.answer.as_ref().map(ToString::to_string);
            let _ = write!(
                text,
                "\n    request {} at {} ms until {} ms: {}",
                visit.variant,
                visit.began.as_millis(),
                visit.ended.as_millis(),
                answer.unwrap_or_else(|| "the reply was lost on purpose".to_owned()),
            );
        }
        text
    }
}

/// Without crashes.
pub(crate) async fn calm(api: &Api) -> Seen {
    storm(api, None).await
}

/// With `--kill` and `--start`, twice.
pub(crate) async fn with_crashes(api: &Api) -> Seen {
    let crash = api.service.crash.as_ref();
    let crash = crash.ok_or_else(|| Flaw::Unknown("no commands: --kill and --start".to_owned()))?;
    storm(api, Some(crash)).await
}

/// Visits of a key's first request, and of its second one.
const VISITS: [usize; 2] = [4, 2];

async fn storm(api: &Api, crash: Option<&Crash>) -> Seen {
    let load = &api.config.load;
    // A status that also means "in use" would not tell the loser from one that waits.
    let fights = !api.config.promises.reuse.contains(&409) && api.config.other.is_some();
    let mut keys = Vec::new();
    let mut plan = Vec::new();
    for number in 0..load.keys {
        let first = api.effect();
        let mut variants = vec![first.clone()];
        if fights && number % 4 == 0 {
            variants.push(api.rival(&first)?);
        }
        for (variant, visits) in (0..variants.len()).zip(VISITS) {
            plan.extend(std::iter::repeat_n((number, variant), visits));
        }
        keys.push(KeyHistory {
            variants,
            visits: Mutex::default(),
        });
    }
    plan.shuffle(&mut rand::rng());
    let asks: Vec<&Ask> = keys.iter().flat_map(|key| &key.variants).collect();
    let tally = api.tally(&asks).await?;

    let began = Instant::now();
    let proxies = proxies(api).await?;
    let next = AtomicUsize::new(0);
    let done = watch::Sender::new(0_usize);
    let client = || async {
        while let Some(&(number, variant)) = plan.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(key) = keys.get(number) {
                visit(api, key, variant, &proxies, began).await?;
            }
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
            let waiting = tokio::time::timeout(load.patience() * 4, waiting);
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
    for key in &keys {
        for (variant, ask) in key.variants.iter().enumerate() {
            let at = began.elapsed();
            let answer = api.settle(ask).await?;
            lock(&key.visits).push(Visit {
                variant,
                began: at,
                ended: began.elapsed(),
                answer: Some(answer),
            });
        }
    }
    judge(api, &keys, tally.made(keys.len() as u64).await?)?;
    let (keys, visits) = (keys.len(), plan.len());
    Ok(format!(
        "{keys} keys, {visits} requests, {crashes} crashes: one effect and one answer each"
    ))
}

/// A proxy for each way to lose a reply. None where connections can't be cut.
async fn proxies(api: &Api) -> Result<Vec<Proxy>, Flaw> {
    let Ok(target) = api.plain_address().await else {
        return Ok(Vec::new());
    };
    let mut proxies = Vec::new();
    for cut in [CutAt::Reply, CutAt::After(Duration::from_millis(5))] {
        let proxy = Proxy::start(target, cut).await;
        proxies.push(proxy.map_err(|error| Flaw::Unknown(format!("no proxy: {error}")))?);
    }
    Ok(proxies)
}

/// Sends one of the key's requests, as a client that loses every second reply and retries.
async fn visit(
    api: &Api,
    key: &KeyHistory,
    variant: usize,
    proxies: &[Proxy],
    storm_began: Instant,
) -> Result<(), Flaw> {
    let Some(ask) = key.variants.get(variant) else {
        return Ok(());
    };
    let began = storm_began.elapsed();
    let loses = rand::random::<u32>() as usize % 4;
    let answer = match proxies.get(loses) {
        Some(proxy) => {
            let _ = api.attempt_through(ask, proxy.address).await;
            None
        }
        None => Some(api.settle(ask).await?),
    };
    lock(&key.visits).push(Visit {
        variant,
        began,
        ended: storm_began.elapsed(),
        answer,
    });
    Ok(())
}

/// What must hold of each key: one request has the effect and one answer, and the other one is
/// refused every time.
fn judge(api: &Api, keys: &[KeyHistory], made: Option<Vec<u64>>) -> Result<(), Flaw> {
    let is_of_one = api.counts_one_request();
    let mut of_each = made.iter().flatten();
    for key in keys {
        let key_made: Vec<u64> = of_each.by_ref().take(key.variants.len()).copied().collect();
        let made = is_of_one.then_some(key_made.as_slice());
        if let Err(what) = judge_key(&api.config.promises.reuse, key, made) {
            let history = key.describe();
            return Err(Flaw::Violated(format!("{what}, of this history:{history}")));
        }
    }
    match made {
        None => Err(Flaw::Unknown(UNCOUNTED.to_owned())),
        // It counts all effects, whichever request they are of.
        Some(made) if !is_of_one && made.first() != Some(&(keys.len() as u64)) => {
            let (made, keys) = (made.first().copied().unwrap_or_default(), keys.len());
            Err(Flaw::Violated(format!("{made} effects of {keys} keys")))
        }
        Some(_) => Ok(()),
    }
}

fn judge_key(reuse: &[u16], key: &KeyHistory, made: Option<&[u64]>) -> Result<(), String> {
    let visits = lock(&key.visits);
    let answers = visits
        .iter()
        .filter_map(|visit| Some((visit.variant, visit.answer.as_ref()?)));
    let mut winner: Option<(usize, &Reply)> = None;
    for (variant, answer) in answers {
        if reuse.contains(&answer.status) && key.variants.len() > 1 {
            continue;
        }
        if !answer.is_success() {
            return Err(format!(
                "a request that succeeds under a new key got {answer}"
            ));
        }
        match winner {
            None => winner = Some((variant, answer)),
            Some((first, _)) if first != variant => {
                return Err("two requests have succeeded under one key".to_owned());
            }
            Some((_, first)) if !first.is_same_outcome(answer) => {
                return Err("there are two answers".to_owned());
            }
            Some(_) => {}
        }
    }
    let Some((winner, _)) = winner else {
        return Err("no request has succeeded".to_owned());
    };
    let made = made.into_iter().flatten().enumerate();
    for (variant, &made) in made {
        let expected = u64::from(variant == winner);
        if made != expected {
            return Err(format!(
                "request {variant} had {made} effects, and {expected} is right"
            ));
        }
    }
    Ok(())
}
