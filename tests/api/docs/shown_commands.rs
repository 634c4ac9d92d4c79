//! The commands that documents show run, and answer as shown.

use super::layers::rust_files;
use crate::support::{prelude::*, roles::postgres_programs};

const SHOWN_ADDRESS: &str = "127.0.0.1:8080";

const SHOWN_API_KEY: &str = "sk_test_ChargeOnceDevelopmentKey00";

/// Each command of a document that is followed by the output it promises.
fn tries(document: &str) -> Vec<(String, String)> {
    let blocks = blocks(document);
    let pairs = blocks.iter().zip(blocks.iter().skip(1));
    let tries = pairs.filter(|((sh, _), (http, _))| sh == "sh" && http == "http");
    tries
        .map(|((_, command), (_, output))| (command.clone(), output.clone()))
        .collect()
}

/// Hides what differs from run to run, ids and times, without changing any position.
fn masked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (start, end) in ids(text) {
        bytes[start..end].fill(b'#');
    }
    for start in 0..bytes.len().saturating_sub(19) {
        let mut compared = b"0000-00-00T00:00:00Z".iter().zip(&bytes[start..]);
        let is_time = compared.all(|(shape, byte)| match shape {
            b'0' => byte.is_ascii_digit(),
            _ => shape == byte,
        });
        if is_time {
            bytes[start..start + 20].fill(b'#');
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// Where ids are: an underscore, and exactly 26 characters of base32.
fn ids(text: &str) -> Vec<(usize, usize)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    for end in 0..=bytes.len() {
        let is_of_id = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        if !bytes.get(end).is_some_and(is_of_id) {
            if end - start == 26 && start > 0 && bytes[start - 1] == b'_' {
                found.push((start, end));
            }
            start = end + 1;
        }
    }
    found
}

/// Which id of the real run stands for which id of the document. Both ways: the document must show
/// two ids equal exactly where they are.
#[derive(Default)]
struct Ids {
    real_of: HashMap<String, String>,
    shown_of: HashMap<String, String>,
}

impl Ids {
    fn assert_alike(&mut self, shown: &str, real: &str) {
        for (start, end) in ids(shown) {
            let (shown, real) = (shown[start..end].to_owned(), real[start..end].to_owned());
            let known = self.real_of.entry(shown.clone()).or_insert(real.clone());
            assert_eq!(*known, real, "{shown} stands for two ids");
            let known = self.shown_of.entry(real).or_insert(shown.clone());
            assert_eq!(*known, shown, "one id is shown as two");
        }
    }

    /// `shown` without what `…` leaves out occurs in `real`, in order.
    fn assert_shows(&mut self, shown: &str, real: &str) {
        let masked_real = masked(real);
        let mut from = 0;
        for fragment in shown.split('…') {
            let Some(at) = masked_real[from..].find(&masked(fragment)) else {
                panic!("the document shows {fragment:?}, which isn't in {real:?}");
            };
            let at = at + from;
            from = at + fragment.len();
            self.assert_alike(fragment, &real[at..from]);
        }
    }
}

/// Runs the commands of a document one after the other, and compares.
async fn assert_answers_as_shown(server: &TestServer, document: &str, statuses: &[&str]) {
    let tries = tries(&read(document));
    assert_eq!(tries.len(), statuses.len(), "commands with an output");
    let mut ids = Ids::default();
    for ((command, shown), status) in tries.iter().zip(statuses) {
        assert!(command.contains(SHOWN_ADDRESS) && command.contains(SHOWN_API_KEY));
        let real = typed(server, "sh", command).await;
        let real = real.stdout.replace('\r', "");
        let (real_head, real_body) = real.split_once("\n\n").expect("a head and a body");
        let (shown_head, shown_body) = shown.split_once("\n\n").expect("a head and a body");

        let shown_status = shown_head.lines().next().unwrap();
        assert_eq!(real_head.lines().next(), Some(shown_status), "{real}");
        assert_eq!(shown_status.split(' ').nth(1), Some(*status));
        for header in shown_head.lines().skip(1) {
            let mut lines = real_head.lines();
            let Some(real_header) = lines.find(|line| masked(line) == masked(header)) else {
                panic!("{document} shows {header:?}, which isn't in {real}");
            };
            ids.assert_alike(header, real_header);
        }
        // What a reply doesn't have must not be missed either: a first reply is no replay.
        let replayed = |head: &str| head.contains("idempotent-replayed: true");
        assert_eq!(replayed(shown_head), replayed(real_head), "{real}");
        ids.assert_shows(shown_body.trim_end(), real_body);
    }
}

#[tokio::test]
async fn the_commands_about_checkouts_answer_as_shown() {
    let server = TestServer::start().await;
    let statuses = ["200", "201", "400", "200", "503", "200"];
    assert_answers_as_shown(&server, "docs/checkouts.md", &statuses).await;
}

#[tokio::test]
async fn the_commands_about_agents_and_lost_keys_answer_as_shown_and_charge_once_each() {
    let server = TestServer::start().await;
    assert_answers_as_shown(&server, "docs/agents.md", &["201", "200", "400"]).await;
    assert_eq!(server.database.charges().await, 1);
    assert_answers_as_shown(&server, "docs/lost-keys.md", &["200", "200"]).await;
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn the_commands_of_the_readme_and_of_the_tour_answer_as_they_show() {
    // The first call, its replay, a reused key, a decline, and a duplicate in flight.
    let of_the_readme = ["201", "201", "422", "402", "409"];
    // The same in full, and a workflow.
    let of_the_tour = ["201", "201", "422", "402", "409", "200"];
    for (document, statuses) in [
        ("README.md", &of_the_readme[..]),
        ("docs/tour.md", &of_the_tour[..]),
    ] {
        let server = TestServer::start().await;
        assert_answers_as_shown(&server, document, statuses).await;
        let succeeded = "SELECT count(*) FROM charges WHERE status = 'succeeded'";
        assert_eq!(server.database.count(succeeded).await, 2, "{document}");
        assert_eq!(server.database.charges().await, 3, "{document}");
    }
}

/// Messages, banners and pages name commands that exist, with options that they have.
#[test]
fn the_commands_that_messages_name_exist() {
    let shown = r#"(?:`|\| |with: |code \{ ")charge-once((?: [a-z][a-z-]*)+)((?: --[a-z-]+)*)"#;
    let shown = regex::Regex::new(shown).unwrap();
    let mut named = BTreeSet::new();
    for folder in ["src", "crates/console/src", "crates/postgres/src/database"] {
        for file in rust_files(&root().join(folder)) {
            let source = read(file);
            let lines = source.lines();
            for line in lines.filter(|line| !line.trim_start().starts_with("//")) {
                let found = shown.captures_iter(line);
                named.extend(found.map(|found| (found[1].to_owned(), found[2].to_owned())));
            }
        }
    }
    assert!(named.len() >= 7, "{named:?}");
    for (command, options) in named {
        let words: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let help = printed_by(&words, &[]);
        help.must_have(&[&format!("Usage: charge-once{command}")]);
        help.must_have(&options.split_whitespace().collect::<Vec<_>>());
    }
}

async fn printed(server: &TestServer, shell: &str, shown: &str) -> String {
    typed(server, shell, shown).await.succeeded()
}

/// Types what a document shows, with the server's address and key.
async fn typed(server: &TestServer, shell: &str, shown: &str) -> Run {
    let address = server.client.address.to_string();
    let shown = shown.replace(SHOWN_ADDRESS, &address);
    let mut command = Command::new(shell);
    command.args(["-c", &shown.replace(SHOWN_API_KEY, API_KEY)]);
    run_to_end(command).await
}

#[tokio::test]
async fn the_commands_about_tests_of_retries_answer_as_shown() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let document = read("docs/testing.md");
    let (_, lost) = blocks(&document).into_iter().next().unwrap();
    assert_eq!(printed(&server, "sh", &lost).await, "exit code 52\n");
    assert_eq!(server.database.charges().await, 1);
    let statuses = ["201", "503", "201", "200"];
    assert_answers_as_shown(&server, "docs/testing.md", &statuses).await;
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn the_histories_about_postgresql_run_as_shown() {
    let blocks = blocks(&read("docs/postgresql.md"));
    let shown = |language: &str| -> String {
        let blocks = blocks.iter().filter(|(known, _)| known == language);
        blocks.map(|(_, text)| text.as_str()).collect()
    };
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", &shown("sh")]).current_dir(root());
    shell.env("PATH", format!("{}:{path}", postgres_programs()));
    shell.env("LC_ALL", "C");
    let output = run_to_end(shell).await;
    assert_eq!(output.succeeded(), shown("text"));
}
