//! What the numbers were measured on.

use std::fs;

use sqlx::PgConnection;

const SETTINGS: [&str; 4] = [
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
];

/// The machine and the database, as one sentence without its period.
pub(super) async fn about(connection: &mut PgConnection) -> anyhow::Result<String> {
    let mut shown = Vec::new();
    for name in SETTINGS {
        shown.push(format!("{name} {}", setting(name, connection).await?));
    }
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Ok(format!(
        "{} cores ({}) for everything, the load included; Linux {}; PostgreSQL {} with {}",
        std::thread::available_parallelism()?,
        processor_model(&processors),
        kernel.trim(),
        setting("server_version", connection).await?,
        shown.join(", "),
    ))
}

async fn setting(name: &str, connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT current_setting($1)")
        .bind(name)
        .fetch_one(connection)
        .await
}

/// The name in `/proc/cpuinfo`; some architectures give none.
fn processor_model(text: &str) -> &str {
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let model = lines.find(|(name, _)| name.trim() == "model name");
    model.map_or("unknown model", |(_, model)| model.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_s_model_is_read() {
        let text =
            "processor\t: 0\nmodel\t\t: 207\nmodel name\t: A Fast One @ 2 GHz\n\nprocessor\t: 1\n";
        assert_eq!(processor_model(text), "A Fast One @ 2 GHz");
        assert_eq!(processor_model("processor\t: 0\n"), "unknown model");
    }
}
