//! The processes that are measured.
//!
//! Promise: all of them run during the whole measurement, on one PostgreSQL. What idle ones cost
//! PostgreSQL is the same in each case, and little: some statements in a second.

use std::path::Path;

use crate::{cpu::ProcessTree, measure::Target, postgres::Postgres, service::Service};

const PROCESSOR_DATABASE: &str = "processor";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// One process with the defaults, but without a limit on its accounts.
    Default,
    /// Each charge has a transaction of its own.
    WithoutBatches,
    /// Replays are read from the database.
    WithoutCache,
    /// A hundred thousand replies fit in memory.
    LargeCache,
    /// The card processor is across a network. Its CPU time counts as the service's.
    Network,
    /// Two processes with the defaults. Connections are spread over both, and CPU time is the sum.
    Pair,
}

impl Server {
    /// What is added to the name of a case.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Default => "",
            Self::WithoutBatches => ", BATCH=off",
            Self::WithoutCache => ", REPLAY_CACHE=0",
            Self::LargeCache => ", REPLAY_CACHE=256MiB",
            Self::Network => ", PROCESSOR_URL",
            Self::Pair => ", two replicas",
        }
    }
}

pub(super) struct Servers {
    default: Service,
    /// The other one of the pair.
    replica: Service,
    without_batches: Service,
    without_cache: Service,
    large_cache: Service,
    network: Service,
    processor: Service,
    postgres: ProcessTree,
    /// Resident memory of the default one before its first request, in KiB.
    pub(super) idle_kib: u64,
}

impl Servers {
    /// Starts them on a database with its schema. Their logs are below `folder`.
    pub(super) async fn start(
        program: &Path,
        postgres: &Postgres,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let start = async |name: &str, variables: &[(&str, &str)]| {
            let log = folder.join(format!("{name}.log"));
            Service::start(program, postgres.url(), log, variables).await
        };
        let default = start("default", &[]).await?;
        let idle_kib = default.resident_kib()?;
        let ledger = postgres.create_database(PROCESSOR_DATABASE).await?;
        let log = folder.join("processor.log");
        let processor = Service::start_processor(program, &ledger, log).await?;
        let processor_url = format!("http://{}", processor.address);
        Ok(Self {
            default,
            replica: start("replica", &[]).await?,
            without_batches: start("without-batches", &[("BATCH", "off")]).await?,
            without_cache: start("without-cache", &[("REPLAY_CACHE", "0")]).await?,
            large_cache: start("large-cache", &[("REPLAY_CACHE", "256MiB")]).await?,
            network: start("network", &[("PROCESSOR_URL", &processor_url)]).await?,
            processor,
            postgres: postgres.processes()?,
            idle_kib,
        })
    }

    /// Where requests go, and which processes work on them.
    pub(super) fn target(&self, server: Server) -> anyhow::Result<Target> {
        let asked = match server {
            Server::Default => vec![&self.default],
            Server::WithoutBatches => vec![&self.without_batches],
            Server::WithoutCache => vec![&self.without_cache],
            Server::LargeCache => vec![&self.large_cache],
            Server::Network => vec![&self.network],
            Server::Pair => vec![&self.default, &self.replica],
        };
        let behind = (server == Server::Network).then_some(&self.processor);
        let working = asked.iter().copied().chain(behind);
        Ok(Target {
            addresses: asked.iter().map(|one| one.address).collect(),
            services: working.map(Service::processes).collect::<Result<_, _>>()?,
            postgres: self.postgres,
        })
    }

    pub(super) fn resident_kib(&self) -> anyhow::Result<u64> {
        self.default.resident_kib()
    }

    /// Ends them, the processor last.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for service in [
            self.default,
            self.replica,
            self.without_batches,
            self.without_cache,
            self.large_cache,
            self.network,
            self.processor,
        ] {
            service.stop().await?;
        }
        Ok(())
    }
}
