//! charge-once: a payments API in which a retried request never charges twice.
//!
//! A map of one request, top to bottom:
//!
//! ```text
//! socket → http/ → idempotency/ → work/ → commands/ → wire/ + domain/ · store/ → reply
//!           edge     BEGIN claim    reads   decides     shapes  rules    SQL     save COMMIT
//! ```
//!
//! | folder | what it does | what it must not do |
//! |---|---|---|
//! | [`http`] | reads requests, renders replies | SQL |
//! | [`console`] | what the pages of `crates/console` are made of | SQL |
//! | [`idempotency`] | one transaction per key: claim, work, save | know HTTP or the rest of the crate |
//! | [`work`] | runs verbs: reads rows, lets them decide, writes | begin or commit |
//! | [`commands`] | one verb each | SQL, or wait |
//! | [`wire`] | what clients send and see: parameters, views, errors | HTTP, SQL |
//! | [`domain`] | the entities and their rules | anything but compute |
//! | [`store`] | the SQL, one file per table | begin or commit |
//! | [`workers`] | what runs beside requests | |
//!
//! In front of [`http`], `charge_once_service::connections` lets one request pass at a time, within
//! deadlines. On the other end of the network, `crates/client` keeps the client's half of the
//! promise. It knows this crate by its replies only.
//!
//! `tests/api/docs/layers.rs` checks what each folder may name.

pub mod cli;

pub mod server;

pub mod http;

pub mod console;

/// At most one effect per key: the crate to copy or to depend on.
pub use charge_once_idempotency as idempotency;

pub mod work;

pub mod commands;

pub mod wire;

pub mod domain;

pub mod store;

/// The card processor: how it is asked, and its simulator.
pub use charge_once_processor as processor;

/// The outbox: events that commit are delivered as signed webhooks.
pub use charge_once_webhooks as webhooks;

pub mod workers;

pub mod config;
pub mod database;

pub mod telemetry;

/// The version, followed by the commit that the program was built from, where that is known.
pub const VERSION: &str = env!("CHARGE_ONCE_VERSION");
