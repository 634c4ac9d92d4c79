//! `charge-once` as a person starts it.

use std::os::unix::fs::PermissionsExt;

use nix::{sys::signal::kill, unistd::Pid};

use crate::support::prelude::*;

/// The program with these variables and no others of ours.
pub fn program(arguments: &[&str], variables: &[(&str, &str)]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_charge-once"));
    for variable in VARIABLES {
        command.env_remove(variable.name);
    }
    command
        .args(arguments)
        .env("RUST_LOG", "error")
        .envs(variables.iter().copied());
    command
}

#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    pub fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{self:?}");
        self.stderr
    }
}

/// The program as a client of the service at `url`.
pub fn client(url: &str, arguments: &[&str]) -> Command {
    let variables = [("CHARGE_ONCE_URL", url), ("CHARGE_ONCE_API_KEY", API_KEY)];
    let mut command = program(arguments, &variables);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs it to its end without stopping the server, which lives in this process.
pub async fn run_to_end(mut command: Command) -> Run {
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    Run::of(output.await.unwrap())
}

pub fn run(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    program(arguments, variables).output().unwrap()
}

/// `charge-once operations …` on this database.
pub fn operations(database: &TestDatabase, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let own = [("DATABASE_URL", &*database.url), ("DEV_API_KEY", API_KEY)];
    let arguments = [&["operations"], arguments].concat();
    Run::of(run(&arguments, &[&own, variables].concat()))
}

/// `charge-once operations resolve …`, beside the processor that was asked.
pub fn resolve(database: &TestDatabase, processor: &Processor, id: Uuid, word: &str) -> Run {
    let (id, url) = (id.to_string(), processor.url());
    let arguments = ["resolve", &id, word, "--by", "Ada"];
    operations(database, &arguments, &[("PROCESSOR_URL", &url)])
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub fn printed_by(arguments: &[&str], variables: &[(&str, &str)]) -> String {
    Run::of(run(arguments, variables)).succeeded()
}

/// A folder that PostgreSQL's user can enter.
pub fn scratch() -> TempDir {
    let folder = tempfile::Builder::new()
        .prefix("charge-once-test-")
        .tempdir_in("/tmp")
        .unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub fn data_dir(folder: &TempDir) -> String {
    folder.path().join("data").to_str().unwrap().to_owned()
}

pub fn postgres_runs(data_dir: &str) -> bool {
    Path::new(data_dir).join("pgdata/postmaster.pid").exists()
}

/// The program with a PostgreSQL of its own, and what its banner says.
pub fn start_embedded(data_dir: &str) -> (ServerProcess, String) {
    let variables = [("BIND_ADDRESS", "127.0.0.1:0"), ("DATA_DIR", data_dir)];
    let mut child = program(&[], &variables)
        .env("DEV_API_KEY", API_KEY)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut banner = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().unwrap()).lines() {
        banner.push(line.unwrap());
        if banner.last().unwrap().starts_with("curl ") {
            break;
        }
    }
    let address = banner[0].rsplit("http://").next().unwrap().parse().unwrap();
    let client = Client::new(address);
    (ServerProcess::of(client, child), banner.join("\n"))
}

pub fn signal(process: &Child, signal: Signal) {
    let pid = i32::try_from(process.id()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

/// Sends a signal, at which the process ends with exit code 0.
pub async fn stops(process: &mut Child, by: Signal) {
    signal(process, by);
    assert_eq!(exit_code(process).await, Some(0));
}

pub async fn exit_code(process: &mut Child) -> Option<i32> {
    let mut code = None;
    eventually("the process ends", || {
        code = process.try_wait().unwrap();
        std::future::ready(code.is_some())
    })
    .await;
    code.and_then(|status| status.code())
}
