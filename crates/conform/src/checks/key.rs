//! The header that carries the key.

use serde_json::Value;

use super::{Flaw, PARSE, PROBLEM, Seen, promised, refused, replayed, unknown};
use crate::{
    api::{Api, Reply, given},
    config::{Difference, KeyIn},
};

pub(super) async fn required(api: &Api) -> Seen {
    let made = api.config.promises.key_required;
    promised(made, "key_required", "requests without a key are executed")?;
    let reply = refused(api, &api.effect().with_keys(Vec::new())).await?;
    match reply.status {
        400 => Ok("400, and no effect".to_owned()),
        _ => Err(Flaw::lesser(
            format!("refused, but not with 400: {reply}"),
            "a client can't tell that the key is missing from another refusal",
            PARSE,
        )),
    }
}

pub(super) async fn malformed(api: &Api) -> Seen {
    let made = api.config.promises.has_quotes();
    promised(made, "key_quoted", "any text is a key")?;
    let mut statuses = Vec::new();
    // A quote without its other half, and a letter that no string of RFC 8941 holds.
    for spoil in ["\"{}", "{}\"", "\"{}\u{e9}\""] {
        let keys = vec![spoil.replace("{}", &api.key())];
        let reply = refused(api, &api.effect().with_keys(keys)).await?;
        statuses.push(reply.status.to_string());
    }
    Ok(statuses.join(", "))
}

pub(super) async fn empty(api: &Api) -> Seen {
    let ask = api.effect().with_keys(vec![String::new()]);
    if !api.config.promises.key_required {
        let reply = api.send(&ask).await?;
        if reply.is_success() {
            let second = api.send(&api.effect().with_keys(ask.keys)).await?;
            if second.is_same_outcome(&reply) || api.is_marked(&second) {
                let what = "two requests with an empty key were taken for one";
                return Err(Flaw::violated(what));
            }
            return Ok("like a request without a key".to_owned());
        }
    }
    let reply = refused(api, &ask).await?;
    Ok(format!("{}, and no effect", reply.status))
}

pub(super) async fn too_long(api: &Api) -> Seen {
    let length_max = api.config.promises.key_length_max;
    promised(length_max > 0, "key_length_max", "no length is promised")?;
    let of_length = |length: usize| {
        let key = format!("{:x<length$}", api.key());
        vec![key.chars().take(length).collect::<String>()]
    };
    let longest = api.effect().with_keys(of_length(length_max));
    let reply = api.send(&longest).await?;
    if !reply.is_success() {
        let what = format!("a key of {length_max} characters got {reply}");
        return Err(Flaw::violated(what));
    }
    let reply = refused(api, &api.effect().with_keys(of_length(length_max + 1))).await?;
    Ok(format!("{length_max} work, one more gets {}", reply.status))
}

pub(super) async fn twice(api: &Api) -> Seen {
    if api.config.promises.key_in == KeyIn::Json {
        return unknown("JSON with a member twice has no meaning");
    }
    let keys = vec![api.key(), api.key()];
    let reply = refused(api, &api.effect().with_keys(keys)).await?;
    Ok(format!("{}, and no effect", reply.status))
}

pub(super) async fn quoted(api: &Api) -> Seen {
    let made = api.config.promises.has_quotes();
    promised(made, "key_quoted", "quotes are part of a key")?;
    let bare = api.effect();
    let quoted = vec![format!("\"{}\"", bare.key())];
    replayed(api, &bare, &bare.clone().with_keys(quoted)).await?;
    Ok("one effect, one answer".to_owned())
}

/// All refusals of keys that can be had at once.
pub(super) async fn problem(api: &Api) -> Seen {
    let promises = &api.config.promises;
    promised(
        promises.problem_json,
        "problem_json",
        "errors have another form",
    )?;
    let mut replies = Vec::new();
    if promises.key_required {
        replies.push(api.send(&api.effect().with_keys(Vec::new())).await?);
    }
    if promises.other_body == Difference::Refused && api.config.other.is_some() {
        let ask = api.effect();
        api.executed(&ask).await?;
        replies.push(api.send(&api.rival(&ask)?).await?);
    }
    // What is not refused at all is the fault of another check.
    replies.retain(Reply::is_refusal);
    if replies.is_empty() {
        return unknown("no refusal of a key can be had: [other] or promises.key_required");
    }
    for reply in &replies {
        if let Some(what) = no_problem(reply) {
            return Err(Flaw::violated(format!("{what}: {reply}")).mended_by(PROBLEM));
        }
    }
    let statuses: Vec<_> = replies
        .iter()
        .map(|reply| reply.status.to_string())
        .collect();
    Ok(format!("problem+json: {}", statuses.join(", ")))
}

/// Why a refusal isn't one of RFC 9457.
fn no_problem(reply: &Reply) -> Option<String> {
    let media_type = reply.header("content-type").unwrap_or("no media type");
    if !media_type.starts_with("application/problem+json") {
        return Some(media_type.to_owned());
    }
    let Ok(Value::Object(members)) = serde_json::from_slice(&reply.body) else {
        return Some("no object of JSON".to_owned());
    };
    let told = members.get("status").and_then(Value::as_u64);
    if told.is_some_and(|status| status != u64::from(reply.status)) {
        return Some("its member status is another one".to_owned());
    }
    let tells = ["type", "title"]
        .iter()
        .any(|name| members.get(*name).is_some_and(Value::is_string));
    (!tells).then(|| "it has neither type nor title".to_owned())
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
