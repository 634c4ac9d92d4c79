//! Accounts that move from one database to another, and where each one lives.
//!
//! Promise: what is said of an account's home is true whenever no move is under way, and no look at
//! the databases is made while one is.

use std::{
    fs::OpenOptions, io::Write as _, path::PathBuf, process::Stdio, sync::Mutex, time::Duration,
};

use anyhow::Context;
use chrono::{DateTime, Utc};
use rand::RngExt;
use rand_chacha::ChaCha12Rng;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
    sync::RwLock,
    time::{sleep, timeout},
};

use crate::{
    cluster::url_at,
    history::{History, lock},
    nemesis::pause,
    proxy::{Proxy, Target},
    shards::{Shard, shard_urls},
    world::World,
};

/// How long the command may take before it is killed. Without faults and neighbors, 20 s.
const COMMAND_LIMIT: Duration = Duration::from_secs(120);

/// How many lines the command says of a move, at least.
const STEPS: usize = 18;

/// What the command says if it finds rows that are not the same in both homes.
const DIFFERING: &str = "are not at the new home as they were at the old one";

/// How often the command is run while other faults are made. Then they rest until the move is over,
/// so that accounts are looked at in time.
const RUNS_UNDER_FAULTS: usize = 4;

/// How often the command is run for one move.
const RUNS_MAX: usize = 16;

/// How many moves may be undone before each database has an account.
const ROUNDS_MAX: usize = 10;

/// How long what a fault has left behind may last: a claim of a webhook lives for 6 s.
const CALM_AFTER: Duration = Duration::from_secs(7);

/// How a run of the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The account lives where it was to go.
    Moved,
    /// The account lives where it did.
    Undone,
    /// By a fault, or because a move can't be undone any more.
    Failed,
    Killed,
}

/// A run of the command.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) account: usize,
    pub(crate) to: &'static str,
    pub(crate) began: DateTime<Utc>,
    pub(crate) ended: DateTime<Utc>,
    pub(crate) end: End,
}

/// The account, and the database that it goes to.
type Way = (usize, usize);

/// A time without faults, after [`CALM_AFTER`]: when it began, and ended if it has.
type Calm = (DateTime<Utc>, Option<DateTime<Utc>>);

pub(crate) struct Moves {
    /// Between the command and each database, and between the databases.
    pub(crate) networks: Vec<Proxy>,
    variables: Vec<(String, String)>,
    log: PathBuf,
    /// The number of each account's database, by the command's word.
    homes: Mutex<Vec<usize>>,
    /// Locked while an account is under way, and while something looks at the databases.
    pub(crate) looks: tokio::sync::Mutex<()>,
    /// Each fault reads it, and a move without other faults writes it.
    pub(crate) faults: RwLock<()>,
    open: Mutex<Option<Way>>,
    /// Lines of the command.
    differing: Mutex<Vec<String>>,
    /// Whether the last run said that the move must be undone, or can't be.
    advised: Mutex<Option<bool>>,
    runs: Mutex<Vec<Run>>,
    calms: Mutex<Vec<Calm>>,
}

impl Moves {
    /// Of accounts that live in the databases one after the other.
    pub(crate) async fn prepared(
        sockets: Vec<PathBuf>,
        shards: &[Shard],
        accounts: usize,
        log: PathBuf,
    ) -> anyhow::Result<Self> {
        let homes = (0..accounts).map(|account| account % sockets.len().max(1));
        let mut networks = Vec::new();
        for socket in sockets.iter().filter(|_| !shards.is_empty()) {
            networks.push(Proxy::start(Target::Unix(socket.clone())).await?);
        }
        let mut urls = networks.iter().map(|network| url_at(network.address));
        let first = urls.next().map(|url| ("DATABASE_URL".to_owned(), url));
        let others = shards.iter().zip(urls);
        let others = shard_urls(others.map(|(shard, url)| format!("{}={url}", shard.name)));
        Ok(Self {
            variables: first.into_iter().chain(others).collect(),
            networks,
            log,
            homes: Mutex::new(homes.collect()),
            looks: tokio::sync::Mutex::default(),
            faults: RwLock::default(),
            open: Mutex::default(),
            differing: Mutex::default(),
            advised: Mutex::default(),
            runs: Mutex::default(),
            calms: Mutex::default(),
        })
    }

    /// The number of an account's database.
    pub(crate) fn home_of(&self, account: usize) -> usize {
        lock(&self.homes).get(account).copied().unwrap_or_default()
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        lock(&self.runs).clone()
    }

    /// Whether no fault was made in all of this time, nor shortly before.
    pub(crate) fn was_calm(&self, from: DateTime<Utc>, until: DateTime<Utc>) -> bool {
        let calms = lock(&self.calms);
        let mut calms = calms.iter();
        calms.any(|(began, ended)| *began <= from && ended.is_none_or(|ended| until <= ended))
    }

    fn end_calm(&self) {
        if let Some((_, ended)) = lock(&self.calms).last_mut() {
            ended.get_or_insert(Utc::now());
        }
    }

    /// What the command said of two homes that both were written to, and the move that [`RUNS_MAX`]
    /// runs have neither made nor undone: rules, and what breaks them.
    pub(crate) fn wrong(&self) -> Vec<(&'static str, String)> {
        let differing = lock(&self.differing);
        let mut wrong: Vec<_> = differing.iter().map(|line| ("G6", line.clone())).collect();
        if let Some((account, to)) = *lock(&self.open) {
            let runs = lock(&self.runs);
            let runs = runs.iter().rev();
            let of_it = runs.take_while(|run| !matches!(run.end, End::Moved | End::Undone));
            if of_it.count() >= RUNS_MAX {
                let what = format!("a move of account {account} to database {to} has no end");
                wrong.push(("G8", what));
            }
        }
        wrong
    }
}

/// Moves accounts until it is dropped. During every third move, no other fault is made, and the
/// first one is not even killed: so each run has one that nothing disturbs.
pub(crate) async fn rage(world: &World, random: &mut ChaCha12Rng) {
    let (moves, databases) = (&world.moves, world.clusters().len());
    if world.shards.is_empty() {
        return;
    }
    for number in 0_usize.. {
        let looks = moves.looks.lock().await;
        let account = random.random_range(0..world.accounts.len());
        let other = random.random_range(1..databases);
        let to = (moves.home_of(account) + other) % databases;
        *lock(&moves.open) = Some((account, to));
        let mut runs = 0;
        if !number.is_multiple_of(3) {
            while runs < RUNS_UNDER_FAULTS && !run(world, runs, 0.5, random).await {
                runs += 1;
            }
        }
        let mut rest = None;
        if is_open(world) {
            rest = Some(moves.faults.write().await);
            sleep(CALM_AFTER).await;
            lock(&moves.calms).push((Utc::now(), None));
            let killed = if number == 0 { 0.0 } else { 0.4 };
            while runs < RUNS_MAX && !run(world, runs, killed, random).await {
                runs += 1;
            }
            moves.end_calm();
        }
        // No other account is moved before this one.
        if is_open(world) {
            std::future::pending::<()>().await;
        }
        // Now the databases can be looked at.
        drop(looks);
        pause(random, 1_500, 3_000).await;
        drop(rest);
    }
}

fn is_open(world: &World) -> bool {
    lock(&world.moves.open).is_some()
}

/// Finishes or undoes the move that is under way, without faults. Then each database has an account
/// again: what an outage of one does is judged by the accounts of the others.
pub(crate) async fn finish(world: &World, random: &mut ChaCha12Rng, history: &History) {
    let (moves, databases) = (&world.moves, world.clusters().len());
    moves.end_calm();
    for _ in 0..ROUNDS_MAX {
        let mut runs = 0;
        while runs < RUNS_MAX && !run(world, runs, 0.0, random).await {
            runs += 1;
        }
        for (rule, what) in moves.wrong() {
            history.violate(rule, what);
        }
        if is_open(world) {
            return;
        }
        let homes = lock(&moves.homes).clone();
        let empty = (0..databases).find(|database| !homes.contains(database));
        *lock(&moves.open) = empty.map(|empty| (0, empty));
        if empty.is_none() {
            return;
        }
    }
}

fn name_of(world: &World, account: usize) -> &str {
    let account = world.accounts.get(account);
    account.map_or("", |account| account.name.as_str())
}

/// Runs the command for the move that is under way, and kills it at this chance. Whether the move
/// is over.
async fn run(world: &World, number: usize, killed: f64, random: &mut ChaCha12Rng) -> bool {
    let moves = &world.moves;
    let Some((account, target)) = *lock(&moves.open) else {
        return true;
    };
    let (name, to) = (name_of(world, account), world.name_of(target));
    let mut arguments = vec!["account", "move", name, "--to", to];
    let advised = lock(&moves.advised).take();
    if number > 0 && advised.unwrap_or(random.random_ratio(1, 3)) {
        arguments.push("--abort");
    }
    let killed_at = random.random_bool(killed).then(|| {
        let longest = if random.random_ratio(1, 3) { 5_000 } else { 30 };
        let late = Duration::from_millis(random.random_range(0..longest));
        (random.random_range(0..STEPS), late)
    });
    let (began, mut said) = (Utc::now(), String::new());
    let told = timeout(COMMAND_LIMIT, tell(world, &arguments, killed_at, &mut said)).await;
    let end = match told {
        Err(_) | Ok(Ok(None)) => End::Killed,
        Ok(Err(_)) => End::Failed,
        Ok(Ok(Some(told))) if told.contains("The move was undone.") => End::Undone,
        Ok(Ok(Some(told))) => match told.contains(&format!("lives in the shard {to}.")) {
            true => End::Moved,
            false => End::Failed,
        },
    };
    if end == End::Moved
        && let Some(home) = lock(&moves.homes).get_mut(account)
    {
        *home = target;
    }
    let differing = said.lines().filter(|line| line.contains(DIFFERING));
    lock(&moves.differing).extend(differing.map(str::to_owned));
    *lock(&moves.advised) = match &*said {
        said if said.contains("and begin anew") => Some(true),
        said if said.contains("run it without --abort") => Some(false),
        _ => None,
    };
    let is_over = matches!(end, End::Moved | End::Undone);
    if is_over {
        *lock(&moves.open) = None;
    }
    let ended = Utc::now();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&moves.log);
    if let Ok(mut log) = log {
        let _ = writeln!(log, "{began} {arguments:?}\n{said}{ended} {end:?}");
    }
    lock(&moves.runs).push(Run {
        account,
        to,
        began,
        ended,
        end,
    });
    if end == End::Failed {
        pause(random, 500, 1_500).await;
    }
    is_over
}

/// Runs the command, and returns what it told. `None`: it was killed, so long after this line of
/// what it said.
async fn tell(
    world: &World,
    arguments: &[&str],
    killed_at: Option<(usize, Duration)>,
    said: &mut String,
) -> anyhow::Result<Option<String>> {
    let mut child = Command::new(&world.commands.0)
        .args(arguments)
        .envs(world.moves.variables.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let stderr = child.stderr.take().context("the command says nothing")?;
    let mut lines = BufReader::new(stderr).lines();
    let mut number = 0;
    while let Some(line) = lines.next_line().await? {
        said.push_str(&line);
        said.push('\n');
        if let Some((_, late)) = killed_at.filter(|(at, _)| *at == number) {
            sleep(late).await;
            child.kill().await?;
            return Ok(None);
        }
        number += 1;
    }
    let output = child.wait_with_output().await?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&told);
    Ok(Some(told))
}
