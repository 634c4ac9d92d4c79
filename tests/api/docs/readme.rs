//! The documentation is tried, not believed: its commands run, and what it names exists.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use charge_once::config::{self, Variable};

use crate::support::harness::{API_KEY, TestServer};

/// The address and the API key that the README shows.
const SHOWN_ADDRESS: &str = "127.0.0.1:8080";
const SHOWN_API_KEY: &str = "sk_test_charge_once_dev";

/// The README must stay short enough to be read in one sitting.
const README_LINES_MAX: usize = 200;

/// A noun that documents make up, to show what a new one needs.
const EXAMPLE_NOUN: &str = "payout";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every text that describes the project: Markdown at the root and below these folders.
fn documents() -> Vec<String> {
    let folders = ["docs", "src", "crates", "examples", ".github"];
    let mut documents: Vec<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for folder in folders {
        documents.extend(files_below(folder));
    }
    documents.retain(|path| path.ends_with(".md"));
    assert!(documents.len() >= 12, "{documents:?}");
    documents
}

/// Every file below `folder`, from the root of the project. None if there is no such folder.
fn files_below(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(folder)) else {
        return Vec::new();
    };
    entries
        .flat_map(|entry| {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                files_below(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// A fenced block: its language and its text.
fn blocks(document: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in document.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => open = Some((language.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fenced block is not closed");
    blocks
}

/// The text without its fenced blocks, which hold commands and output.
fn prose(document: &str) -> String {
    let mut inside = false;
    document
        .lines()
        .filter(|line| {
            let fence = line.starts_with("```");
            inside ^= fence;
            !inside && !fence
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Each command of a document that is followed by the output it promises.
fn tries(document: &str) -> Vec<(String, String)> {
    let blocks = blocks(document);
    blocks
        .windows(2)
        .filter_map(|pair| match pair {
            [(sh, command), (http, output)] if sh == "sh" && http == "http" => {
                Some((command.clone(), output.clone()))
            }
            _ => None,
        })
        .collect()
}

/// Hides what differs from run to run, ids and times, without changing any position.
fn masked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for (start, end) in ids(text) {
        bytes[start..end].fill(b'#');
    }
    for start in 0..bytes.len().saturating_sub(19) {
        let is_time = b"0000-00-00T00:00:00Z"
            .iter()
            .zip(&bytes[start..])
            .all(|(shape, byte)| match shape {
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
        let continues = bytes
            .get(end)
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !continues {
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
            let at = masked_real[from..]
                .find(&masked(fragment))
                .unwrap_or_else(|| {
                    panic!("the document shows {fragment:?}, which isn't in {real:?}")
                })
                + from;
            from = at + fragment.len();
            self.assert_alike(fragment, &real[at..from]);
        }
    }
}

/// Runs the commands of a document one after the other, and compares.
async fn assert_answers_as_shown(server: &TestServer, document: &str, statuses: &[&str]) {
    let address = server.client.address.to_string();
    let tries = tries(&read(document));
    assert_eq!(tries.len(), statuses.len(), "commands with an output");
    let mut ids = Ids::default();
    for ((command, shown), status) in tries.iter().zip(statuses) {
        assert!(command.contains(SHOWN_ADDRESS) && command.contains(SHOWN_API_KEY));
        let command = command
            .replace(SHOWN_ADDRESS, &address)
            .replace(SHOWN_API_KEY, API_KEY);
        let output = tokio::task::spawn_blocking(move || {
            Command::new("sh").args(["-c", &command]).output().unwrap()
        })
        .await
        .unwrap();
        let real = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        let (real_head, real_body) = real.split_once("\n\n").expect("a head and a body");
        let (shown_head, shown_body) = shown.split_once("\n\n").expect("a head and a body");

        let shown_status = shown_head.lines().next().unwrap();
        assert_eq!(real_head.lines().next(), Some(shown_status), "{real}");
        assert_eq!(shown_status.split(' ').nth(1), Some(*status));
        for header in shown_head.lines().skip(1) {
            let real_header = real_head
                .lines()
                .find(|line| masked(line) == masked(header))
                .unwrap_or_else(|| panic!("{document} shows {header:?}, which isn't in {real}"));
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

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < README_LINES_MAX, "{lines}");
}

#[test]
fn the_table_of_variables_is_the_code_s() {
    let document = read("docs/configuration.md");
    let (_, rest) = document.split_once("<!-- config:begin -->\n").unwrap();
    let (table, _) = rest.split_once("<!-- config:end -->").unwrap();
    assert_eq!(table, config::markdown_table());
}

#[test]
fn env_example_describes_every_variable_and_sets_none() {
    let example = read(".env.example");
    let mut expected = String::new();
    for Variable {
        name,
        default,
        about,
    } in config::VARIABLES
    {
        let default = default.unwrap_or_default();
        expected.push_str(&format!("\n# {about}\n#{name}={default}\n"));
    }
    assert!(
        example.ends_with(&expected),
        "the end of .env.example must be:\n{expected}"
    );
    for line in example.lines() {
        assert!(line.is_empty() || line.starts_with('#'), "active: {line}");
    }
}

/// Every `[text](target)` of a document's prose.
fn links(prose: &str) -> Vec<(String, String)> {
    let mut links = Vec::new();
    let mut rest = prose;
    while let Some((before, after)) = rest.split_once("](") {
        let text = before.rsplit('[').next().unwrap_or_default();
        let Some((target, after)) = after.split_once(')') else {
            break;
        };
        links.push((text.to_owned(), target.to_owned()));
        rest = after;
    }
    links
}

/// How GitHub names the anchor of a heading.
fn anchors(document: &str) -> Vec<String> {
    prose(document)
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| {
            line.trim_start_matches('#')
                .trim()
                .to_lowercase()
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
                .map(|c| if c == ' ' { '-' } else { c })
                .collect()
        })
        .collect()
}

#[test]
fn every_relative_link_leads_somewhere() {
    for document in documents() {
        let folder = Path::new(&document).parent().unwrap();
        for (_, target) in links(&prose(&read(&document))) {
            if target.starts_with("http://") || target.starts_with("https://") {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = if path.is_empty() {
                PathBuf::from(&document)
            } else {
                folder.join(path)
            };
            assert!(
                root().join(&path).exists(),
                "{document} links to {target}, which doesn't exist"
            );
            assert!(
                anchor.is_empty() || anchors(&read(&path)).iter().any(|known| known == anchor),
                "{document} links to {target}, which has no such heading"
            );
        }
    }
}

/// Every `code span` of a document's prose.
fn code_spans(prose: &str) -> Vec<&str> {
    prose
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

fn is_snake_case(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[test]
fn every_test_that_a_document_cites_exists_in_the_file_it_links_to() {
    let mut cited = 0;
    for document in documents() {
        let folder = Path::new(&document).parent().unwrap();
        for (text, target) in links(&prose(&read(&document))) {
            let name = text.trim_matches('`');
            if !target.ends_with(".rs") || !is_snake_case(name) || !name.contains('_') {
                continue;
            }
            let file = read(folder.join(&target));
            assert!(
                file.contains(&format!("fn {name}(")),
                "{document} cites {name}, which is not in {target}"
            );
            cited += 1;
        }
    }
    assert!(cited >= 12, "one for each anti-pattern at least");
}

#[test]
fn every_name_and_path_in_a_document_occurs_in_the_project() {
    let sources: String = ["src", "crates", "tests", "migrations", "scripts"]
        .into_iter()
        .flat_map(files_below)
        .map(read)
        .collect();
    let folders = [
        "src/",
        "crates/",
        "tests/",
        "migrations/",
        "scripts/",
        "docs/",
        "openapi/",
        ".ci/",
        ".github/",
        "examples/",
    ];
    for document in documents() {
        let prose = prose(&read(&document));
        for span in code_spans(&prose) {
            if span.contains(EXAMPLE_NOUN) {
                continue;
            }
            if folders.iter().any(|folder| span.starts_with(folder)) {
                // A package's own document may name its files from its own folder.
                let folder = Path::new(&document).parent().unwrap();
                let exists = root().join(span).exists() || root().join(folder).join(span).exists();
                assert!(exists, "{document} names {span}, which doesn't exist");
            } else if is_snake_case(span) && span.matches('_').count() >= 2 {
                let occurs = sources.contains(span);
                assert!(occurs, "{document} names {span}, which occurs nowhere");
            }
        }
    }
}

/// What a document tells its reader to type: the lines of its shell blocks, and its code spans.
fn typed(document: &str) -> Vec<String> {
    let in_blocks = blocks(document)
        .into_iter()
        .filter(|(language, _)| language == "sh")
        .flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let prose = prose(document);
    let in_prose = code_spans(&prose).into_iter().map(str::to_owned);
    in_blocks.chain(in_prose).collect()
}

/// What follows the last occurrence of a program's name as a word of its own.
fn arguments_of<'a>(program: &str, typed: &'a str) -> Option<&'a str> {
    let at = typed.rfind(&format!("{program} "))?;
    let (before, after) = typed.split_at(at);
    let is_a_word = before.is_empty() || before.ends_with(' ');
    is_a_word.then(|| after[program.len()..].trim())
}

#[test]
fn every_make_target_in_a_document_exists() {
    let makefile = read("Makefile");
    let mut targets = 0;
    for document in documents() {
        for typed in typed(&read(&document)) {
            let Some(arguments) = arguments_of("make", &typed) else {
                continue;
            };
            let target = arguments.split(' ').next().unwrap();
            let exists = makefile.contains(&format!(".PHONY: {target}\n"));
            assert!(
                exists,
                "{document} names `{typed}`, which the Makefile lacks"
            );
            targets += 1;
        }
    }
    assert!(targets >= 10, "{targets}");
}

/// With `--help` after its arguments a command does nothing, but still refuses what it doesn't know.
#[test]
fn every_command_in_a_document_is_one_that_the_program_knows() {
    let program = Path::new(env!("CARGO_BIN_EXE_charge-once"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let mut commands = 0;
    for document in documents() {
        for typed in typed(&read(&document)) {
            let Some(arguments) = arguments_of("charge-once", &typed) else {
                continue;
            };
            let output = Command::new("sh")
                .args(["-c", &format!("charge-once {arguments} --help")])
                .env("PATH", &path)
                .output()
                .unwrap();
            let complaint = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{document}: {typed}: {complaint}");
            commands += 1;
        }
    }
    assert!(commands >= 10, "{commands}");
}

#[test]
fn the_tree_that_architecture_shows_exists() {
    let document = read("ARCHITECTURE.md");
    let (_, section) = document.split_once("## The tree").unwrap();
    let (_, tree) = blocks(section).into_iter().next().unwrap();
    let folders: Vec<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(folders.len() >= 15, "{folders:?}");
    for folder in &folders {
        assert!(root().join(folder).is_dir(), "{folder}");
    }
    // Nothing is left out.
    for entry in fs::read_dir(root().join("src")).unwrap() {
        let entry = entry.unwrap();
        let name = format!("src/{}/", entry.file_name().to_str().unwrap());
        let is_shown = folders.contains(&name.as_str());
        assert!(entry.file_type().unwrap().is_file() || is_shown, "{name}");
    }
}

#[test]
fn every_example_in_rust_is_one_that_is_compiled() {
    for (document, compiled) in [
        // The README of the crate needs no mention: its examples are doctests.
        ("docs/client.md", "tests/api/support/client_examples.rs"),
    ] {
        let examples: Vec<_> = blocks(&read(document))
            .into_iter()
            .filter(|(language, _)| language == "rust")
            .collect();
        assert!(!examples.is_empty(), "{document}");
        let compiled = read(compiled);
        for (_, example) in examples {
            assert!(compiled.contains(&example), "not compiled:\n{example}");
        }
    }
}
