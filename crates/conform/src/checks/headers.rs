//! What the headers of replays say, the document in which an API says its promises, and what it
//! stores of replies.

use serde_json::Value;

use super::{Flaw, Seen, same, unknown};
use crate::{
    api::{Api, Ask, Reply, given, shell},
    config::Replay,
};

/// Headers about a delivery or a connection, not about the outcome.
const DELIVERY_HEADERS: [&str; 14] = [
    "age",
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "preference-applied",
    "server",
    "server-timing",
    "set-cookie",
    "traceparent",
    "tracestate",
    "transfer-encoding",
    "vary",
    "via",
];

async fn executed_and_replayed(api: &Api, ask: &Ask) -> Result<[Reply; 2], Flaw> {
    let (first, retry) = (api.executed(ask).await?, api.send(ask).await?);
    match first.is_same_outcome(&retry) {
        true => Ok([first, retry]),
        false => unknown(format!("the retry is no replay: {retry}")),
    }
}

pub(super) async fn replayed(api: &Api) -> Seen {
    if api.config.promises.replay != Replay::Bytes {
        return unknown("a replay is no copy, says promises.replay");
    }
    let ask = api.effect();
    let [first, retry] = executed_and_replayed(api, &ask).await?;
    let [first, retry] = [first, retry].map(|reply| lasting_headers(api, &reply));
    if let Some((name, value)) = unpromised_marker(api, &first, &retry) {
        return Ok(format!(
            "{} headers, twice, and {name}: {value} marks the retry",
            first.len()
        ));
    }
    let differing = |these: &[(String, String)], those: &[(String, String)]| {
        let missing = these.iter().filter(|header| !those.contains(header));
        let shown = missing.map(|(name, value)| format!("{name}: {value}"));
        shown.collect::<Vec<_>>().join(", ")
    };
    if first == retry {
        return Ok(format!("{} headers, twice", first.len()));
    }
    Err(Flaw::violated(format!(
        "only in the first reply: [{}]; only in the retry's: [{}]; promises.delivery_headers names \
         those that each reply has of its own",
        differing(&first, &retry),
        differing(&retry, &first)
    )))
}

/// The one header that only the retry has, where the name of the marker is not promised.
fn unpromised_marker<'a>(
    api: &Api,
    first: &[(String, String)],
    retry: &'a [(String, String)],
) -> Option<&'a (String, String)> {
    let is_more = |header: &&(String, String)| !first.contains(header);
    let more = retry.iter().find(is_more)?;
    // These are about the object.
    let is_one = !["etag", "location"].contains(&&*more.0)
        && retry.len() == first.len() + 1
        && retry.iter().filter(is_more).count() == 1;
    (is_one && api.config.promises.replay_header.is_none()).then_some(more)
}

fn lasting_headers(api: &Api, reply: &Reply) -> Vec<(String, String)> {
    let promises = &api.config.promises;
    let is_lasting = |name: &str| {
        let mut of_api = promises.delivery_headers.iter().map(String::as_str);
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        !DELIVERY_HEADERS.iter().any(|header| is(header))
            && !of_api.any(is)
            && !is(&promises.key_name)
            && !promises.marker().is_some_and(|(name, _)| is(name))
            && !name.contains("ratelimit")
    };
    let headers = reply.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.to_string(), value)
    });
    let mut headers: Vec<_> = headers.filter(|(name, _)| is_lasting(name)).collect();
    headers.sort();
    headers
}

pub(super) async fn marked(api: &Api) -> Seen {
    let ask = api.effect();
    let [first, retry] = executed_and_replayed(api, &ask).await?;
    let [first_has, retry_has] = [&first, &retry].map(|reply| lasting_headers(api, reply));
    if let Some((name, value)) = unpromised_marker(api, &first_has, &retry_has) {
        let (again, other) = (api.send(&ask).await?, api.executed(&api.effect()).await?);
        let has = |reply: &Reply| reply.headers.contains_key(name);
        return match has(&again) && !has(&other) {
            true => Ok(format!("{name}: {value} on replays only")),
            false => unknown(format!(
                "{name} is on some replies, and no marker is promised"
            )),
        };
    }
    let name = api.config.promises.replay_header.as_ref();
    let name = given(name, "promises.replay_header")?;
    if api.is_marked(&first) {
        return Err(Flaw::violated(format!("{name} on the first reply")));
    }
    if !api.is_marked(&retry) {
        return Err(Flaw::violated(format!("no {name} on a replay")));
    }
    Ok(format!("{name} on the replay only"))
}

/// A copy of what is stored must open nothing.
pub(super) async fn sealed(api: &Api) -> Seen {
    /// In bytes. A shorter text can be there by chance.
    const SECRET_MIN: usize = 8;
    let config = &api.config;
    let stored = given(config.stored.as_ref(), "[stored]")?;
    let ask = api.ask(config.secret.as_ref().unwrap_or(&config.effect));
    let (first, retry) = (api.executed(&ask).await?, api.send(&ask).await?);
    same(&first, &retry)?;
    let reply: Value = serde_json::from_slice(&first.body).unwrap_or_default();
    let secret = reply.pointer(&stored.secret).and_then(Value::as_str);
    let Some(secret) = secret.filter(|secret| secret.len() >= SECRET_MIN) else {
        return unknown(format!("the reply has no secret at {}", stored.secret));
    };
    let printed = shell(&stored.command, true).await.map_err(Flaw::Unknown)?;
    let printed = printed.to_ascii_lowercase();
    if printed.trim().is_empty() {
        return unknown("the command of [stored] printed nothing");
    }
    let is_shown = |text: &str| {
        let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        printed.contains(&text.to_ascii_lowercase()) || printed.contains(&digits)
    };
    match (is_shown(ask.key()), is_shown(secret)) {
        (false, false) => Ok("neither the key nor the secret is stored as it is".to_owned()),
        (true, false) => Err(Flaw::violated("the key is stored as it is")),
        (_, true) => Err(Flaw::violated("the reply's secret is stored as it is")),
    }
}

/// Compares the document in which the API says what it promises.
pub(super) async fn policy(api: &Api) -> Seen {
    let policy = given(api.config.policy.as_ref(), "[policy]")?;
    let reply = api.document(&policy.path).await.map_err(Flaw::Unknown)?;
    let document = serde_json::from_slice::<Value>(&reply.body);
    let (200, Ok(document)) = (reply.status, document) else {
        return Err(Flaw::violated(format!("{} got {reply}", policy.path)));
    };
    for (pointer, promised) in &policy.says {
        let said = document.pointer(pointer).unwrap_or(&Value::Null);
        if said != promised {
            let what = format!("at {pointer} it says {said}, and {promised} is promised");
            return Err(Flaw::violated(what));
        }
    }
    Ok(format!("{} members as promised", policy.says.len()))
}
