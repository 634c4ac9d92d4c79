//! What a run found, for a person.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    checks::recovery::Recovered,
    cluster::DATABASE,
    history::{Looks, SharedKey, Totals, Violation, lock},
    moves::{End, Run},
    nemesis::Faults,
    pair::Standby,
    profile::Profile,
    world::World,
};

const SHOWN_MAX: usize = 5;

/// How many of a violation's keys are shown with their histories.
const SHOWN_KEYS_MAX: usize = 3;

/// How many of a key's attempts are shown: so many of the first, and of the last ones.
const SHOWN_ATTEMPTS: usize = 20;

pub(crate) struct Report<'a> {
    pub(crate) profile: &'a Profile,
    pub(crate) seed: u64,
    pub(crate) took: Duration,
    /// From the start to the first violation that a check saw.
    pub(crate) found_after: Option<Duration>,
    pub(crate) totals: &'a Totals,
    pub(crate) faults: &'a Faults,
    pub(crate) recovered: &'a Recovered,
    /// Of the command that moves accounts.
    pub(crate) runs: Vec<Run>,
    pub(crate) deliveries: u64,
    pub(crate) repeated: usize,
    /// What the database holds of the keys of each violation that is shown.
    pub(crate) evidence: Vec<String>,
}

impl Report<'_> {
    pub(crate) fn print(&self, kept: Option<&Path>) {
        let (totals, faults, recovered) = (self.totals, self.faults, self.recovered);
        let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
        for fault in faults {
            *kinds.entry(&fault.name).or_default() += 1;
        }
        println!("profile        {}, seed {}", self.profile.name, self.seed);
        match self.profile.standby {
            Some(Standby::Synchronous) => println!("standby        synchronous"),
            Some(Standby::Asynchronous) => println!(
                "standby        asynchronous: a failover loses what was acknowledged and is not on it"
            ),
            None => {}
        }
        println!("took           {:.0} s", self.took.as_secs_f32());
        println!(
            "keys           {}, {} attempts",
            totals.keys, totals.attempts
        );
        println!("outcomes");
        let mut outcomes: Vec<_> = totals.outcomes.iter().collect();
        outcomes.sort_by_key(|(_, count)| Reverse(**count));
        for (outcome, count) in outcomes {
            println!("  {count:>8}  {outcome}");
        }
        println!("faults         {} of {} kinds", faults.len(), kinds.len());
        for (fault, count) in kinds {
            println!("  {count:>8}  {fault}");
        }
        if !self.runs.is_empty() {
            let runs_of = |end| self.runs.iter().filter(|run| run.end == end).count();
            let (moved, undone) = (runs_of(End::Moved), runs_of(End::Undone));
            let (killed, failed) = (runs_of(End::Killed), runs_of(End::Failed));
            println!(
                "moves          {moved} made, {undone} undone; the command was killed {killed} times, and failed {failed}"
            );
        }
        let Looks { made, missed } = totals.looks;
        println!("looks          {made} at the database meanwhile, {missed} missed");
        println!("worst stall    {:.1} s", totals.worst_stall.as_secs_f32());
        println!("recovery       {:.1} s", recovered.after.as_secs_f32());
        let probe = recovered.probe.as_millis();
        println!("afterwards     99 % of charges within {probe} ms");
        for outage in &recovered.outages {
            println!("outage         {outage}");
        }
        let (attempts, repeated) = (self.deliveries, self.repeated);
        println!(
            "webhooks       {attempts} attempts received, {repeated} of what was received before"
        );
        println!(
            "replicas       at most {} MiB and {} file descriptors",
            totals.most_used.resident_mib, totals.most_used.descriptors
        );
        let mut rules: BTreeMap<&str, usize> = BTreeMap::new();
        for violation in &totals.violations {
            *rules.entry(violation.rule).or_default() += 1;
        }
        if let Some(after) = self.found_after {
            println!("first found    after {:.0} s", after.as_secs_f32());
        }
        println!("violations     {} {rules:?}", totals.violations.len());
        let shown = totals.violations.iter().take(SHOWN_MAX);
        for (number, violation) in shown.enumerate() {
            println!("\n{}: {}", violation.rule, violation.what);
            for key in violation.keys.iter().take(SHOWN_KEYS_MAX) {
                print!("{}", lock(key).describe(SHOWN_ATTEMPTS));
            }
            if let Some(rows) = self.evidence.get(number) {
                print!("{rows}");
            }
        }
        if let Some(folder) = kept {
            let kept = folder.display();
            println!("\nThe database and the logs are kept in {kept}");
            match write_down(folder, &totals.violations) {
                Ok(file) => println!(
                    "All violations, and the whole histories of their keys: {}",
                    file.display()
                ),
                Err(error) => println!("The histories could not be written down: {error}"),
            }
        }
    }
}

/// Writes all violations and the whole histories of their keys to a file in the folder.
fn write_down(folder: &Path, violations: &[Violation]) -> io::Result<PathBuf> {
    let mut text = String::new();
    let mut keys: Vec<&SharedKey> = Vec::new();
    for violation in violations {
        let _ = writeln!(text, "{}: {}", violation.rule, violation.what);
        for key in &violation.keys {
            let _ = writeln!(text, "  key {}", lock(key).key);
            keys.push(key);
        }
    }
    keys.sort_by_key(|key| Arc::as_ptr(key));
    keys.dedup_by(|one, other| Arc::ptr_eq(one, other));
    keys.sort_by_key(|key| lock(key).attempts.first().map(|attempt| attempt.began));
    for key in keys {
        let _ = write!(text, "\n{}", lock(key).describe(usize::MAX));
    }
    let file = folder.join("violations.txt");
    std::fs::write(&file, text)?;
    Ok(file)
}

/// The rows of the keys that the first violations are about, as text for the report.
pub(crate) async fn evidence(world: &World, violations: &[Violation]) -> Vec<String> {
    let clusters = world.clusters();
    let pools: Vec<_> = clusters.iter().map(|one| one.pool(DATABASE)).collect();
    let mut all = Vec::new();
    for violation in violations.iter().take(SHOWN_MAX) {
        let mut text = String::new();
        for key in violation.keys.iter().take(SHOWN_KEYS_MAX) {
            let (account, name) = {
                let key = lock(key);
                let account = world.accounts.get(key.account);
                (account.map(|account| account.name.clone()), key.key.clone())
            };
            for (pool, query) in pools
                .iter()
                .flat_map(|pool| EVIDENCE.map(|query| (pool, query)))
            {
                let rows = sqlx::query_scalar::<_, String>(query);
                let rows = rows.bind(&account).bind(&name).fetch_all(pool).await;
                for row in rows.unwrap_or_default() {
                    let _ = writeln!(text, "  row: {row}");
                }
            }
        }
        all.push(text);
    }
    all
}

/// What the database holds of a key: its record, its lease, its operations and its events.
const EVIDENCE: [&str; 4] = [
    "SELECT to_jsonb(record)::text FROM idempotency_keys AS record
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(lease)::text FROM idempotency_leases AS lease
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND key = $2",
    "SELECT to_jsonb(operation)::text FROM operations AS operation
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2",
    "SELECT to_jsonb(event)::text FROM events AS event
      WHERE account_id = (SELECT id FROM accounts WHERE name = $1) AND idempotency_key = $2
      ORDER BY id",
];
