//! Requests at once, connections that end, and processes that forget.

use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{Flaw, Seen, same};
use crate::{
    api::{Api, Ask, Reply, given},
    config::InFlight,
    proxy::{CutAt, Proxy},
};

/// Sends the request from all clients at once, to each replica in turn. Each gets the one answer,
/// or is told to come again and gets it later. Returns the answer, and how many got 409.
async fn race(api: &Api, ask: &Ask) -> Result<(Reply, usize), Flaw> {
    let targets = api.each_url().take(api.config.load.clients);
    let attempts = join_all(targets.map(|url| api.attempt(ask, url))).await;
    let answer = api.settle(ask).await?;
    let mut conflicts = 0;
    for attempt in attempts {
        match attempt {
            Ok(reply) if reply.status == 409 => conflicts += 1,
            Ok(reply) if reply.status == 429 => {}
            Ok(reply) => same(&answer, &reply)?,
            Err(error) => return Err(Flaw::Violated(format!("a racer got no reply: {error}"))),
        }
    }
    if answer.is_success() {
        Ok((answer, conflicts))
    } else {
        Err(Flaw::Violated(format!("the race ended with {answer}")))
    }
}

/// Races for several new keys. A race for one may be over before it begins.
async fn races(api: &Api) -> Seen {
    const KEYS: usize = 5;
    let mut conflicts = 0;
    for _ in 0..KEYS {
        let ask = api.effect();
        let tally = api.tally(&[&ask]).await?;
        conflicts += race(api, &ask).await?.1;
        tally.expect(1).await?;
    }
    let clients = api.config.load.clients;
    Ok(format!(
        "{KEYS} times {clients} requests: one effect each; {conflicts} got 409 first"
    ))
}

pub(super) async fn racers(api: &Api) -> Seen {
    races(api).await
}

pub(super) async fn second_replica(api: &Api) -> Seen {
    let Some(replica) = api.service.replicas.first() else {
        return Err(Flaw::Unknown("no second URL: --replica".to_owned()));
    };
    let ask = api.effect();
    let tally = api.tally(&[&ask]).await?;
    let first = api.executed(&ask).await?;
    let second = api.attempt(&ask, replica).await.map_err(Flaw::Unknown)?;
    same(&first, &second)?;
    tally.expect(1).await?;
    races(api).await
}

pub(super) async fn in_flight(api: &Api) -> Seen {
    /// After that, the first request has begun. It must take longer by as much again.
    const HEAD_START: Duration = Duration::from_millis(300);
    let ask = api.ask(given(api.config.slow.as_ref(), "[slow]")?);
    let tally = api.tally(&[&ask]).await?;
    let began = Instant::now();
    let first = async {
        let first = api.send(&ask).await;
        first.map(|first| (first, began.elapsed()))
    };
    let duplicate = async {
        tokio::time::sleep(HEAD_START).await;
        let sent = began.elapsed();
        api.send(&ask).await.map(|duplicate| (duplicate, sent))
    };
    let (first, duplicate) = join(first, duplicate).await;
    let ((first, took), (duplicate, sent)) = (first?, duplicate?);
    if !first.is_success() || took < sent + HEAD_START {
        let what = format!("[slow] was not slow: {first} after {} ms", took.as_millis());
        return Err(Flaw::Unknown(what));
    }
    if duplicate.status != 409 {
        same(&first, &duplicate)?;
    }
    tally.expect(1).await?;
    let retry_after = duplicate.header("retry-after");
    match (duplicate.status, api.config.promises.in_flight) {
        (409, _) if retry_after.is_none() => {
            Err(Flaw::Lesser("409 without Retry-After".to_owned()))
        }
        (409, _) => Ok(format!("409, Retry-After: {}", retry_after.unwrap_or("?"))),
        (_, InFlight::Waits) => Ok("it waited for the first answer".to_owned()),
        (_, InFlight::Conflict) => Err(Flaw::Lesser(
            "it waited for the first answer, and 409 is promised".to_owned(),
        )),
    }
}

pub(super) async fn lost_reply(api: &Api) -> Seen {
    let target = api.plain_address().await?;
    let ms = Duration::from_millis;
    let cuts = [
        CutAt::Reply,
        CutAt::After(ms(0)),
        CutAt::After(ms(20)),
        CutAt::After(ms(100)),
    ];
    for cut in cuts {
        let proxy = Proxy::start(target, cut).await;
        let proxy = proxy.map_err(|error| Flaw::Unknown(format!("no proxy: {error}")))?;
        let ask = api.effect();
        let tally = api.tally(&[&ask]).await?;
        for _ in 0..2 {
            if let Ok(reply) = api.attempt_through(&ask, proxy.address).await {
                return Err(Flaw::Unknown(format!("the proxy let through {reply}")));
            }
        }
        let answer = api.settle(&ask).await?;
        if !answer.is_success() {
            let what = format!("a retry after two lost replies got {answer}");
            return Err(Flaw::Violated(what));
        }
        same(&answer, &api.send(&ask).await?)?;
        tally.expect(1).await?;
    }
    Ok(format!("{} replies lost, one effect each", 2 * cuts.len()))
}

/// Writes to a connection of its own, and closes it a little later.
async fn write_and_go(api: &Api, bytes: &[u8], stays: Duration) -> Result<(), Flaw> {
    let target = api.plain_address().await?;
    let writing = async {
        let mut connection = TcpStream::connect(target).await?;
        connection.write_all(bytes).await?;
        connection.flush().await?;
        tokio::time::sleep(stays).await;
        Ok(())
    };
    let written: std::io::Result<()> = writing.await;
    written.map_err(|error| Flaw::Unknown(format!("the request can't be sent: {error}")))
}

pub(super) async fn cut_request(api: &Api) -> Seen {
    let ask = api.effect();
    let whole = api.bytes(&ask)?;
    let length = ask.template.body().unwrap_or_default().len();
    if length < 2 {
        return Err(Flaw::Unknown("[effect] has no body to cut".to_owned()));
    }
    let tally = api.tally(&[&ask]).await?;
    let half = whole.get(..whole.len() - length / 2).unwrap_or(&whole);
    write_and_go(api, half, Duration::ZERO).await?;
    let answer = api.settle(&ask).await?;
    if !answer.is_success() {
        let what = format!("after half of it, the whole request got {answer}");
        return Err(Flaw::Violated(what));
    }
    tally.expect(1).await?;
    Ok("no effect of the half, one of the whole".to_owned())
}

pub(super) async fn disconnect(api: &Api) -> Seen {
    /// How long the clients stay, in milliseconds.
    const STAY: [u64; 5] = [0, 1, 5, 20, 50];
    let ask = api.effect();
    let bytes = api.bytes(&ask)?;
    let tally = api.tally(&[&ask]).await?;
    for stays in STAY {
        write_and_go(api, &bytes, Duration::from_millis(stays)).await?;
    }
    let clients = STAY.len();
    let answer = api.settle(&ask).await?;
    if !answer.is_success() {
        let what = format!("after {clients} clients had gone, a retry got {answer}");
        return Err(Flaw::Violated(what));
    }
    same(&answer, &api.send(&ask).await?)?;
    tally.expect(1).await?;
    Ok(format!("{clients} clients went, one effect"))
}

pub(super) async fn expiry(api: &Api) -> Seen {
    /// A longer retention is not waited for.
    const WAITED_MAX: u64 = 30;
    let seconds = api.config.promises.retention_seconds;
    let expire = api.config.expire.as_ref();
    if expire.is_none() && seconds > WAITED_MAX {
        let what = format!("keys are kept for {seconds} s, and the config has no [expire]");
        return Err(Flaw::Unknown(what));
    }
    let ask = api.effect();
    let tally = api.tally(&[&ask]).await?;
    api.executed(&ask).await?;
    match expire {
        Some(expire) => drop(api.executed(&api.ask(expire)).await?),
        None => tokio::time::sleep(Duration::from_secs(seconds + 1)).await,
    }
    race(api, &ask).await?;
    tally.expect(2).await?;
    Ok("one effect before, one after".to_owned())
}

pub(super) async fn late_effects(api: &Api) -> Seen {
    match api.recount().await? {
        0 => Err(Flaw::Unknown(
            "no effects of single requests were counted".to_owned(),
        )),
        requests => Ok(format!(
            "{requests} requests have as many effects as before"
        )),
    }
}
