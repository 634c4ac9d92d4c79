//! Plain American English: words that this project does not use, in its documents and comments.

use std::fs;

use crate::support::{documents::lines_of_prose, prelude::*};

/// Subjects that name no subject, and British spellings. Each is the beginning of a word, and ends
/// it if it ends with a space.
const UNWANTED: [&str; 22] = [
    "whoever ",
    "somebody ",
    "someone ",
    "anybody ",
    "nobody ",
    "such a one ",
    "the same for ",
    "for ever ",
    "authoris",
    "behaviour",
    "cancelled ",
    "cancelling ",
    "canonicalis",
    "favour",
    "honour",
    "initialis",
    "licence",
    "neighbour",
    "normalis",
    "recognis",
    "serialis",
    "synchronis",
];

fn files_below(folder: &Path, wanted: fn(&Path) -> bool) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            let is_foreign = ["target", "node_modules", ".git"].contains(&name)
                || name.starts_with(".charge-once");
            if !is_foreign {
                files.extend(files_below(&path, wanted));
            }
        } else if wanted(&path) {
            files.push(path.to_str().unwrap().to_owned());
        }
    }
    files
}

/// The words of a line, each after a space, without its code spans: they name tests and values.
fn words(line: &str) -> String {
    let prose = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let words = prose.split(|c: char| !c.is_alphanumeric() && c != '_');
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    format!(" {} ", words.join(" ").to_lowercase())
}

/// What a file says in prose, with the number of each line.
fn prose(path: &str) -> Vec<(usize, String)> {
    let text = fs::read_to_string(path).unwrap();
    if path.ends_with(".md") {
        let lines = lines_of_prose(&text);
        return lines.map(|(number, line)| (number, words(line))).collect();
    }
    let marker = match Path::new(path).extension().and_then(|name| name.to_str()) {
        Some("rs" | "mjs") => "//",
        Some("sql") => "--",
        _ => "#",
    };
    let lines = (1..).zip(text.lines()).filter_map(|(number, line)| {
        let comment = line.trim_start().strip_prefix(marker)?;
        Some((number, words(comment)))
    });
    lines.collect()
}

fn is_prose(path: &Path) -> bool {
    let extension = path.extension().and_then(|name| name.to_str());
    let texts = ["md", "rs", "mjs", "py", "sql", "yml", "toml", "example"];
    let is_text = extension.is_some_and(|name| texts.contains(&name));
    let has_no_extension = extension.is_none() && fs::read_to_string(path).is_ok();
    // This file lists the words.
    (is_text || has_no_extension) && !path.ends_with(file!())
}

#[test]
fn documents_and_comments_use_plain_american_english() {
    let mut found = Vec::new();
    for path in files_below(root(), is_prose) {
        for (number, line) in prose(&path) {
            for word in UNWANTED {
                if line.contains(&format!(" {word}")) {
                    found.push(format!("{path}:{number}: {word}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}
