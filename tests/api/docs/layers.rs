//! The shape of the code, enforced: data flows one way.

use std::fs;

use crate::support::prelude::*;

pub(super) fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Fails if a line of code in `folder` holds one of `forbidden`. Comments may.
fn assert_names_none_of(folder: &str, forbidden: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(folder);
    let files = rust_files(&root);
    assert!(!files.is_empty(), "no files in {}", root.display());
    assert_files_name_none_of(&files, forbidden);
}

fn assert_files_name_none_of(files: &[PathBuf], forbidden: &[&str]) {
    let is_test = |file: &&PathBuf| file.iter().any(|folder| folder == "tests");
    for file in files.iter().filter(|file| !is_test(file)) {
        let text = fs::read_to_string(file).unwrap();
        // A file's own tests come last and may use anything.
        let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
        for (number, line) in lines.enumerate() {
            let code = line.split("//").next().unwrap();
            for name in forbidden {
                assert!(
                    !code.contains(name),
                    "{}:{} names {name}: {line}",
                    file.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn nothing_in_a_lower_layer_names_a_higher_one() {
    assert_names_none_of("work", &["crate::http", "actix"]);
    assert_names_none_of("commands", &["crate::http", "crate::work", "actix"]);
    let above_store_and_api = [
        "crate::http",
        "crate::idempotency",
        "crate::commands",
        "crate::work",
        "actix",
    ];
    assert_names_none_of("store", &above_store_and_api);
    assert_names_none_of("store", &["crate::wire", "wire::"]);
    assert_names_none_of("wire", &above_store_and_api);
    assert_names_none_of("wire", &["crate::store", "store::", "sqlx"]);
    assert_names_none_of("domain", &above_store_and_api);
    assert_names_none_of("domain", &["crate::store", "crate::wire", "crate::"]);
}

/// Each room of `src/`, and the rooms that its code names. `idempotency`, `processor` and
/// `webhooks` are crates.
const ROOMS: &[(&str, &str)] = &[
    ("wire", "domain webhooks"),
    (
        "cli",
        "config database domain http idempotency processor server store telemetry webhooks work workers",
    ),
    ("commands", "domain idempotency webhooks wire"),
    ("config", "database domain idempotency webhooks"),
    (
        "console",
        "database domain http idempotency store webhooks wire",
    ),
    ("database", "config idempotency webhooks"),
    ("domain", ""),
    (
        "http",
        "commands config database domain idempotency store telemetry webhooks wire work",
    ),
    (
        "server",
        "commands config console database http idempotency processor store telemetry webhooks work workers",
    ),
    ("store", "domain webhooks"),
    ("telemetry", "database domain idempotency"),
    (
        "work",
        "commands database domain idempotency processor store telemetry webhooks wire",
    ),
    (
        "workers",
        "config database domain idempotency store telemetry webhooks wire work",
    ),
];

/// The rooms that code names: what follows `crate::`, alone or in braces.
fn rooms_named(code: &str, found: &mut BTreeSet<String>) {
    for (at, path) in code.match_indices("crate::") {
        let rest = code.get(at + path.len()..).unwrap();
        let mut depth = 0;
        let mut names = vec![String::new()];
        for character in rest.chars() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => names.push(String::new()),
                ' ' | '\n' => continue,
                _ => names.last_mut().unwrap().push(character),
            }
            if depth == 0 && !character.is_alphanumeric() && character != '_' {
                break;
            }
        }
        found.extend(names.iter().map(|name| {
            let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
            name.get(..end.unwrap_or(name.len())).unwrap().to_owned()
        }));
    }
}

#[test]
fn every_room_names_the_rooms_that_are_listed_for_it_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(&root) {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        let room = path.iter().next().unwrap().to_str().unwrap().to_owned();
        let text = fs::read_to_string(&file).unwrap();
        let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
        let code: Vec<_> = code.map(|line| line.split("//").next().unwrap()).collect();
        let named = rooms.entry(room).or_default();
        rooms_named(&code.join("\n"), named);
    }
    rooms.retain(|room, _| !["lib", "main"].contains(&room.as_str()));
    for (room, named) in &mut rooms {
        // Constants of the whole program, and an empty name behind the last comma.
        named.retain(|name| name.starts_with(|c: char| c.is_lowercase()) && name != room);
    }
    let listed = ROOMS.iter().map(|(room, names)| {
        let names = names.split_whitespace().map(str::to_owned);
        ((*room).to_owned(), names.collect())
    });
    assert_eq!(rooms, listed.collect());
}

/// It is made of what others offer, and can be left out.
#[test]
fn only_the_server_knows_the_console_and_the_console_has_no_sql() {
    for folder in [
        "http", "work", "commands", "wire", "domain", "store", "workers",
    ] {
        assert_names_none_of(folder, &["crate::console", "console::"]);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = rust_files(&root.join("crates/console/src"));
    // Reads for it, through `src/store/`.
    files.push(root.join("src/console.rs"));
    let sql = ["sqlx::query", "SELECT ", "UPDATE ", "INSERT ", "DELETE "];
    assert_files_name_none_of(&files, &sql);
}

#[test]
fn the_processor_s_service_shares_nothing_with_the_api_that_asks_it() {
    // Its idempotency is its own, and so are its tables.
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/processor/src");
    assert_files_name_none_of(
        &rust_files(&crate_root),
        &[
            "Idempotency",
            "idempotency_keys",
            "FROM charges",
            "INTO charges",
            "UPDATE charges",
        ],
    );
    for folder in ["http", "work", "commands", "store", "domain", "workers"] {
        assert_names_none_of(folder, &["processor::service", "processor.operations"]);
    }
}

/// How an entity is shown and sent is the business of other folders. Serde knows it as a row.
#[test]
fn the_domain_knows_neither_views_nor_http() {
    let shown = [
        "serde_json::to",
        "serde_json::from",
        "utoipa",
        "StatusCode",
        "-> u16",
        "\"/v1",
        "schema(",
    ];
    assert_names_none_of("domain", &shown);
}

/// A rollback doesn't undo an effect elsewhere, and locks are held while it is waited for.
#[test]
fn inside_a_transaction_nothing_is_awaited_but_sql() {
    let mut files = rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/work"));
    // These two also ask the processor, and run the steps of a checkout, with no transaction open.
    files.retain(|file| !file.ends_with("processor_effect.rs") && !file.ends_with("checkouts.rs"));
    assert!(files.len() > 5, "{files:?}");
    let awaited = ["crate::processor", "reqwest", "sleep(", "tokio::time"];
    assert_files_name_none_of(&files, &awaited);
}

/// What goes beyond one transaction per key is an add-on, which the core never names.
#[test]
fn the_idempotency_core_names_no_add_on() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/idempotency/src");
    let files: Vec<_> = [
        "acknowledged.rs",
        "admit.rs",
        "claim.rs",
        "connection.rs",
        "fingerprint.rs",
        "in_flight.rs",
        "key.rs",
        "observer.rs",
        "reply.rs",
        "request.rs",
        "transaction.rs",
    ]
    .map(|file| core.join(file))
    .into();
    assert_files_name_none_of(
        &files,
        &[
            "Admission",
            "InProgress",
            "phases",
            "Phases",
            "batch::",
            "Batches",
            "orkflow",
            "nspect",
            "leases",
            "Lease",
            "feature",
            "RanAlone",
            "CallAnswer",
            "ReplayCache",
            "serde",
            "http::",
        ],
    );
}

/// A COMMIT whose wait for a standby was broken off is answered "ok", with a warning.
#[test]
fn the_idempotency_crate_hears_what_a_commit_is_answered_with() {
    let mut files =
        rust_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/idempotency/src"));
    files.retain(|file| !file.ends_with("acknowledged.rs"));
    assert_files_name_none_of(&files, &[".commit()"]);
}

/// Lines that the crate compiles without a feature, with their documentation. Comments inside
/// functions don't count: they make the crate easier to read. When a change makes the lines fewer,
/// lower it.
const CORE_LINES_MAX: usize = 1_954;

/// The lines of a file that hold code or a comment, without its own tests and without what a cargo
/// feature compiles.
fn lines_without_features(text: &str) -> usize {
    let mut count = 0;
    // How far the item is indented that is passed over.
    let mut passed_over = None;
    for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
        let code = line.trim_start();
        let indentation = line.len() - code.len();
        if code.is_empty() || code.starts_with("// ") {
            continue;
        }
        if code.starts_with("#[cfg(") {
            passed_over = Some(indentation);
        } else if passed_over.is_none() {
            count += 1;
        } else if passed_over == Some(indentation) && code.ends_with([';', ',', '}']) {
            passed_over = None;
        }
    }
    count
}

/// The more it has, the less it is read by those who copy it.
#[test]
fn the_idempotency_core_does_not_grow() {
    let core = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/idempotency/src");
    let lib = fs::read_to_string(core.join("lib.rs")).unwrap();
    let mut lines = lines_without_features(&lib);
    let mut before = "";
    for line in lib.lines() {
        if let Some(module) = line
            .strip_prefix("mod ")
            .and_then(|rest| rest.strip_suffix(';'))
            && !before.starts_with("#[cfg(")
        {
            let file = core.join(module).with_extension("rs");
            lines += lines_without_features(&fs::read_to_string(file).unwrap());
        }
        before = line;
    }
    println!("crates/idempotency has {lines} lines of code and documentation without features");
    assert!(lines <= CORE_LINES_MAX, "{lines}");
}

/// It tells an `Observer`, so that what is copied counts by whatever means its application has.
#[test]
fn the_idempotency_crate_depends_on_no_crate_for_metrics() {
    let manifest = include_str!("../../../crates/idempotency/Cargo.toml");
    for word in ["metrics", "prometheus", "opentelemetry"] {
        assert!(!manifest.contains(word), "{word}");
    }
}

/// What the rules name of crates that know SQL or wait: values. A test of the rules needs neither.
const VALUES: &[(&str, &str)] = &[
    ("idempotency", "Failure Rejection Reply"),
    ("webhooks", "NewEvent previous_attributes self"),
    ("charge_once_processor", "Answer test_cards"),
    (
        "charge_once_postgres::api_keys",
        "Account KeyShape holds_secret",
    ),
];

/// What code names of `room`: what follows its name, alone or in braces.
fn named_of(room: &str, code: &str) -> Vec<String> {
    let mut named = Vec::new();
    for (at, found) in code.match_indices(&format!("{room}::")) {
        let rest = code.get(at + found.len()..).unwrap();
        let list = match rest.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap(),
            None => rest
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next()
                .unwrap(),
        };
        let names = list
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        named.extend(names.map(str::to_owned));
    }
    named
}

/// The names of the crates that `package` is compiled with.
fn tree_of(package: &str, more: &[&str]) -> String {
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--package", package, "--edges", "normal"])
        .args(["--prefix", "none", "--locked", "--offline"])
        .args(more)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    String::from_utf8(tree.stdout).unwrap()
}

/// Rules are functions: they have no SQL, wait for nothing, and use no crate that does. What a verb
/// does can be tested without a database.
#[test]
fn verbs_and_rules_know_no_sql_and_wait_for_nothing() {
    let waiting = [
        "async ",
        ".await",
        "sqlx",
        "tokio",
        "crate::store",
        "crate::database",
    ];
    let tree = tree_of("charge-once", &["--depth", "1"]);
    // "name v1.2.3"
    let dependencies: Vec<(&str, &str)> = tree
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(" v"))
        .map(|(name, rest)| (name, rest.split(' ').next().unwrap()))
        .collect();
    assert!(dependencies.len() > 20, "{tree}");
    let mut used = BTreeSet::new();
    for folder in ["commands", "domain"] {
        assert_names_none_of(folder, &waiting);
        for file in rust_files(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("src")
                .join(folder),
        ) {
            let text = fs::read_to_string(&file).unwrap();
            let code: String = text
                .lines()
                .take_while(|line| *line != "#[cfg(test)]")
                .map(|line| format!("{}\n", line.split("//").next().unwrap()))
                .collect();
            for (room, values) in VALUES {
                for name in named_of(room, &code) {
                    let is_value = values.split(' ').any(|value| *value == *name);
                    assert!(is_value, "{} names {room}::{name}", file.display());
                }
            }
            for (name, version) in &dependencies {
                if code.contains(&format!("{}::", name.replace('-', "_"))) {
                    used.insert((*name, *version));
                }
            }
        }
    }
    let room = |name: &str| name.replace('-', "_");
    used.retain(|(name, _)| {
        let crate_of = |values: &str| values.split("::").next() == Some(&room(name));
        !VALUES.iter().any(|(values, _)| crate_of(values))
    });
    let is_used = |of: &str| used.iter().any(|(name, _)| *name == of);
    assert!(
        is_used("uuid") && is_used("charge-once-strict-params"),
        "{used:?}"
    );
    for (name, version) in &used {
        let tree = tree_of(&format!("{name}@{version}"), &[]);
        assert!(tree.starts_with(name), "{name}: {tree}");
        for line in tree.lines() {
            let mut waiting = ["sqlx", "tokio ", "actix"].iter();
            assert!(
                !waiting.any(|waits| line.starts_with(waits)),
                "the rules name {name}, which needs {line}"
            );
        }
    }
}

#[test]
fn the_domain_is_pure() {
    assert_names_none_of(
        "domain",
        &["now_v7", "Utc::now", "SystemTime", "Instant", "rand::"],
    );
}

/// The modules of this crate that a file names with `super::` or `crate::`, as paths of files
/// without `.rs` and `/mod`.
fn named_by(root: &Path, file: &Path) -> Vec<PathBuf> {
    let is_mod = file.ends_with("mod.rs");
    let folder = file.parent().unwrap();
    let above = if is_mod {
        folder.parent().unwrap()
    } else {
        folder
    };
    let text = fs::read_to_string(file).unwrap();
    let code: String = text
        .lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .map(|line| line.split("//").next().unwrap())
        .collect::<Vec<_>>()
        .join(" ");
    let mut named = Vec::new();
    for (prefix, base) in [("super::", above), ("crate::", root)] {
        for (at, _) in code.match_indices(prefix) {
            let before = code.get(..at).unwrap();
            if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            expand(base, code.get(at + prefix.len()..).unwrap(), &mut named);
        }
    }
    named
}

/// Follows `a::{b, c::d}` as far as there are files.
fn expand(base: &Path, path: &str, named: &mut Vec<PathBuf>) {
    if let Some(list) = path.strip_prefix('{') {
        let mut depth = 1;
        let mut start = 0;
        for (at, character) in list.char_indices() {
            match character {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            if (character == ',' && depth == 1) || depth == 0 {
                expand(base, list.get(start..at).unwrap().trim(), named);
                start = at + 1;
            }
            if depth == 0 {
                return;
            }
        }
        return;
    }
    let name: String = path
        .chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect();
    let module = base.join(&name);
    let is_file = module.with_extension("rs").is_file();
    match path
        .get(name.len()..)
        .and_then(|rest| rest.strip_prefix("::"))
    {
        Some(rest) if module.is_dir() => expand(&module, rest, named),
        Some(_) | None if is_file || module.join("mod.rs").is_file() => named.push(module),
        Some(_) | None => {
            // An item of the folder's own `mod.rs`.
            if base.join("mod.rs").is_file() {
                named.push(base.to_owned());
            }
        }
    }
}

/// The views of payments show each other whole, so their files are one module.
fn one_module(module: PathBuf) -> PathBuf {
    let views = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/views");
    if module.starts_with(&views) {
        views
    } else {
        module
    }
}

#[test]
fn no_files_of_a_folder_name_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for folder in ["http", "wire", "domain", "store"] {
        let folder = root.join(folder);
        let graph: BTreeMap<PathBuf, Vec<PathBuf>> = rust_files(&folder)
            .into_iter()
            .map(|file| {
                let named = named_by(&root, &file);
                let module = match file.ends_with("mod.rs") {
                    true => file.parent().unwrap().to_owned(),
                    false => file.with_extension(""),
                };
                let others = named.into_iter().filter(|other| other.starts_with(&folder));
                (
                    one_module(module),
                    others.map(one_module).collect::<Vec<_>>(),
                )
            })
            .fold(
                BTreeMap::new(),
                |mut graph: BTreeMap<_, Vec<_>>, (module, others)| {
                    graph.entry(module).or_default().extend(others);
                    graph
                },
            );
        let edges: usize = graph.values().map(Vec::len).sum();
        assert!(edges > 5, "{}: {edges}", folder.display());
        // What names nothing that is left can't be part of a circle.
        let mut left: BTreeSet<&PathBuf> = graph.keys().collect();
        loop {
            let open = |module: &&PathBuf| {
                let mut named = graph.get(*module).unwrap().iter();
                named.any(|other| other != *module && left.contains(other))
            };
            let next: BTreeSet<&PathBuf> = left.iter().copied().filter(open).collect();
            if next.len() == left.len() {
                break;
            }
            left = next;
        }
        assert!(left.is_empty(), "in or behind a circle: {left:?}");
    }
}

#[test]
fn store_functions_and_commands_neither_begin_nor_commit() {
    for folder in ["store", "commands", "work"] {
        assert_names_none_of(
            folder,
            &[".begin(", ".commit(", ".rollback(", "\"BEGIN", "\"COMMIT"],
        );
    }
}

#[test]
fn handlers_hold_no_sql() {
    assert_names_none_of(
        "http",
        &["sqlx::", "SELECT ", "INSERT ", "UPDATE ", "DELETE "],
    );
}

/// The packages of the workspace, as paths.
pub(super) fn members() -> Vec<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let text = fs::read_to_string(manifest).unwrap();
    let (_, list) = text.split_once("members = [").unwrap();
    let (list, _) = list.split_once(']').unwrap();
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// A file of the project's folder.
fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// Checks and image are built by one compiler, which `rust-toolchain.toml` names. CI at GitHub and
/// the container of an editor begin where the image does.
#[test]
fn the_image_is_built_with_the_compiler_of_the_checks() {
    let toolchain = read("rust-toolchain.toml");
    let (_, channel) = toolchain.split_once("\nchannel = \"").unwrap();
    let (channel, _) = channel.split_once('"').unwrap();
    let dockerfile = read("Dockerfile");
    let from = format!("\nFROM rust:{channel}-bookworm AS build\n");
    assert!(dockerfile.contains(&from), "{dockerfile}");
    let copied = dockerfile.find("COPY rust-toolchain.toml ./\n");
    let built = dockerfile.find("cargo build");
    assert!(copied.is_some() && copied < built, "{dockerfile}");
    for (file, name) in [
        (".github/workflows/ci.yml", "image: "),
        (".devcontainer/devcontainer.json", "\"image\": \""),
    ] {
        let image = format!("{name}rust:{channel}-bookworm");
        assert!(read(file).contains(&image), "{file} lacks {image}");
    }
}

/// A base image without a release changes its major version under the same name.
#[test]
fn base_images_name_their_release() {
    let (dockerfile, compose) = (read("Dockerfile"), read("docker-compose.yml"));
    let built = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "))
        // The empty image.
        .filter(|image| *image != "scratch");
    let run = compose
        .lines()
        .filter_map(|line| line.trim().strip_prefix("image: "));
    let images: Vec<_> = built.chain(run).collect();
    assert!(images.len() >= 3, "{images:?}");
    for image in images {
        let (_, tag) = image.split_once(':').unwrap_or_default();
        assert!(!tag.is_empty() && !tag.starts_with("latest"), "{image}");
        // PostgreSQL's images change the release of Debian under the same version, and with it the
        // C library, which sorts text.
        let names_debian = !image.starts_with("postgres:") || tag.ends_with("-trixie");
        assert!(names_debian, "{image}");
    }
}

#[test]
fn the_image_s_first_layer_has_every_manifest() {
    let dockerfile = read("Dockerfile");
    let members = members();
    assert!(!members.is_empty());
    for member in members {
        let copied = format!("COPY {member}/Cargo.toml {member}/\n");
        assert!(
            dockerfile.contains(&copied),
            "the Dockerfile lacks: {copied}"
        );
    }
}

/// No test of CI builds the image. These lines are easy to lose, and nothing else would miss them.
#[test]
fn the_image_is_built_with_a_cache_tells_its_health_and_says_what_it_is() {
    let dockerfile = read("Dockerfile");
    let (build, image) = dockerfile.split_once("\nFROM scratch\n").unwrap();
    // Each layer that compiles may download crates.
    let cache = "RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \\\n";
    let compiled = build.matches("&& cargo build ").count();
    assert_eq!(compiled, 2, "{dockerfile}");
    assert_eq!(build.matches(cache).count(), compiled, "{dockerfile}");
    // A form without a shell, which the image does not have.
    let healthcheck = "\nHEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \\
    CMD [\"charge-once\", \"healthcheck\"]\n";
    assert!(image.contains(healthcheck), "{dockerfile}");
    let (arguments, labels) = image.split_once("\nLABEL ").unwrap();
    // The stage before has arguments of its own.
    assert!(arguments.contains("\nARG COMMIT\n"), "{dockerfile}");
    let (labels, _) = labels.split_once("\n\n").unwrap();
    let source = format!("source=\"{}\"", env!("CARGO_PKG_REPOSITORY"));
    let licenses = format!("licenses=\"{}\"", env!("CARGO_PKG_LICENSE"));
    for label in [
        "title=\"charge-once\"",
        "description=\"",
        &source,
        &licenses,
        "version=\"$VERSION\"",
        "revision=\"$COMMIT\"",
    ] {
        let label = format!("org.opencontainers.image.{label}");
        assert!(labels.contains(&label), "the image lacks: {label}");
    }
}

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, line) in [
        ("Dockerfile", format!("\nARG VERSION={version}\n")),
        (
            "deploy/kubernetes/image/kustomization.yaml",
            format!("newTag: \"{version}\"\n"),
        ),
        ("CHANGELOG.md", format!("\n## [{version}] - ")),
        (
            "docs/deployment.md",
            format!("registry.example.com/charge-once:{version}\n"),
        ),
        ("docs/releasing.md", format!(" v{version}\n")),
        ("docs/releasing.md", format!(" charge-once:{version} .\n")),
        (
            "docs/releasing.md",
            format!(" charge-once-{version}.cdx.json\n"),
        ),
    ] {
        assert!(read(file).contains(&line), "{file} lacks {line:?}");
    }
}

#[test]
fn the_client_knows_the_service_by_its_replies_only() {
    let tree = tree_of("charge-once-client", &[]);
    assert!(tree.starts_with("charge-once-client "), "{tree}");
    for line in tree.lines().skip(1) {
        for stranger in ["actix", "sqlx", "charge-once "] {
            assert!(!line.starts_with(stranger), "a caller compiles {line}");
        }
    }
}
