//! The sessions of signed-in people, in memory.
//!
//! Promise: a session ends after twelve hours, with its process, or when its person signs out. It
//! holds the API key, because the playground sends requests with it; nothing writes it anywhere.

use std::{
    cmp::Reverse,
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

/// How long a session lasts: a working day.
pub(super) const LASTS: Duration = Duration::from_secs(12 * 3600);

/// Sessions at once. With one more, one ends now: of the account that has most of them, the one
/// that ends first. So no account ends another one's by signing in again and again.
const SESSIONS_MAX: usize = 1000;

/// What a browser knows a session by: 256 random bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Token([u8; 32]);

impl Token {
    fn fresh() -> Self {
        Self(rand::random())
    }

    /// `None` for anything that is not 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// For the cookie.
    pub(super) fn reveal(self) -> String {
        hex::encode(self.0)
    }
}

#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<Token, Session>>);

struct Session {
    account: Uuid,
    /// What people call the account, which keeps its name.
    name: Arc<str>,
    api_key: Arc<str>,
    ends: Instant,
}

impl Sessions {
    pub(super) fn begin(&self, account: Uuid, name: &str, api_key: &str, now: Instant) -> Token {
        let mut sessions = self.lock();
        if sessions.len() >= SESSIONS_MAX {
            sessions.retain(|_, session| session.ends > now);
        }
        if sessions.len() >= SESSIONS_MAX {
            end_one(&mut sessions);
        }
        let token = Token::fresh();
        let session = Session {
            account,
            name: Arc::from(name),
            api_key: Arc::from(api_key),
            ends: now + LASTS,
        };
        sessions.insert(token, session);
        token
    }

    /// The name of the account and the API key of a session that lasts at `now`.
    pub(super) fn of(&self, token: Token, now: Instant) -> Option<(Arc<str>, Arc<str>)> {
        let mut sessions = self.lock();
        let session = sessions.get(&token)?;
        if session.ends > now {
            return Some((Arc::clone(&session.name), Arc::clone(&session.api_key)));
        }
        sessions.remove(&token);
        None
    }

    pub(super) fn end(&self, token: Token) {
        self.lock().remove(&token);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends the first session of the account that has most of them.
fn end_one(sessions: &mut HashMap<Token, Session>) {
    let mut counts: HashMap<Uuid, usize> = HashMap::new();
    for session in sessions.values() {
        *counts.entry(session.account).or_default() += 1;
    }
    let first = sessions
        .iter()
        .max_by_key(|(_, session)| (counts.get(&session.account), Reverse(session.ends)));
    if let Some(first) = first.map(|(token, _)| *token) {
        sessions.remove(&first);
    }
}

/// Without tokens and keys.
impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "sk_test_12345678";
    const ACCOUNT: Uuid = Uuid::nil();
    const NAME: &str = "dev";

    #[test]
    fn a_session_lasts_twelve_hours_and_not_longer() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let token = sessions.begin(ACCOUNT, NAME, KEY, now);
        let last = now + LASTS - Duration::from_millis(1);
        let of_session = Some((Arc::from(NAME), Arc::from(KEY)));
        assert_eq!(sessions.of(token, last), of_session);
        assert_eq!(sessions.of(token, now + LASTS), None);
        assert!(sessions.lock().is_empty());
    }

    #[test]
    fn a_session_that_was_ended_is_unknown_and_others_go_on() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let begin = || sessions.begin(ACCOUNT, NAME, KEY, now);
        let (one, other) = (begin(), begin());
        sessions.end(one);
        assert_eq!(sessions.of(one, now), None);
        assert!(sessions.of(other, now).is_some());
    }

    #[test]
    fn with_one_too_many_the_oldest_session_of_the_account_with_most_ends() {
        let (sessions, now) = (Sessions::default(), Instant::now());
        let another_s = sessions.begin(Uuid::max(), NAME, KEY, now);
        let later = now + Duration::from_secs(1);
        let oldest = sessions.begin(ACCOUNT, NAME, KEY, later);
        let second = sessions.begin(ACCOUNT, NAME, KEY, later + Duration::from_secs(1));
        for _ in 0..SESSIONS_MAX - 2 {
            sessions.begin(ACCOUNT, NAME, KEY, later + Duration::from_secs(2));
        }
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
        assert_eq!(sessions.of(oldest, later), None);
        assert!(sessions.of(second, later).is_some());
        assert!(sessions.of(another_s, later).is_some());
    }

    #[test]
    fn a_token_reads_back_what_it_reveals_and_nothing_else() {
        let token = Token::fresh();
        assert!(Token::parse(&token.reveal()) == Some(token));
        for wrong in ["", "00", &"g".repeat(64), &"0".repeat(63), &"0".repeat(66)] {
            assert!(Token::parse(wrong).is_none(), "{wrong}");
        }
    }
}
