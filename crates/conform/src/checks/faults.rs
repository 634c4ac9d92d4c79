//! Requests at once, connections that end, and processes that forget.

use std::time::{Duration, Instant};

use futures_util::{
    StreamExt,
    future::{join, join_all},
    stream,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::watch};

use super::{Flaw, Parameters, Seen, same, succeeded, unknown};
use crate::{
    api::{Api, Ask, Reply, given, says},
    config::{Expired, InFlight},
    proxy::CutAt,
};

/// Sends the request from all clients at once, to each replica in turn. Each gets the one answer,
/// or is told to come again and gets it later. Returns how many were told so.
async fn race(api: &Api, ask: &Ask) -> Result<usize, Flaw> {
    let (answer, attempts) = at_once(api, ask).await?;
    let conflicts = agree(api, attempts, |reply| same(&answer, reply))?;
    succeeded("the race", &answer)?;
    Ok(conflicts)
}

/// The answer that stays, and what each racer got.
async fn at_once(api: &Api, ask: &Ask) -> Result<(Reply, Vec<Result<Reply, String>>), Flaw> {
    let targets = api.each_url().take(api.config.load.clients);
    let attempts = join_all(targets.map(|url| api.attempt(ask, url))).await;
    Ok((api.settle(ask).await?, attempts))
}

/// How many were told to come again. What the others got is judged.
fn agree(
    api: &Api,
    attempts: Vec<Result<Reply, String>>,
    judge: impl Fn(&Reply) -> Result<(), Flaw>,
) -> Result<usize, Flaw> {
    let mut conflicts = 0;
    for attempt in attempts {
        match attempt {
            Ok(reply) if api.is_in_progress(&reply) => conflicts += 1,
            Ok(reply) if reply.status == 429 => {}
            Ok(reply) => judge(&reply)?,
            Err(error) => return Err(unanswered("a racer", &error)),
        }
    }
    Ok(conflicts)
}

fn unanswered(client: &str, error: &str) -> Flaw {
    Flaw::violated(format!("{client} got no reply: {error}")).costing("endless")
}

/// Races for several new keys. A race for one may be over before it begins.
pub(super) async fn racers(api: &Api, with: &Parameters) -> Seen {
    let keys = with.keys;
    let mut conflicts = 0;
    for _ in 0..keys {
        let ask = api.effect();
        conflicts += api.with_effects(&ask, 1, race(api, &ask)).await?;
    }
    let clients = api.config.load.clients;
    Ok(format!(
        "{keys} times {clients} requests: one effect each; {conflicts} came again"
    ))
}

pub(super) async fn second_replica(api: &Api, with: &Parameters) -> Seen {
    let Some(replica) = api.service.replicas.first() else {
        return unknown("no second URL: --replica");
    };
    let ask = api.effect();
    let twice = async {
        let first = api.executed(&ask).await?;
        let retry = api.attempt(&ask, replica).await;
        same(&first, &retry.map_err(Flaw::Unknown)?)
    };
    api.with_effects(&ask, 1, twice).await?;
    racers(api, with).await
}

pub(super) async fn in_flight(api: &Api, with: &Parameters) -> Seen {
    let ask = api.ask(given(api.config.slow.as_ref(), "[slow]")?);
    let pause = Duration::from_millis(with.pause_ms);
    api.with_effects(&ask, 1, overlap(api, &ask, pause)).await
}

/// Sends duplicates for as long as the first request works, and one after. A claim that ends before
/// its work, such as a lease of Redis, lets one of them in.
///
/// `pause`: from one duplicate to the next. After the first pause, the first request has begun.
async fn overlap(api: &Api, ask: &Ask, pause: Duration) -> Seen {
    let began = Instant::now();
    let over = watch::Sender::new(false);
    let first = async {
        let first = api.attempt(ask, api.url()).await;
        over.send_replace(true);
        (first, began.elapsed())
    };
    let ticks = stream::unfold(over.subscribe(), |mut over| async move {
        // In long work, an eighth of it: some dozens of duplicates at most are under way.
        let longer = pause.max(began.elapsed() / 8);
        let waiting = tokio::time::timeout(longer, over.wait_for(|over| *over));
        let is_over = waiting.await.is_ok();
        (!is_over).then_some(((), over))
    });
    let sending = ticks.zip(stream::iter(api.each_url()));
    let duplicates = sending
        .map(|((), url)| api.attempt(ask, url))
        .buffered(usize::MAX)
        .collect::<Vec<_>>();
    let ((first, took), duplicates) = join(first, duplicates).await;
    let took_ms = took.as_millis();

    let answer = match first {
        Ok(first) if took < pause * 2 => {
            return unknown(format!("[slow] was not slow: {first} after {took_ms} ms"));
        }
        Ok(first) if first.is_success() => first,
        Ok(first) if api.is_definite(&first) => return unknown(format!("[slow] got {first}")),
        // It failed, or gave way to a duplicate. The answer is that of a retry.
        Ok(_) | Err(_) => api.settle(ask).await?,
    };
    succeeded("[slow]", &answer)?;
    let mut conflicts = Vec::new();
    for duplicate in &duplicates {
        match duplicate {
            Ok(reply) if api.is_in_progress(reply) => conflicts.push(reply),
            Ok(reply) if reply.status == 429 => {}
            Ok(reply) => same(&answer, reply)?,
            Err(error) => return Err(unanswered("a duplicate", error)),
        }
    }
    same(&answer, &api.send(ask).await?)?;
    let promised = api.config.promises.retry_after;
    let lacks = |reply: &&&Reply| promised && reply.header("retry-after").is_none();
    if let Some(without) = conflicts.iter().find(lacks) {
        return Err(Flaw::lesser(
            format!("{} without Retry-After", without.status),
            "no_time",
            "retry_after",
        ));
    }
    let first = duplicates.first().and_then(|first| first.as_ref().ok());
    if first.is_some_and(Reply::is_success) && api.config.promises.in_flight == InFlight::Conflict {
        return Err(Flaw::lesser(
            "a duplicate waited for the first answer, and \"in progress\" is promised",
            "held",
            "at_once",
        ));
    }
    let sent = duplicates.len();
    let told = conflicts.first().map(|reply| format!("{}", reply.status));
    let got = told.unwrap_or_else(|| "the first answer".to_owned());
    Ok(format!(
        "{sent} duplicates in the {took_ms} ms of its work got {got}"
    ))
}

/// One retry after a silence. Duplicates before it can keep a lease alive that the work does not.
pub(super) async fn lease(api: &Api, with: &Parameters) -> Seen {
    // Shorter work leaves no time in which a retry comes surely.
    let work_min = Duration::from_millis(with.work_min_ms);
    let slow = given(api.config.slow.as_ref(), "[slow]")?;
    let began = Instant::now();
    let alone = api.send(&api.ask(slow)).await?;
    let took = began.elapsed();
    if !alone.is_success() || took < work_min {
        let took_ms = took.as_millis();
        return unknown(format!("[slow] got {alone} after {took_ms} ms"));
    }
    let silence = took * with.retry_percent / 100;
    let silence_ms = silence.as_millis();
    let ask = api.ask(slow);
    let overlapping = async {
        let retrying = async {
            tokio::time::sleep(silence).await;
            api.settle(&ask).await
        };
        let attempting = async {
            let sent = Instant::now();
            let first = api.attempt(&ask, api.url()).await;
            (first, sent.elapsed())
        };
        let ((first, took), answer) = join(attempting, retrying).await;
        let answer = answer?;
        succeeded("a retry of [slow]", &answer)?;
        match first {
            Ok(first) if api.is_definite(&first) => same(&first, &answer)?,
            Ok(_) | Err(_) => {}
        }
        Ok(took > silence)
    };
    if !api.with_effects(&ask, 1, overlapping).await? {
        return unknown("[slow] had ended before its retry came");
    }
    let held = format!("no effect of a retry at {silence_ms} ms");
    match api.config.promises.lease() {
        Some(lease) if silence <= Duration::from_secs(lease) => unknown(format!(
            "{held}, but the lease is of {lease} s: let [slow] work for {} s",
            lease * 4 / 3 + 1
        )),
        Some(lease) => Ok(format!("{held}, and the lease is of {lease} s")),
        None => Ok(format!("{held}; no lease is promised")),
    }
}

pub(super) async fn lost_reply(api: &Api, with: &Parameters) -> Seen {
    let is_delivery = api.config.scheme.is_some();
    let cuts = CutAt::each(&with.cuts_ms);
    for cut in &cuts {
        let loss = api.losing(*cut).await?;
        let ask = api.effect();
        let retrying = async {
            for _ in 0..2 {
                if let Ok(reply) = api.attempt_losing(&ask, &loss).await {
                    return unknown(format!("the proxy let through {reply}"));
                }
            }
            let answer = api.settle(&ask).await?;
            if !answer.is_success() {
                let what = format!("a retry after two lost replies got {answer}");
                return Err(Flaw::violated(what));
            }
            match is_delivery {
                // A sender reads no more than the status.
                true => Ok(()),
                false => same(&answer, &api.send(&ask).await?),
            }
        };
        api.with_effects(&ask, 1, retrying).await?;
    }
    Ok(format!("{} replies lost, one effect each", 2 * cuts.len()))
}

pub(super) async fn delivered_at_once(api: &Api, with: &Parameters) -> Seen {
    let clients = api.config.load.clients;
    for _ in 0..with.keys {
        let event = api.effect();
        let delivering = async {
            join_all((0..clients).map(|_| api.attempt(&event, api.url()))).await;
            // Those that were told to come again, or were refused for now.
            match api.settle(&event).await? {
                reply if reply.is_success() => Ok(()),
                reply => Err(Flaw::violated(format!("a delivery got {reply}"))),
            }
        };
        api.with_effects(&event, 1, delivering).await?;
    }
    let events = with.keys;
    Ok(format!(
        "{events} times {clients} deliveries, one effect each"
    ))
}

/// Writes to a connection of its own, and closes it a little later.
async fn write_and_go(api: &Api, ask: &Ask, bytes: &[u8], stays: Duration) -> Result<(), Flaw> {
    let target = api.plain_address().await?;
    let mut written = Ok(());
    let writing = async {
        written = async {
            let mut connection = TcpStream::connect(target).await?;
            connection.write_all(bytes).await?;
            connection.flush().await?;
            tokio::time::sleep(stays).await;
            Ok(())
        }
        .await;
        Err(format!("the client went after {} bytes", bytes.len()))
    };
    // No reply was waited for.
    let _ = api.history.record(ask, writing).await;
    written.map_err(|error: std::io::Error| {
        Flaw::Unknown(format!("the request can't be sent: {error}"))
    })
}

pub(super) async fn cut_request(api: &Api) -> Seen {
    let ask = api.effect();
    let whole = api.bytes(&ask)?;
    let length = ask.template.body().unwrap_or_default().len();
    if length < 2 {
        return unknown("[effect] has no body to cut");
    }
    let half = whole.get(..whole.len() - length / 2).unwrap_or(&whole);
    let sending = async {
        write_and_go(api, &ask, half, Duration::ZERO).await?;
        let answer = api.settle(&ask).await?;
        succeeded("after half of it, the whole request", &answer)
    };
    api.with_effects(&ask, 1, sending).await?;
    Ok("no effect of the half, one of the whole".to_owned())
}

pub(super) async fn disconnect(api: &Api, with: &Parameters) -> Seen {
    let ask = api.effect();
    let bytes = api.bytes(&ask)?;
    let is_plain = api.url().scheme() == "http";
    let sending = async {
        for stays in with.stays_ms.iter().copied().map(Duration::from_millis) {
            if is_plain {
                write_and_go(api, &ask, &bytes, stays).await?;
            } else {
                let loss = api.losing(CutAt::After(stays)).await?;
                let _ = api.attempt_losing(&ask, &loss).await;
            }
        }
        let answer = api.settle(&ask).await?;
        succeeded("a retry of clients that had gone", &answer)?;
        same(&answer, &api.send(&ask).await?)
    };
    api.with_effects(&ask, 1, sending).await?;
    Ok(format!("{} clients went, one effect", with.stays_ms.len()))
}

pub(super) async fn expiry(api: &Api, with: &Parameters) -> Seen {
    let seconds = api.config.promises.retention_seconds;
    let expire = api.config.expire.as_ref();
    if expire.is_none() && seconds == 0 {
        return unknown("no lifetime is promised, says promises.retention_seconds");
    }
    // A longer retention is not waited for.
    if expire.is_none() && seconds > with.waited_max_seconds {
        return unknown(format!(
            "keys are kept for {seconds} s, and the config has no [expire]"
        ));
    }
    let ask = api.effect();
    let tally = api.tally(&[&ask]).await?;
    let sending = async {
        let first = api.executed(&ask).await?;
        match expire {
            Some(expire) => drop(api.executed(&api.ask(expire)).await?),
            None => tokio::time::sleep(Duration::from_secs(seconds + 1)).await,
        }
        late(api, &ask, &first).await
    };
    let seen = sending.await;
    let right = match &seen {
        Ok((_, right)) => *right,
        Err(_) if api.config.promises.expired == Expired::Refused => 1,
        Err(_) => 2,
    };
    Ok(api.counted(&tally, &ask, right, seen).await?.0)
}

/// What the key is after its expiry, for several requests at once, and how many effects are right.
async fn late(api: &Api, ask: &Ask, first: &Reply) -> Result<(String, u64), Flaw> {
    let promises = &api.config.promises;
    let is_refused = promises.expired == Expired::Refused;
    let tells = !promises.refusal_says.is_empty() || promises.expired == Expired::New;
    let (answer, attempts) = match at_once(api, ask).await {
        Err(Flaw::Wrong(fault)) if fault.cost == Some("endless") && !tells => {
            let seen = fault.seen;
            return unknown(format!(
                "{seen}. promises.refusal_says tells a refusal that stays"
            ));
        }
        other => other?,
    };
    if !answer.is_refusal() || promises.expired == Expired::New {
        agree(api, attempts, |reply| same(&answer, reply))?;
        succeeded("a request with a key that has expired", &answer)?;
        let is_first = answer.is_same_outcome(first);
        return match (promises.expired, is_first) {
            (Expired::Refused, _) => {
                let what = format!("a key that has expired got {answer}");
                Err(Flaw::violated(what).mended_by("remember"))
            }
            (Expired::Open, true) if promises.id(&first.body).is_none() => {
                unknown("the replies don't tell whether a key that has expired is new")
            }
            (Expired::Open, true) => Ok(("the key is kept: the first answer".to_owned(), 1)),
            (Expired::New | Expired::Open, _) => {
                Ok(("the key is new: one effect before, one after".to_owned(), 2))
            }
        };
    }
    // It is the answer to each of them.
    agree(api, attempts, |reply| match reply.is_refusal() {
        true => Ok(()),
        false => same(&answer, reply),
    })?;
    let told = String::from_utf8_lossy(&answer.body);
    let id = promises.id(&first.body);
    match id.filter(|id| is_refused && !told.contains(id.trim_matches('"'))) {
        Some(id) => Err(Flaw::lesser(
            format!("refused, without the id {id} of what was made: {answer}"),
            "untold",
            "remember",
        )),
        None => Ok((format!("the key is remembered: {answer}"), 1)),
    }
}

/// A request and what gives its key up, at once. Whichever comes first wins, and only it.
pub(super) async fn giving_up(api: &Api, with: &Parameters) -> Seen {
    let abandon = given(api.config.abandon.as_ref(), "[abandon]")?;
    let given_up_says = &api.config.promises.given_up_says;
    if given_up_says.is_empty() {
        return unknown("promises.given_up_says: what tells that a key was given up isn't known");
    }
    let mut won = 0;
    let slow = api.config.slow.iter().map(|slow| (slow, with.pause_ms));
    let quick = std::iter::repeat_n((&api.config.effect, 0), with.keys);
    for (number, (template, pause_ms)) in quick.chain(slow).enumerate() {
        let ask = api.ask(template);
        let mut giving = api.ask(abandon);
        giving.template.fill_key(ask.key());
        let tally = api.tally(&[&ask]).await?;
        let request = async {
            // Each of the two is the first one sometimes.
            tokio::time::sleep(Duration::from_millis(number as u64 % 2)).await;
            api.attempt(&ask, api.url()).await
        };
        let giving = async {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            api.settle(&giving).await
        };
        let (answer, told) = join(request, giving).await;
        let told = told?;
        let is_given_up = told.is_success() && says(given_up_says, &told.body);
        let answer = match answer {
            Ok(answer) if answer.is_success() => answer,
            // One more request must not be executed either, and its refusal may be of any status.
            Ok(_) | Err(_) if is_given_up => api.send(&ask).await?,
            Ok(_) | Err(_) => api.settle(&ask).await?,
        };
        let made = u64::from(answer.is_success());
        let seen = match (is_given_up, answer.is_success()) {
            (true, false) => Ok(1),
            (false, true) => Ok(0),
            _ => Err(Flaw::violated(format!(
                "the request got {answer}, and giving its key up {told}"
            ))),
        };
        won += api.counted(&tally, &ask, made, seen).await?;
    }
    let all = with.keys + api.config.slow.iter().count();
    Ok(format!(
        "of {all} keys, {won} were given up before their request"
    ))
}

pub(super) async fn late_effects(api: &Api) -> Seen {
    match api.recount().await? {
        0 => unknown("no effects of single requests were counted"),
        requests => Ok(format!(
            "{requests} requests have as many effects as before"
        )),
    }
}
