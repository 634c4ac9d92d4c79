//! What the answer to a COMMIT is worth.
//!
//! Promise: a transaction that a synchronous standby may lack is not taken for acknowledged. Such a
//! COMMIT waits for the standby; where a person or a program cancels its session, PostgreSQL ends
//! the wait and answers "ok", with a warning. The transaction is then on this server only, and a
//! failover loses it.

use std::{cell::RefCell, fmt::Debug, future::Future, sync::LazyLock};

use sqlx::{Postgres, Transaction};
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, dispatcher,
    field::Field,
    instrument::WithSubscriber,
    level_filters::{LevelFilter, STATIC_MAX_LEVEL},
    span::{Attributes, Id, Record},
};

use crate::Failure;

const _: () = assert!(
    !matches!(STATIC_MAX_LEVEL, LevelFilter::OFF | LevelFilter::ERROR),
    "the warnings of a COMMIT need max_level_warn of tracing, or more"
);

/// Commits what a request, or a step of it, has written or read.
pub(crate) async fn commit(tx: Transaction<'_, Postgres>) -> Result<(), Failure> {
    acknowledged(tx.commit()).await.map_err(Failure::of_commit)
}

/// Runs what commits, and fails where PostgreSQL answers with a warning, whatever it says: servers
/// speak many languages. [`pin_session`](crate::pin_session) has the session show them.
///
/// # Errors
///
/// The database's, and a protocol error in place of a warning.
pub async fn acknowledged<T>(
    committing: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    let log = HEARD.try_with(|outer| outer.log.clone());
    let log = log.unwrap_or_else(|_| dispatcher::get_default(Dispatch::clone));
    let warning = RefCell::default();
    let committing = async {
        let committed = committing.await?;
        match HEARD.with(|heard| heard.warning.take()) {
            None => Ok(committed),
            Some(warning) => Err(sqlx::Error::Protocol(warning)),
        }
    };
    let committing = committing.with_subscriber(LISTENERS.0.clone());
    HEARD.scope(Heard { log, warning }, committing).await
}

/// Of one COMMIT: where it logs, and what PostgreSQL warned of.
struct Heard {
    log: Dispatch,
    warning: RefCell<Option<String>>,
}

tokio::task_local! {
    static HEARD: Heard;
}

/// Two: as long as a program has one subscriber, tracing asks the current one whether a line is
/// ever wanted, only once. A warning where there is none would make all later ones unheard.
static LISTENERS: LazyLock<(Dispatch, Dispatch)> =
    LazyLock::new(|| (Dispatch::new(Listener), Dispatch::new(Listener)));

/// Takes warnings, since sqlx hands those of PostgreSQL to nothing else, and passes them on.
struct Listener;

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && !metadata.is_span()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn event(&self, event: &Event<'_>) {
        let _ = HEARD.try_with(|heard| {
            if event.metadata().target() == "sqlx::postgres::notice" {
                event.record(&mut |_: &Field, text: &dyn Debug| {
                    let warning = format!("a standby may lack what was committed: {text:?}");
                    heard.warning.replace(Some(warning));
                });
            }
            if heard.log.enabled(event.metadata()) {
                heard.log.event(event);
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing_subscriber::{
        Layer,
        layer::{Context, SubscriberExt},
        registry,
    };

    use super::*;

    /// As sqlx hands on what PostgreSQL says.
    fn warn() {
        tracing::warn!(target: "sqlx::postgres::notice", "the standby lacks it");
    }

    #[tokio::test]
    async fn the_error_is_the_warning() {
        let warned = acknowledged(async {
            warn();
            Ok(())
        });
        let error = warned.await.map_err(|error| error.to_string());
        assert!(error.is_err_and(|text| text.contains("the standby lacks it")));
    }

    #[tokio::test]
    async fn a_commit_inside_another_hides_no_warning_of_the_other() {
        let outer = acknowledged(async {
            warn();
            acknowledged(async { Ok(()) }).await
        });
        assert!(outer.await.is_err());
        let inner = acknowledged(async {
            let inner = async {
                warn();
                Ok(())
            };
            assert!(acknowledged(inner).await.is_err());
            Ok(())
        });
        assert!(inner.await.is_ok());
    }

    /// Keeps the targets of what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Log {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.push(event.metadata().target().to_owned());
        }
    }

    #[tokio::test]
    async fn what_is_logged_meanwhile_is_in_the_log() {
        let log = Log::default();
        let committing = acknowledged(async {
            acknowledged(async {
                tracing::warn!(target: "sqlx::query", "slow statement");
                Ok(())
            })
            .await?;
            warn();
            Ok(())
        });
        let subscriber = registry().with(log.clone());
        let committed = committing.with_subscriber(subscriber).await;
        assert!(committed.is_err());
        let lines = log.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*lines, ["sqlx::query", "sqlx::postgres::notice"]);
    }
}
