//! Which variables each command reads, for its `--help`.

use crate::config::VARIABLES;

// Topics of variables.
const DATABASE: &str = "The database";
const PROCESSOR: &str = "The card processor";
const SIMULATOR: &str = "The simulator of the card processor";
const LOGS: &str = "Logs";

/// How long a command that works on the API's database waits for it.
const DATABASE_TIMES: &[&str] = &["POOL_WAIT", "STATEMENT_TIMEOUT", "DATABASE_DEADLINE"];

/// How long keys are kept and held.
const KEY_TIMES: &[&str] = &["IDEMPOTENCY_TTL", "IDEMPOTENCY_LEASE"];

/// What a server takes of PostgreSQL, beside that.
const OF_A_SERVER: &[&str] = &[
    "POOL_CONNECTIONS",
    "BATCH_CONNECTIONS",
    "IDLE_IN_TRANSACTION_TIMEOUT",
];

/// What the simulator shares with the API.
const SIMULATOR_TOO: &[&str] = &[
    "ALLOWED_HOSTS",
    "PROCESSOR_KEY_WINDOW",
    "PG_BIN_DIR",
    "POOL_CONNECTIONS",
    "POOL_WAIT",
    "STATEMENT_TIMEOUT",
    "DATABASE_DEADLINE",
    "IDLE_IN_TRANSACTION_TIMEOUT",
    "WORKERS",
    "DRAIN_TIMEOUT",
];

/// Whether a command reads a variable. Without a command the program serves, and its help is for
/// the whole program.
pub(super) fn reads(command: &str, variable: &str) -> bool {
    let known = VARIABLES.iter().find(|known| known.name == variable);
    let is_about = |topic| known.is_some_and(|known| known.topic == topic);
    let is_in = |list: &[&str]| list.contains(&variable);
    // What every command reads that works on the API's database.
    let is_of_database = is_about(DATABASE) || is_in(DATABASE_TIMES) || is_about(LOGS);
    // `migrate` always migrates; `check`, `keys`, `account` and `shards` never do.
    let is_of_database_without_migration = is_of_database && variable != "MIGRATE_ON_START";
    // A command below another one reads what that one does.
    match command.split(' ').next().unwrap_or_default() {
        "charge-once" => true,
        "serve" => !is_about(SIMULATOR),
        "work" => {
            let is_of_requests = matches!(variable, "BIND_ADDRESS" | "BACKGROUND" | "DEV_API_KEY");
            !is_of_requests && !is_about(SIMULATOR)
        }
        "processor" => is_about(SIMULATOR) || is_in(SIMULATOR_TOO) || is_about(LOGS),
        "migrate" | "keys" | "account" | "shards" => is_of_database_without_migration,
        "api-key" => is_of_database,
        // Not DATABASE_URL: in the environment of a shop, that is the database of the shop.
        "audit" => is_about(LOGS) || variable == "PG_BIN_DIR",
        "webhooks" => command == "webhooks retry" && is_of_database,
        "sweep" => is_of_database || variable.ends_with("_RETENTION"),
        "check" => {
            is_of_database_without_migration || is_in(OF_A_SERVER) || variable == "EVENT_RETENTION"
        }
        "operations" => is_of_database || is_about(PROCESSOR) || is_in(KEY_TIMES),
        "healthcheck" => is_in(&["BIND_ADDRESS", "PROCESSOR_BIND_ADDRESS", "ALLOWED_HOSTS"]),
        // `pay`, `trigger`, `seed`, `webhooks listen`, `faults` and `report` are clients: they
        // describe their own two.
        // The others print what was compiled in.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_variable_and_every_variable_is_read_by_a_command() {
        for topic in [DATABASE, PROCESSOR, SIMULATOR, LOGS] {
            assert!(VARIABLES.iter().any(|known| known.topic == topic));
        }
        for list in [DATABASE_TIMES, KEY_TIMES, OF_A_SERVER, SIMULATOR_TOO] {
            for name in list {
                assert!(VARIABLES.iter().any(|known| known.name == *name), "{name}");
            }
        }
        for variable in VARIABLES {
            let read_by = ["serve", "processor"]
                .into_iter()
                .any(|command| reads(command, variable.name));
            assert!(read_by, "{}", variable.name);
        }
    }
}
