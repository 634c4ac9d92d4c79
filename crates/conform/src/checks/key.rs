//! The header that carries the key.

use super::{Flaw, PARSE, Seen, refused, same};
use crate::api::{Api, Ask};

pub(super) async fn required(api: &Api) -> Seen {
    if !api.config.promises.key_required {
        let what = "requests without a key are executed, says promises.key_required";
        return Err(Flaw::Unknown(what.to_owned()));
    }
    let keyless = Ask {
        keys: Vec::new(),
        ..api.effect()
    };
    let reply = refused(api, &keyless).await?;
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
    if !api.config.promises.key_quoted {
        let what = "any text is a key, says promises.key_quoted";
        return Err(Flaw::Unknown(what.to_owned()));
    }
    let mut statuses = Vec::new();
    // A quote without its other half, and a letter that no string of RFC 8941 holds.
    for spoil in ["\"{}", "{}\"", "\"{}\u{e9}\""] {
        let keys = vec![spoil.replace("{}", &api.key())];
        let reply = refused(
            api,
            &Ask {
                keys,
                ..api.effect()
            },
        )
        .await?;
        statuses.push(reply.status.to_string());
    }
    Ok(statuses.join(", "))
}

pub(super) async fn empty(api: &Api) -> Seen {
    let ask = Ask {
        keys: vec![String::new()],
        ..api.effect()
    };
    if !api.config.promises.key_required {
        let reply = api.send(&ask).await?;
        if reply.is_success() {
            let another = Ask {
                keys: ask.keys,
                ..api.effect()
            };
            let second = api.send(&another).await?;
            if second.is_same_outcome(&reply) || api.is_marked(&second) {
                let what = "two requests with an empty key were taken for one".to_owned();
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
    let longest = Ask {
        keys: of_length(length_max),
        ..api.effect()
    };
    let reply = api.send(&longest).await?;
    if !reply.is_success() {
        let what = format!("a key of {length_max} characters got {reply}");
        return Err(Flaw::violated(what));
    }
    let longer = Ask {
        keys: of_length(length_max + 1),
        ..api.effect()
    };
    let reply = refused(api, &longer).await?;
    Ok(format!("{length_max} work, one more gets {}", reply.status))
}

pub(super) async fn twice(api: &Api) -> Seen {
    let ask = Ask {
        keys: vec![api.key(), api.key()],
        ..api.effect()
    };
    let reply = refused(api, &ask).await?;
    Ok(format!("{}, and no effect", reply.status))
}

pub(super) async fn quoted(api: &Api) -> Seen {
    if !api.config.promises.key_quoted {
        let what = "quotes are part of a key, says promises.key_quoted";
        return Err(Flaw::Unknown(what.to_owned()));
    }
    let bare = api.effect();
    let quoted = Ask {
        keys: bare.keys.iter().map(|key| format!("\"{key}\"")).collect(),
        ..bare.clone()
    };
    let twice = async {
        let first = api.executed(&bare).await?;
        same(&first, &api.send(&quoted).await?)
    };
    api.with_effects(&bare, 1, twice).await?;
    Ok("one effect, one answer".to_owned())
}
