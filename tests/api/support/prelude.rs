//! What tests import by one line.

pub use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

pub use nix::sys::signal::Signal;
pub use reqwest::Method;
pub use serde_json::{Value, json};
pub use sqlx::{AssertSqlSafe, PgConnection, PgPool};
pub use tempfile::TempDir;
pub use tokio::task::JoinSet;
pub use uuid::Uuid;

pub use super::{
    accounts::client_of_account,
    checkouts::{checkout, checkout_with, stock},
    documents::{read, root},
    harness::{
        ALONE, API_KEY, Answer, Client, FAULTS, FORGETFUL, PATIENCE, PATIENT, ServerProcess,
        TestDatabase, TestServer, another_charge, charge, charge_by, config, eventually,
    },
    holder_pages::{page_of, press},
    parts::Text,
    pause_point::{PausePoint, Stage},
    processor::Processor,
    program::{printed_by, run, scratch, text},
    racers::all_at_once,
    replies::{
        Shows, assert_refuses, assert_refuses_queries, assert_stores_refusals, differing_from, ids,
        page, refusal, rows,
    },
    resources::open_order,
    shorthand::{ANY_PORT, assert_has, complaint_of},
    webhook_receiver::Receiver,
    webhooks::{Endpoint, QUICK, quick_but},
    wire::{FORM, JSON, error, send_raw},
    world::World,
};
