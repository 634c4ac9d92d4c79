//! `bench move`: an account moves to another database while it and its neighbors charge.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Args;
use hyper::Method;
use tokio::{
    process::Command,
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};
use uuid::Uuid;

use crate::{
    load::{self, Answered, Call, Schedule, Until},
    postgres::{self, Postgres, make_folder},
    service::Service,
    stats::{at_permille, milliseconds, ratio, thousands},
};

/// Rows of a charge: its own, its event, and the record of its key.
const ROWS_OF_A_CHARGE: u64 = 3;

const FILLING_CONNECTIONS: usize = 16;

/// Of the account that moves, and of each of the two others.
const CONNECTIONS: usize = 8;

/// For how long there are charges before the move: as long as a move of 100,000 rows takes, about.
const LENGTH: Duration = Duration::from_secs(20);

/// What a database needs for a move, and what keeps its copy to one core.
const MOVABLE: [(&str, &str); 2] = [
    ("wal_level", "logical"),
    ("max_sync_workers_per_subscription", "1"),
];

/// Before a charge is sent again that was not served.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

const CHARGE: &str = r#"{"amount":2000,"currency":"usd","source":"tok_visa"}"#;

/// Moves an account.
#[derive(Debug, Args)]
pub(crate) struct Moving {
    /// Where PostgreSQL's data is made. It is removed at the end.
    #[arg(long)]
    folder: PathBuf,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// How many rows the account has when charges begin, about.
    #[arg(long, default_value_t = 100_000)]
    rows: u64,
    /// How many charges a second each account makes. Where no core has time left, charges wait for
    /// all that a move does.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    per_second: u32,
}

/// The program with both databases.
struct Program<'p> {
    path: &'p Path,
    variables: [(&'p str, &'p str); 2],
}

impl Program<'_> {
    /// Runs one of its commands to the end, and returns its standard output and standard error.
    async fn run(&self, arguments: &[&str]) -> anyhow::Result<(String, String)> {
        let mut command = Command::new(self.path);
        command.args(arguments).env_clear().envs(self.variables);
        let output = command.stdin(Stdio::null()).output().await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (printed, said) = (text(output.stdout), text(output.stderr));
        ensure!(output.status.success(), "{arguments:?} failed: {said}");
        Ok((printed, said))
    }

    async fn api_key(&self, account: &str, shard: &str) -> anyhow::Result<String> {
        let create = ["api-key", "create", "--account", account, "--shard", shard];
        let (printed, _) = self.run(&create).await?;
        let key = printed
            .split_whitespace()
            .find(|word| word.starts_with("sk_"));
        Ok(key.context("no API key was printed")?.to_owned())
    }
}

impl Moving {
    pub(crate) async fn run(&self) -> anyhow::Result<()> {
        make_folder(&self.folder)?;
        let folder = self.folder.join("move");
        make_folder(&folder)?;
        let start = async |name: &str| {
            let folder = folder.join(name);
            make_folder(&folder)?;
            Postgres::start(&folder, postgres::for_measuring("1GB", &MOVABLE)).await
        };
        // As on two machines: neither waits for what the other writes to its log.
        let (postgres, other) = (start("main").await?, start("b").await?);
        let shards = format!("b={}", other.url());
        let variables = [("DATABASE_URL", postgres.url()), ("SHARD_URLS", &*shards)];
        let program = Program {
            path: &self.program,
            variables,
        };
        program.run(&["migrate"]).await?;
        let shop = program.api_key("shop", "main").await?;
        let beside = program.api_key("beside", "main").await?;
        let there = program.api_key("there", "b").await?;
        let log = folder.join("service.log");
        let service = Service::start(&self.program, postgres.url(), log, &variables[1..]).await?;
        let at = service.address;

        eprintln!("about {} rows are made", thousands(self.rows));
        let filling = Until::Count(self.rows / ROWS_OF_A_CHARGE);
        charges(at, FILLING_CONNECTIONS, filling, &shop).await?;
        eprintln!("charges are made for {} s", LENGTH.as_secs());
        let pace = Schedule {
            per_second: self.per_second.into(),
            length: LENGTH,
        };
        let before = tokio::try_join!(
            charges(at, CONNECTIONS, Until::Due(pace), &shop),
            charges(at, CONNECTIONS, Until::Due(pace), &beside),
            charges(at, CONNECTIONS, Until::Due(pace), &there),
        )?;
        let stopped = Arc::new(AtomicBool::new(false));
        let until = || Until::Paced(pace, Arc::clone(&stopped));
        let moving = async {
            let moved = program.run(&["account", "move", "shop", "--to", "b"]).await;
            stopped.store(true, Ordering::Relaxed);
            moved
        };
        let ((printed, said), closed, beside, there) = tokio::try_join!(
            moving,
            charges_of_the_moving(at, shop, self.per_second, Arc::clone(&stopped)),
            charges(at, CONNECTIONS, until(), &beside),
            charges(at, CONNECTIONS, until(), &there),
        )?;

        println!("{said}{printed}");
        println!(
            "The account: {} charges, {} answers of 409 and 503, at most {} ms until a charge was served.\n",
            thousands(closed.charges),
            closed.unserved,
            closed.longest.as_millis()
        );
        println!(
            "| 99 % of the charges of another account took at most, ms | before | meanwhile | ratio |"
        );
        println!("|---|---:|---:|---:|");
        for (name, before, meanwhile) in [
            ("at the old home", &before.1, &beside),
            ("at the new home", &before.2, &there),
        ] {
            let p99 = |answered: &Answered| u64::from(at_permille(&answered.latencies_us, 990));
            let (before, meanwhile) = (p99(before), p99(meanwhile));
            let ratio = ratio(meanwhile, before);
            let [before, meanwhile] = [before, meanwhile].map(milliseconds);
            println!("| {name} | {before} | {meanwhile} | {ratio} |");
        }
        service.stop().await?;
        postgres.stop().await?;
        other.stop().await?;
        Ok(std::fs::remove_dir_all(&folder)?)
    }
}

fn charge(api_key: &str) -> Call {
    Call {
        method: Method::POST,
        path: "/charges".to_owned(),
        api_key: api_key.to_owned(),
        idempotency_key: Some(Uuid::new_v4().to_string()),
        body: CHARGE.into(),
        status: 201,
        is_replay: false,
    }
}

/// Every charge is served.
async fn charges(
    at: SocketAddr,
    connections: usize,
    until: Until,
    api_key: &str,
) -> anyhow::Result<Answered> {
    let api_key = api_key.to_owned();
    load::run(&[at], connections, &until, move |_| charge(&api_key)).await
}

#[derive(Default)]
struct Closed {
    charges: u64,
    unserved: u64,
    /// From the first attempt to the one that was served.
    longest: Duration,
}

/// A charge that is not served is sent again with its key until it is.
async fn charges_of_the_moving(
    at: SocketAddr,
    api_key: String,
    per_second: u32,
    stopped: Arc<AtomicBool>,
) -> anyhow::Result<Closed> {
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (api_key, stopped) = (api_key.clone(), Arc::clone(&stopped));
        clients.spawn(async move {
            let mut closed = Closed::default();
            let mut due = interval(Duration::from_secs(CONNECTIONS as u64) / per_second);
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !stopped.load(Ordering::Relaxed) {
                due.tick().await;
                let (call, began) = (charge(&api_key), Instant::now());
                while let Err(error) = load::send_one(at, &call).await {
                    // An attempt was executed, and its answer was 503.
                    if error.to_string().ends_with("the reply is a replay") {
                        break;
                    }
                    closed.unserved += 1;
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                closed.charges += 1;
                closed.longest = closed.longest.max(began.elapsed());
            }
            closed
        });
    }
    let clients = clients.join_all().await.into_iter();
    Ok(clients.fold(Closed::default(), |all, one| Closed {
        charges: all.charges + one.charges,
        unserved: all.unserved + one.unserved,
        longest: all.longest.max(one.longest),
    }))
}
