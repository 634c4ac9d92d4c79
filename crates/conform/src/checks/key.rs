//! The header that carries the key.

use super::{Flaw, PARSE, Seen, promised, refused, replayed};
use crate::api::Api;

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
    let made = api.config.promises.key_quoted;
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
    let keys = vec![api.key(), api.key()];
    let reply = refused(api, &api.effect().with_keys(keys)).await?;
    Ok(format!("{}, and no effect", reply.status))
}

pub(super) async fn quoted(api: &Api) -> Seen {
    let made = api.config.promises.key_quoted;
    promised(made, "key_quoted", "quotes are part of a key")?;
    let bare = api.effect();
    let quoted = vec![format!("\"{}\"", bare.key())];
    replayed(api, &bare, &bare.clone().with_keys(quoted)).await?;
    Ok("one effect, one answer".to_owned())
}
