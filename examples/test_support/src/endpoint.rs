//! What an endpoint behind an idempotency key does, whatever its effect is.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::{sync::Barrier, task::JoinSet, time::Instant};

use crate::{PATIENCE, Program, empty_database, eventually, http_client};

/// The endpoint of an example.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The program that serves it.
    pub program: &'static str,
    /// Its path.
    pub path: &'static str,
    /// A body that has an effect.
    pub body: &'static str,
    /// Another one.
    pub other_body: &'static str,
    /// A query for the number of effects.
    pub effects: &'static str,
    /// SQL after which `body` is refused.
    pub forbid: &'static str,
    /// SQL that undoes every effect and every `forbid`.
    pub reset: &'static str,
    /// Whether the reply to a request for another protocol says that the connection ends.
    pub says_close: bool,
}

/// The program, and its database.
#[derive(Debug)]
pub struct Service {
    endpoint: Endpoint,
    program: Program,
    http: reqwest::Client,
    database_url: String,
    pool: PgPool,
}

/// What a client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The media type.
    pub media_type: Option<String>,
    /// The bytes.
    pub body: Vec<u8>,
    /// Whether it is marked as a replay.
    pub replayed: bool,
}

impl Endpoint {
    /// Starts the program on a database of its own.
    pub async fn start(self) -> Service {
        let database_url = empty_database().await;
        Service {
            program: Program::start(self.program, &[("DATABASE_URL", database_url.as_str())]),
            endpoint: self,
            http: http_client(),
            pool: PgPool::connect(&database_url).await.unwrap(),
            database_url,
        }
    }
}

impl Service {
    /// Sends a request under a key.
    pub async fn post(&self, key: &str, body: &'static str) -> Answer {
        self.post_to(&self.program, key, body).await
    }

    async fn post_to(&self, program: &Program, key: &str, body: &'static str) -> Answer {
        let url = format!("http://{}{}", program.address, self.endpoint.path);
        let request = self.http.post(url).header("idempotency-key", key);
        let request = request.header("content-type", "application/json");
        let response = request.body(body).send().await.unwrap();
        let header = |name| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        Answer {
            status: response.status().as_u16(),
            media_type: header("content-type"),
            replayed: header("idempotent-replayed").is_some(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    /// Sends a request again until the answer is one that stays.
    pub async fn post_until_definite(&self, key: &str, body: &'static str) -> Answer {
        self.post_until_definite_to(&self.program, key, body).await
    }

    async fn post_until_definite_to(
        &self,
        program: &Program,
        key: &str,
        body: &'static str,
    ) -> Answer {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.post_to(program, key, body).await;
            if ![409, 503].contains(&answer.status) {
                return answer;
            }
            assert!(Instant::now() < deadline, "no definite answer: {answer:?}");
        }
    }

    /// Another process of the program on the same database.
    fn start_replica(&self) -> Program {
        Program::start(
            self.endpoint.program,
            &[("DATABASE_URL", &self.database_url)],
        )
    }

    /// Runs SQL on the program's database.
    pub async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&self.pool).await.unwrap();
    }

    /// The single number that a query answers.
    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    /// How many effects there are.
    pub async fn effects(&self) -> i64 {
        self.number(self.endpoint.effects).await
    }

    async fn keys(&self) -> i64 {
        self.number("SELECT count(*) FROM idempotency_keys").await
    }
}

/// All of what follows, one after the other.
pub async fn keeps_its_promises(endpoint: Endpoint) {
    replays(endpoint).await;
    refuses_reuse(endpoint).await;
    replays_refusals(endpoint).await;
    needs_a_key(endpoint).await;
    has_one_effect_for_fifty_racers(endpoint).await;
    answers_upgrades(endpoint).await;
    survives_a_kill(endpoint).await;
    sweeps_expired_keys(endpoint).await;
    ends_in_good_order(endpoint).await;
}

/// A retry gets the stored answer, byte for byte, and has no effect.
async fn replays(endpoint: Endpoint) {
    let service = endpoint.start().await;
    let first = service.post("key-1", endpoint.body).await;
    assert_eq!((first.status, first.replayed), (201, false), "{first:?}");
    assert_eq!(first.media_type.as_deref(), Some("application/json"));
    assert_eq!(service.effects().await, 1);

    // From here on, a second execution would succeed and be seen.
    service.execute(endpoint.reset).await;
    let replay = Answer {
        replayed: true,
        ..first
    };
    for spelling in ["key-1", r#""key-1""#] {
        assert_eq!(service.post(spelling, endpoint.body).await, replay);
    }
    assert_eq!((service.effects().await, service.keys().await), (0, 1));
}

/// A key belongs to the request that used it first.
async fn refuses_reuse(endpoint: Endpoint) {
    let service = endpoint.start().await;
    service.post("key-1", endpoint.body).await;
    let reuse = service.post("key-1", endpoint.other_body).await;
    assert_eq!((reuse.status, reuse.replayed), (422, false), "{reuse:?}");
    assert_eq!((service.effects().await, service.keys().await), (1, 1));
    assert_eq!(service.post("key-2", endpoint.other_body).await.status, 201);
}

/// A refusal is an answer: a retry gets it although its reason is gone.
async fn replays_refusals(endpoint: Endpoint) {
    let service = endpoint.start().await;
    service.execute(endpoint.forbid).await;
    let refusal = service.post("key-1", endpoint.body).await;
    assert_eq!((refusal.status, refusal.replayed), (400, false));
    let unreadable = service.post("key-2", "no JSON").await;
    assert_eq!((unreadable.status, unreadable.replayed), (400, false));

    service.execute(endpoint.reset).await;
    for (key, body, refusal) in [
        ("key-1", endpoint.body, refusal),
        ("key-2", "no JSON", unreadable),
    ] {
        let replay = Answer {
            replayed: true,
            ..refusal
        };
        assert_eq!(service.post(key, body).await, replay);
    }
    assert_eq!((service.effects().await, service.keys().await), (0, 2));
    assert_eq!(service.post("key-3", endpoint.body).await.status, 201);
}

/// A request without a usable key has no effect.
async fn needs_a_key(endpoint: Endpoint) {
    let service = endpoint.start().await;
    for key in ["", "two words", r#"""#] {
        let answer = service.post(key, endpoint.body).await;
        assert_eq!(answer.status, 400, "{key}: {answer:?}");
    }
    let url = format!("http://{}{}", service.program.address, endpoint.path);
    let request = service.http.post(url).body(endpoint.body);
    let twice = request
        .header("idempotency-key", "one")
        .header("idempotency-key", "two");
    assert_eq!(twice.send().await.unwrap().status(), 400);
    assert_eq!((service.effects().await, service.keys().await), (0, 0));
}

/// Fifty racers under one key, at two replicas, have one effect and get one answer.
async fn has_one_effect_for_fifty_racers(endpoint: Endpoint) {
    const RACERS: usize = 50;
    let service = Arc::new(endpoint.start().await);
    let replica = Arc::new(service.start_replica());
    let start = Arc::new(Barrier::new(RACERS));
    let mut racers = JoinSet::new();
    for racer in 0..RACERS {
        let (service, replica) = (Arc::clone(&service), Arc::clone(&replica));
        let start = Arc::clone(&start);
        racers.spawn(async move {
            start.wait().await;
            let program = [&service.program, &replica][racer % 2];
            service
                .post_until_definite_to(program, "key-1", endpoint.body)
                .await
        });
    }
    let answers = racers.join_all().await;
    let originals = answers.iter().filter(|answer| !answer.replayed).count();
    assert_eq!(originals, 1);
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body));
    }
    assert_eq!((service.effects().await, service.keys().await), (1, 1));
}

/// A request that asks for another protocol is answered.
async fn answers_upgrades(endpoint: Endpoint) {
    let service = endpoint.start().await;
    let Endpoint {
        path,
        body,
        says_close,
        ..
    } = endpoint;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: key-1\r\n{{upgrade}}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    crate::answers_upgrades(service.program.address, &request, 201, says_close).await;
    assert_eq!(service.effects().await, 1);
}

/// A process that is killed between its writes and the COMMIT has no effect, and a retry has one.
async fn survives_a_kill(endpoint: Endpoint) {
    let mut service = endpoint.start().await;
    let replica = service.start_replica();
    // The reply is saved last.
    service
        .execute(
            "CREATE TABLE gate ();
             INSERT INTO gate DEFAULT VALUES;
             CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                 WHILE EXISTS (SELECT FROM gate) LOOP PERFORM pg_sleep(0.01); END LOOP;
                 RETURN NEW;
             END $$;
             CREATE TRIGGER waits BEFORE UPDATE ON idempotency_keys
                 FOR EACH ROW EXECUTE FUNCTION wait()",
        )
        .await;
    let url = format!("http://{}{}", service.program.address, endpoint.path);
    let request = service.http.post(url).header("idempotency-key", "key-1");
    let request = request.header("content-type", "application/json");
    let sent = tokio::spawn(request.body(endpoint.body).send());
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event = 'PgSleep'";
    eventually("the reply is being saved", || async {
        service.number(waiting).await > 0
    })
    .await;
    drop(std::mem::replace(&mut service.program, replica));
    assert!(sent.await.unwrap().is_err());
    service.execute("DELETE FROM gate").await;
    let retried = service.post_until_definite("key-1", endpoint.body).await;
    assert_eq!((retried.status, retried.replayed), (201, false));
    assert_eq!((service.effects().await, service.keys().await), (1, 1));
}

/// An expired key is deleted when the program starts.
async fn sweeps_expired_keys(endpoint: Endpoint) {
    let service = endpoint.start().await;
    for key in ["key-1", "key-2"] {
        service.post(key, endpoint.body).await;
    }
    service
        .execute(
            "UPDATE idempotency_keys
             SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'
             WHERE key = 'key-1'",
        )
        .await;
    let _replica = service.start_replica();
    eventually("one key is left", || async { service.keys().await == 1 }).await;
}

/// SIGTERM ends the program in good order, and another one goes on where it ended.
async fn ends_in_good_order(endpoint: Endpoint) {
    let mut service = endpoint.start().await;
    let first = service.post("key-1", endpoint.body).await;
    let replica = service.start_replica();
    let ended = std::mem::replace(&mut service.program, replica);
    assert_eq!(ended.terminate().await, Some(0));
    let replay = service.post("key-1", endpoint.body).await;
    assert_eq!((replay.body, replay.replayed), (first.body, true));
    assert_eq!(service.effects().await, 1);
}
