//! Every environment variable, described once: `--help` and the table in the documentation are made
//! from this list.

use std::fmt::Write;

/// One environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The value it has when it is unset or empty; `None` if that is a state of its own.
    pub default: Option<&'static str>,
    /// What it is, its unit, and why one would change it.
    pub about: &'static str,
}

const fn variable(
    name: &'static str,
    default: Option<&'static str>,
    about: &'static str,
) -> Variable {
    Variable {
        name,
        default,
        about,
    }
}

/// Every variable that charge-once reads.
pub const VARIABLES: &[Variable] = &[
    variable(
        "BIND_ADDRESS",
        Some("127.0.0.1:8080"),
        "Address and port to listen on; localhost is 127.0.0.1.",
    ),
    variable(
        "ALLOWED_HOSTS",
        None,
        "The hosts by which clients call the server, such as pay.example.com,10.0.0.7: names or IP addresses \
         without ports. Any other Host header is 400. Where the server listens on loopback, localhost, names \
         below it, 127.0.0.0/8 and [::1] count, too. Unset elsewhere: every host.",
    ),
    variable(
        "METRICS_ADDRESS",
        None,
        "Address and port where /metrics is served for Prometheus, such as 127.0.0.1:9090. It asks for no \
         API key, so choose an address that clients can't reach. Unset: nothing is counted.",
    ),
    variable(
        "DATABASE_URL",
        None,
        "PostgreSQL 15 or later, as postgres://user:password@host/database. Unset: \
         charge-once runs a private PostgreSQL in DATA_DIR.",
    ),
    variable(
        "DATA_DIR",
        Some("./.charge-once"),
        "Folder of the private PostgreSQL's data.",
    ),
    variable(
        "PG_BIN_DIR",
        None,
        "Folder of PostgreSQL's programs (initdb, postgres), if charge-once does not find \
         them.",
    ),
    variable(
        "DEV_API_KEY",
        None,
        "An API key for the account dev: sk_test_ and at least 8 more characters. Another value revokes the \
         key of the value before. Unset: sk_test_charge_once_dev with the private PostgreSQL, none with \
         DATABASE_URL.",
    ),
    variable(
        "ALLOW_PUBLIC_DEV_KEY",
        Some("false"),
        "Allows the public key sk_test_charge_once_dev where BIND_ADDRESS is more than this machine's: true or \
         false. Where strangers reach the server, they can use it.",
    ),
    variable(
        "IDEMPOTENCY_TTL",
        Some("24h"),
        "How long a key and its outcome are kept after the key's first use; 60s to 400d.",
    ),
    variable(
        "ALLOW_SHORT_TTL",
        Some("false"),
        "Allows IDEMPOTENCY_TTL below 60s, for tests and demonstrations.",
    ),
    variable(
        "PROCESSOR_URL",
        None,
        "The card processor, as http://host:port or https://…. Unset: this process simulates \
         it, and every payment is one transaction.",
    ),
    variable(
        "PROCESSOR_NAME",
        None,
        "The name of the card processor in stored charges. Only the processor that took the \
         money returns it. Set it to the old scheme, host and port before the processor's \
         address changes. Unset: scheme, host and port of PROCESSOR_URL.",
    ),
    variable(
        "PROCESSOR_TIMEOUT",
        Some("10s"),
        "Longest time for one call to the card processor at PROCESSOR_URL.",
    ),
    variable(
        "IDEMPOTENCY_LEASE",
        Some("30s"),
        "How long a process holds the key of a request of several transactions, which is a checkout, or a \
         payment with PROCESSOR_URL. Then another process may continue the request. Longer than \
         PROCESSOR_TIMEOUT, DATABASE_DEADLINE and 5s together.",
    ),
    variable(
        "EXPIRY_SWEEP_INTERVAL",
        Some("60s"),
        "Pause between two sweeps of expired keys.",
    ),
    variable(
        "EVENT_RETENTION",
        Some("30d"),
        "How long events are kept, with their deliveries; 1h to 400d, and 0s keeps them for good. An event \
         that is still being delivered is kept longer.",
    ),
    variable(
        "OPERATION_RETENTION",
        Some("30d"),
        "How long instructions to the card processor are kept after its answer; 1h to 400d, and 0s \
         keeps them for good.",
    ),
    variable(
        "REQUEST_LOG_RETENTION",
        Some("24h"),
        "How long the console's log of requests is kept; 1h to 400d, and 0s keeps it for good.",
    ),
    variable(
        "IN_FLIGHT_WAIT_V1",
        Some("10s"),
        "How long a duplicate under /v1 waits for the first request's reply; at most 30s.",
    ),
    variable(
        "POOL_CONNECTIONS",
        Some("10"),
        "Size of the connection pool; 2 to 1000.",
    ),
    variable(
        "BATCH",
        Some("on"),
        "Whether new charges and orders share transactions: on or off.",
    ),
    variable(
        "BATCH_CONNECTIONS",
        Some("2"),
        "Connections for the transactions that new charges and orders share, beside the pool; 1 to 100.",
    ),
    variable(
        "REPLAY_CACHE",
        Some("32MiB"),
        "Memory for stored replies, such as 256MiB, so that a replay needs no SQL statement; at most 64GiB. \
         0 keeps none.",
    ),
    variable(
        "POOL_WAIT",
        Some("1s"),
        "Longest wait for a pooled connection, then 503.",
    ),
    variable(
        "STATEMENT_TIMEOUT",
        Some("3s"),
        "Longest time one SQL statement may take. The test card tok_slow waits in a statement for two \
         seconds, and for two thirds of this time at most.",
    ),
    variable(
        "DATABASE_DEADLINE",
        Some("5s"),
        "Longest time from BEGIN to COMMIT, then 503; at most 30s.",
    ),
    variable(
        "IDLE_IN_TRANSACTION_TIMEOUT",
        Some("6s"),
        "Time after which PostgreSQL ends a transaction whose client is gone.",
    ),
    variable(
        "REQUEST_TIMEOUT",
        Some("8s"),
        "Longest time for a request of one transaction. Waiting for another request with the \
         same key comes on top. Looking up the API key and reading the body share the time \
         that POOL_WAIT and DATABASE_DEADLINE leave.",
    ),
    variable(
        "BODY_LIMIT",
        Some("65536"),
        "Largest request body, in bytes; 1024 to 1048576.",
    ),
    variable(
        "RATE_LIMIT",
        Some("1000"),
        "Requests per second, and per burst, that each process accepts from one account. Further ones are \
         429. Requests with API keys that don't exist are 429 beyond 20 per second from one address. 0 \
         turns both limits off.",
    ),
    variable(
        "IN_PROGRESS_LIMIT",
        None,
        "Requests with a key that each process works on at a time. Further ones are 503, while reads and \
         replays go on. Duplicates that wait are not counted. Unset: 200 for each of POOL_CONNECTIONS. 0 \
         means no limit.",
    ),
    variable(
        "IN_PROGRESS_LIMIT_PER_ACCOUNT",
        None,
        "The same limit for the requests of one account, at most IN_PROGRESS_LIMIT. Unset: half of \
         IN_PROGRESS_LIMIT. 0 means no limit.",
    ),
    variable(
        "KEEP_ALIVE_TIMEOUT",
        Some("75s"),
        "How long a connection stays open between two requests. Longer than a proxy's idle \
         timeout for connections to charge-once; at most 1h.",
    ),
    variable(
        "REQUEST_HEAD_TIMEOUT",
        Some("5s"),
        "How long a request's head may take to arrive, from its first byte on; then 408. A new connection \
         that sends nothing is closed after the same time, and so is one that doesn't send the rest of a \
         body after the reply. At most 1h.",
    ),
    variable(
        "REPLY_WRITE_TIMEOUT",
        Some("60s"),
        "How long a client may take to read a reply that does not fit into the connection's buffers; at \
         most 1h.",
    ),
    variable(
        "WORKERS",
        Some("0"),
        "HTTP worker threads, at most 512; 0 means one for each core.",
    ),
    variable(
        "MIGRATE_ON_START",
        Some("true"),
        "Migrates the schema at the start. A lock in the database makes this safe with \
         several replicas.",
    ),
    variable(
        "DRAIN_TIMEOUT",
        Some("20s"),
        "How long requests in flight may take to finish after SIGTERM.",
    ),
    variable(
        "WEBHOOK_ALLOW_PRIVATE",
        Some("false"),
        "Allows webhooks to private and local addresses, for development. In production this \
         would open a way into your network.",
    ),
    variable(
        "WEBHOOK_TIMEOUT",
        Some("10s"),
        "Longest time for one attempt to deliver a webhook; at most 60s. If a replica dies during an \
         attempt, another replica repeats it three times this long after it began.",
    ),
    variable(
        "WEBHOOK_RETRY_MIN",
        Some("5s"),
        "Shortest pause after a failed attempt to deliver a webhook. Pauses double, with jitter.",
    ),
    variable(
        "WEBHOOK_RETRY_MAX",
        Some("8h"),
        "Longest pause between two attempts to deliver a webhook, at least twice the shortest; at \
         most 7d. After 24 attempts the delivery has failed.",
    ),
    variable(
        "WEBHOOK_POLL_INTERVAL",
        Some("1s"),
        "How often each replica looks for webhooks that are due again, or that another replica left. It sends \
         its own at once.",
    ),
    variable(
        "PROCESSOR_BIND_ADDRESS",
        Some("127.0.0.1:8081"),
        "Address and port that `charge-once processor` listens on.",
    ),
    variable(
        "PROCESSOR_DATABASE_URL",
        None,
        "The database of `charge-once processor`, which no other program uses. Unset: a \
         private PostgreSQL in PROCESSOR_DATA_DIR.",
    ),
    variable(
        "PROCESSOR_DATA_DIR",
        Some("./.charge-once-processor"),
        "Folder of the data of the private PostgreSQL of `charge-once processor`.",
    ),
    variable(
        "PROCESSOR_KEY_WINDOW",
        Some("24h"),
        "How long the processor remembers a key; also used by `charge-once processor`. A processor that has \
         forgotten a key would execute the instruction again, so charge-once stops sending it before that.",
    ),
    variable(
        "FAULTS",
        Some("false"),
        "Lets clients ask for faults, to test their retries: test accounts and the account of DEV_API_KEY \
         only, and never together with PROCESSOR_URL. docs/testing.md lists them.",
    ),
    variable(
        "CONSOLE",
        Some("false"),
        "Serves the console at /console, and logs requests for it: true or false. For development: \
         an API key of an account opens the pages about that account.",
    ),
    variable(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        None,
        "Where `serve` sends traces: a collector of OpenTelemetry, such as http://127.0.0.1:4318, which takes \
         them at /v1/traces below. Unset: no trace is made or sent.",
    ),
    variable(
        "OTEL_EXPORTER_OTLP_HEADERS",
        None,
        "Headers for the collector, such as api-key=secret, with commas between them. Values are \
         percent-encoded.",
    ),
    variable(
        "OTEL_EXPORTER_OTLP_PROTOCOL",
        Some("http/protobuf"),
        "The protocol of the collector. http/protobuf is the only one.",
    ),
    variable(
        "OTEL_SERVICE_NAME",
        Some("charge-once"),
        "The name of this service in traces.",
    ),
    variable(
        "OTEL_RESOURCE_ATTRIBUTES",
        None,
        "More attributes of this process in every trace, such as deployment.environment.name=production, \
         with commas between them. Values are percent-encoded.",
    ),
    variable(
        "OTEL_TRACES_SAMPLER",
        Some("parentbased_always_on"),
        "Which traces are recorded: always_on, always_off, or traceidratio, a share of them. With \
         parentbased_ in front, a caller that sends traceparent decides about its own requests.",
    ),
    variable(
        "OTEL_TRACES_SAMPLER_ARG",
        Some("1.0"),
        "The share of traceidratio, from 0 to 1.",
    ),
    variable(
        "LOG_FORMAT",
        None,
        "pretty or json. Unset: pretty on a terminal, else json.",
    ),
    variable(
        "RUST_LOG",
        Some("info"),
        "Which log lines are written, in the syntax of tracing's EnvFilter. At debug and trace, \
         charge-once and sqlx alone write lines: those of the HTTP libraries would show what \
         strangers send, and the hosts of webhooks.",
    ),
];

/// The table for `docs/configuration.md`.
pub fn markdown_table() -> String {
    let mut table = String::from("| variable | default | what it is |\n|---|---|---|\n");
    for Variable {
        name,
        default,
        about,
    } in VARIABLES
    {
        let default = default.map_or("(unset)".to_owned(), |default| format!("`{default}`"));
        // Writing to a String can't fail.
        let _ = writeln!(table, "| `{name}` | {default} | {about} |");
    }
    table
}

/// Describes the variables that `is_shown` for `--help`.
pub fn help_text(is_shown: impl Fn(&str) -> bool) -> String {
    let mut text = String::from("Environment variables:\n");
    for Variable {
        name,
        default,
        about,
    } in VARIABLES.iter().filter(|variable| is_shown(variable.name))
    {
        let default = default.map_or(String::new(), |default| format!(" [default: {default}]"));
        let _ = writeln!(text, "  {name}{default}\n      {about}");
    }
    text
}
