//! `charge-once audit`: programs with the bug and without it, and those of which nothing is known.

use super::{faults::cases, *};

/// Pays under the key `$1`, where a program for Stripe finds the service.
const PAY: &str = r#"pay() {
  curl -sf -o /dev/null "$STRIPE_API_BASE/v1/charges" -u "$STRIPE_SECRET_KEY:" -H "Idempotency-Key: $1" \
    -d amount=2000 -d currency=usd
}
"#;

/// Audits a shell's commands in a sandbox on this database.
fn in_sandbox(database: &TestDatabase, options: &[&str], script: &str) -> Command {
    let script = format!("{PAY}{script}");
    let sandbox = ["audit", "--database-url", &database.url];
    let arguments = [&sandbox, options, &["--", "sh", "-c", &script]].concat();
    // The shop's own is left alone.
    let mut command = program(
        &arguments,
        &[("DATABASE_URL", "postgres://shop.invalid/shop")],
    );
    command.env_remove("CHARGE_ONCE_URL");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[tokio::test]
async fn a_retry_with_another_key_is_found_and_one_with_the_same_key_is_not() {
    let folder = TempDir::new().unwrap();
    let junit = folder.path().join("audit.xml");
    let options = ["--junit", junit.to_str().unwrap()];
    for (script, code, told, charges) in [
        ("pay order-1-a || pay order-1-b", 1, "critical: ", 2),
        ("pay order-1 || pay order-1", 0, "found in 2 requests", 1),
        // The service did what it asked for, and it never learned of that.
        ("pay order-1", 1, "critical: ", 1),
    ] {
        let database = TestDatabase::create_unsharded().await;
        let audited = run_to_end(in_sandbox(&database, &options, script)).await;
        assert_eq!(audited.code, Some(code), "{script}: {audited:?}");
        audited
            .stdout
            .must_have(&[told, "reply_lost", "acted on 1 of "]);
        assert_eq!(database.charges().await, charges, "{script}");
        let (_, failed) = cases(&fs::read_to_string(&junit).unwrap());
        assert_eq!(failed.len(), usize::from(code == 1), "{failed:?}");
        let failed = "sh ended with exit status: 52";
        assert_eq!(audited.stderr.contains(failed), script == "pay order-1");
    }
}

#[tokio::test]
async fn a_plan_of_ones_own_is_the_only_one_and_a_test_account_of_a_running_service_is_used() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let script = format!("{PAY}pay order-1-a || pay order-1-b");
    let plan = "audit --fault request_lost --route /v1/charges --first 1 --";
    let arguments: Vec<_> = plan.split(' ').chain(["sh", "-c", &script]).collect();
    let audited = run(&url_of(&server), &arguments).await;
    // Nothing had been done, this time.
    assert_eq!(audited.code, Some(1), "{audited:?}");
    audited
        .stdout
        .must_have(&["warning: ", "request_lost", "acted on 1 of 2"]);
    audited.stdout.must_lack(&["critical: ", "reply_lost"]);
    assert_eq!(server.database.charges().await, 1);
    let of_dev = "SELECT count(*) FROM charges JOIN accounts ON accounts.id = account_id
                   WHERE test_until IS NULL";
    assert_eq!(server.database.count(of_dev).await, 0);
}

#[tokio::test]
async fn a_program_that_sends_nothing_or_can_t_be_started_is_no_success() {
    let server = TestServer::start_with(&[FAULTS]).await;
    let url = url_of(&server);
    let sent_nothing = format!("sent nothing to {url}: see docs/audit.md");
    for (arguments, told) in [
        (
            &["--", "sh", "-c", "exit 3"][..],
            &["sh ended with exit status: 3", &*sent_nothing][..],
        ),
        (
            &["--", "/nowhere/shop"],
            &["/nowhere/shop can't be started"],
        ),
        (
            &["--route", "*", "--fault", "503x", "--", "true"],
            &["refused: HTTP 400"],
        ),
    ] {
        let arguments = [&["audit"], arguments].concat();
        run(&url, &arguments).await.failed(2).must_have(told);
    }
    let without = TestServer::start().await;
    let told = run(&url_of(&without), &["audit", "--", "true"])
        .await
        .failed(2);
    told.must_have(&["reports need FAULTS=true"]);
    let of_others = ["audit", "--database-url", "mysql://host/db", "--", "true"];
    let mut broken = program(&of_others, &[]);
    broken.env_remove("CHARGE_ONCE_URL");
    broken.stdout(Stdio::piped()).stderr(Stdio::piped());
    run_to_end(broken)
        .await
        .failed(2)
        .must_have(&["DATABASE_URL"]);
}

#[tokio::test]
async fn a_signal_ends_the_program_and_its_sandbox_and_there_is_a_report() {
    let database = TestDatabase::create_unsharded().await;
    let script = "pay order-1; echo $CHARGE_ONCE_URL; exec cat";
    let mut command = in_sandbox(&database, &[], script);
    let mut audit = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(audit.stdout.take().unwrap()).lines();
    let url = lines.next().unwrap().unwrap();
    let address: SocketAddr = url.strip_prefix("http://").unwrap().parse().unwrap();
    assert!(TcpStream::connect(address).await.is_ok());
    signal(&audit, Signal::SIGINT);
    assert_eq!(exit_code(&mut audit).await, Some(1));
    assert!(TcpStream::connect(address).await.is_err());
    let told: Vec<_> = lines.map(Result::unwrap).collect();
    told.join("\n")
        .must_have(&["1 found in 1 requests, 1 faults."]);
}
