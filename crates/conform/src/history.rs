//! What was sent under which key, when, and what came back: the "why" of a finding.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::api::{Ask, Reply, lock};

#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    key: String,
    /// Of its `Ask`: two requests under one key have two.
    pub(crate) number: u32,
    sent: Duration,
    ended: Duration,
    /// The reply, or why there was none.
    pub(crate) told: Result<Reply, String>,
}

/// All attempts of a run, in the order in which they ended.
#[derive(Debug)]
pub(crate) struct History {
    began: Instant,
    attempts: Mutex<Vec<Attempt>>,
}

impl History {
    pub(crate) fn new() -> Self {
        Self {
            began: Instant::now(),
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

    /// Those under the key that was used last.
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

/// A line for each attempt. Equal ones in a row are one line.
pub(crate) fn lines(attempts: &[Attempt]) -> Vec<String> {
    /// A long series of retries is cut.
    const SHOWN: usize = 24;
    let Some(first) = attempts.first() else {
        return Vec::new();
    };
    let mut groups: Vec<(Duration, Duration, usize, String)> = Vec::new();
    for attempt in attempts {
        let other = match attempt.number == first.number {
            true => "",
            false => "another request: ",
        };
        let told = match &attempt.told {
            Ok(reply) => format!("{other}{reply}"),
            Err(why) => format!("{other}no reply: {why}"),
        };
        match groups.last_mut() {
            Some((_, ended, times, last)) if *last == told => {
                *ended = attempt.ended.max(*ended);
                *times += 1;
            }
            _ => groups.push((attempt.sent, attempt.ended, 1, told)),
        }
    }
    let shown = groups.iter().take(SHOWN).map(|(sent, ended, times, told)| {
        let times = match times {
            1 => String::new(),
            times => format!(", {times} times"),
        };
        let span = |time: &Duration| (*time - first.sent).as_millis();
        format!("{} to {} ms: {told}{times}", span(sent), span(ended))
    });
    let cut = groups.len().saturating_sub(SHOWN);
    let rest = (cut > 0).then(|| format!("and {cut} lines more"));
    shown.chain(rest).collect()
}
