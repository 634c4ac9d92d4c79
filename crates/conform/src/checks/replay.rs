//! What a retry gets, and what is a retry.

use super::{
    CLAIM, Flaw, MARK, PROMISED, REPEATED, Seen, promised, refused, replayed, same, succeeded,
    unknown,
};
use crate::{
    api::{Api, Ask, Reply, given},
    config::{Difference, Promise, Replay, fill_from},
};

pub(super) async fn equal(api: &Api) -> Seen {
    let ask = api.effect();
    let twice = async {
        let first = api.executed(&ask).await?;
        same(&first, &api.send(&ask).await?)?;
        let mut seen = format!("{} and {} bytes, twice", first.status, first.body.len());
        if let Some(change) = &api.config.change {
            let mut changing = api.ask(change);
            fill_from(&mut changing.template, &first.body);
            api.executed(&changing).await?;
            same(&first, &api.send(&ask).await?)?;
            seen.push_str(", also after [change]");
        }
        Ok(seen)
    };
    let seen = api.with_effects(&ask, 1, twice).await;
    seen.map_err(|flaw| flaw.mended_where(REPEATED, CLAIM))
}

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

pub(super) async fn headers(api: &Api) -> Seen {
    let made = api.config.promises.replay == Replay::Bytes;
    promised(made, "replay", "a replay is no copy")?;
    let ask = api.effect();
    let first = lasting_headers(api, &api.executed(&ask).await?);
    let retry = lasting_headers(api, &api.send(&ask).await?);
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
    let (first, retry) = (api.executed(&ask).await?, api.send(&ask).await?);
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

pub(super) async fn reuse_body(api: &Api) -> Seen {
    let promises = &api.config.promises;
    let ask = api.effect();
    let first = api.executed(&ask).await?;
    let rival = api.rival(&ask)?;
    if promises.other_body != Difference::Refused {
        return judge(api, promises.other_body, &first, &rival).await;
    }
    let reply = refused(api, &rival).await?;
    same(&first, &api.send(&ask).await?)?;
    let promised = &promises.reuse;
    if promised.is_empty() || promised.contains(&reply.status) {
        return Ok(format!("{}, and no effect", reply.status));
    }
    Err(Flaw::lesser(
        format!("refused, but {promised:?} is promised: {reply}"),
        "a client that knows the promised status takes the refusal for another one",
        PROMISED,
    ))
}

pub(super) async fn reuse_path(api: &Api) -> Seen {
    let promises = &api.config.promises;
    let path = given(promises.other_path_is.as_ref(), "promises.other_path_is")?;
    let mut ask = api.effect();
    let first = api.executed(&ask).await?;
    ask.template.path = Some(path.clone());
    judge(api, promises.other_path, &first, &ask).await
}

pub(super) async fn reuse_query(api: &Api) -> Seen {
    let mut ask = api.effect();
    let first = api.executed(&ask).await?;
    if let Some(path) = &mut ask.template.path {
        path.push(if path.contains('?') { '&' } else { '?' });
        path.push_str("conform=1");
    }
    judge(api, api.config.promises.other_query, &first, &ask).await
}

pub(super) async fn respelled(api: &Api) -> Seen {
    given(api.config.effect.json.as_ref(), "effect.json")?;
    let mut ask = api.effect();
    let first = api.executed(&ask).await?;
    ask.is_respelled = true;
    judge(api, api.config.promises.other_spelling, &first, &ask).await
}

/// Sends the request that differs, and compares its reply with the promise.
async fn judge(api: &Api, promised: Difference, first: &Reply, differing: &Ask) -> Seen {
    let reply = api.send(differing).await?;
    let is_replay = reply.is_same_outcome(first) || api.is_marked(&reply);
    let is_reuse = api.config.promises.reuse.contains(&reply.status);
    let holds = match promised {
        Difference::Open => return unknown(format!("nothing is promised; it got {reply}")),
        Difference::Refused => reply.is_refusal() && !is_replay,
        Difference::Same => is_replay,
        Difference::Separate => !is_replay && !is_reuse && reply.status < 500,
    };
    if holds {
        return Ok(format!("as promised: {}", reply.status));
    }
    let what = format!("{promised:?} is promised, and it got {reply}");
    Err(Flaw::violated(what))
}

pub(super) async fn two_accounts(api: &Api) -> Seen {
    let other = given(api.config.accounts.other.as_ref(), "accounts.other")?;
    let ask = api.effect();
    api.executed(&ask).await?;
    let of_other = ask.with_credential(other);
    let sending = async {
        let reply = api.send(&of_other).await?;
        if api.is_marked(&reply) {
            let what = format!("the other account got a replay: {reply}");
            return Err(Flaw::violated(what));
        }
        succeeded("the other account", &reply)
    };
    let seen = api.with_effects(&of_other, 1, sending).await;
    // The reply of the first account was shown.
    seen.map_err(Flaw::unless_lost)?;
    Ok("an effect of its own".to_owned())
}

pub(super) async fn rotated_credential(api: &Api) -> Seen {
    let rotated = given(api.config.accounts.rotated.as_ref(), "accounts.rotated")?;
    let ask = api.effect();
    replayed(api, &ask, &ask.with_credential(rotated)).await?;
    Ok("the first answer, and one effect".to_owned())
}

/// What is promised, if anything is.
fn known(promise: Promise, name: &str) -> Result<bool, Flaw> {
    match promise {
        Promise::Made(made) => Ok(made),
        Promise::Open(_) => unknown(format!("nothing is promised, says promises.{name}")),
    }
}

pub(super) async fn refusal_stored(api: &Api) -> Seen {
    let stored = known(api.config.promises.refusal_stored, "refusal_stored")?;
    let once = api.config.refused_once.as_ref();
    let refused = match (once, stored) {
        (Some(once), _) => once,
        (None, true) => given(api.config.refused.as_ref(), "[refused]")?,
        (None, false) => return unknown("the config has no [refused_once]"),
    };
    let ask = api.ask(refused);
    let sending = async {
        let first = api.send(&ask).await?;
        if !first.is_refusal() {
            return unknown(format!("it is not refused: {first}"));
        }
        let retry = api.send(&ask).await?;
        if !stored {
            succeeded("the retry of a refusal", &retry)?;
            return Ok(format!("{}, then {}", first.status, retry.status));
        }
        same(&first, &retry)?;
        if api.config.promises.replay_header.is_some() && !api.is_marked(&retry) {
            return Err(Flaw::lesser(
                format!("the same answer, but not marked as a replay: {retry}"),
                "support can't tell the replay of a refusal from another refusal",
                MARK,
            ));
        }
        Ok(format!("{}, twice", first.status))
    };
    match stored {
        // What was refused may be listed as such: the replies tell enough.
        true => sending.await,
        false => api.with_effects(&ask, 1, sending).await,
    }
}

/// Sends a request that fails validation, and the right one under its key.
pub(super) async fn invalid_stored(api: &Api) -> Seen {
    let stored = known(api.config.promises.invalid_stored, "invalid_stored")?;
    let invalid = given(api.config.invalid.as_ref(), "[invalid]")?;
    let right = api.effect();
    let mending = async {
        let first = api
            .send(&api.ask(invalid).with_keys(right.keys.clone()))
            .await?;
        if !first.is_refusal() {
            return unknown(format!("[invalid] is not refused: {first}"));
        }
        let reply = api.send(&right).await?;
        if reply.is_success() == stored {
            let what = format!("first {first}, and then the right request got {reply}");
            return Err(Flaw::violated(what));
        }
        Ok(format!(
            "{}, and the right request got {}",
            first.status, reply.status
        ))
    };
    match stored {
        // The reply tells it.
        true => mending.await,
        false => api.with_effects(&right, 1, mending).await,
    }
}

/// Deletes what a request has made.
pub(super) async fn delete(api: &Api) -> Seen {
    let keyed = known(api.config.promises.delete_keyed, "delete_keyed")?;
    let delete = given(api.config.delete.as_ref(), "[delete]")?;
    let made = api.executed(&api.effect()).await?;
    let mut deleting = api.ask(delete);
    fill_from(&mut deleting.template, &made.body);
    let first = api.executed(&deleting).await?;
    if keyed {
        same(&first, &api.send(&deleting).await?)?;
        return Ok(format!("{}, twice", first.status));
    }
    let next = api.effect().with_keys(deleting.keys);
    let sending = async {
        let reply = api.send(&next).await?;
        succeeded("a request with the key of a DELETE", &reply)?;
        Ok("its key is free".to_owned())
    };
    api.with_effects(&next, 1, sending).await
}

pub(super) async fn refusal_before_key(api: &Api) -> Seen {
    let wrong = given(api.config.accounts.wrong.as_ref(), "accounts.wrong")?;
    let ask = api.effect();
    let with_wrong = ask.with_credential(wrong);
    let twice = async {
        let refusal = api.send(&with_wrong).await?;
        if !matches!(refusal.status, 401 | 403) {
            return unknown(format!(
                "accounts.wrong is not refused with 401 or 403: {refusal}"
            ));
        }
        let reply = api.send(&ask).await?;
        if !reply.is_success() || api.is_marked(&reply) {
            let what = format!("after {}, the right request got {reply}", refusal.status);
            return Err(Flaw::violated(what));
        }
        Ok(format!("{}, then {}", refusal.status, reply.status))
    };
    api.with_effects(&ask, 1, twice).await
}

pub(super) async fn server_error(api: &Api) -> Seen {
    let retried = known(
        api.config.promises.server_error_retried,
        "server_error_retried",
    )?;
    let ask = api.ask(given(api.config.server_error.as_ref(), "[server_error]")?);
    let failed = async {
        let first = api.send(&ask).await?;
        match first.status {
            500.. => Ok(first),
            _ => unknown(format!("[server_error] does not fail with 5xx: {first}")),
        }
    };
    if !retried {
        let first = failed.await?;
        let again = async { same(&first, &api.send(&ask).await?) };
        api.with_effects(&ask, 0, again).await?;
        return Ok(format!("{}, twice", first.status));
    }
    let twice = async {
        let first = failed.await?;
        let retry = api.settle(&ask).await?;
        if !retry.is_success() {
            let what = format!("first {first}, and the retry got {retry}");
            return Err(Flaw::violated(what));
        }
        Ok(format!("{}, then {}", first.status, retry.status))
    };
    api.with_effects(&ask, 1, twice).await
}
