//! A type says what it is without its folder: no other type of its crate has its name.

use super::layers::{members, rust_files};
use crate::support::prelude::*;

/// The name of the type that a line declares. An indented `type` doesn't count: a trait chose the
/// name.
fn declared(line: &str) -> Option<&str> {
    let code = line.trim_start();
    if code.starts_with('/') || code.len() < line.len() && code.starts_with("type ") {
        return None;
    }
    let mut words = code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .skip_while(|word| ["", "pub", "crate", "super", "in"].contains(word));
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&words.next()?);
    let name = words.next()?;
    (is_type && name.starts_with(char::is_uppercase)).then_some(name)
}

#[test]
fn a_type_has_a_name_of_its_own_in_its_crate() {
    let mut repeated = Vec::new();
    let members = members().into_iter().chain([String::new()]);
    let mut sources: Vec<_> = members.map(|it| root().join(it).join("src")).collect();
    sources.retain(|source| source.is_dir());
    for source in sources {
        let mut types: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for file in rust_files(&source) {
            let path = file.strip_prefix(root()).unwrap().display();
            for (at, line) in read(&file).lines().enumerate() {
                if let Some(name) = declared(line) {
                    let places = types.entry(name.to_owned()).or_default();
                    places.push(format!("{path}:{}", at + 1));
                }
            }
        }
        let several = types.into_iter().filter(|(_, places)| places.len() > 1);
        repeated.extend(several.map(|(name, places)| format!("{name}: {}", places.join(", "))));
    }
    assert!(repeated.is_empty(), "{repeated:#?}");
}
