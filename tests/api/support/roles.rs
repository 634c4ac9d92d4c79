//! The roles that `deploy/postgres/roles.sql` makes, in a PostgreSQL of the tests.

use crate::support::prelude::*;

/// Roles belong to the whole PostgreSQL of the tests, and two runs of the file at once would
/// collide.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

pub fn postgres_programs() -> String {
    let find = Command::new(root().join("scripts/postgres-bin-dir")).output();
    text(&find.unwrap().stdout).trim().to_owned()
}

/// Runs the file in a database, and returns what PostgreSQL tells of it. The variables are the
/// passwords.
pub fn apply_roles(url: &str, variables: &[(&str, &str)]) -> String {
    apply("roles.sql", url, variables)
}

/// Runs another file beside it.
pub fn apply(file: &str, url: &str, variables: &[(&str, &str)]) -> String {
    let _guard = ONE_AT_A_TIME.lock().unwrap();
    let output = Command::new(format!("{}/psql", postgres_programs()))
        .args(["--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1"])
        .arg("--file")
        .arg(root().join("deploy/postgres").join(file))
        .arg(url)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let told = text(&output.stderr);
    assert!(output.status.success(), "{told}");
    told
}

/// The owner's URL of a database, for another role.
pub fn as_role(url: &str, role: &str) -> String {
    let of_the_role = url.replacen("charge_once@", &format!("{role}@"), 1);
    assert_ne!(of_the_role, url);
    of_the_role
}
