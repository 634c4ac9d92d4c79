//! The commands that are clients of a running service, as a person runs them, and
//! `charge-once webhooks retry`, which works on the database.

mod listen;
mod retry;
mod seed;
mod trigger;

use crate::support::{
    addresses::RefusedAddress,
    harness::TestServer,
    program::{Run, client as command, run_to_end},
};

async fn run(url: &str, arguments: &[&str]) -> Run {
    run_to_end(command(url, arguments)).await
}

fn url_of(server: &TestServer) -> String {
    format!("http://{}", server.client.address)
}

/// Every command that needs nothing but a service and an API key.
const CLIENTS: [&[&str]; 3] = [
    &["trigger", "charge.succeeded"],
    &["seed"],
    &["webhooks", "listen", "--forward-to", "http://127.0.0.1:9/"],
];

#[tokio::test]
async fn a_missing_or_wrong_api_key_ends_a_client_and_names_the_variable() {
    let server = TestServer::start().await;
    for arguments in CLIENTS {
        let mut wrong = command(&url_of(&server), arguments);
        wrong.env("CHARGE_ONCE_API_KEY", "sk_test_wrong");
        let told = run_to_end(wrong).await.failed(1);
        assert!(
            told.contains("refuses the API key in CHARGE_ONCE_API_KEY"),
            "{arguments:?}: {told}"
        );
        assert!(!told.contains("sk_test_wrong"), "{told}");
        let mut keyless = command(&url_of(&server), arguments);
        keyless.env_remove("CHARGE_ONCE_API_KEY");
        let told = run_to_end(keyless).await.failed(1);
        assert!(
            told.contains("set CHARGE_ONCE_API_KEY"),
            "{arguments:?}: {told}"
        );
    }
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_client_without_a_service_says_where_it_looked_and_how_to_change_that() {
    let away = RefusedAddress::reserve();
    let url = away.url();
    let mut runs = tokio::task::JoinSet::new();
    for arguments in CLIENTS {
        runs.spawn(run_to_end(command(&url, arguments)));
    }
    for run in runs.join_all().await {
        let told = run.failed(1);
        assert!(told.contains(&format!("{url} can't be reached")), "{told}");
        assert!(told.contains("set --url or CHARGE_ONCE_URL"), "{told}");
    }
}

#[test]
fn each_command_s_help_lists_the_variables_that_it_reads_and_no_others() {
    for arguments in CLIENTS {
        let (name, _) = arguments.split_at(arguments.len().min(2));
        let name = if name[0] == "webhooks" {
            name
        } else {
            &name[..1]
        };
        let help = command("http://unused", &[name, &["--help"]].concat());
        let help = Run::of({ help }.output().unwrap()).succeeded();
        assert!(help.contains("CHARGE_ONCE_API_KEY"), "{help}");
        assert!(!help.contains("DATABASE_URL"), "{help}");
    }
    let retry = command("http://unused", &["webhooks", "retry", "--help"]);
    let help = Run::of({ retry }.output().unwrap()).succeeded();
    assert!(help.contains("DATABASE_URL"), "{help}");
    assert!(!help.contains("CHARGE_ONCE_API_KEY"), "{help}");
}
