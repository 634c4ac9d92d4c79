//! What tests import by one line.

pub use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    net::SocketAddr,
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    pin::Pin,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

pub use charge_once::{
    cli::api_key::ensure_dev_key, config::VARIABLES, domain::ids::AccountId,
    idempotency::IdempotencyKey,
};
pub use charge_once_client::transport::http_client_builder;
pub use charge_once_postgres::embedded::{EmbeddedPostgres, Throwaway};
pub use chrono::{DateTime, Utc};
pub use futures_util::future::join_all;
pub use nix::sys::signal::Signal;
pub use regex::Regex;
pub use reqwest::{Method, RequestBuilder};
pub use serde_json::{Value, json};
pub use sha2::{Digest as _, Sha256};
pub use sqlx::{
    AssertSqlSafe, Connection as _, PgConnection, PgPool, Postgres, Row as _, Transaction,
    postgres::{PgConnectOptions, PgPoolOptions},
};
pub use tempfile::{NamedTempFile, TempDir};
pub use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::{JoinHandle, JoinSet},
    time::timeout,
};
pub use uuid::Uuid;

pub use super::{
    accounts::{api_key_of, client_of_account},
    addresses::{RefusedAddress, lasting_address},
    checkouts::{checkout, checkout_with, stock},
    documents::{blocks, files_below, prose, read, root},
    harness::{
        ALONE, API_KEY, Answer, Client, EXPIRE_RECORDS, FAULTS, FORGETFUL, KEYS_IN_FLIGHT,
        LOCK_WAITS, PATIENCE, PATIENT, ServerProcess, TestDatabase, TestServer,
        WAITS_FOR_CONNECTIONS, another_charge, charge, charge_by, config, eventually,
        every_connection_is_clean, one_charge_and_its_record, report,
    },
    holder_pages::{page_of, press},
    http_proxy::{Act, HttpProxy, Seen},
    metrics::{Scrape, exceeds, reaches},
    openapi::{document, operations, resolve},
    pause_point::{PausePoint, Stage},
    pgbouncer::{IGNORES_OPTIONS, PINNED, PgBouncer},
    postgres_proxy::{NetworkFault, PostgresProxy},
    processor::Processor,
    program::{
        Run, data_dir, exit_code, printed_by, program, run, run_to_end, scratch, signal,
        start_embedded, stops, text,
    },
    prometheus::{Job, Prometheus, alerts, within},
    racers::all_at_once,
    records::{hold_key, refuse_to_remove_events, with_old_rows},
    replies::{
        Shows, assert_refuses, assert_refuses_queries, assert_stores_refusals, differing_from, ids,
        page, refusal, rows,
    },
    resources::open_order,
    roles::{apply_roles, as_role},
    shorthand::{ANY_PORT, Text, assert_has, complaint_of, message, start_with_log, text_of},
    webhook_receiver::{Received, Receiver},
    webhooks::{
        Endpoint, QUICK, acknowledge_all, add_backlog, delete, endpoint, everything_is_delivered,
        quick_but,
    },
    wire::{FORM, JSON, error, send_charge, send_raw},
    world::World,
};
