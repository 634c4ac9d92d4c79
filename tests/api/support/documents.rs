//! The documents of the project, and their parts.

use std::fs;

use crate::support::prelude::*;

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Every text that describes the project: Markdown at the root and below these folders.
pub fn documents() -> Vec<String> {
    let folders = ["docs", "src", "crates", "tools", "examples", ".github"];
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
pub fn files_below(folder: &str) -> Vec<String> {
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
pub fn blocks(document: &str) -> Vec<(String, String)> {
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

/// The first block of a document in this language.
pub fn block(document: &str, language: &str) -> String {
    let mut blocks = blocks(&read(document)).into_iter();
    blocks
        .find(|(known, _)| known == language)
        .expect(language)
        .1
}

/// The text without its fenced blocks, which hold commands and output.
pub fn prose(document: &str) -> String {
    let lines = lines_of_prose(document).map(|(_, line)| line);
    lines.collect::<Vec<_>>().join("\n")
}

pub fn lines_of_prose(document: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut inside = false;
    (1..).zip(document.lines()).filter(move |(_, line)| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !inside && !fence
    })
}
