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
    /// How far the last replica's clock is ahead, by `faketime`.
    pub(crate) clock_offset: Option<Duration>,
    /// Whether PostgreSQL has a standby, and which kind.
    pub(crate) standby: Option<Standby>,
}

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

impl Profile {
    /// All profiles, by name.
    pub(crate) fn all() -> [Self; 5] {
        [
            Self {
                name: "transaction",
                replicas: 2,
                shards: &[],
                has_processor: false,
                retention: DAY,
                clock_offset: None,
                standby: None,
            },
            Self {
                name: "processor",
                replicas: 2,
                shards: &[],
                has_processor: true,
                retention: DAY,
                clock_offset: None,
                standby: None,
            },
            Self {
                name: "expiry",
                replicas: 3,
                shards: &[],
                has_processor: false,
                retention: Duration::from_secs(5),
                clock_offset: Some(Duration::from_secs(20)),
                standby: None,
            },
            Self {
                name: "processor-expiry",
                replicas: 3,
                shards: &[],
                has_processor: true,
                retention: Duration::from_secs(5),
                clock_offset: None,
                standby: None,
            },
            Self {
                name: "shards",
                replicas: 2,
                shards: &["b"],
                has_processor: false,
                retention: DAY,
                clock_offset: None,
                standby: None,
            },
        ]
    }

    /// Whether keys expire while the run lasts.
    pub(crate) fn expires(&self) -> bool {
        self.retention < DAY
    }
}
