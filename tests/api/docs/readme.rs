//! The documentation is tried, not believed: its commands run, and what it names exists.

use std::fs;

use charge_once::config;
use charge_once_service::settings::markdown_tables;

use crate::support::{documents::documents, prelude::*};

/// The README must stay short enough to be read in one sitting.
const README_LINES_MAX: usize = 200;

/// A noun that documents make up, to show what a new one needs.
const EXAMPLE_NOUN: &str = "payout";

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < README_LINES_MAX, "{lines}");
}

#[test]
fn the_tables_of_variables_are_the_code_s() {
    let document = read("docs/configuration.md");
    let table = document.between("<!-- config:begin -->\n", "<!-- config:end -->");
    assert_eq!(table, markdown_tables(config::VARIABLES));
}

#[test]
fn env_example_describes_every_variable_and_sets_none() {
    let example = read(".env.example");
    let mut expected = String::new();
    let mut shown = "";
    for variable in config::VARIABLES {
        if variable.topic != shown {
            shown = variable.topic;
            expected.push_str(&format!("\n## {shown}\n"));
        }
        let (about, name) = (variable.about, variable.name);
        let default = variable.default.unwrap_or_default();
        expected.push_str(&format!("\n# {about}\n#{name}={default}\n"));
    }
    let is_end = example.ends_with(&expected);
    assert!(is_end, "the end of .env.example must be:\n{expected}");
    for line in example.lines() {
        assert!(line.is_empty() || line.starts_with('#'), "active: {line}");
    }
}

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
    let prose = prose(document);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let names = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    names
        .map(|mut name| {
            name.retain(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            name.replace(' ', "-")
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
            let path = match path {
                "" => PathBuf::from(&document),
                _ => folder.join(path),
            };
            let link = format!("{document} links to {target}");
            assert!(root().join(&path).exists(), "{link}, which doesn't exist");
            let is_heading =
                anchor.is_empty() || anchors(&read(&path)).iter().any(|known| known == anchor);
            assert!(is_heading, "{link}, which has no such heading");
        }
    }
}

/// `make book` builds a book of these pages. One that the table of contents lacks would not be in
/// it.
#[test]
fn the_book_has_each_page_of_docs_once() {
    let links = links(&read("docs/SUMMARY.md"));
    let pages: BTreeSet<_> = links.iter().map(|(_, page)| page.as_str()).collect();
    assert_eq!(pages.len(), links.len(), "a page is in the book twice");
    for page in files_below("docs") {
        let page = page.strip_prefix("docs/").unwrap();
        let is_page = page.ends_with(".md") && page != "SUMMARY.md";
        let is_named = pages.contains(page);
        assert!(!is_page || is_named, "docs/SUMMARY.md lacks {page}");
    }
}

fn code_spans(prose: &str) -> Vec<&str> {
    let lines = prose.lines();
    lines
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
            let is_there = read(folder.join(&target)).contains(&format!("fn {name}("));
            assert!(is_there, "{document} cites {name}, not in {target}");
            cited += 1;
        }
    }
    assert!(cited >= 12, "one for each anti-pattern at least");
}

#[test]
fn every_name_and_path_in_a_document_occurs_in_the_project() {
    let sources = "src crates tools examples tests migrations scripts deploy ops".split(' ');
    let sources: String = sources.flat_map(files_below).map(read).collect();
    let folders = "src/ crates/ tools/ tests/ migrations/ scripts/ docs/ openapi/ .ci/ .github/ \
                   examples/ deploy/";
    for document in documents() {
        let prose = prose(&read(&document));
        for span in code_spans(&prose) {
            if span.contains(EXAMPLE_NOUN) {
                continue;
            }
            if folders.split(' ').any(|folder| span.starts_with(folder)) {
                // A command names its file first, and then its arguments.
                let span = span.split(' ').next().unwrap();
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
    let document = read(document);
    let (blocks, prose) = (blocks(&document), prose(&document));
    let shell = blocks.iter().filter(|(language, _)| language == "sh");
    let in_blocks = shell.flat_map(|(_, text)| text.lines());
    let typed = in_blocks.chain(code_spans(&prose));
    typed.map(str::to_owned).collect()
}

/// What follows the last occurrence of a program's name as a word of its own.
fn arguments_of<'a>(program: &str, typed: &'a str) -> Option<&'a str> {
    let at = typed.rfind(&format!("{program} "))?;
    let (before, after) = typed.split_at(at);
    let is_a_word = before.is_empty() || before.ends_with(' ');
    is_a_word.then(|| after[program.len()..].trim())
}

/// The arguments of a program wherever a document tells its reader to type it, with the document.
fn typed_everywhere(program: &str) -> Vec<(String, String)> {
    let typed_in = |document: String| {
        let arguments = |typed: &String| Some(arguments_of(program, typed)?.to_owned());
        let arguments: Vec<_> = typed(&document).iter().filter_map(arguments).collect();
        arguments
            .into_iter()
            .map(move |found| (document.clone(), found))
    };
    documents().into_iter().flat_map(typed_in).collect()
}

#[test]
fn every_make_target_in_a_document_exists() {
    let makefile = read("Makefile");
    let typed = typed_everywhere("make");
    assert!(typed.len() >= 10, "{typed:?}");
    for (document, arguments) in typed {
        let target = arguments.split(' ').next().unwrap();
        let exists = makefile.contains(&format!(".PHONY: {target}\n"));
        assert!(exists, "{document} names {target}: not in the Makefile");
    }
}

/// With `--help` after its arguments a command does nothing, but still refuses what it doesn't
/// know.
#[test]
fn every_command_in_a_document_is_one_that_the_program_knows() {
    let program = Path::new(env!("CARGO_BIN_EXE_charge-once"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    let typed = typed_everywhere("charge-once");
    assert!(typed.len() >= 10, "{typed:?}");
    for (document, arguments) in typed {
        // What follows is for another program.
        let arguments = arguments.split(" -- ").next().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("charge-once {arguments} --help")]);
        let output = shell.env("PATH", &path).output().unwrap();
        assert!(
            output.status.success(),
            "{document}: {arguments}: {output:?}"
        );
    }
}

#[test]
fn the_tree_that_architecture_shows_exists() {
    let document = read("ARCHITECTURE.md");
    let (_, section) = document.split_once("## The tree").unwrap();
    let (_, tree) = blocks(section).into_iter().next().unwrap();
    let lines = tree.lines();
    let folders: Vec<&str> = lines.filter_map(|line| line.split(' ').next()).collect();
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
    // The README of the crate needs no mention: its examples are doctests.
    let mut examples = blocks(&read("docs/client.md"));
    examples.retain(|(language, _)| language == "rust");
    assert!(!examples.is_empty());
    let compiled = read("tests/api/support/client_examples.rs");
    for (_, example) in examples {
        assert!(compiled.contains(&example), "not compiled:\n{example}");
    }
}
