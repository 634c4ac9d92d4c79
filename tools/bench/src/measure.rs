//! One measured load, and several of the same kind.

use std::net::SocketAddr;

use crate::{
    cpu::ProcessTree,
    load::{self, Answered, Call, Until},
    stats::{at_permille, median, per_second, spread},
};

/// What load is sent to, and whose CPU time it costs.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Connections are spread over these.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Their CPU time is one sum.
    pub(crate) services: Vec<ProcessTree>,
    pub(crate) postgres: ProcessTree,
}

/// CPU time since the processes began, in microseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cpu {
    service_us: u64,
    postgres_us: u64,
}

#[derive(Debug)]
pub(crate) struct Sample {
    answered: Answered,
    service_us: u64,
    postgres_us: u64,
}

/// The samples of one case, one of each round.
#[derive(Debug, Default)]
pub(crate) struct Series(Vec<Sample>);

impl Target {
    /// Sends load and measures it. What runs beside requests in the meantime counts too.
    pub(crate) async fn measure<F>(
        &self,
        connections: usize,
        until: &Until,
        call: F,
    ) -> anyhow::Result<Sample>
    where
        F: Fn(u64) -> Call + Send + Sync + 'static,
    {
        let before = self.cpu()?;
        let answered = load::run(&self.addresses, connections, until, call).await?;
        Ok(Sample::of(answered, before, self.cpu()?))
    }

    pub(crate) fn cpu(&self) -> anyhow::Result<Cpu> {
        let services = self.services.iter().map(ProcessTree::used_us);
        Ok(Cpu {
            service_us: services.sum::<anyhow::Result<u64>>()?,
            postgres_us: self.postgres.used_us()?,
        })
    }
}

impl Sample {
    /// What was answered between two looks at the CPU time.
    pub(crate) fn of(answered: Answered, before: Cpu, after: Cpu) -> Self {
        Self {
            answered,
            service_us: after.service_us.saturating_sub(before.service_us),
            postgres_us: after.postgres_us.saturating_sub(before.postgres_us),
        }
    }

    pub(crate) fn requests(&self) -> u64 {
        self.answered.latencies_us.len() as u64
    }

    pub(crate) fn per_second(&self) -> u64 {
        per_second(self.requests(), self.answered.took)
    }
}

impl Series {
    #[cfg(test)]
    pub(crate) fn of(latencies_us: Vec<u32>, service_us: u64, postgres_us: u64) -> Self {
        let took = std::time::Duration::from_secs(1);
        Self(vec![Sample {
            answered: Answered { latencies_us, took },
            service_us,
            postgres_us,
        }])
    }

    pub(crate) fn push(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.iter().map(Sample::requests).sum()
    }

    /// A latency over all rounds, in microseconds.
    pub(crate) fn latency_us(&self, permille: usize) -> u64 {
        let all = self.0.iter().flat_map(|one| &one.answered.latencies_us);
        let mut all: Vec<u32> = all.copied().collect();
        all.sort_unstable();
        u64::from(at_permille(&all, permille))
    }

    /// CPU time of the service for each request: the median of the rounds, in microseconds.
    pub(crate) fn service_us(&self) -> u64 {
        self.median(|sample| sample.service_us / sample.requests().max(1))
    }

    /// CPU time of PostgreSQL for each request: the median of the rounds, in microseconds.
    pub(crate) fn postgres_us(&self) -> u64 {
        self.median(|sample| sample.postgres_us / sample.requests().max(1))
    }

    pub(crate) fn cpu_us(&self) -> u64 {
        self.service_us() + self.postgres_us()
    }

    /// CPU time of both for each request: the least and the most of the rounds, in microseconds.
    pub(crate) fn cpu_us_spread(&self) -> (u64, u64) {
        let both = |one: &Sample| (one.service_us + one.postgres_us) / one.requests().max(1);
        spread(&self.0.iter().map(both).collect::<Vec<_>>())
    }

    /// Requests in a second: the median of the rounds.
    pub(crate) fn per_second(&self) -> u64 {
        self.median(Sample::per_second)
    }

    fn median(&self, of: impl Fn(&Sample) -> u64) -> u64 {
        median(self.0.iter().map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cpu_time_is_divided_by_requests_and_the_median_round_counts() {
        let rounds = [
            Series::of(vec![10, 20, 30, 40], 400, 800),
            Series::of(vec![10, 20, 30, 1_000], 4_000, 8_000),
            Series::of(vec![5, 20, 30, 40], 440, 760),
        ];
        let mut series = Series(rounds.into_iter().flat_map(|round| round.0).collect());
        for round in &mut series.0 {
            round.answered.took = Duration::from_millis(10);
        }
        assert_eq!((series.service_us(), series.postgres_us()), (110, 200));
        assert_eq!(series.cpu_us_spread(), (300, 3_000));
        assert_eq!(series.latency_us(500), 20);
        assert_eq!(series.latency_us(1000), 1_000);
        assert_eq!(series.per_second(), 400);
    }

    #[test]
    fn a_round_without_requests_is_no_division_by_zero() {
        let series = Series::of(Vec::new(), 0, 0);
        assert_eq!((series.service_us(), series.latency_us(990)), (0, 0));
    }
}
