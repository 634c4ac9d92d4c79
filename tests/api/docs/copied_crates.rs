//! Crates as a reader copies them: each into a workspace that has nothing else.

use std::{fs, sync::PoisonError};

use crate::support::{harness::tests_all, prelude::*};

/// A server that doesn't exist. A crate's queries are checked against its own `.sqlx/`, so a build
/// that asked this server would fail.
const NOWHERE: &str = "postgres://nowhere.invalid/nothing";

const WITHOUT_DATABASE: [&str; 2] = ["conform", "strict-params"];

/// Puts the crate's folder into `files`, and those that its manifest names as `../other`, which its
/// README says to copy too.
fn copy(name: &str, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    let manifest = read(format!("crates/{name}/Cargo.toml"));
    for other in manifest.split("path = \"../").skip(1) {
        copy(other.split('"').next().unwrap(), files);
    }
    for path in files_below(&format!("crates/{name}")) {
        let text = fs::read(root().join(&path)).unwrap();
        files.insert(path.strip_prefix("crates/").unwrap().into(), text);
    }
}

/// A workspace whose only member is a copy of the crate's folder. Its own folder is named after
/// what it holds: if nothing has changed since the last run, nothing is compiled again, and Cargo,
/// which compares times, can't take what was compiled from another text for this one's.
fn workspace_of(name: &str) -> PathBuf {
    let mut files = BTreeMap::new();
    copy(name, &mut files);
    // In place of taking `[lints]` out of the manifests, as their READMEs say.
    let workspace = read("Cargo.toml");
    let (_, lints) = workspace.split_once("[workspace.lints.rust]").unwrap();
    let lints = lints.split("\n[profile").next().unwrap();
    let manifest = format!(
        "[workspace]\nresolver = \"3\"\nmembers = [\"{name}\"]\n[workspace.lints.rust]{lints}"
    );
    files.insert("Cargo.toml".into(), manifest.into_bytes());
    // Cargo removes what the crate doesn't need from it, and downloads nothing.
    files.insert("Cargo.lock".into(), read("Cargo.lock").into_bytes());

    let mut hash = Sha256::new();
    for (path, text) in &files {
        hash.update(format!("{} {}\n", path.display(), text.len()));
        hash.update(text);
    }
    let hash = hex::encode(hash.finalize());
    let copies = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("copied-{name}"));
    let workspace = copies.join(hash);
    if workspace.exists() {
        return workspace;
    }
    let _ = fs::remove_dir_all(&copies);
    // Named as whole only when it is.
    let unfinished = copies.join("unfinished");
    for (path, text) in files {
        let path = unfinished.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::rename(unfinished, &workspace).unwrap();
    // What was compiled from the copies before.
    let package = format!("charge-once-{name}");
    cargo(&workspace, &["clean", "--package", &package], NOWHERE);
    workspace
}

/// The copies share what is compiled of their dependencies. Cargo locks it while it compiles, but
/// not while examples in documents are compiled, which then miss what another Cargo writes anew.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs Cargo in the workspace, with every warning an error.
fn cargo(workspace: &Path, arguments: &[&str], database_url: &str) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut cargo = Command::new(env!("CARGO"));
    // What the outer Cargo, its user and CI have set for this repository's own build.
    for (name, _) in std::env::vars() {
        if name.starts_with("CARGO_") && name != "CARGO_HOME" || name.starts_with("SQLX_") {
            cargo.env_remove(name);
        }
    }
    let target = concat!(env!("CARGO_TARGET_TMPDIR"), "/copied-crates-target");
    let output = cargo
        .args(arguments)
        .current_dir(workspace)
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true")
        // Without what a debugger needs, it is compiled sooner.
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .env("RUSTFLAGS", "-Dwarnings")
        .env("DATABASE_URL", database_url)
        .output()
        .unwrap();
    let told = [output.stderr, output.stdout].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(output.status.success(), "cargo {arguments:?}: {told}");
}

#[tokio::test]
async fn the_idempotency_crate_compiles_and_passes_its_tests_alone_without_a_warning() {
    let database = TestDatabase::create_empty().await;
    let workspace = workspace_of("idempotency");
    cargo(&workspace, &["test", "--all-features", "--no-run"], NOWHERE);
    cargo(&workspace, &["test", "--all-features"], &database.url);
    // `make check-long` runs the tests without features, and checks each feature by itself.
    cargo(&workspace, &["check", "--no-default-features"], NOWHERE);
}

#[tokio::test]
async fn crates_with_tables_compile_and_pass_their_tests_alone_without_a_warning() {
    let database = TestDatabase::create_empty().await;
    for name in ["postgres", "service", "webhooks"] {
        let workspace = workspace_of(name);
        cargo(&workspace, &["test", "--all-features", "--no-run"], NOWHERE);
        cargo(&workspace, &["test", "--all-features"], &database.url);
        for feature in features_of(name).iter().filter(|_| tests_all()) {
            let arguments = ["check", "--no-default-features", "--features", feature];
            cargo(&workspace, &arguments, NOWHERE);
        }
    }
}

fn features_of(name: &str) -> Vec<String> {
    let manifest = read(format!("crates/{name}/Cargo.toml"));
    let Some((_, features)) = manifest.split_once("\n[features]\n") else {
        return Vec::new();
    };
    let lines = features.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = "));
    names.map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn crates_without_a_database_compile_and_pass_their_tests_alone_without_a_warning() {
    for name in WITHOUT_DATABASE {
        // Searching millions of texts takes long without optimization; the workspace optimizes it.
        let arguments = ["test", "--all-features", "--", "--skip", "identifiers"];
        let workspace = workspace_of(name);
        cargo(&workspace, &arguments, NOWHERE);
        if !features_of(name).is_empty() {
            cargo(&workspace, &["check", "--no-default-features"], NOWHERE);
        }
    }
}
