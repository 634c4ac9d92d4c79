//! What charge-once calls its private PostgreSQL, which `charge_once_postgres::embedded` runs.

use std::path::PathBuf;

use charge_once_postgres::embedded::{EmbeddedSettings, Names};

/// The private PostgreSQL of the API, in `DATA_DIR` and with the programs of `PG_BIN_DIR`.
pub fn settings(data_dir: PathBuf, bin_dir: Option<PathBuf>) -> EmbeddedSettings {
    EmbeddedSettings {
        fallback_dir: Some(PathBuf::from("/var/lib/charge-once")),
        bin_dir,
        names: Names {
            program: "charge-once",
            data_dir: "DATA_DIR",
            bin_dir: "PG_BIN_DIR",
            alternative: "run everything in containers with `docker compose up`; or set \
                          DATABASE_URL to a PostgreSQL that is already running",
        },
        ..EmbeddedSettings::new("charge_once", data_dir)
    }
}

/// The private PostgreSQL of `charge-once processor`, in `PROCESSOR_DATA_DIR`. It never shares a
/// folder with the API's.
pub fn processor_settings(data_dir: PathBuf, bin_dir: Option<PathBuf>) -> EmbeddedSettings {
    let api = settings(data_dir, bin_dir);
    EmbeddedSettings {
        fallback_dir: Some(PathBuf::from("/var/lib/charge-once-processor")),
        names: Names {
            program: "charge-once processor",
            data_dir: "PROCESSOR_DATA_DIR",
            alternative: "run everything in containers with `docker compose --profile processor \
                          up`; or set PROCESSOR_DATABASE_URL to a PostgreSQL that is already \
                          running",
            ..api.names
        },
        ..api
    }
}
