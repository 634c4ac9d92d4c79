//! What a person meets who uses the program for the first time, or in the wrong place.

use std::{net::TcpListener, process::ChildStdout};

use charge_once::config::DEFAULT_DEV_API_KEY;

use crate::support::prelude::*;

#[test]
fn all_of_a_bad_configuration_is_told_at_once_and_a_misspelled_variable_is_named() {
    let variables = [
        ("BIND_ADDRESS", "nowhere"),
        ("RATE_LIMITT", "0"),
        ("LOG_FORMAT", "xml"),
        // No variable of ours, and none that is nearly one.
        ("SOME_OTHER_PROGRAM", "1"),
    ];
    for command in ["serve", "processor", "migrate", "healthcheck"] {
        let complaint = complaint_of(&[command], &variables, 1);
        let lines: Vec<_> = complaint.lines().collect();
        assert_eq!(lines.len(), 4, "{complaint}");
        assert_eq!(lines[0], "charge-once: 3 settings can't be used:");
        let unknown = "  unknown variable RATE_LIMITT; did you mean RATE_LIMIT?";
        assert_eq!(lines[1], unknown);
        assert!(lines[2].starts_with("  BIND_ADDRESS must be an IP address"));
        assert_eq!(lines[3], "  LOG_FORMAT must be pretty or json");
    }
}

#[test]
fn help_shows_each_command_s_variables() {
    let help = printed_by(&["--help"], &[]);
    for variable in VARIABLES {
        assert!(help.contains(variable.name), "{}", variable.name);
    }
    for (command, shown, hidden) in [
        ("serve", "RATE_LIMIT", "PROCESSOR_DATA_DIR"),
        ("processor", "PROCESSOR_DATA_DIR", "RATE_LIMIT"),
        ("migrate", "DATABASE_URL", "RATE_LIMIT"),
        ("sweep", "EVENT_RETENTION", "RATE_LIMIT"),
        ("check", "EVENT_RETENTION", "MIGRATE_ON_START"),
        ("keys list", "DATABASE_URL", "MIGRATE_ON_START"),
        ("api-key", "DATABASE_URL", "RATE_LIMIT"),
        ("api-key create", "DATA_DIR", "RATE_LIMIT"),
        ("operations list", "DATABASE_URL", "RATE_LIMIT"),
        ("operations resolve", "PROCESSOR_URL", "RATE_LIMIT"),
        ("healthcheck", "BIND_ADDRESS", "DATABASE_URL"),
        ("pay", "CHARGE_ONCE_URL", "DATABASE_URL"),
    ] {
        let arguments: Vec<_> = command.split(' ').chain(["--help"]).collect();
        let help = printed_by(&arguments, &[]);
        let (_, variables) = help.split_once("Environment variables:").unwrap();
        assert!(variables.contains(&format!("  {shown}")), "{command:?}");
        assert!(!variables.contains(&format!("  {hidden}")), "{command:?}");
    }
}

#[test]
fn help_has_the_topics_of_the_documentation_each_once_and_in_its_order() {
    let document = read("docs/configuration.md");
    let tables = document.between("<!-- config:begin -->", "<!-- config:end -->");
    let topics = tables.lines().filter_map(|line| line.strip_prefix("## "));
    let topics: Vec<_> = topics.collect();
    let help = printed_by(&["--help"], &[]);
    let (_, variables) = help.split_once("Environment variables:").unwrap();
    let titles = variables.lines().filter(|line| !line.starts_with(' '));
    let shown: Vec<_> = titles.filter_map(|line| line.strip_suffix(':')).collect();
    assert_eq!(shown, topics);
    assert_eq!(shown.iter().collect::<BTreeSet<_>>().len(), topics.len());
    // A command shows the topics of the variables that it reads.
    let help = printed_by(&["healthcheck", "--help"], &[]);
    assert!(help.contains("\nWhere it listens:\n") && !help.contains("\nWebhooks:\n"));
}

/// A server for people, the lines that it prints until it has shown `commands`, and the rest.
fn started_for_people(
    database: &TestDatabase,
    variables: &[(&str, &str)],
    commands: usize,
) -> (Child, Vec<String>, BufReader<ChildStdout>) {
    let key = ("DEV_API_KEY", DEFAULT_DEV_API_KEY);
    let own = [("DATABASE_URL", &*database.url), ANY_PORT, key];
    let mut serve = program(&["serve"], &[&own, variables].concat());
    let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = Vec::new();
    let mut missing = commands;
    let mut printed = BufReader::new(server.stdout.take().unwrap());
    while missing > 0 {
        let mut line = String::new();
        assert_ne!(printed.read_line(&mut line).unwrap(), 0, "{lines:?}");
        missing -= usize::from(line.starts_with("curl "));
        lines.push(line);
    }
    (server, lines, printed)
}

/// What a command prints that a person pastes, and its exit code.
fn pasted(command: &str) -> (String, Option<i32>) {
    let output = Command::new("sh").args(["-c", command]).output().unwrap();
    (text(&output.stdout), output.status.code())
}

#[tokio::test]
async fn the_banner_names_the_console_and_commands_that_do_what_it_says() {
    let database = TestDatabase::create_unsharded().await;
    let sandbox = [("CONSOLE", "true"), ("FAULTS", "true")];
    let (mut server, banner, _printed) = started_for_people(&database, &sandbox, 2);
    let mut lines = banner.iter();
    let console = lines.find_map(|line| line.strip_prefix("  Console "));
    let console = console.unwrap().trim();
    let visit = format!("curl -s -L -o /dev/null -w '%{{http_code}}' {console}");
    assert_eq!(pasted(&visit).0, "200");
    let [charge, lost] = ["tok_visa", "tok_lostReply"]
        .map(|token| banner.iter().find(|line| line.contains(token)).unwrap());
    let first = pasted(charge).0;
    assert!(first.starts_with("HTTP/1.1 201"), "{first}");
    // curl's code for an empty reply.
    assert_eq!(pasted(lost), (String::new(), Some(52)));
    for command in [charge, lost] {
        assert_has(&pasted(command).0, "idempotent-replayed: true");
    }
    assert_eq!(database.charges().await, 2);
    stops(&mut server, Signal::SIGTERM).await;
}

#[tokio::test]
async fn the_banner_shows_the_address_that_others_reach_the_server_by() {
    let database = TestDatabase::create_unsharded().await;
    let url = ("PUBLIC_URL", "https://pay.example.com");
    let public = [("CONSOLE", "true"), url];
    let (mut server, banner, _printed) = started_for_people(&database, &public, 1);
    banner.concat().must_have(&[
        " serves http://127.0.0.1:",
        "  Console     https://pay.example.com/console\n",
        "  Swagger UI  https://pay.example.com/swagger-ui/\n",
        "curl -i https://pay.example.com/charges ",
    ]);
    stops(&mut server, Signal::SIGTERM).await;
}

#[tokio::test]
async fn the_banner_names_neither_a_console_nor_a_fault_where_there_is_none() {
    let database = TestDatabase::create_unsharded().await;
    let (mut server, banner, mut printed) = started_for_people(&database, &[], 1);
    stops(&mut server, Signal::SIGTERM).await;
    let mut banner = banner.concat();
    printed.read_to_string(&mut banner).unwrap();
    banner.must_lack(&["Console", "Lose"]);
}

#[test]
fn a_command_where_no_server_has_run_refuses_and_makes_nothing() {
    let folder = scratch();
    let data_dir = data_dir(&folder);
    let id = uuid::Uuid::nil().to_string();
    for command in [
        "api-key list",
        "api-key create --account shop",
        "operations list",
        &format!("operations resolve {id} done --by Ada"),
        "keys list --in-flight",
        "sweep",
        "sweep --dry-run",
        "migrate",
    ] {
        let arguments: Vec<_> = command.split(' ').collect();
        let complaint = complaint_of(&arguments, &[("DATA_DIR", &data_dir)], 1);
        complaint.must_have(&["no server has run here", &data_dir, "DATABASE_URL"]);
        assert!(!Path::new(&data_dir).exists(), "{command}");
    }
}

#[test]
fn a_key_is_made_only_for_an_account_that_is_named() {
    let complaint = complaint_of(&["api-key", "create"], &[], 2);
    assert_has(&complaint, "--account <ACCOUNT>");
}

#[test]
fn a_port_in_use_is_told_before_a_database_is_made() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (command, bind_address, folder_variable) in [
        ("serve", "BIND_ADDRESS", "DATA_DIR"),
        ("processor", "PROCESSOR_BIND_ADDRESS", "PROCESSOR_DATA_DIR"),
    ] {
        let folder = scratch();
        let data_dir = data_dir(&folder);
        let variables = [(bind_address, &*address), (folder_variable, &data_dir)];
        let complaint = complaint_of(&[command], &variables, 1);
        complaint.must_have(&[bind_address, &address, "in use"]);
        assert!(!Path::new(&data_dir).exists(), "{command}");
    }
}

/// A server may be started together with its database, so it waits, but says at once for what.
#[tokio::test]
async fn an_unreachable_database_is_told_at_once() {
    let away = RefusedAddress::reserve();
    let url = format!("postgres://nobody@{away}/nothing");
    let variables = [("DATABASE_URL", &*url), ANY_PORT, ("RUST_LOG", "warn")];
    let complaint = complaint_of(&["migrate"], &variables, 1);
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert!(complaint.contains("refused") && complaint.contains("DATABASE_URL"));

    let mut serve = program(&["serve"], &variables);
    let mut server = serve.stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut told = BufReader::new(server.stderr.as_mut().unwrap());
    told.read_line(&mut line).unwrap();
    assert!(line.contains("refused"), "{line}");
    assert_eq!(server.try_wait().unwrap(), None, "it still waits");
    stops(&mut server, Signal::SIGTERM).await;
}

#[tokio::test]
async fn what_is_printed_can_not_take_over_the_terminal() {
    let database = TestDatabase::create_unsharded().await;
    let variables = [("DATABASE_URL", &*database.url)];
    let name = "shop\u{1b}[31m\u{9b}2J";
    printed_by(&["api-key", "create", "--account", name], &variables);
    let told = database.printed_by("api-key list");
    assert_has(&told, r"shop\u001b[31m\u009b2J");
    let json = database.printed_by("api-key list --json");
    assert!(!json.contains(['\u{1b}', '\u{9b}']), "{json:?}");
    let keys: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(keys["api_keys"][1]["account"], name);
    let show = ["keys", "show", "--account", "\u{9b}2J", "key-1"];
    let complaint = complaint_of(&show, &variables, 1);
    assert!(!complaint.contains('\u{9b}'), "{complaint:?}");
}

#[tokio::test]
async fn empty_lists_say_so_to_people_and_print_nothing_for_programs() {
    let database = TestDatabase::create().await;
    database.execute("DELETE FROM api_keys").await;
    for (command, says) in [
        ("api-key", "there are no API keys"),
        ("operations", "no operations are in flight"),
    ] {
        let ended = database.command(&format!("{command} list"));
        assert_has(&ended.stderr, says);
        assert_eq!(ended.succeeded(), "");
    }
}

#[tokio::test]
async fn a_current_schema_is_nothing_to_notice() {
    let database = TestDatabase::create().await;
    let variables = [("DATABASE_URL", &*database.url), ("RUST_LOG", "info")];
    let output = run(&["migrate"], &variables);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[tokio::test]
async fn a_successful_probe_is_no_line_in_the_log() {
    let database = TestDatabase::create().await;
    let info = [("RUST_LOG", "info"), ("LOG_FORMAT", "json")];
    let (mut server, log) = start_with_log(&database, &info);
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.client.get(path).await.status, 200);
    }
    assert_eq!(server.client.get("/charges").await.status, 200);
    stops(&mut server.child, Signal::SIGTERM).await;
    let text = text_of(&log);
    let answered = text.lines().filter(|line| line.contains("answered"));
    let answered: Vec<_> = answered.collect();
    assert_eq!(answered.len(), 1, "{text}");
    assert!(answered[0].contains("/charges"), "{text}");
}
