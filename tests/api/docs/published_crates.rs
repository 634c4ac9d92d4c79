//! Crates for crates.io: what their manifests must say, what must be in their packages, and the
//! oldest Rust that they can have.

use crate::support::prelude::*;

/// The others say `publish = false`.
const PUBLISHED: [&str; 4] = ["client", "conform", "idempotency", "webhooks"];

/// Those that the crates use, of crates.io's own list. It ignores others without an error.
const CATEGORIES: [&str; 7] = [
    "api-bindings",
    "command-line-utilities",
    "database",
    "development-tools::testing",
    "network-programming",
    "web-programming",
    "web-programming::http-client",
];

/// What Cargo prints about the workspace. It downloads packages that nothing else here has needed.
pub fn cargo(arguments: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(arguments).arg("--locked").current_dir(root());
    Run::of(cargo.output().unwrap()).succeeded()
}

fn metadata(more: &[&str]) -> Value {
    let arguments = [&["metadata", "--format-version", "1"], more].concat();
    serde_json::from_str(&cargo(&arguments)).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

#[test]
fn a_published_crate_says_what_a_registry_shows_and_needs_nothing_of_this_workspace() {
    let metadata = metadata(&["--no-deps"]);
    let packages = list(&metadata["packages"]).iter();
    let published: Vec<_> = packages
        .filter(|package| package["publish"].is_null())
        .collect();
    let name = |package: &&Value| package["name"].as_str().unwrap().to_owned();
    let names: BTreeSet<_> = published.iter().map(name).collect();
    let expected = PUBLISHED.map(|name| format!("charge-once-{name}"));
    assert_eq!(names, BTreeSet::from(expected), "without `publish = false`");
    for package in published {
        let name = &package["name"];
        let members = "description license readme repository rust_version";
        for member in members.split(' ') {
            assert!(package[member].is_string(), "{name} lacks {member}");
        }
        let keywords = list(&package["keywords"]);
        assert!((1..=5).contains(&keywords.len()), "{name}: {keywords:?}");
        for keyword in keywords {
            assert!(keyword.as_str().unwrap().len() <= 20, "{name}: {keyword}");
        }
        let categories = list(&package["categories"]);
        assert!(!categories.is_empty(), "{name}");
        for category in categories {
            let is_known = CATEGORIES.contains(&category.as_str().unwrap());
            assert!(is_known, "{name}: {category}");
        }
        let docs = &package["metadata"]["docs"]["rs"];
        assert_eq!(docs["all-features"], true, "{name}");
        for dependency in list(&package["dependencies"]) {
            // Cargo leaves a path of a test out of the package if it has no version.
            let is_left_out = dependency["kind"] == "dev" && dependency["req"] == "*";
            let has_version = dependency["req"] != "*";
            assert!(is_left_out || has_version, "{name}: {dependency}");
        }
    }
}

#[test]
fn the_package_of_a_published_crate_has_its_licenses_its_readme_and_what_it_is_compiled_from() {
    let licenses = ["LICENSE-MIT", "LICENSE-APACHE"];
    for name in PUBLISHED {
        let package = format!("charge-once-{name}");
        let packed = cargo(&["package", "--list", "--allow-dirty", "--package", &package]);
        let packed: BTreeSet<_> = packed.lines().collect();
        for file in [&licenses[..], &["README.md", "src/lib.rs"]].concat() {
            assert!(packed.contains(file), "{package} lacks {file}: {packed:?}");
        }
        // The queries are checked against these files, and the migrations are compiled in.
        if packed.contains("sqlx.toml") {
            for folder in [".sqlx/", "migrations/"] {
                let is_packed = packed.iter().any(|file| file.starts_with(folder));
                assert!(is_packed, "{package} lacks {folder}");
            }
        }
        for license in licenses {
            let copy = read(format!("crates/{name}/{license}"));
            assert_eq!(copy, read(license), "{package}: {license}");
        }
    }
}

/// What a manifest asks for itself is checked by clippy, which knows since when the standard
/// library has what. What it takes for the dependencies, their manifests say.
#[test]
fn no_published_crate_promises_an_older_rust_than_its_dependencies_need() {
    let version = Command::new("rustc").arg("-vV").output().unwrap();
    let version = text(&version.stdout);
    let host = version.between("\nhost: ", "\n");
    let metadata = metadata(&["--filter-platform", host]);
    let packages: BTreeMap<_, _> = list(&metadata["packages"])
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package))
        .collect();
    let nodes: BTreeMap<_, _> = list(&metadata["resolve"]["nodes"])
        .iter()
        .map(|node| (node["id"].as_str().unwrap(), list(&node["deps"])))
        .collect();
    let rust = |id: &str| -> Vec<u32> {
        let version = packages[id]["rust_version"].as_str().unwrap_or("1.0");
        let parts = version.split('.');
        parts.map(|part| part.parse().unwrap()).collect()
    };
    for name in PUBLISHED {
        let name = format!("charge-once-{name}");
        let (id, _) = packages
            .iter()
            .find(|(_, package)| package["name"] == *name)
            .unwrap();
        let mut needed = BTreeSet::from([*id]);
        let mut next = vec![*id];
        while let Some(id) = next.pop() {
            for dependency in nodes[id] {
                let kinds = list(&dependency["dep_kinds"]);
                let is_used = kinds.iter().any(|kind| kind["kind"] != "dev");
                let dependency = dependency["pkg"].as_str().unwrap();
                if is_used && needed.insert(dependency) {
                    next.push(dependency);
                }
            }
        }
        assert!(needed.len() > 20, "{name}: {needed:?}");
        for dependency in needed {
            // The last number says little: 1.89 and 1.89.0 are the same.
            let is_new_enough = rust(dependency)[..2] <= rust(id)[..2];
            assert!(is_new_enough, "{name}: {dependency} needs a newer Rust");
        }
    }
}
