//! Crates as a reader copies them: each into a workspace that has nothing else.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::support::harness::TestDatabase;

/// A server that doesn't exist. A crate's queries are checked against its own `.sqlx/`, so a build that asked
/// this server would fail.
const NOWHERE: &str = "postgres://nowhere.invalid/nothing";

/// Crates that ask no database.
const WITHOUT_DATABASE: &[&str] = &["connections", "strict-params"];

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A workspace whose only member is a copy of the crate's folder. Always in one place, so that the next run
/// finds the dependencies compiled.
fn workspace_of(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let workspace = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("copied-{name}"));
    let _ = fs::remove_dir_all(&workspace);
    fs::create_dir(&workspace).unwrap();
    copy(&root.join("crates").join(name), &workspace.join(name));
    let manifest = format!("[workspace]\nresolver = \"3\"\nmembers = [\"{name}\"]\n");
    fs::write(workspace.join("Cargo.toml"), manifest).unwrap();
    // Cargo removes what the crate doesn't need from it, and downloads nothing.
    fs::copy(root.join("Cargo.lock"), workspace.join("Cargo.lock")).unwrap();
    workspace
}

/// `cargo test` in the workspace, with every warning an error.
fn cargo_test(workspace: &Path, arguments: &[&str], database_url: &str) {
    let mut cargo = Command::new(env!("CARGO"));
    // What the outer Cargo, its user and CI have set for this repository's own build.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("SQLX_") {
            cargo.env_remove(name);
        }
    }
    let output = cargo
        .arg("test")
        .args(arguments)
        .current_dir(workspace)
        .env(
            "CARGO_TARGET_DIR",
            concat!(env!("CARGO_TARGET_TMPDIR"), "/copied-crates-target"),
        )
        .env("CARGO_NET_OFFLINE", "true")
        // Without what a debugger needs, it is compiled sooner.
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env("RUSTFLAGS", "-Dwarnings")
        .env("DATABASE_URL", database_url)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo test {arguments:?}: {}{}",
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout),
    );
}

#[tokio::test]
async fn the_idempotency_crate_compiles_and_passes_its_tests_alone_without_an_edit_or_a_warning() {
    let database = TestDatabase::create_empty().await;
    let workspace = workspace_of("idempotency");
    for features in ["--no-default-features", "--all-features"] {
        cargo_test(&workspace, &[features, "--no-run"], NOWHERE);
        cargo_test(&workspace, &[features], &database.url);
    }
}

#[test]
fn crates_without_a_database_compile_and_pass_their_tests_alone_without_an_edit_or_a_warning() {
    for name in WITHOUT_DATABASE {
        // Searching millions of texts takes long without optimization; the workspace optimizes it.
        let arguments = ["--all-features", "--", "--skip", "identifiers"];
        cargo_test(&workspace_of(name), &arguments, NOWHERE);
    }
}
