//! Tells the program which commit it was built from, for `charge-once --version`.
//!
//! Promise: it never fails a build. Without a commit, the version stands alone: in a copy without
//! `.git`, without git, and in a build for development, which each commit would make compile again.
//! CHARGE_ONCE_COMMIT, if it is set, is the commit.

use std::{env, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CHARGE_ONCE_COMMIT");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let given = env::var("CHARGE_ONCE_COMMIT").ok();
    let given = given.filter(|commit| is_commit(commit));
    let version = match given.or_else(commit_of_release) {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=CHARGE_ONCE_VERSION={version}");
}

/// Text that can't break a line of the build script's output.
fn is_commit(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    !text.is_empty() && text.len() <= 64 && text.chars().all(is_plain)
}

/// The commit of this folder, followed by `-dirty` if files differ from it.
fn commit_of_release() -> Option<String> {
    if env::var("PROFILE").ok()? != "release" {
        return None;
    }
    // A copy inside another project's repository has that project's commits.
    let root = git(&["rev-parse", "--show-toplevel"])?;
    let here = env::var("CARGO_MANIFEST_DIR").ok()?;
    if Path::new(&root).canonicalize().ok()? != Path::new(&here).canonicalize().ok()? {
        return None;
    }
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    for changed in [
        &log,
        "src",
        "crates",
        "migrations",
        "Cargo.toml",
        "Cargo.lock",
    ] {
        println!("cargo::rerun-if-changed={changed}");
    }
    let commit = git(&[
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ])?;
    is_commit(&commit).then_some(commit)
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
