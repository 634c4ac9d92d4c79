//! The commands that are clients of a running service, as a person runs them, and
//! `charge-once webhooks retry`, which works on the database.

mod audit;
mod faults;
mod listen;
mod retry;
mod seed;
mod trigger;

use crate::support::{prelude::*, program::client as command};

async fn run(url: &str, arguments: &[&str]) -> Run {
    run_to_end(command(url, arguments)).await
}

fn url_of(server: &TestServer) -> String {
    format!("http://{}", server.client.address)
}

/// Every command that needs nothing but a service and an API key.
const CLIENTS: [&[&str]; 4] = [
    &["faults", "list"],
    &["trigger", "charge.succeeded"],
    &["seed"],
    &["webhooks", "listen", "--forward-to", "http://127.0.0.1:9/"],
];

#[tokio::test]
async fn a_missing_or_wrong_api_key_ends_a_client_and_names_the_variable() {
    let server = TestServer::start_with(&[FAULTS]).await;
    for arguments in CLIENTS {
        let mut wrong = command(&url_of(&server), arguments);
        wrong.env("CHARGE_ONCE_API_KEY", "sk_test_wrong");
        let told = run_to_end(wrong).await.failed(1);
        told.must_have(&["refuses the API key in CHARGE_ONCE_API_KEY"]);
        told.must_lack(&["sk_test_wrong"]);
        let mut keyless = command(&url_of(&server), arguments);
        keyless.env_remove("CHARGE_ONCE_API_KEY");
        let told = run_to_end(keyless).await.failed(1);
        told.must_have(&["set CHARGE_ONCE_API_KEY"]);
    }
    assert_eq!(server.database.charges().await, 0);
}

#[tokio::test]
async fn a_client_without_a_service_says_where_it_looked_and_how_to_change_that() {
    let away = RefusedAddress::reserve();
    let url = away.url();
    let runs = CLIENTS.map(|arguments| run_to_end(command(&url, arguments)));
    for run in JoinSet::from_iter(runs).join_all().await {
        let looked = format!("{url} can't be reached");
        let told = run.failed(1);
        told.must_have(&[&looked, "set --url or CHARGE_ONCE_URL"]);
    }
}

#[test]
fn each_command_s_help_lists_the_variables_that_it_reads_and_no_others() {
    let (key, url) = ("CHARGE_ONCE_API_KEY", "DATABASE_URL");
    for (name, reads, reads_not) in [
        (&["trigger"][..], key, url),
        (&["seed"], key, url),
        (&["webhooks", "listen"], key, url),
        (&["webhooks", "retry"], url, key),
        (&["faults", "add"], key, url),
        (&["report"], key, url),
        (&["audit"], url, "PROCESSOR_URL"),
    ] {
        let help = printed_by(&[name, &["--help"]].concat(), &[]);
        help.must_have(&[reads]);
        help.must_lack(&[reads_not]);
    }
}
