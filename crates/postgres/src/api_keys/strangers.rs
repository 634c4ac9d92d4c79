//! Looks up what strangers ask for: keys that are not known to be an account's, and whatever else
//! opens only to those who know it. Many are looked up with one statement.
//!
//! Promise: what is there is found, whatever else its address asks for. However much strangers
//! guess, the look-ups use one connection of each database, and ask it at most once every
//! [`PAUSE`]. One that comes alone is looked up at once.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::api_keys::{RateLimit, Refusal};

/// Between the beginnings of two statements. Short for an account whose key is not known yet, and
/// long against the statement, which takes a fraction of a millisecond.
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// Questions in one statement. With [`PAUSE`], more than 50,000 in a second are looked up.
pub(crate) const BATCH_MAX: usize = 256;

/// Guesses in a second, and in a burst, of one address. A client with a wrong setting stays below
/// it, and a program that guesses gets nowhere.
const GUESSES: NonZeroU32 = NonZeroU32::new(20).unwrap();

/// Asks each of several databases for a `Q`, to which one of them may have an `A`, and counts what
/// none of them has. Cheap to clone. Each database has a task, which ends with the last clone.
#[derive(Clone)]
pub struct Strangers<Q, A, E> {
    databases: Vec<mpsc::Sender<LookUp<Q, A, E>>>,
    guesses: RateLimit<IpAddr>,
}

struct LookUp<Q, A, E> {
    asked: Q,
    answer: oneshot::Sender<Result<Option<A>, E>>,
}

impl<Q, A, E> Strangers<Q, A, E>
where
    Q: Clone + Eq + Hash + Send + Sync + 'static,
    A: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// Each of `databases` runs one statement for many questions, and returns those that it has an
    /// answer to. With `limits_guesses`, 20 in a second that are not there may come from one
    /// address. Panics outside a Tokio runtime.
    pub fn of<D, F>(databases: impl IntoIterator<Item = D>, limits_guesses: bool) -> Self
    where
        D: Fn(Vec<Q>) -> F + Send + 'static,
        F: Future<Output = Result<HashMap<Q, A>, E>> + Send + 'static,
    {
        let databases = databases.into_iter().map(|database| {
            let (look_ups, waiting) = mpsc::channel(BATCH_MAX);
            tokio::spawn(look_up_all(database, waiting));
            look_ups
        });
        Self {
            databases: databases.collect(),
            guesses: RateLimit::new(limits_guesses.then_some(GUESSES)),
        }
    }

    /// Asks all databases at once. The first one that has an answer is enough. `None`: all of them
    /// have said that they have none, and the caller counts it ([`Strangers::may_guess`]) unless
    /// the same request asks again. While one is down, what the others don't have is counted here,
    /// or it could be guessed without a limit meanwhile. Gives up at `until`.
    pub async fn find(
        &self,
        asked: Q,
        client: Option<IpAddr>,
        until: Instant,
    ) -> Result<Option<(usize, A)>, Refusal<E>> {
        let databases = self.databases.iter().enumerate();
        let mut answers: FuturesUnordered<_> = databases
            .map(|(number, look_ups)| {
                let asked = asked.clone();
                async move { (number, ask(look_ups, asked).await) }
            })
            .collect();
        let (mut failed, mut is_a_guess) = (None, false);
        while !answers.is_empty() {
            match timeout_at(until, answers.next()).await {
                Ok(Some((database, Ok(Some(found))))) => return Ok(Some((database, found))),
                Ok(Some((_, Ok(None)))) => is_a_guess = true,
                Ok(Some((_, Err(refusal)))) => failed = Some(refusal),
                Ok(None) => break,
                Err(_) => {
                    failed = Some(Refusal::TooSlow);
                    break;
                }
            }
        }
        match failed {
            None => Ok(None),
            Some(refusal) => {
                if is_a_guess {
                    self.may_guess(client).map_err(Refusal::TooMany)?;
                }
                // Where all are down, who has the key of an account is told so.
                Err(refusal)
            }
        }
    }

    /// Counts what was not found for a client. An error: so much came from its address that it is
    /// to be told 429, and for how long. What is there is never refused because of it.
    pub fn may_guess(&self, client: Option<IpAddr>) -> Result<(), Duration> {
        client.map_or(Ok(()), |client| self.guesses.check(network(client)))
    }
}

async fn ask<Q, A, E>(
    look_ups: &mpsc::Sender<LookUp<Q, A, E>>,
    asked: Q,
) -> Result<Option<A>, Refusal<E>> {
    let (answer, answered) = oneshot::channel();
    let sent = look_ups.send(LookUp { asked, answer }).await;
    sent.map_err(|_| Refusal::Ended)?;
    let found = answered.await.map_err(|_| Refusal::Ended)?;
    found.map_err(Refusal::LookUp)
}

async fn look_up_all<Q, A, E, D, F>(database: D, mut waiting: mpsc::Receiver<LookUp<Q, A, E>>)
where
    Q: Clone + Eq + Hash,
    A: Clone,
    E: Clone,
    D: Fn(Vec<Q>) -> F,
    F: Future<Output = Result<HashMap<Q, A>, E>>,
{
    let mut batch = Vec::new();
    while waiting.recv_many(&mut batch, BATCH_MAX).await > 0 {
        let next = Instant::now() + PAUSE;
        // A client that left needs no answer.
        batch.retain(|look_up| !look_up.answer.is_closed());
        let found = database(batch.iter().map(|look_up| look_up.asked.clone()).collect()).await;
        for LookUp { asked, answer } in batch.drain(..) {
            let told = found.as_ref().map(|answers| answers.get(&asked).cloned());
            drop(answer.send(told.map_err(Clone::clone)));
        }
        tokio::time::sleep_until(next).await;
    }
}

/// All addresses that one client may take: an IPv6 network of 64 bits, and a single IPv4 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_what_one_client_may_take() -> Result<(), std::net::AddrParseError> {
        for (address, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ] {
            assert_eq!(network(address.parse()?).to_string(), expected);
        }
        Ok(())
    }
}
