//! The shape of the code, enforced: data flows one way.

use super::published_crates::cargo;
use crate::support::prelude::*;

pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.strip_prefix(root()).unwrap().to_str().unwrap();
    let mut files = files_below(folder);
    files.retain(|file| file.ends_with(".rs"));
    assert!(!files.is_empty(), "no files in {folder}");
    files.iter().map(|file| root().join(file)).collect()
}

/// The code of a file without comments and without its own tests, which come last and may use
/// anything.
fn code_of(file: &Path) -> String {
    let text = read(file);
    let lines = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let code = lines.map(|line| line.split("//").next().unwrap());
    code.collect::<Vec<_>>().join("\n")
}

/// Fails if a line of code in a folder of `src/` holds one of `forbidden`. Comments may.
fn assert_names_none_of(folder: &str, forbidden: &[&str]) {
    assert_files_name_none_of(&rust_files(&root().join("src").join(folder)), forbidden);
}

fn assert_files_name_none_of(files: &[PathBuf], forbidden: &[&str]) {
    let is_test = |file: &&PathBuf| file.iter().any(|folder| folder == "tests");
    for file in files.iter().filter(|file| !is_test(file)) {
        for (number, line) in code_of(file).lines().enumerate() {
            if let Some(name) = forbidden.iter().find(|name| line.contains(**name)) {
                panic!("{}:{} names {name}: {line}", file.display(), number + 1);
            }
        }
    }
}

const ABOVE_STORE_AND_WIRE: &[&str] = &[
    "crate::http",
    "crate::idempotency",
    "crate::commands",
    "crate::work",
    "actix",
];

/// How an entity is shown and sent is the business of other folders. Serde knows it as a row.
const VIEWS_AND_HTTP: &[&str] = &[
    "serde_json::to",
    "serde_json::from",
    "utoipa",
    "StatusCode",
    "-> u16",
    "\"/v1",
    "schema(",
];

const CLOCKS_AND_CHANCE: &[&str] = &["now_v7", "Utc::now", "SystemTime", "Instant", "rand::"];

const TRANSACTIONS: &[&str] = &[".begin(", ".commit(", ".rollback(", "\"BEGIN", "\"COMMIT"];

const PROCESSOR_SERVICE: &[&str] = &["processor::service", "processor.operations"];

const SQL: &[&str] = &["SELECT ", "UPDATE ", "INSERT ", "DELETE "];

#[test]
fn no_folder_names_what_is_not_for_it() {
    for (folders, forbidden) in [
        // Nothing in a lower layer names a higher one.
        ("work", &["crate::http", "actix"][..]),
        ("commands", &["crate::http", "crate::work", "actix"]),
        ("store wire domain", ABOVE_STORE_AND_WIRE),
        ("store", &["crate::wire", "wire::"]),
        ("wire", &["crate::store", "store::", "sqlx"]),
        ("domain", &["crate::store", "crate::wire", "crate::"]),
        ("domain", VIEWS_AND_HTTP),
        // The domain is pure.
        ("domain", CLOCKS_AND_CHANCE),
        // Handlers hold no SQL.
        ("http", &["sqlx::"]),
        ("http", SQL),
        // What has a transaction neither begins nor commits it.
        ("store commands work", TRANSACTIONS),
        // The console is made of what others offer, and can be left out.
        ("http work commands wire", &["crate::console", "console::"]),
        ("domain store workers", &["crate::console", "console::"]),
        // The processor's service is for the processor alone.
        ("http work commands store domain workers", PROCESSOR_SERVICE),
    ] {
        for folder in folders.split(' ') {
            assert_names_none_of(folder, forbidden);
        }
    }
}

/// Each room of `src/`, and the rooms that its code names. `idempotency`, `processor` and
/// `webhooks` are crates.
const ROOMS: &str = "\
cli: config database domain http idempotency processor server store telemetry webhooks work workers
commands: domain idempotency webhooks wire
config: database domain idempotency
console: database domain http idempotency store webhooks wire work
database: config idempotency webhooks
domain:
http: commands config database domain idempotency store telemetry webhooks wire work
server: commands config console database http idempotency processor store telemetry webhooks work workers
store: domain webhooks
telemetry: database domain idempotency
wire: domain webhooks
work: commands database domain idempotency processor store telemetry webhooks wire
workers: config database domain idempotency store telemetry webhooks wire work";

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.get(..end.unwrap_or(text.len())).unwrap()
}

/// What a path leads to, each without braces: `a::{b, c::d}` leads to `a::b` and `a::c::d`.
fn branches(path: &str) -> Vec<String> {
    let Some(list) = path.strip_prefix('{') else {
        let name = word(path);
        return match path.strip_prefix(name).unwrap().strip_prefix("::") {
            Some(rest) => {
                let rest = branches(rest).into_iter();
                rest.map(|rest| format!("{name}::{rest}")).collect()
            }
            None => vec![name.to_owned()],
        };
    };
    let (mut depth, mut start, mut found) = (1, 0, Vec::new());
    for (at, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if (character == ',' && depth == 1) || depth == 0 {
            let branch = list.get(start..at).unwrap().trim();
            if !branch.is_empty() {
                found.extend(branches(branch));
            }
            start = at + 1;
        }
        if depth == 0 {
            break;
        }
    }
    found
}

/// What code names behind `prefix`, alone or in braces: whole paths.
fn named_behind(prefix: &str, code: &str) -> Vec<String> {
    let found = code.match_indices(prefix);
    let found = found.map(|(at, _)| branches(code.get(at + prefix.len()..).unwrap()));
    found.flatten().collect()
}

#[test]
fn every_room_names_the_rooms_that_are_listed_for_it_and_no_other() {
    let root = root().join("src");
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in rust_files(&root) {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        let room = path.iter().next().unwrap().to_str().unwrap().to_owned();
        let named = named_behind("crate::", &code_of(&file)).into_iter();
        let named = named.map(|path| word(&path).to_owned());
        rooms.entry(room).or_default().extend(named);
    }
    rooms.retain(|room, _| !["lib", "main"].contains(&room.as_str()));
    for (room, named) in &mut rooms {
        // Constants of the whole program.
        named.retain(|name| name.starts_with(|c: char| c.is_lowercase()) && name != room);
    }
    let listed = ROOMS.lines().map(|line| {
        let (room, names) = line.split_once(':').unwrap();
        let names = names.split_whitespace().map(str::to_owned);
        (room.to_owned(), names.collect())
    });
    assert_eq!(rooms, listed.collect());
}

#[test]
fn the_console_has_no_sql() {
    let mut files = rust_files(&root().join("crates/console/src"));
    // Reads for it, through `src/store/`.
    files.push(root().join("src/console.rs"));
    files.extend(rust_files(&root().join("src/console")));
    assert_files_name_none_of(&files, SQL);
    assert_files_name_none_of(&files, &["sqlx::query"]);
}

/// Its idempotency is its own, and so are its tables.
#[test]
fn the_processor_s_service_shares_nothing_with_the_api_that_asks_it() {
    let files = rust_files(&root().join("crates/processor/src"));
    assert_files_name_none_of(&files, &["Idempotency", "idempotency_keys"]);
    let tables = ["FROM charges", "INTO charges", "UPDATE charges"];
    assert_files_name_none_of(&files, &tables);
}

/// A rollback doesn't undo an effect elsewhere, and locks are held while it is waited for.
#[test]
fn inside_a_transaction_nothing_is_awaited_but_sql() {
    let mut files = rust_files(&root().join("src/work"));
    // These two also ask the processor, and run the steps of a checkout, with no transaction open.
    files.retain(|file| !file.ends_with("processor_effect.rs") && !file.ends_with("checkouts.rs"));
    assert!(files.len() > 5, "{files:?}");
    let awaited = ["crate::processor", "reqwest", "sleep(", "tokio::time"];
    assert_files_name_none_of(&files, &awaited);
}

/// What goes beyond one transaction per key is an add-on, which the core never names.
#[test]
fn the_idempotency_core_names_no_add_on() {
    let modules = "acknowledged admit claim connection fingerprint in_flight key observer recall reply \
                   request seal transaction";
    let modules = modules.split(' ');
    let core = root().join("crates/idempotency/src");
    let files: Vec<_> = modules
        .map(|module| core.join(module).with_extension("rs"))
        .collect();
    let add_ons = "Admission InProgress Memory Tombstone phases Phases batch:: Batches orkflow nspect leases Lease \
                   feature RanAlone CallAnswer ReplayCache serde http::";
    assert_files_name_none_of(&files, &add_ons.split(' ').collect::<Vec<_>>());
}

/// A COMMIT whose wait for a standby was broken off is answered "ok", with a warning.
#[test]
fn the_idempotency_crate_hears_what_a_commit_is_answered_with() {
    let mut files = rust_files(&root().join("crates/idempotency/src"));
    files.retain(|file| !file.ends_with("acknowledged.rs"));
    assert_files_name_none_of(&files, &[".commit()"]);
}

/// Lines that the crate compiles without a feature, with their documentation. Comments inside
/// functions don't count: they make the crate easier to read. When a change makes the lines fewer,
/// lower it.
const CORE_LINES_MAX: usize = 2_222;

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
    let core = root().join("crates/idempotency/src");
    let lib = read(core.join("lib.rs"));
    let mut lines = lines_without_features(&lib);
    let mut before = "";
    for line in lib.lines() {
        let module = line.strip_prefix("mod ");
        if let Some(module) = module.and_then(|rest| rest.strip_suffix(';'))
            && !before.starts_with("#[cfg(")
        {
            let file = core.join(module).with_extension("rs");
            lines += lines_without_features(&read(file));
        }
        before = line;
    }
    println!("crates/idempotency has {lines} lines of code and documentation without features");
    assert!(lines <= CORE_LINES_MAX, "{lines}");
}

/// It tells an `Observer`, so that what is copied counts by whatever means its application has.
#[test]
fn the_idempotency_crate_depends_on_no_crate_for_metrics() {
    let manifest = read("crates/idempotency/Cargo.toml");
    manifest.must_lack(&["metrics", "prometheus", "opentelemetry"]);
}

/// What the rules name of crates that know SQL or wait: values. A test of the rules needs neither.
const VALUES: &[(&str, &str)] = &[
    ("idempotency", "Failure Rejection Reply Verdict"),
    ("webhooks", "NewEvent previous_attributes self"),
    ("charge_once_processor", "Answer test_cards"),
    (
        "charge_once_postgres::api_keys",
        "Account KeyShape holds_secret",
    ),
];

fn tree_of(package: &str, more: &[&str]) -> String {
    let tree = [
        "tree",
        "--package",
        package,
        "--edges",
        "normal",
        "--prefix",
        "none",
    ];
    cargo(&[&tree[..], &["--offline"], more].concat())
}

/// Rules are functions: they have no SQL, wait for nothing, and use no crate that does. What a verb
/// does can be tested without a database.
#[test]
fn verbs_and_rules_know_no_sql_and_wait_for_nothing() {
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
        assert_names_none_of(folder, &["async ", ".await", "sqlx", "tokio"]);
        assert_names_none_of(folder, &["crate::store", "crate::database"]);
        for file in rust_files(&root().join("src").join(folder)) {
            let code = code_of(&file);
            for (room, values) in VALUES {
                for name in named_behind(&format!("{room}::"), &code) {
                    let is_value = values.split(' ').any(|value| value == name);
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
    for known in ["uuid", "charge-once-strict-params"] {
        let is_used = used.iter().any(|(name, _)| *name == known);
        assert!(is_used, "{known}: {used:?}");
    }
    for (name, version) in &used {
        let tree = tree_of(&format!("{name}@{version}"), &[]);
        assert!(tree.starts_with(name), "{name}: {tree}");
        for line in tree.lines() {
            let mut waiting = ["sqlx", "tokio ", "actix"].iter();
            let waits = waiting.any(|waits| line.starts_with(waits));
            assert!(!waits, "the rules name {name}, which needs {line}");
        }
    }
}

/// The modules of this crate that a file names with `super::` or `crate::`, as paths of files
/// without `.rs` and `/mod`.
fn named_by(root: &Path, file: &Path) -> Vec<PathBuf> {
    let is_mod = file.ends_with("mod.rs");
    let folder = file.parent().unwrap();
    let above = match is_mod {
        true => folder.parent().unwrap(),
        false => folder,
    };
    let code = code_of(file);
    let mut named = Vec::new();
    for (prefix, base) in [("super::", above), ("crate::", root)] {
        for (at, _) in code.match_indices(prefix) {
            let before = code.get(..at).unwrap();
            if before.ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let paths = branches(code.get(at + prefix.len()..).unwrap());
            named.extend(paths.iter().filter_map(|path| module_of(base, path)));
        }
    }
    named
}

/// Follows a path as far as there are files.
fn module_of(base: &Path, path: &str) -> Option<PathBuf> {
    let (name, rest) = path.split_once("::").unwrap_or((path, ""));
    let module = base.join(name);
    if !rest.is_empty() && module.is_dir() {
        return module_of(&module, rest);
    }
    let is_module = module.with_extension("rs").is_file() || module.join("mod.rs").is_file();
    // Else it is an item of the folder's own `mod.rs`.
    let is_item = base.join("mod.rs").is_file();
    is_module
        .then_some(module)
        .or_else(|| is_item.then(|| base.to_owned()))
}

/// The views of payments show each other whole, so their files are one module.
fn one_module(module: PathBuf) -> PathBuf {
    let views = root().join("src/wire/views");
    match module.starts_with(&views) {
        true => views,
        false => module,
    }
}

#[test]
fn no_files_of_a_folder_name_each_other_in_a_circle() {
    let root = root().join("src");
    for folder in ["http", "wire", "domain", "store"] {
        let folder = root.join(folder);
        let mut graph: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for file in rust_files(&folder) {
            let module = match file.ends_with("mod.rs") {
                true => file.parent().unwrap().to_owned(),
                false => file.with_extension(""),
            };
            let named = named_by(&root, &file).into_iter();
            let others = named.filter(|other| other.starts_with(&folder));
            let known = graph.entry(one_module(module)).or_default();
            known.extend(others.map(one_module));
        }
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

/// The packages of the workspace, as paths.
pub fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let list = manifest.between("members = [", "]");
    let names = list.split('"').skip(1).step_by(2);
    names.map(str::to_owned).collect()
}

/// Checks and image are built by one compiler, which `rust-toolchain.toml` names. CI at GitHub and
/// the container of an editor begin where the image does.
#[test]
fn the_image_is_built_with_the_compiler_of_the_checks() {
    let toolchain = read("rust-toolchain.toml");
    let channel = toolchain.between("\nchannel = \"", "\"");
    let dockerfile = read("Dockerfile");
    dockerfile.must_have(&[&format!("\nFROM rust:{channel}-bookworm AS build\n")]);
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
    let built = dockerfile.lines();
    let built = built.filter_map(|line| line.strip_prefix("FROM "));
    let run = compose.lines();
    let run = run.filter_map(|line| line.trim().strip_prefix("image: "));
    let mut images: Vec<_> = built.chain(run).collect();
    // The empty image.
    images.retain(|image| *image != "scratch");
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
    let folder = TempDir::new().unwrap();
    for file in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root().join(file), folder.path().join(file)).unwrap();
    }
    for member in members {
        dockerfile.must_have(&[&format!("COPY {member}/Cargo.toml {member}/\n")]);
        let (from, to) = (root().join(&member), folder.path().join(&member));
        fs::create_dir_all(&to).unwrap();
        fs::copy(from.join("Cargo.toml"), to.join("Cargo.toml")).unwrap();
    }
    // Cargo looks for a target without a path in the files, of which the layer has none.
    let script = dockerfile.between("sharing=locked \\\n", " \\\n    && find . -name src");
    let build = "cargo build --profile dist --locked --package charge-once";
    script.must_have(&[build]);
    // It reads all manifests, as a build does, which `cargo metadata` doesn't.
    let read_manifests = "cargo fetch --locked";
    let mut shell = Command::new("sh");
    shell.args(["-c", &script.replace(build, read_manifests)]);
    Run::of(shell.current_dir(folder.path()).output().unwrap()).succeeded();
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
    image.must_have(&[healthcheck]);
    let (arguments, labels) = image.split_once("\nLABEL ").unwrap();
    // The stage before has arguments of its own.
    arguments.must_have(&["\nARG COMMIT\n"]);
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
        labels.must_have(&[&format!("org.opencontainers.image.{label}")]);
    }
}

#[test]
fn the_version_is_the_same_everywhere() {
    let version = env!("CARGO_PKG_VERSION");
    for (file, lines) in [
        ("Dockerfile", &["\nARG VERSION=@\n"][..]),
        ("CITATION.cff", &["\nversion: @\n"]),
        (
            "deploy/kubernetes/image/kustomization.yaml",
            &["newTag: \"@\"\n"],
        ),
        ("CHANGELOG.md", &["\n## [@] - "]),
        (
            "docs/deployment.md",
            &["registry.example.com/charge-once:@\n"],
        ),
        (
            "docs/releasing.md",
            &[" v@\n", " charge-once:@ .\n", " charge-once-@.cdx.json\n"],
        ),
    ] {
        let text = read(file);
        for line in lines {
            text.must_have(&[&line.replace('@', version)]);
        }
    }
}

#[test]
fn the_client_knows_the_service_by_its_replies_only() {
    let tree = tree_of("charge-once-client", &[]);
    assert!(tree.starts_with("charge-once-client "), "{tree}");
    for line in tree.lines().skip(1) {
        let mut strangers = ["actix", "sqlx", "charge-once "].iter();
        let is_strange = strangers.any(|stranger| line.starts_with(stranger));
        assert!(!is_strange, "a caller compiles {line}");
    }
}
