//! A storm of duplicates: a charge takes two seconds, and impatient clients send it again.
//!
//! Promise: only refusals are measured. A reply other than 409 ends the run.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::requests::post;
use crate::{
    load::{self, Call, Until},
    measure::{Sample, Target},
};

/// A charge of the test card that takes two seconds.
const SLOW: &str = r#"{"amount":2000,"currency":"usd","source":"tok_slow"}"#;

/// How long after its start the charge is certain to be in flight.
const IN_FLIGHT: Duration = Duration::from_millis(1_500);

/// What the charge is ahead of its first duplicate.
const HEAD_START: Duration = Duration::from_millis(50);

/// On a busy machine a duplicate may arrive before the charge.
const ATTEMPTS: usize = 3;

/// Sends duplicates while one charge is in flight, for `length` at most.
pub(super) async fn measure(
    target: &Target,
    connections: usize,
    length: Duration,
) -> anyhow::Result<Sample> {
    let address = *target.addresses.first().context("no server")?;
    for _ in 0..ATTEMPTS {
        let first = post("/charges", SLOW.to_owned(), 201);
        let duplicate = Call {
            status: 409,
            ..first.clone()
        };
        let sent = Instant::now();
        let first = tokio::spawn(async move { load::send_one(address, &first).await });
        tokio::time::sleep(HEAD_START).await;
        if load::send_one(address, &duplicate).await.is_err() {
            // The duplicate was the first one.
            continue;
        }
        let until = Until::For(left(length, sent.elapsed()));
        let sample = target.measure(connections, &until, move |_| duplicate.clone());
        let sample = sample.await?;
        first.await?.context("the charge that was duplicated")?;
        return Ok(sample);
    }
    bail!("no charge stayed in flight in {ATTEMPTS} attempts: run this on a quieter machine")
}

/// How long the storm may last, when so much time has passed since the charge was sent.
fn left(length: Duration, passed: Duration) -> Duration {
    length.min(IN_FLIGHT.saturating_sub(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_ends_before_the_charge_does() {
        let millis = Duration::from_millis;
        assert_eq!(left(millis(3_000), millis(60)), millis(1_440));
        assert_eq!(left(millis(1_000), millis(60)), millis(1_000));
        assert_eq!(left(millis(3_000), millis(1_900)), Duration::ZERO);
    }
}
