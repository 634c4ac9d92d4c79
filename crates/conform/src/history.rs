//! What was sent under which key, when, and what came back: the "why" of a finding.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::api::{Ask, Reply, lock};

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) key: String,
    /// The number of the `Ask`, which tells two requests under one key apart.
    pub(crate) number: u32,
    pub(crate) credential: String,
    /// Method and path.
    pub(crate) asked: String,
    pub(crate) sent: Duration,
    pub(crate) ended: Duration,
    /// The reply, or why there was none.
    pub(crate) told: Result<Reply, String>,
}

/// All attempts of a run, in the order in which they ended.
#[derive(Debug)]
pub(crate) struct History {
    began: Instant,
    /// What no report shows.
    secrets: Vec<String>,
    attempts: Mutex<Vec<Attempt>>,
}

impl History {
    pub(crate) fn without(secrets: Vec<String>) -> Self {
        Self {
            began: Instant::now(),
            secrets,
            attempts: Mutex::default(),
        }
    }

    /// Sends the request by `sending`, and writes down what came of it.
    pub(crate) async fn record(
        &self,
        ask: &Ask,
        sending: impl Future<Output = Result<Reply, String>>,
    ) -> Result<Reply, String> {
        let sent = self.began.elapsed();
        let told = sending.await;
        lock(&self.attempts).push(Attempt {
            key: ask.key().to_owned(),
            number: ask.number,
            credential: ask.credential.clone(),
            asked: self
                .secrets
                .iter()
                .fold(ask.asked(), |asked, secret| asked.replace(secret, "…")),
            sent,
            ended: self.began.elapsed(),
            told: told.clone(),
        });
        told
    }

    /// The attempts under the key, in the order in which they were sent.
    pub(crate) fn of(&self, key: &str) -> Vec<Attempt> {
        let attempts = lock(&self.attempts);
        let own = attempts.iter().filter(|attempt| attempt.key == key);
        let mut own: Vec<Attempt> = own.cloned().collect();
        own.sort_by_key(|attempt| attempt.sent);
        own
    }

    /// The attempts under the key that was used last.
    pub(crate) fn of_last_key(&self) -> Vec<Attempt> {
        let key = lock(&self.attempts).last().map(|last| last.key.clone());
        self.of(&key.unwrap_or_default())
    }
}

/// How two attempts came to do the work of one.
pub(crate) fn interleaving(attempts: &[Attempt]) -> String {
    let began = attempts.first().map(|first| first.sent);
    let at = |time: Duration| (time - began.unwrap_or_default()).as_millis();
    let mut succeeded = attempts.iter().filter_map(|attempt| {
        let reply = attempt.told.as_ref().ok()?;
        reply.is_success().then_some((attempt, reply))
    });
    let first = succeeded.next();
    let second =
        first.and_then(|(_, one)| succeeded.find(|(_, other)| !one.is_same_outcome(other)));
    match (first, second) {
        (Some((one, _)), Some((other, _))) if other.sent < one.ended => format!(
            "the request of {} ms was at work until {} ms, and that of {} ms did the work too",
            at(one.sent),
            at(one.ended),
            at(other.sent)
        ),
        (Some((one, _)), Some((other, _))) => format!(
            "the request of {} ms did the work again, {} ms after that of {} ms was answered",
            at(other.sent),
            (other.sent - one.ended).as_millis(),
            at(one.sent)
        ),
        _ if attempts.iter().any(|attempt| attempt.told.is_err()) => {
            "a request without a reply did the work, and another one did it again".to_owned()
        }
        _ => "the replies don't tell which requests did the work: the effects do".to_owned(),
    }
}

/// Equal attempts, one after the other, and what came back. Never empty.
pub(crate) struct Group<'a> {
    pub(crate) attempts: Vec<&'a Attempt>,
    pub(crate) told: String,
}

impl Group<'_> {
    /// The first sending and the last end, since `began`.
    pub(crate) fn span(&self, began: Duration) -> [Duration; 2] {
        let sent = self.attempts.iter().map(|attempt| attempt.sent).min();
        let ended = self.attempts.iter().map(|attempt| attempt.ended).max();
        [sent, ended].map(|time| time.unwrap_or_default().saturating_sub(began))
    }

    /// A line of text.
    pub(crate) fn line(&self, began: Duration) -> String {
        let [sent, ended] = self.span(began).map(|time| time.as_millis());
        let times = match self.attempts.len() {
            1 => String::new(),
            times => format!(", {times} times"),
        };
        format!("{sent} to {ended} ms: {}{times}", self.told)
    }
}

/// The attempts in groups, and how many groups are left out: a long series of retries is cut.
pub(crate) fn groups(attempts: &[Attempt]) -> (Vec<Group<'_>>, usize) {
    const SHOWN: usize = 24;
    let mut groups: Vec<Group<'_>> = Vec::new();
    for attempt in attempts {
        let other = match attempts.first() {
            Some(first) if attempt.number != first.number => "another request: ",
            Some(first) if attempt.credential != first.credential => "with another credential: ",
            _ => "",
        };
        let told = match &attempt.told {
            Ok(reply) => format!("{other}{reply}"),
            Err(why) => format!("{other}no reply: {why}"),
        };
        match groups.last_mut() {
            Some(group) if group.told == told => group.attempts.push(attempt),
            _ => groups.push(Group {
                attempts: vec![attempt],
                told,
            }),
        }
    }
    let cut = groups.len().saturating_sub(SHOWN);
    groups.truncate(SHOWN);
    (groups, cut)
}

/// A line for each group.
pub(crate) fn lines(attempts: &[Attempt]) -> Vec<String> {
    let began = attempts.first().map_or(Duration::ZERO, |first| first.sent);
    let (groups, cut) = groups(attempts);
    let shown = groups.iter().map(|group| group.line(began));
    let rest = (cut > 0).then(|| format!("and {cut} lines more"));
    shown.chain(rest).collect()
}
