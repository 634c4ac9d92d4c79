//! Each wrong receiver of webhooks is found by the check that is meant for it, and a right one by
//! none.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test may stop at the first surprise"
)]

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
};

const SECRET: &str = "whsec_c2VjcmV0LW9mLXRoZS1lbmRwb2ludA==";

struct Receiver {
    url: String,
    process: Child,
}

impl Receiver {
    fn start(mistake: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().unwrap().parent().unwrap().join("examples");
        let mut starting = Command::new(folder.join("receiver"));
        starting.arg(mistake).env("WEBHOOK_SECRET", SECRET);
        let mut process = starting.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line
            .trim()
            .strip_prefix("listening on ")
            .unwrap()
            .to_owned();
        Self { url, process }
    }

    /// The names of the checks that are not held, and the exit code.
    fn conform(&self, scheme: &str, effect: &str) -> (Vec<String>, Option<i32>) {
        let mut program = Command::new(env!("CARGO_BIN_EXE_charge-once-conform"));
        let url = format!("{}/webhooks", self.url);
        program.args([
            "webhooks", &url, "--scheme", scheme, "--json", "--effect", effect,
        ]);
        let output = program.env("WEBHOOK_SECRET", SECRET).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect(&error);
        assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET));
        let findings = report["findings"].as_array().unwrap().iter();
        let violated = findings.filter(|one| one["outcome"] != "holds");
        let names = violated.map(|one| one["name"].as_str().unwrap().to_owned());
        (names.collect(), output.status.code())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn no_check_fires_on_a_right_receiver_of_either_signature() {
    let receiver = Receiver::start("none");
    let url = format!("{}/effects/{{{{unique}}}}", receiver.url);
    let command = format!("curl --fail --silent {url}");
    for (scheme, effect) in [("stripe", &url), ("standard", &url), ("stripe", &command)] {
        assert_eq!(receiver.conform(scheme, effect), (Vec::new(), Some(0)));
    }
}

#[test]
fn each_wrong_receiver_is_found() {
    let cases = [
        (
            "never-remembers",
            "delivered_twice delivered_at_once lost_2xx late",
            1,
        ),
        ("looks-first", "delivered_at_once lost_2xx", 1),
        ("remembers-too-early", "lost_2xx", 1),
        ("remembers-forgeries", "forged unsigned old_signature", 1),
        ("trusts-everyone", "forged unsigned old_signature", 1),
        ("no-tolerance", "old_signature", 0),
        ("newest-only", "out_of_order late", 1),
    ];
    thread::scope(|scope| {
        for (mistake, meant, code) in cases {
            scope.spawn(move || {
                let receiver = Receiver::start(mistake);
                let effect = format!("{}/effects/{{{{unique}}}}", receiver.url);
                let (found, ended) = receiver.conform("stripe", &effect);
                assert_eq!(found.join(" "), meant, "{mistake}");
                assert_eq!(ended, Some(code), "{mistake}");
            });
        }
    });
}
