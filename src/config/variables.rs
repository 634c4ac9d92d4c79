//! Every environment variable, declared once, by topic: its name, its default, which values it
//! takes, and what it is. `charge_once_service::settings` makes `--help` and the tables in the
//! documentation from this list.

use std::{
    net::SocketAddr,
    num::{NonZeroU32, NonZeroU64},
    path::PathBuf,
    time::Duration,
};

use charge_once_postgres::database::shards::ShardUrl;
use charge_once_service::connections::{Host, parse_hosts as hosts};
use charge_once_service::settings::{values::*, variables};
use charge_once_service::traces::variables::*;

use super::values::*;
use crate::idempotency::SealSecrets;

variables! {
    /// The variables that are read as they are.
    pub struct Values;

    "Where it listens":
    BIND_ADDRESS as bind_address: SocketAddr = "127.0.0.1:8080", address,
        "Address and port to listen on; localhost is 127.0.0.1.";
    ALLOWED_HOSTS: Vec<Host>, hosts,
        "The hosts by which clients call the server, such as pay.example.com,10.0.0.7: names or IP addresses \
         without ports. Any other Host header is 400. Where the server listens on loopback, localhost, names \
         below it, 127.0.0.0/8 and [::1] count, too. Unset elsewhere: every host.";
    PUBLIC_URL maybe public_url: String, public_url,
        "Where browsers reach the server, such as https://pay.example.com: the pages on which a card's holder \
         authenticates are below it. Unset: http:// and the address that the server listens on.";
    RETURN_URL_SCHEMES maybe return_url_schemes: Vec<String>, schemes,
        "Schemes of apps to which a return_url may lead, such as myapp,shop-app. A scheme that is a domain \
         backwards, such as com.example.shop, needs no entry. Unset: no others.";
    METRICS_ADDRESS maybe metrics_address: SocketAddr, address,
        "Address and port where /metrics is served for Prometheus, such as 127.0.0.1:9090. It asks for no \
         API key, so choose an address that clients can't reach. Unset: nothing is counted.";

    "The database":
    DATABASE_URL: String, postgres_url,
        "PostgreSQL 15 or later, as postgres://user:password@host/database. Unset: \
         charge-once runs a private PostgreSQL in DATA_DIR.";
    SHARD_URLS: Vec<ShardUrl>, shard_urls,
        "More databases beside DATABASE_URL, as name=url with commas or line breaks between them. Each account \
         lives in one of them; DATABASE_URL is the shard main. Every process needs all of them. Unset: \
         one database. See docs/scale.md.";
    DATA_DIR: PathBuf = "./.charge-once", path,
        "Folder of the private PostgreSQL's data.";
    PG_BIN_DIR: PathBuf, path,
        "Folder of PostgreSQL's programs (initdb, postgres), if charge-once does not find \
         them.";
    MIGRATE_ON_START as migrate_on_start: bool = "true", truth,
        "Migrates the schema at the start. A lock in the database makes this safe with \
         several replicas.";

    "Trying it out":
    DEV_API_KEY: String, api_key,
        "An API key for the account dev: sk_test_ or rk_test_ and at least 8 more characters. Another value revokes the \
         key of the value before. Unset: sk_test_ChargeOnceDevelopmentKey00 with the private PostgreSQL, none with \
         DATABASE_URL.";
    ALLOW_PUBLIC_DEV_KEY as allow_public_dev_key: bool = "false", truth,
        "Allows the public key sk_test_ChargeOnceDevelopmentKey00 where BIND_ADDRESS is more than this machine's: true or \
         false. Where strangers reach the server, they can use it.";
    ANY_TEST_KEY as any_test_key: bool = "false", truth,
        "Lets any unknown sk_test_ or rk_test_ key open the account of DEV_API_KEY, for test suites of \
         Stripe's SDKs: true or false.";
    CONSOLE as console: bool = "false", truth,
        "Serves the console at /console, and logs requests for it: true or false. For development: \
         an API key of an account opens the pages about that account.";
    FAULTS as faults: bool = "false", truth,
        "Lets clients ask for faults, to test their retries: test accounts and the account of DEV_API_KEY \
         only, and never together with PROCESSOR_URL. docs/testing.md lists them.";
    EMPTY_LISTS as empty_lists: bool = "false", truth,
        "Answers GET of lists below /v1 that Stripe has and charge-once hasn't, such as /v1/products, with an \
         empty list instead of 404: true or false.";

    "Idempotency keys":
    IDEMPOTENCY_TTL as idempotency_ttl: Duration = "24h", days_400,
        "How long a key and its outcome are kept after the key's first use; 60s to 400d.";
    IDEMPOTENCY_TTL_BY_ROUTE maybe ttl_by_route: RouteTimes, route_times,
        "That time for single routes, such as POST /refunds=7d,POST /test/*=1h.";
    ALLOW_SHORT_TTL as allow_short_ttl: bool = "false", truth,
        "Allows both below 60s, for tests and demonstrations.";
    IDEMPOTENCY_TTL_MAX as idempotency_ttl_max: Duration = "30d", days_400,
        "The longest time that Prefer: retain=7d may ask for; at most 400d.";
    KEY_MEMORY as key_memory: Option<Duration> = "0s", retention,
        "How long a key is remembered after its outcome has expired; 1h to 400d. A request with it gets 409 \
         then, and does nothing. 0s remembers no key, which is new then. The same in all processes.";
    REFUSE_OLD_KEYS as refuse_old_keys: bool = "false", truth,
        "Takes a key that is a UUID of version 7 and older than IDEMPOTENCY_TTL for one that has expired, by the \
         time that its client wrote into it: true or false.";
    KEYS as keys: KeyModes = "required", key_modes,
        "What a POST, PUT or PATCH without an idempotency key gets: 400 (required), or a key that the server \
         makes, whose retry does the work again (assign). By prefix of the path, too: required,/v1=assign.";
    IDEMPOTENCY_LEASE as lease: Duration = "30s", duration,
        "How long a process holds the key of a request of several transactions, which is a checkout, or a \
         payment with PROCESSOR_URL. Then another process may continue the request. Longer than \
         PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together.";
    IN_FLIGHT_WAIT_V1 as in_flight_wait_v1: Duration = "10s", in_flight_wait,
        "How long a duplicate under /v1 waits for the first request's reply; at most 30s.";
    SEAL_SECRETS: SealSecrets, seal_secrets,
        "Secrets of 32 characters or more that encrypt stored replies, with commas between them: the first seals, \
         all open. Unset: none is encrypted. See docs/operations.md.";
    SEAL_REPLIES as seals_all: bool = "secrets", |text| one_of(text, &[("secrets", false), ("all", true)]),
        "Which replies SEAL_SECRETS encrypts: those that show a secret (secrets), or all of requests of one \
         transaction (all).";
    REPLAY_CACHE as replay_cache: Option<NonZeroU64> = "32MiB", replay_cache,
        "Memory for stored replies, such as 256MiB, so that a replay needs no SQL statement; at most 64GiB. \
         0 keeps none.";

    "The card processor":
    PROCESSOR_URL: ProcessorUrl, processor_url,
        "The card processor, as http://host:port or https://…. Unset: this process simulates \
         it, and every payment is one transaction.";
    PROCESSOR_NAME: String, processor_name,
        "The name of the card processor in stored charges. Only the processor that took the \
         money returns it. Set it to the old scheme, host and port before the processor's \
         address changes. Unset: scheme, host and port of PROCESSOR_URL.";
    PROCESSOR_TIMEOUT as processor_timeout: Duration = "10s", duration,
        "Longest time for one call to the card processor at PROCESSOR_URL.";
    PROCESSOR_KEY_WINDOW as processor_key_window: Duration = "24h", days_400,
        "How long the processor remembers a key; also used by `charge-once processor`. A processor that has \
         forgotten a key would execute the instruction again, so charge-once stops sending it before that.";

    "How long rows are kept":
    EXPIRY_SWEEP_INTERVAL as expiry_sweep_interval: Duration = "60s", duration,
        "Pause between two sweeps of expired keys.";
    EVENT_RETENTION: Option<Duration> = "30d", retention,
        "How long events are kept, with their deliveries; 1h to 400d, and 0s keeps them for good. An event \
         that is still being delivered is kept longer.";
    OPERATION_RETENTION: Option<Duration> = "30d", retention,
        "How long instructions to the card processor are kept after its answer; 1h to 400d, and 0s \
         keeps them for good.";
    REQUEST_LOG_RETENTION: Option<Duration> = "24h", retention,
        "How long the console's log of requests is kept; 1h to 400d, and 0s keeps it for good.";

    "Connections and transactions":
    POOL_CONNECTIONS as pool_connections: u32 = "10", |text| number(text, 2..=1000),
        "Size of the connection pool; 2 to 1000.";
    POOL_WAIT as pool_wait: Duration = "1s", duration,
        "Longest wait for a pooled connection, then 503.";
    BATCH as batch: bool = "on", |text| one_of(text, &[("on", true), ("off", false)]),
        "Whether requests share transactions: on or off.";
    BATCH_CONNECTIONS as batch_connections: u32 = "2", |text| number(text, 1..=100),
        "Connections for the transactions that these share, beside the pool; 1 to 100.";
    STATEMENT_TIMEOUT as statement_timeout: Duration = "3s", duration,
        "Longest time one SQL statement may take. The test card tok_slow waits in a statement for two \
         seconds, and for two thirds of this time at most.";
    // A list looks for objects by time among the ids of that time, and `created_at` is when the
    // transaction began: `ID_SLACK` in crates/strict-params is how far apart the two may be.
    DATABASE_DEADLINE as database_deadline: Duration = "5s", |text| at_most(text, "30s"),
        "Longest time from BEGIN to COMMIT, then 503; at most 30s.";
    IDLE_IN_TRANSACTION_TIMEOUT as idle_in_transaction_timeout: Duration = "6s", duration,
        "Time after which PostgreSQL ends a transaction whose client is gone.";

    "Requests":
    REQUEST_TIMEOUT as request_timeout: Duration = "8s", duration,
        "Longest time for a request of one transaction. Waiting for another request with the \
         same key comes on top. Looking up the API key and reading the body share the time \
         that POOL_WAIT and DATABASE_DEADLINE leave.";
    BODY_LIMIT as body_limit: usize = "65536", |text| count(text, "bytes", 1024..=1_048_576),
        "Largest request body, in bytes; 1024 to 1048576.";
    RATE_LIMIT as rate_limit: Option<NonZeroU32> = "1000", |text| {
            count(text, "requests per second", 0..=1_000_000).map(NonZeroU32::new)
        },
        "Requests per second, and per burst, that each process accepts from one account. Further ones are \
         429. Requests with API keys that don't exist are 429 beyond 20 per second from one address. 0 \
         turns both limits off.";
    IN_PROGRESS_LIMIT: usize, in_progress,
        "Requests with a key that each process works on at a time. Further ones are 503, while reads and \
         replays go on. Duplicates that wait are not counted. Unset: 200 for each of POOL_CONNECTIONS. 0 \
         means no limit.";
    IN_PROGRESS_LIMIT_PER_ACCOUNT: usize, in_progress,
        "The same limit for the requests of one account, at most IN_PROGRESS_LIMIT. Unset: half of \
         IN_PROGRESS_LIMIT. 0 means no limit.";
    KEEP_ALIVE_TIMEOUT: Duration = "75s", |text| at_most(text, "1h"),
        "How long a connection stays open between two requests. Longer than a proxy's idle \
         timeout for connections to charge-once; at most 1h.";
    REQUEST_HEAD_TIMEOUT: Duration = "5s", |text| at_most(text, "1h"),
        "How long a request's head may take to arrive, from its first byte on; then 408. A new connection \
         that sends nothing is closed after the same time, and so is one that doesn't send the rest of a \
         body after the reply. At most 1h.";
    REPLY_WRITE_TIMEOUT: Duration = "60s", |text| at_most(text, "1h"),
        "How long a client may take to read a reply that does not fit into the connection's buffers; at \
         most 1h.";

    "The process":
    WORKERS as workers: usize = "0", workers,
        "HTTP worker threads, at most 512; 0 means one for each core.";
    BACKGROUND as background: bool = "on", |text| one_of(text, &[("on", true), ("off", false)]),
        "Whether a server also does the work beside requests: sweeps, webhooks, and what it continues for \
         clients that never retry; on or off. Off: run `charge-once work` beside the servers.";
    DRAIN_TIMEOUT as drain_timeout: Duration = "20s", duration,
        "How long requests in flight may take to finish after SIGTERM.";

    "Webhooks":
    WEBHOOK_ALLOW_PRIVATE as webhook_allow_private: bool = "false", truth,
        "Allows webhooks to private and local addresses, for development. In production this \
         would open a way into your network.";
    // A receiver that takes longer should answer first and work afterwards.
    WEBHOOK_TIMEOUT as webhook_timeout: Duration = "10s", |text| at_most(text, "60s"),
        "Longest time for one attempt to deliver a webhook; at most 60s. If a replica dies during an \
         attempt, another replica repeats it three times this long after it began.";
    WEBHOOK_RETRY_MIN as webhook_retry_min: Duration = "5s", duration,
        "Shortest pause after a failed attempt to deliver a webhook. Pauses double, with jitter.";
    WEBHOOK_RETRY_MAX as webhook_retry_max: Duration = "8h", duration,
        "Longest pause between two attempts to deliver a webhook, at least twice the shortest; at \
         most 7d. After 24 attempts the delivery has failed.";
    WEBHOOK_POLL_INTERVAL as webhook_poll_interval: Duration = "1s", duration,
        "How often each replica looks for webhooks that are due again, or that another replica left. It sends \
         its own at once.";

    "The simulator of the card processor":
    PROCESSOR_BIND_ADDRESS as processor_bind_address: SocketAddr = "127.0.0.1:8081", address,
        "Address and port that `charge-once processor` listens on.";
    PROCESSOR_DATABASE_URL: String, postgres_url,
        "The database of `charge-once processor`, which no other program uses. Unset: a \
         private PostgreSQL in PROCESSOR_DATA_DIR.";
    PROCESSOR_DATA_DIR: PathBuf = "./.charge-once-processor", path,
        "Folder of the data of the private PostgreSQL of `charge-once processor`.";

    "Traces":
    OTEL_EXPORTER_OTLP_ENDPOINT: String, collector,
        "Where `serve` sends traces: a collector of OpenTelemetry, such as http://127.0.0.1:4318, which takes \
         them at /v1/traces below. Unset: no trace is made or sent.";
    OTEL_EXPORTER_OTLP_HEADERS: Pairs, headers,
        "Headers for the collector, such as api-key=secret, with commas between them. Values are \
         percent-encoded.";
    OTEL_EXPORTER_OTLP_PROTOCOL: () = "http/protobuf", protocol,
        "The protocol of the collector. http/protobuf is the only one.";
    OTEL_SERVICE_NAME: String = "charge-once", name,
        "The name of this service in traces.";
    OTEL_RESOURCE_ATTRIBUTES: Pairs, attributes,
        "More attributes of this process in every trace, such as deployment.environment.name=production, \
         with commas between them. Values are percent-encoded.";
    OTEL_TRACES_SAMPLER: NamedSampler = "parentbased_always_on", sampler,
        "Which traces are recorded: always_on, always_off, or traceidratio, a share of them. With \
         parentbased_ in front, a caller that sends traceparent decides about its own requests.";
    OTEL_TRACES_SAMPLER_ARG: f64 = "1.0", share,
        "The share of traceidratio, from 0 to 1.";

    "Logs":
    LOG_FORMAT: bool, |text| one_of(text, &[("pretty", false), ("json", true)]),
        "pretty or json. Unset: pretty on a terminal, else json.";
    RUST_LOG: String = "info", |text| log_filter(text, "charge_once"),
        "Which log lines are written, in the syntax of tracing's EnvFilter. At debug and trace, \
         charge-once and sqlx alone write lines: those of the HTTP libraries would show what \
         strangers send, and the hosts of webhooks.";
}

/// Those of traces.
pub(super) const TRACES: Variables = Variables {
    endpoint: OTEL_EXPORTER_OTLP_ENDPOINT,
    protocol: OTEL_EXPORTER_OTLP_PROTOCOL,
    headers: OTEL_EXPORTER_OTLP_HEADERS,
    attributes: OTEL_RESOURCE_ATTRIBUTES,
    service_name: OTEL_SERVICE_NAME,
    sampler: OTEL_TRACES_SAMPLER,
    sampler_arg: OTEL_TRACES_SAMPLER_ARG,
};
