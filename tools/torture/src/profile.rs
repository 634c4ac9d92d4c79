//! How the replicas are set up in a run.

use std::time::Duration;

use crate::pair::Standby;

/// A set-up that finds its own kind of defect.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    pub(crate) name: &'static str,
    pub(crate) replicas: usize,
    /// The databases beside the first one, by the names of their shards.
    pub(crate) shards: &'static [&'static str],
    /// Whether charges go to the processor's simulator across a network.
    pub(crate) has_processor: bool,
    /// `IDEMPOTENCY_TTL`
    pub(crate) retention: Duration,
    /// `KEY_MEMORY`: for longer than a run, if there is one.
    pub(crate) memory: Option<Duration>,
    /// How far the last replica's clock is ahead, by `faketime`.
    pub(crate) clock_offset: Option<Duration>,
    pub(crate) standby: Option<Standby>,
}

const DAY: Duration = Duration::from_secs(24 * 3600);

impl Profile {
    pub(crate) fn all() -> [Self; 8] {
        let expiry = Duration::from_secs(5);
        [
            Self::named("transaction"),
            Self {
                has_processor: true,
                ..Self::named("processor")
            },
            Self {
                replicas: 3,
                retention: expiry,
                clock_offset: Some(Duration::from_secs(20)),
                ..Self::named("expiry")
            },
            Self {
                replicas: 3,
                has_processor: true,
                retention: expiry,
                ..Self::named("processor-expiry")
            },
            Self {
                retention: Duration::from_secs(3),
                memory: Some(365 * DAY),
                ..Self::named("memory")
            },
            Self {
                shards: &["b"],
                ..Self::named("shards")
            },
            Self {
                has_processor: true,
                standby: Some(Standby::Synchronous),
                ..Self::named("failover")
            },
            // What it acknowledges can be lost, so it runs only when it is asked for.
            Self {
                standby: Some(Standby::Asynchronous),
                ..Self::named("failover-async")
            },
        ]
    }

    /// Two replicas and one database, with nothing special.
    fn named(name: &'static str) -> Self {
        Self {
            name,
            replicas: 2,
            shards: &[],
            has_processor: false,
            retention: DAY,
            memory: None,
            clock_offset: None,
            standby: None,
        }
    }

    /// What PostgreSQL is started with: accounts move by logical replication.
    pub(crate) fn server_parameters(&self) -> &'static [(&'static str, &'static str)] {
        match self.shards {
            [] => &[],
            _ => &[("wal_level", "logical"), ("max_worker_processes", "16")],
        }
    }

    pub(crate) fn expires(&self) -> bool {
        self.retention < DAY
    }

    /// Whether a key is new again once it has expired.
    pub(crate) fn forgets(&self) -> bool {
        self.expires() && self.memory.is_none()
    }

    /// How long one key has one effect.
    pub(crate) fn window(&self) -> Duration {
        self.retention + self.memory.unwrap_or_default()
    }

    /// `EXPIRY_SWEEP_INTERVAL`. Where keys are remembered, many sweeps are to meet requests.
    pub(crate) fn sweep_interval(&self) -> Duration {
        Duration::from_millis(if self.memory.is_some() { 200 } else { 1000 })
    }
}
