//! `charge-once pay`: the client as a process that can be killed.

use super::*;
use crate::support::program;

/// `charge-once pay --currency usd` with these arguments.
fn command(url: &str, arguments: &[&str]) -> Command {
    program::client(url, &[&["pay", "--currency", "usd"], arguments].concat())
}

async fn run(url: &str, arguments: &[&str]) -> Run {
    run_to_end(command(url, arguments)).await
}

impl Run {
    fn charge(&self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        let charge: Value = serde_json::from_str(&self.stdout).unwrap();
        assert_eq!(charge["object"], "charge");
        charge["id"].as_str().unwrap().to_owned()
    }
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn kept_in<'a>(folder: &'a TempDir, arguments: &'a str) -> Vec<&'a str> {
    let store = ["--store", folder.path().to_str().unwrap()];
    arguments.split(' ').chain(store).collect()
}

#[tokio::test]
async fn killed_while_the_service_works_and_run_again_it_has_charged_once() {
    let server = TestServer::start_with(PATIENT).await;
    let url = format!("http://{}", server.client.address);
    let folder = TempDir::new().unwrap();
    let arguments = kept_in(&folder, "--amount 20.00");
    let mut pause = PausePoint::at(Stage::Executing, &server.database, "%").await;
    let first = command(&url, &arguments).spawn().unwrap();
    pause.is_reached().await;
    kill(first);
    assert_eq!(files(&folder).len(), 1);
    pause.release().await;
    let second = run(&url, &arguments).await;
    let charge = second.charge();
    assert!(second.stderr.contains("finished"), "{second:?}");
    one_charge_and_its_record(&server.database).await;
    assert_eq!(files(&folder).len(), 0);

    // Now it is finished, and another run is another payment.
    assert_ne!(run(&url, &arguments).await.charge(), charge);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn killed_before_the_service_knows_anything_it_charges_under_the_key_it_had() {
    let (server, proxy) = HttpProxy::with_server([Act::Swallow]).await;
    let folder = TempDir::new().unwrap();
    let arguments = kept_in(&folder, "--amount 20.00");
    let first = command(&proxy.url(), &arguments).spawn().unwrap();
    eventually("the request is sent", || async { !proxy.seen().is_empty() }).await;
    kill(first);
    // Another payment comes first: what is unfinished goes before it.
    let other = kept_in(&folder, "--amount 7");
    run(&proxy.url(), &other).await.charge();
    let seen = proxy.seen();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0], seen[1], "same key, same bytes");
    assert_ne!(seen[1].key(), seen[2].key());
    let amounts = "SELECT count(*) FROM charges WHERE amount IN (2000, 700)";
    assert_eq!(server.database.count(amounts).await, 2);
    assert_eq!(files(&folder).len(), 0);
    assert_eq!(server.database.charges().await, 2);
}

#[tokio::test]
async fn two_that_share_a_store_and_a_key_charge_once() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let folder = TempDir::new().unwrap();
    let arguments = kept_in(&folder, "--amount 20 --key order-2001");
    let runs = [(); 4].map(|()| command(&url, &arguments).spawn().unwrap());
    let ended = tokio::task::spawn_blocking(move || {
        runs.map(|run| Run::of(run.wait_with_output().unwrap()).charge())
    });
    let charges = ended.await.unwrap();
    assert!(charges.iter().all(|charge| *charge == charges[0]));
    one_charge_and_its_record(&server.database).await;
    assert_eq!(files(&folder).len(), 0);
}

#[tokio::test]
async fn its_exit_code_tells_declined_from_refused_from_unknown() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    for (arguments, code) in [
        ("--amount,20.00,--source,tok_chargeDeclined", 3),
        ("--amount,20.00,--source,tok_of_nobody", 2),
        ("--amount,20.001", 2),
        ("--amount,0", 2),
        ("--amount,20,--key,a b", 2),
        ("--amount,20,--deadline,2h", 2),
        ("--amount,20,--source,tok_outage,--deadline,1s", 4),
        ("--amount,20,--store,/dev/null/nowhere", 1),
    ] {
        let run = run(&url, &arguments.split(',').collect::<Vec<_>>()).await;
        assert_eq!(run.code, Some(code), "{arguments}: {run:?}");
        assert!(run.stdout.is_empty(), "{arguments}: {run:?}");
        run.stderr.must_have(&["charge-once: "]);
    }
    let mut keyless = command(&url, &["--amount", "20"]);
    let keyless = tokio::task::spawn_blocking(move || {
        Run::of(keyless.env_remove("CHARGE_ONCE_API_KEY").output().unwrap())
    });
    assert_eq!(keyless.await.unwrap().code, Some(2));
    let succeeded = "SELECT count(*) FROM charges WHERE status = 'succeeded'";
    assert_eq!(server.database.count(succeeded).await, 0);
}

#[tokio::test]
async fn nothing_new_is_charged_past_what_needs_a_person_or_is_unknown() {
    let server = TestServer::start().await;
    let url = format!("http://{}", server.client.address);
    let folder = TempDir::new().unwrap();
    let outage = kept_in(&folder, "--amount 20 --source tok_outage --deadline 1s");
    run(&url, &outage).await.failed(4);
    assert_eq!(files(&folder).len(), 1);
    let soon = kept_in(&folder, "--amount 7 --deadline 1s");
    run(&url, &soon).await.failed(4);
    let other = kept_in(&folder, "--amount 7");

    let file = files(&folder).pop().unwrap();
    std::fs::write(&file, "damaged").unwrap();
    let complaint = run(&url, &other).await.failed(5);
    complaint.must_have(&[file.to_str().unwrap()]);
    assert_eq!(server.database.charges().await, 0);

    std::fs::remove_file(&file).unwrap();
    run(&url, &other).await.charge();
    assert_eq!(server.database.charges().await, 1);
}

#[tokio::test]
async fn after_refused_connections_only_it_says_that_nothing_was_sent() {
    let refused = RefusedAddress::reserve();
    let url = refused.url();
    let folder = TempDir::new().unwrap();
    let arguments = kept_in(&folder, "--amount 20 --deadline 1s");
    let unsent = run(&url, &arguments).await.failed(4);
    unsent.must_have(&["nothing was sent"]);
    unsent.must_lack(&["may have happened"]);
    assert_eq!(files(&folder).len(), 1, "the next run sends it");
    // An earlier process may have sent what this one finds in the store.
    let found = run(&url, &arguments).await;
    found.stderr.must_have(&["may have happened"]);
}

#[test]
fn its_help_explains_the_exit_codes_and_where_the_api_key_comes_from() {
    let help = command("http://unused", &["--help"]).output().unwrap();
    let words = ["CHARGE_ONCE_API_KEY", "--store", "--key", "Exit codes"];
    text(&help.stdout).must_have(&words);
    assert!(root().join("crates/client/examples/pay.rs").exists());
}
