//! The processes that are measured.
//!
//! Promise: all of them run during the whole measurement, on one PostgreSQL. What idle ones cost
//! PostgreSQL is the same in each case, and little: some statements in a second.

use std::path::Path;

use anyhow::Context;

use crate::{cpu::ProcessTree, measure::Target, postgres::Postgres, service::Service};

const PROCESSOR_DATABASE: &str = "processor";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// One process with the defaults, but without a limit on its accounts.
    Default,
    WithoutBatches,
    WithoutCache,
    LargeCache,
    /// The card processor is across a network. Its CPU time counts as the service's.
    Network,
    /// Two processes with the defaults. Connections are spread over both, and CPU time is the sum.
    Pair,
}

impl Server {
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
    /// The one with the defaults first.
    services: Vec<(Server, Service)>,
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
        let url = format!("http://{}", processor.address);
        let mut services = vec![(Server::Default, default)];
        for (server, name, variable) in [
            // The other one of the pair.
            (Server::Pair, "replica", None),
            (
                Server::WithoutBatches,
                "without-batches",
                Some(("BATCH", "off")),
            ),
            (
                Server::WithoutCache,
                "without-cache",
                Some(("REPLAY_CACHE", "0")),
            ),
            (
                Server::LargeCache,
                "large-cache",
                Some(("REPLAY_CACHE", "256MiB")),
            ),
            (Server::Network, "network", Some(("PROCESSOR_URL", &*url))),
        ] {
            services.push((server, start(name, variable.as_slice()).await?));
        }
        Ok(Self {
            services,
            processor,
            postgres: postgres.processes()?,
            idle_kib,
        })
    }

    /// Where requests go, and which processes work on them.
    pub(super) fn target(&self, server: Server) -> anyhow::Result<Target> {
        let is_asked =
            |one: Server| one == server || (one, server) == (Server::Default, Server::Pair);
        let asked = self.services.iter().filter(|(one, _)| is_asked(*one));
        let asked: Vec<&Service> = asked.map(|(_, service)| service).collect();
        let behind = (server == Server::Network).then_some(&self.processor);
        let working = asked.iter().copied().chain(behind);
        Ok(Target {
            addresses: asked.iter().map(|one| one.address).collect(),
            services: working.map(Service::processes).collect::<Result<_, _>>()?,
            postgres: self.postgres,
        })
    }

    pub(super) fn resident_kib(&self) -> anyhow::Result<u64> {
        let (_, default) = self.services.first().context("no server")?;
        default.resident_kib()
    }

    /// Ends them, the processor last.
    pub(super) async fn stop(self) -> anyhow::Result<()> {
        for (_, service) in self.services {
            service.stop().await?;
        }
        self.processor.stop().await
    }
}
