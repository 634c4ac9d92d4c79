//! What a receiver of webhooks does with deliveries: the sender repeats each until it gets 2xx.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Flaw, Seen, refused};
use crate::{
    api::{Api, Ask},
    proxy::CutAt,
};

/// Delivers until there is an answer, which must be 2xx.
async fn acknowledged(api: &Api, event: &Ask) -> Result<(), Flaw> {
    match api.settle(event).await? {
        reply if reply.is_success() => Ok(()),
        reply => Err(Flaw::violated(format!("a delivery got {reply}"))),
    }
}

async fn acknowledged_twice(api: &Api, event: &Ask) -> Result<(), Flaw> {
    acknowledged(api, event).await?;
    acknowledged(api, event).await
}

pub(super) async fn twice(api: &Api) -> Seen {
    let event = api.effect();
    let delivering = acknowledged_twice(api, &event);
    api.with_effects(&event, 1, delivering).await?;
    Ok("2 deliveries, one effect".to_owned())
}

pub(super) async fn at_once(api: &Api) -> Seen {
    const EVENTS: usize = 5;
    let clients = api.config.load.clients;
    for _ in 0..EVENTS {
        let event = api.effect();
        let delivering = async {
            join_all((0..clients).map(|_| api.attempt(&event, api.url()))).await;
            // Those that were told to come again, or were refused for now.
            acknowledged(api, &event).await
        };
        api.with_effects(&event, 1, delivering).await?;
    }
    Ok(format!(
        "{EVENTS} times {clients} deliveries, one effect each"
    ))
}

pub(super) async fn lost_reply(api: &Api) -> Seen {
    let after = |ms| CutAt::After(Duration::from_millis(ms));
    let cuts = [CutAt::Reply, after(0), after(20), after(100)];
    for cut in cuts {
        let loss = api.losing(cut).await?;
        let event = api.effect();
        let delivering = async {
            for _ in 0..2 {
                let _ = api.attempt_losing(&event, &loss).await;
            }
            acknowledged(api, &event).await
        };
        api.with_effects(&event, 1, delivering).await?;
    }
    Ok(format!(
        "{} acknowledgments lost, one effect each",
        2 * cuts.len()
    ))
}

pub(super) async fn disordered(api: &Api) -> Seen {
    let newer = api.effect();
    let older = api.effect().created_before(60);
    let both = async {
        acknowledged(api, &newer).await?;
        api.with_effects(&older, 1, acknowledged(api, &older)).await
    };
    api.with_effects(&newer, 1, both).await?;
    Ok("the newer first: one effect each".to_owned())
}

pub(super) async fn late(api: &Api) -> Seen {
    /// As long as Stripe and Standard Webhooks deliver.
    const DAYS: u64 = 3;
    let event = api.effect().created_before(DAYS * 86_400);
    let delivering = acknowledged_twice(api, &event);
    api.with_effects(&event, 1, delivering).await?;
    Ok(format!(
        "an event of {DAYS} days ago, signed now: one effect"
    ))
}

/// The receiver refuses the delivery without an effect, and then takes the right one.
async fn refused_and_then_right(api: &Api, wrong: &Ask, right: &Ask) -> Seen {
    let refusal = refused(api, wrong).await?;
    let delivering = acknowledged(api, right);
    api.with_effects(right, 1, delivering).await?;
    Ok(format!(
        "{}, and then one effect of the right one",
        refusal.status
    ))
}

pub(super) async fn forged(api: &Api) -> Seen {
    let event = api.effect();
    // The HMAC of another secret.
    let forged = event.with_credential("whsec_Zm9yZ2VkZm9yZ2VkZm9yZ2VkZm9yZ2Vk");
    refused_and_then_right(api, &forged, &event).await
}

pub(super) async fn unsigned(api: &Api) -> Seen {
    let event = api.effect();
    refused_and_then_right(api, &event.with_credential(""), &event).await
}

pub(super) async fn old(api: &Api) -> Seen {
    let event = api.effect();
    refused_and_then_right(api, &event.signed_before(3600), &event).await
}
