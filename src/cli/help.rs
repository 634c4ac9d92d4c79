//! Which variables each command reads, for its `--help`.

/// Where the API's database is. Every command that works on it reads these.
const DATABASE: &[&str] = &[
    "DATABASE_URL",
    "SHARD_URLS",
    "DATA_DIR",
    "PG_BIN_DIR",
    "MIGRATE_ON_START",
    "POOL_WAIT",
    "STATEMENT_TIMEOUT",
    "DATABASE_DEADLINE",
];

/// What a server takes of PostgreSQL, beside that.
const OF_A_SERVER: &[&str] = &[
    "POOL_CONNECTIONS",
    "BATCH_CONNECTIONS",
    "IDLE_IN_TRANSACTION_TIMEOUT",
];

/// How long rows are kept.
const RETENTION: &[&str] = &[
    "EVENT_RETENTION",
    "OPERATION_RETENTION",
    "REQUEST_LOG_RETENTION",
];

/// How the card processor across a network is asked.
const PROCESSOR_CALLS: &[&str] = &[
    "PROCESSOR_URL",
    "PROCESSOR_NAME",
    "PROCESSOR_TIMEOUT",
    "PROCESSOR_KEY_WINDOW",
    "IDEMPOTENCY_LEASE",
];

/// What only the card processor's simulator reads.
const SIMULATOR_ONLY: &[&str] = &[
    "PROCESSOR_BIND_ADDRESS",
    "PROCESSOR_DATABASE_URL",
    "PROCESSOR_DATA_DIR",
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

const LOGS: &[&str] = &["LOG_FORMAT", "RUST_LOG"];

/// Whether a command reads a variable. Without a command the program serves, and its help is for
/// the whole program.
pub(super) fn reads(command: &str, variable: &str) -> bool {
    let is_in = |lists: &[&[&str]]| lists.iter().any(|list| list.contains(&variable));
    // A command below another one reads what that one does.
    match command.split(' ').next().unwrap_or_default() {
        "charge-once" => true,
        "serve" => !is_in(&[SIMULATOR_ONLY]),
        "work" => {
            let is_of_requests = matches!(variable, "BIND_ADDRESS" | "BACKGROUND" | "DEV_API_KEY");
            !is_of_requests && !is_in(&[SIMULATOR_ONLY])
        }
        "processor" => is_in(&[SIMULATOR_ONLY, SIMULATOR_TOO, LOGS]),
        "migrate" => variable != "MIGRATE_ON_START" && is_in(&[DATABASE, LOGS]),
        "api-key" => is_in(&[DATABASE, LOGS]),
        "webhooks" => command == "webhooks retry" && is_in(&[DATABASE, LOGS]),
        "sweep" => is_in(&[DATABASE, RETENTION, LOGS]),
        // These migrate nothing.
        "check" => {
            let is_own = variable == "EVENT_RETENTION" || is_in(&[DATABASE, OF_A_SERVER, LOGS]);
            is_own && variable != "MIGRATE_ON_START"
        }
        "keys" => variable != "MIGRATE_ON_START" && is_in(&[DATABASE, LOGS]),
        "operations" => variable == "IDEMPOTENCY_TTL" || is_in(&[DATABASE, PROCESSOR_CALLS, LOGS]),
        "healthcheck" => {
            ["BIND_ADDRESS", "PROCESSOR_BIND_ADDRESS", "ALLOWED_HOSTS"].contains(&variable)
        }
        // `pay`, `trigger`, `seed` and `webhooks listen` are clients: they describe their own two.
        // The others print what was compiled in.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::VARIABLES;

    #[test]
    fn every_name_is_a_variable_and_every_variable_is_read_by_a_command() {
        for list in [
            DATABASE,
            OF_A_SERVER,
            RETENTION,
            PROCESSOR_CALLS,
            SIMULATOR_ONLY,
            SIMULATOR_TOO,
            LOGS,
        ] {
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
