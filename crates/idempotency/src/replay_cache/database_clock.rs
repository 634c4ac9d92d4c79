//! What the database's clock shows at most, without asking it each time.
//!
//! Promise: [`Showing::latest`] is not before what the database calls `now()`, unless one of the
//! clocks was set or corrected since the last reading, by so much.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use chrono::{DateTime, TimeDelta, Utc};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    runtime::Handle,
    sync::Semaphore,
    time::{sleep, timeout},
};

use crate::{Connections, Failure, NO_ACCOUNT, lock};

/// How old a reading may be. A failover is noticed after so long at the latest.
const READING_MAX_AGE: Duration = Duration::from_secs(30);

/// How old a reading is when the next one is taken, so that there is always one while requests
/// come.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The longest that a reading may take.
const READ_LIMIT: Duration = Duration::from_secs(2);

/// Pause after a reading that failed, so that a database in trouble is not asked by each request.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// The clock that goes on while the machine sleeps. `CLOCK_MONOTONIC`, and `Instant` with it, stops
/// on Linux. On macOS it is `CLOCK_MONOTONIC` that goes on.
#[cfg(target_os = "linux")]
const SINCE_BOOT: ClockId = ClockId::Boottime;
#[cfg(not(target_os = "linux"))]
const SINCE_BOOT: ClockId = ClockId::Monotonic;

/// A server between its start and its end. After a failover another one answers, which may lack
/// what the last one had acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Server(pub(super) DateTime<Utc>);

/// What is known of the database's clock at a moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Showing {
    /// The latest time that it can show.
    pub(super) latest: DateTime<Utc>,
    /// The server whose clock it is.
    pub(super) server: Server,
}

/// Cheap to clone; all clones share the readings.
#[derive(Clone)]
pub(super) struct DatabaseClock {
    pool: Connections,
    reading: Arc<Mutex<Option<Reading>>>,
    /// One reading at a time.
    turn: Arc<Semaphore>,
    runtime: Handle,
}

impl DatabaseClock {
    pub(super) fn new(pool: Connections, runtime: Handle) -> Self {
        let clock = Self {
            pool,
            reading: Arc::default(),
            turn: Arc::new(Semaphore::new(1)),
            runtime,
        };
        clock.read_in_the_background();
        clock
    }

    /// What the clock shows now. `None` without a recent reading: it is not known. Takes another
    /// reading, in the background, if it is time for one.
    pub(super) fn showing(&self) -> Option<Showing> {
        let now = Moment::now();
        let reading = *lock(&self.reading);
        let age = reading.and_then(|reading| now.since(reading.before));
        if age.is_none_or(|age| age >= READ_AGAIN_AFTER) {
            self.read_in_the_background();
        }
        reading?.showing(age?)
    }

    fn read_in_the_background(&self) {
        let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() else {
            return;
        };
        let clock = self.clone();
        self.runtime.spawn(async move {
            let read = timeout(READ_LIMIT, clock.read()).await;
            match read.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
                Ok(reading) => *lock(&clock.reading) = Some(reading),
                Err(error) => {
                    let cause = Failure::from(error).cause;
                    tracing::warn!(%cause, "the database's clock can't be read");
                    sleep(PAUSE_AFTER_FAILURE).await;
                }
            }
            drop(turn);
        });
    }

    async fn read(&self) -> Result<Reading, sqlx::Error> {
        let mut connection = self.pool.acquire(NO_ACCOUNT).await?;
        // Before the question: what the answer takes counts as time that has passed.
        let before = Moment::now();
        // A standby, which a pooler may hand out, shows its own clock and an older state.
        let read = sqlx::query!(
            r#"
            SELECT clock_timestamp() AS "now!", pg_postmaster_start_time() AS "started_at!"
             WHERE NOT pg_is_in_recovery()
            "#
        )
        .fetch_one(&mut *connection)
        .await?;
        connection.release();
        Ok(Reading {
            before,
            database: read.now,
            server: Server(read.started_at),
        })
    }
}

/// A time of this machine, by two clocks: either one may stop or be set.
#[derive(Debug, Clone, Copy)]
struct Moment {
    since_boot: Duration,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        let since_boot = clock_gettime(SINCE_BOOT);
        Self {
            // Neither is negative, since boot.
            since_boot: Duration::new(
                u64::try_from(since_boot.tv_sec).unwrap_or(0),
                u32::try_from(since_boot.tv_nsec).unwrap_or(0),
            ),
            wall: SystemTime::now(),
        }
    }

    /// The time since an earlier moment, by the clock that went further. `None`: the wall clock was
    /// set back, so that nothing is known.
    fn since(self, earlier: Self) -> Option<Duration> {
        let by_boot = self.since_boot.checked_sub(earlier.since_boot)?;
        let by_wall = self.wall.duration_since(earlier.wall).ok()?;
        Some(by_boot.max(by_wall))
    }
}

/// What the database's clock showed, and a moment before it was asked.
#[derive(Debug, Clone, Copy)]
struct Reading {
    before: Moment,
    database: DateTime<Utc>,
    server: Server,
}

impl Reading {
    /// What the clock shows so long after it was read, if it can still be told.
    fn showing(self, age: Duration) -> Option<Showing> {
        if age > READING_MAX_AGE {
            return None;
        }
        Some(Showing {
            latest: self.database + TimeDelta::from_std(age).ok()?,
            server: self.server,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn moment(boot_seconds: u64, wall_seconds: u64) -> Moment {
        Moment {
            since_boot: Duration::from_secs(boot_seconds),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(wall_seconds),
        }
    }

    #[test]
    fn the_clock_that_went_further_counts() {
        let before = moment(100, 1_000);
        // The machine slept, and its wall clock has not been set again yet.
        assert_eq!(moment(160, 1_001).since(before), Some(60 * SECOND));
        // The wall clock was set, or the clock since boot stopped in a container that was frozen.
        assert_eq!(moment(101, 1_060).since(before), Some(60 * SECOND));
    }

    #[test]
    fn a_clock_that_was_set_back_says_nothing() {
        assert_eq!(moment(101, 999).since(moment(100, 1_000)), None);
        assert_eq!(moment(99, 1_001).since(moment(100, 1_000)), None);
    }

    #[test]
    fn a_reading_says_less_the_older_it_is_and_then_nothing() {
        let database = DateTime::UNIX_EPOCH;
        let reading = Reading {
            before: moment(0, 0),
            database,
            server: Server(database),
        };
        let latest = |age| reading.showing(age).map(|showing| showing.latest);
        assert_eq!(latest(Duration::ZERO), Some(database));
        assert_eq!(latest(30 * SECOND), Some(database + TimeDelta::seconds(30)));
        assert_eq!(latest(31 * SECOND), None);
    }
}
