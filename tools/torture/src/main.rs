//! `torture`: runs charge-once under load and faults, and checks what must hold.
//!
//! Promise: a run that reports no violation has asked the clients' histories and the database, and
//! every fault that it counts was made. A check that could not be made is a violation, whose
//! evidence is kept like that of any other.

mod checks;
mod client;
mod cluster;
mod failover;
mod history;
mod ids;
mod intents;
mod jsonl;
mod load;
mod moves;
mod nemesis;
mod pair;
mod profile;
mod proxy;
mod replica;
mod report;
mod requests;
mod shards;
mod webhooks;
mod world;

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::Parser;
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    time::Instant,
};

use crate::{
    checks::{
        database, homes, processor,
        recovery::{self, Recovered},
    },
    cluster::{DATABASE, PROCESSOR_DATABASE},
    history::History,
    load::Load,
    nemesis::Faults,
    pair::Standby,
    profile::Profile,
    report::{Report, evidence},
    shards::Home,
    world::World,
};

/// Pause between two looks at the database while load and faults go on.
const CHECKPOINT: Duration = Duration::from_secs(10);

/// How long one may take. It reads whole tables.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

/// How long looks may fail. A fault takes the database away for some seconds.
const UNCHECKED_MAX: Duration = Duration::from_secs(120);

/// Tries to make charge-once charge twice.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long load and faults last, for each profile.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Drives data and faults. Random unless given; the report shows it.
    #[arg(long)]
    seed: Option<u64>,
    /// transaction, processor, expiry, processor-expiry, memory, shards or failover; all of them
    /// unless given. failover-async only if it is given: it finds violations.
    #[arg(long)]
    profile: Vec<String>,
    /// The program under test.
    #[arg(long, env = "CHARGE_ONCE")]
    program: PathBuf,
    /// The program of the release before, which every second replica runs, as while an upgrade
    /// goes on.
    #[arg(long, env = "CHARGE_ONCE_BEFORE")]
    before: Option<PathBuf>,
    /// Where the data and the logs are while it runs.
    #[arg(long, default_value = "/tmp/charge-once-torture")]
    folder: PathBuf,
    /// Where the history of each profile and its final tables are written, in place of those of the
    /// run before. Unless given, `histories` in the folder, and nowhere with --discard.
    #[arg(long)]
    histories: Option<PathBuf>,
    /// Stops at the first violation.
    #[arg(long)]
    fail_fast: bool,
    /// Keeps nothing, even of a run with violations.
    #[arg(long)]
    discard: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run_all(&arguments))
}

async fn run_all(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let seed = arguments.seed.unwrap_or_else(rand::random);
    let profiles = Profile::all();
    for name in &arguments.profile {
        if !profiles.iter().any(|profile| profile.name == name) {
            bail!("there is no profile {name}");
        }
    }
    let interrupts = interrupts()?;
    let mut violations = 0;
    for (stream, profile) in (0..).zip(profiles) {
        let chosen = &arguments.profile;
        let is_chosen = match chosen.as_slice() {
            [] => profile.standby != Some(Standby::Asynchronous),
            chosen => chosen.iter().any(|name| name == profile.name),
        };
        if !is_chosen {
            continue;
        }
        // Each profile has faults of its own.
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        random.set_stream(stream);
        // What was started ends when it is dropped.
        violations += tokio::select! {
            found = run(arguments, profile, seed, &mut random, interrupts.clone()) => found?,
            () = interrupted(interrupts.clone(), 2) => bail!("interrupted"),
        };
        if *interrupts.borrow() > 0 {
            break;
        }
    }
    Ok(match violations {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Runs one profile and prints its report. Returns the number of violations.
async fn run(
    arguments: &Arguments,
    profile: Profile,
    seed: u64,
    random: &mut ChaCha12Rng,
    interrupts: watch::Receiver<u32>,
) -> anyhow::Result<usize> {
    let name = profile.name;
    let own = format!("{name}-{}", std::process::id());
    let folder = arguments.folder.join(own);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("{} can't be made", folder.display()))?;
    eprintln!("{name}: starting, seed {seed}");
    let (program, before) = (&arguments.program, arguments.before.as_deref());
    let world = World::start(program, before, profile, &folder).await?;
    if !world.cluster.has_own_disk() {
        eprintln!("{name}: no filesystem could be mounted, so the disk is never full");
    }
    let history = History::default();
    let load = Arc::new(Load::new(
        world.client()?,
        world.accounts.clone(),
        history.clone(),
        seed,
        &world.profile,
    ));
    let began = Instant::now();
    let (faults, found_after) = rage(arguments, &world, &load, random, interrupts).await;

    let lasted = began.elapsed().as_secs();
    eprintln!("{name}: {lasted} s of faults are over; checking");
    history.checked("not every fault could be ended", world.heal().await);
    moves::finish(&world, random, &history).await;
    let recovered = check(&world, &load, &history, seed).await;
    let histories = arguments.histories.clone();
    let by_default = (!arguments.discard).then(|| arguments.folder.join("histories"));
    if let Some(histories) = histories.or(by_default) {
        let written = jsonl::write(&histories, &world, &history, &faults, seed).await;
        history.checked("the history could not be written", written);
    }
    let totals = history.totals();
    let is_bad = !totals.violations.is_empty();
    let is_kept = is_bad && !arguments.discard;
    Report {
        profile: &world.profile,
        seed,
        took: began.elapsed(),
        found_after: found_after.or(is_bad.then(|| began.elapsed())),
        totals: &totals,
        faults: &faults,
        recovered: &recovered,
        runs: world.moves.runs(),
        deliveries: world.received.deliveries(),
        repeated: world.received.repeated().len(),
        evidence: evidence(&world, &totals.violations).await,
    }
    .print(is_kept.then_some(&*folder));
    for shard in world.shards {
        shard.cluster.stop(is_kept).await?;
    }
    world.cluster.stop(is_kept).await?;
    if !is_kept {
        let _ = std::fs::remove_dir_all(&folder);
    }
    Ok(totals.violations.len())
}

/// Load and faults until the time is over, with checks in between.
async fn rage(
    arguments: &Arguments,
    world: &World,
    load: &Arc<Load>,
    random: &mut ChaCha12Rng,
    interrupts: watch::Receiver<u32>,
) -> (Faults, Option<Duration>) {
    let began = Instant::now();
    let until = began + Duration::from_secs(arguments.seconds);
    let (stop, stopped) = watch::channel(false);
    let clients = tokio::spawn({
        let load = Arc::clone(load);
        async move { load.run(stopped).await }
    });
    let faults = Mutex::new(Faults::new());
    let mut found_after = None;
    {
        let raging = nemesis::rage(world, random, &faults);
        let watching = watch_over(arguments, world, load, began, &mut found_after);
        tokio::select! {
            () = raging => {}
            () = watching => {}
            () = tokio::time::sleep_until(until) => {}
            () = interrupted(interrupts, 1) => {
                eprintln!("interrupted; checking what happened. Interrupt again to stop at once.");
            }
        }
    }
    stop.send_replace(true);
    load.history.checked("the load broke off", clients.await);
    let faults = faults.into_inner().unwrap_or_else(PoisonError::into_inner);
    (faults, found_after)
}

/// How often a person or a supervisor has asked to end the run.
fn interrupts() -> anyhow::Result<watch::Receiver<u32>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            count.send_modify(|count| *count += 1);
        }
    });
    Ok(counted)
}

/// Resolves once the run has been interrupted so often. The first time ends load and faults; what
/// happened until then is checked. The second time ends the run.
async fn interrupted(mut interrupts: watch::Receiver<u32>, times: u32) {
    if interrupts.wait_for(|count| *count >= times).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Looks at the database now and then. Ends at the first violation if that is wanted.
async fn watch_over(
    arguments: &Arguments,
    world: &World,
    load: &Arc<Load>,
    began: Instant,
    found_after: &mut Option<Duration>,
) {
    let pool = world.cluster.pool(DATABASE);
    let processors = world.cluster.pool(PROCESSOR_DATABASE);
    let name = world.profile.name;
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    let (mut checked, mut last_made) = (Instant::now(), Instant::now());
    loop {
        seconds.tick().await;
        // While an account is under way, too. What can't be asked now is asked at the end.
        let homes = world.homes(&load.history);
        let repeats = homes::no_webhook_repeats(world, &homes, &load.history);
        let _ = tokio::time::timeout(LOOK_LIMIT, repeats).await;
        for (rule, what) in world.moves.wrong() {
            load.history.violate(rule, what);
        }
        if load.history.has_violations() && found_after.is_none() {
            *found_after = Some(began.elapsed());
            for violation in load.history.totals().violations.iter().take(3) {
                eprintln!("{name}: {}: {}", violation.rule, violation.what);
            }
            if arguments.fail_fast {
                return;
            }
        }
        if checked.elapsed() < CHECKPOINT {
            continue;
        }
        // An account that is under way has rows in two databases.
        let Ok(_stays) = world.moves.looks.try_lock() else {
            continue;
        };
        checked = Instant::now();
        let checking = async {
            let accounts = database::account_ids(&homes, &load.accounts).await?;
            for home in &homes {
                let Home { pool, history, .. } = home;
                database::at_any_moment(pool, history, &accounts, &world.profile).await?;
                home.is_no_other_account_s(&accounts).await?;
            }
            let history = &load.history;
            homes::are_one_at_a_time(world, &homes, history, &accounts, false).await?;
            match world.profile.has_processor {
                true => processor::double_charges(&pool, &processors, &load.history).await,
                false => Ok(()),
            }
        };
        // The database may be gone at this moment. There will be another one.
        let made = tokio::time::timeout(LOOK_LIMIT, checking).await;
        let is_made = matches!(made, Ok(Ok(())));
        load.history.looked(is_made);
        if is_made {
            last_made = Instant::now();
        } else if last_made.elapsed() > UNCHECKED_MAX {
            let what = format!("no look at the database was made in {UNCHECKED_MAX:?}: {made:?}");
            load.history.violate("error", what);
            last_made = Instant::now();
        }
        recovery::usage(world, &load.history).await;
        recovery::sessions_are_bounded(world, &load.history, 2).await;
        let totals = load.history.totals();
        eprintln!(
            "{name}: {:>4} s, {} keys, {} attempts, {} violations",
            began.elapsed().as_secs(),
            totals.keys,
            totals.attempts,
            totals.violations.len(),
        );
    }
}

/// The checks at the end. One that fails keeps no other from being made.
async fn check(world: &World, load: &Arc<Load>, history: &History, seed: u64) -> Recovered {
    let homes = world.homes(history);
    let recovered = recovery::recover(world, load, &homes, seed).await;
    if !recovery::usage(world, history).await {
        let what = "not every replica's memory and file descriptors could be read at the end";
        history.violate("error", what.to_owned());
    }
    recovery::processes_lived(world, history);
    for process in world.processes() {
        // Only a process without a request in flight ends at once and in good order.
        if !process.stop().await {
            let what = format!("{} did not end in good order", process.name);
            history.violate("G8", what);
        }
    }
    let accounts = database::account_ids(&homes, &world.accounts).await;
    let accounts = history.checked("the accounts could not be read", accounts);
    if let Some(accounts) = &accounts {
        let one_home = homes::are_one_at_a_time(world, &homes, history, accounts, true).await;
        history.checked("the homes of keys could not be read", one_home);
    }
    let repeats = homes::no_webhook_repeats(world, &homes, history).await;
    history.checked("the attempts at webhooks could not be read", repeats);
    let accounts = accounts.iter();
    for (accounts, home) in accounts.flat_map(|all| homes.iter().map(move |home| (all, home))) {
        let Home { pool, history, .. } = home;
        let what = "the database could not be asked at the end";
        let profile = &world.profile;
        let asked = database::at_any_moment(pool, history, accounts, profile).await;
        history.checked(what, asked);
        let asked = database::at_the_end(pool, history, accounts, profile).await;
        history.checked(what, asked);
        history.checked(what, home.is_no_other_account_s(accounts).await);
        let deliveries = recovery::deliveries(world, pool, accounts, history).await;
        history.checked("the deliveries could not be read", deliveries);
    }
    // The program's own check, which knows nothing of what the clients were told.
    let wrong = world.wrong().await;
    let wrong = history.checked("`charge-once check` broke off", wrong);
    for line in wrong.into_iter().flatten() {
        let names = ids::in_text(&line);
        history.violate_of_row("check", line, &names);
    }
    if let Some(processor) = &world.processor {
        let ours = world.cluster.pool(DATABASE);
        let theirs = world.cluster.pool(PROCESSOR_DATABASE);
        let compared = processor::ledgers(&ours, &theirs, history).await;
        history.checked("the processor's ledger could not be compared", compared);
        ours.close().await;
        theirs.close().await;
        processor.stop().await;
    }
    for home in homes {
        home.pool.close().await;
    }
    recovered
}
