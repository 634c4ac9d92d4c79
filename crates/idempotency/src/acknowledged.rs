//! What the answer to a COMMIT is worth.
//!
//! Promise: a transaction that a synchronous standby may lack is not taken for acknowledged. Such a
//! COMMIT waits for the standby; where a person or a program cancels its session, PostgreSQL ends the
//! wait and answers "ok", with a warning. The transaction is then on this server only, and a failover
//! loses it.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    sync::LazyLock,
};

use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, dispatcher,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

/// Runs what commits, and fails where PostgreSQL answers with a warning, whatever it says: servers
/// speak many languages.
///
/// # Errors
///
/// The database's, and a protocol error in place of a warning.
pub async fn acknowledged<T>(
    committing: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let mut committing = pin!(committing);
    let mut is_warned = false;
    let [warnings, _] = &*WARNINGS;
    let committed = poll_fn(|context| {
        dispatcher::with_default(warnings, || {
            WARNED.set(false);
            let polled = committing.as_mut().poll(context);
            is_warned |= WARNED.get();
            polled
        })
    });
    let committed = committed.await?;
    if is_warned {
        let warned = "PostgreSQL warned that a standby may lack what was committed";
        return Err(sqlx::Error::Protocol(warned.to_owned()));
    }
    Ok(committed)
}

thread_local! {
    static WARNED: Cell<bool> = const { Cell::new(false) };
}

/// The first is used. Without the second, and in a process that has no subscriber, tracing would ask
/// for what is wanted only where the one is the current one, and remember "nothing".
static WARNINGS: LazyLock<[Dispatch; 2]> =
    LazyLock::new(|| [Warnings, Warnings].map(Dispatch::new));

/// Takes the warnings of PostgreSQL. sqlx hands them to nothing but a subscriber.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::postgres::notice" && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, _: &Event<'_>) {
        WARNED.set(true);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
