//! Requests at once, connections that end, and processes that forget.

use std::time::{Duration, Instant};

use futures_util::{
    StreamExt,
    future::{join, join_all},
    stream,
};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::watch};

use super::{AT_ONCE, ENDLESS, Flaw, RETRY_AFTER, Seen, same, succeeded, unknown};
use crate::{
    api::{Api, Ask, Reply, given},
    config::InFlight,
    proxy::CutAt,
};

/// Sends the request from all clients at once, to each replica in turn. Each gets the one answer,
/// or is told to come again and gets it later. Returns how many were told so.
async fn race(api: &Api, ask: &Ask) -> Result<usize, Flaw> {
    let targets = api.each_url().take(api.config.load.clients);
    let attempts = join_all(targets.map(|url| api.attempt(ask, url))).await;
    let answer = api.settle(ask).await?;
    let mut conflicts = 0;
    for attempt in attempts {
        match attempt {
            Ok(reply) if api.is_in_progress(&reply) => conflicts += 1,
            Ok(reply) if reply.status == 429 => {}
            Ok(reply) => same(&answer, &reply)?,
            Err(error) => return Err(unanswered("a racer", &error)),
        }
    }
    succeeded("the race", &answer)?;
    Ok(conflicts)
}

fn unanswered(client: &str, error: &str) -> Flaw {
    Flaw::violated(format!("{client} got no reply: {error}")).costing(ENDLESS)
}

/// Races for several new keys. A race for one may be over before it begins.
pub(super) async fn racers(api: &Api) -> Seen {
    const KEYS: usize = 5;
    let mut conflicts = 0;
    for _ in 0..KEYS {
        let ask = api.effect();
        conflicts += api.with_effects(&ask, 1, race(api, &ask)).await?;
    }
    let clients = api.config.load.clients;
    Ok(format!(
        "{KEYS} times {clients} requests: one effect each; {conflicts} came again"
    ))
}

pub(super) async fn second_replica(api: &Api) -> Seen {
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
    racers(api).await
}

pub(super) async fn in_flight(api: &Api) -> Seen {
    let ask = api.ask(given(api.config.slow.as_ref(), "[slow]")?);
    api.with_effects(&ask, 1, overlap(api, &ask)).await
}

/// Sends duplicates for as long as the first request works, and one after. A claim that ends before
/// its work, such as a lease of Redis, lets one of them in.
async fn overlap(api: &Api, ask: &Ask) -> Seen {
    /// From one duplicate to the next. After the first pause, the first request has begun.
    const PAUSE: Duration = Duration::from_millis(300);
    let began = Instant::now();
    let over = watch::Sender::new(false);
    let first = async {
        let first = api.attempt(ask, api.url()).await;
        over.send_replace(true);
        (first, began.elapsed())
    };
    let ticks = stream::unfold(over.subscribe(), |mut over| async move {
        // In long work, an eighth of it: some dozens of duplicates at most are under way.
        let pause = PAUSE.max(began.elapsed() / 8);
        let waiting = tokio::time::timeout(pause, over.wait_for(|over| *over));
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
        Ok(first) if took < PAUSE * 2 => {
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
            "a client has to guess when to come again: too often, or too late",
            RETRY_AFTER,
        ));
    }
    let first = duplicates.first().and_then(|first| first.as_ref().ok());
    if first.is_some_and(Reply::is_success) && api.config.promises.in_flight == InFlight::Conflict {
        return Err(Flaw::lesser(
            "a duplicate waited for the first answer, and \"in progress\" is promised",
            "a client that expects \"in progress\" holds a connection while the work lasts",
            AT_ONCE,
        ));
    }
    let sent = duplicates.len();
    let told = conflicts.first().map(|reply| format!("{}", reply.status));
    let got = told.unwrap_or_else(|| "the first answer".to_owned());
    Ok(format!(
        "{sent} duplicates in the {took_ms} ms of its work got {got}"
    ))
}

/// A lease that `in_flight` has found too short is one fault.
pub(super) async fn lease(api: &Api) -> Seen {
    api.unless_echo(late_retry(api).await)
}

/// One retry after a silence. Duplicates before it can keep a lease alive that the work does not.
async fn late_retry(api: &Api) -> Seen {
    /// Shorter work leaves no time in which a retry comes surely.
    const SLOW_MIN: Duration = Duration::from_millis(600);
    let slow = given(api.config.slow.as_ref(), "[slow]")?;
    let began = Instant::now();
    let alone = api.send(&api.ask(slow)).await?;
    let (took, lease) = (began.elapsed(), api.config.promises.lease_seconds);
    if !alone.is_success() || took < SLOW_MIN {
        let took_ms = took.as_millis();
        return unknown(format!("[slow] got {alone} after {took_ms} ms"));
    }
    let silence = took * 3 / 4;
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
    if silence <= Duration::from_secs(lease) {
        return unknown(format!(
            "no effect of a retry at {silence_ms} ms, but the lease is of {lease} s: let [slow] \
             work for {} s",
            lease * 4 / 3 + 1
        ));
    }
    Ok(format!(
        "no effect of a retry at {silence_ms} ms, and the lease is of {lease} s"
    ))
}

pub(super) async fn lost_reply(api: &Api) -> Seen {
    let ms = Duration::from_millis;
    let cuts = [
        CutAt::Reply,
        CutAt::After(ms(0)),
        CutAt::After(ms(20)),
        CutAt::After(ms(100)),
    ];
    for cut in cuts {
        let loss = api.losing(cut).await?;
        let ask = api.effect();
        let retrying = async {
            for _ in 0..2 {
                if let Ok(reply) = api.attempt_losing(&ask, &loss).await {
                    return unknown(format!("the proxy let through {reply}"));
                }
            }
            let answer = api.settle(&ask).await?;
            succeeded("a retry after two lost replies", &answer)?;
            same(&answer, &api.send(&ask).await?)
        };
        api.with_effects(&ask, 1, retrying).await?;
    }
    Ok(format!("{} replies lost, one effect each", 2 * cuts.len()))
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

pub(super) async fn disconnect(api: &Api) -> Seen {
    /// How long the clients stay, in milliseconds.
    const STAY: [u64; 5] = [0, 1, 5, 20, 50];
    let ask = api.effect();
    let bytes = api.bytes(&ask)?;
    let is_plain = api.url().scheme() == "http";
    let sending = async {
        for stays in STAY.map(Duration::from_millis) {
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
    Ok(format!("{} clients went, one effect", STAY.len()))
}

pub(super) async fn expiry(api: &Api) -> Seen {
    /// A longer retention is not waited for.
    const WAITED_MAX: u64 = 30;
    let seconds = api.config.promises.retention_seconds;
    let expire = api.config.expire.as_ref();
    if expire.is_none() && seconds == 0 {
        return unknown("no lifetime is promised, says promises.retention_seconds");
    }
    if expire.is_none() && seconds > WAITED_MAX {
        return unknown(format!(
            "keys are kept for {seconds} s, and the config has no [expire]"
        ));
    }
    let ask = api.effect();
    let sending = async {
        api.executed(&ask).await?;
        match expire {
            Some(expire) => drop(api.executed(&api.ask(expire)).await?),
            None => tokio::time::sleep(Duration::from_secs(seconds + 1)).await,
        }
        race(api, &ask).await
    };
    let seen = api.with_effects(&ask, 2, sending).await;
    // The old outcome was replayed.
    seen.map_err(Flaw::unless_lost)?;
    Ok("one effect before, one after".to_owned())
}

pub(super) async fn late_effects(api: &Api) -> Seen {
    let seen = match api.recount().await {
        Ok(0) => unknown("no effects of single requests were counted"),
        Ok(requests) => Ok(format!(
            "{requests} requests have as many effects as before"
        )),
        Err(flaw) => Err(flaw),
    };
    api.unless_echo(seen)
}
