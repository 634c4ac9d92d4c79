//! The crash table of checkouts: charge-once is killed before every commit on the way, and between
//! them, in both modes; the client retries at once, after the lease, or never. Whatever happens,
//! there is one order, one charge that counts or none, and one answer, and the levels say so.

use reqwest::StatusCode;

use crate::support::{
    harness::{KEYS_IN_FLIGHT, report, tests_all},
    prelude::*,
    world::Retry,
};

/// How the checkout is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Completed,
    Declined,
    OutOfStock,
}

/// Where charge-once is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Crash {
    /// The checkout is written and not committed.
    Begin,
    /// All that came before is committed, and nothing of this step.
    Before(&'static str),
    /// This step is written and not committed.
    During(&'static str),
    /// This step's question is at the processor, which has not executed it.
    Asking(&'static str),
    /// The processor has executed this step's question, and its answer has not arrived.
    Executed(&'static str),
    /// Every step is committed, the outcome is not.
    End,
}

const MODES: [bool; 2] = [false, true];

const EVERY_RETRY: &[Retry] = &[Retry::AtOnce, Retry::AfterTheLease, Retry::Never];

struct Shop {
    database: TestDatabase,
    processor: Option<Processor>,
    server: ServerProcess,
}

fn start(database: &TestDatabase, processor: Option<&Processor>) -> ServerProcess {
    let url = processor.map(Processor::url);
    let mut variables = vec![("PROCESSOR_TIMEOUT", "3s")];
    variables.extend(url.as_deref().map(|url| ("PROCESSOR_URL", url)));
    ServerProcess::start(database, &variables)
}

impl Shop {
    /// With five mugs; with a processor across the network, or without.
    async fn open(across_a_network: bool) -> Self {
        let database = TestDatabase::create().await;
        let mut processor = None;
        if across_a_network {
            processor = Some(Processor::start().await);
        }
        let server = start(&database, processor.as_ref());
        stock(&server.client, "mug", 5).await;
        Self {
            database,
            processor,
            server,
        }
    }

    fn client(&self) -> &Client {
        &self.server.client
    }

    fn processor(&self) -> &Processor {
        self.processor.as_ref().expect("a processor")
    }

    async fn stop_at(&self, stage: Stage, keys: &str) -> Option<PausePoint> {
        // What the test itself holds up has no key with a comma in it.
        Some(PausePoint::at(stage, &self.database, keys).await)
    }

    async fn delay(&self, fault: &str, step: &str) -> Option<PausePoint> {
        let verb = match step {
            "create_charge" => "authorize",
            _ => "refund",
        };
        let fault = json!({"fault": fault, "milliseconds": 60_000, "verb": verb});
        self.processor().set_fault(fault).await;
        None
    }

    /// Sends the checkout, kills charge-once at `crash`, and starts it again.
    async fn crash(&mut self, crash: Crash, body: &Value) {
        let of_step = |step: &str| format!(",/checkouts/%/{step}%");
        let pause = match crash {
            Crash::Begin => self.stop_at(Stage::Leasing, "key-1").await,
            Crash::Before(step) => self.stop_at(Stage::Claiming, &of_step(step)).await,
            Crash::During(step) => self.stop_at(Stage::Saving, &of_step(step)).await,
            Crash::Asking(step) => self.delay("delay_before", step).await,
            Crash::Executed(step) => self.delay("delay_after", step).await,
            Crash::End => self.stop_at(Stage::Saving, "key-1").await,
        };
        let sending = self.client().sending_in_vain("/checkouts", "key-1", body);
        match pause {
            Some(mut pause) => {
                pause.is_reached().await;
                self.kill_and_start();
                pause.release().await;
            }
            None => {
                self.processor().delays(1).await;
                self.kill_and_start();
                self.processor().reset_faults().await;
            }
        }
        sending.await.unwrap();
    }

    fn kill_and_start(&mut self) {
        // First: what it has begun must not be answered while the other one starts.
        self.server.kill_now();
        self.server = start(&self.database, self.processor.as_ref());
    }

    /// The dead holder's time is over, the client's key's and its step's.
    async fn the_leases_run_out(&self) {
        self.database.expire_leases().await;
    }

    async fn until_definite(&self, body: &Value) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.client().post("/checkouts", "key-1", body).await;
            if answer.header("stripe-should-retry") != Some("true") {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
            self.the_leases_run_out().await;
        }
    }

    /// Everything that the checkout touched, as it has to be: orders, charges, refunds, the level,
    /// and what the processor did.
    async fn assert_consistent(&self, end: End, case: &str) {
        let client = self.client();
        let list = |kind: &'static str| async move {
            let listed = client.get(&format!("/{kind}?limit=100")).await.json();
            listed["data"].as_array().unwrap().clone()
        };
        let (checkouts, orders) = (list("checkouts").await, list("orders").await);
        let (charges, refunds) = (list("charges").await, list("refunds").await);
        let of_each = [checkouts.len(), orders.len(), charges.len(), refunds.len()];
        let given_back = usize::from(end == End::OutOfStock);
        assert_eq!(of_each, [1, 1, 1, given_back], "{case}");
        let (checkout, order, charge) = (&checkouts[0], &orders[0], &charges[0]);
        let (status, of_order, of_charge, left) = match end {
            End::Completed => ("completed", "paid", "succeeded", 3),
            End::Declined => ("canceled", "canceled", "failed", 5),
            End::OutOfStock => ("canceled", "canceled", "succeeded", 1),
        };
        assert_eq!(checkout["status"], status, "{case}");
        assert_eq!(order["status"], of_order, "{case}");
        assert_eq!(charge["status"], of_charge, "{case}");
        assert_eq!(charge["refunded"], end == End::OutOfStock, "{case}");
        assert_eq!(checkout["order"], order["id"], "{case}");
        assert_eq!(checkout["charge"], charge["id"], "{case}");
        let level = client.get("/inventory/mug").await.json();
        assert_eq!(level["quantity"], left, "{case}");
        let in_flight = self.database.count(KEYS_IN_FLIGHT).await;
        assert_eq!(in_flight, 0, "{case}");
        if let Some(processor) = &self.processor {
            let sums = processor.sums(charge["id"].as_str().unwrap()).await;
            let expected = match end {
                End::Completed => [2400, 2400, 0, 0],
                End::Declined => [0, 0, 0, 0],
                End::OutOfStock => [2400, 2400, 0, 2400],
            };
            assert_eq!(sums, expected, "{case}");
        }
    }
}

/// One line of the table. Returns whether there is a checkout.
async fn line(across_a_network: bool, end: End, crash: Crash, retry: Retry) -> bool {
    let case = format!("network {across_a_network}, {end:?}, {crash:?}, retried {retry:?}");
    let mut shop = Shop::open(across_a_network).await;
    let card = match end {
        End::Completed | End::OutOfStock => "tok_visa",
        End::Declined => "tok_chargeDeclined",
    };
    let body = checkout_with(card);
    if end == End::OutOfStock {
        stock(shop.client(), "mug", 1).await;
    }
    shop.crash(crash, &body).await;
    match retry {
        Retry::AtOnce => {
            let first = shop.client().post("/checkouts", "key-1", &body).await;
            let honest = [StatusCode::CONFLICT, StatusCode::SERVICE_UNAVAILABLE];
            let is_definite = first.header("stripe-should-retry") != Some("true");
            let is_honest = honest.contains(&first.status);
            assert!(is_definite || is_honest, "{case}: {first:?}");
        }
        Retry::AfterTheLease => shop.the_leases_run_out().await,
        Retry::Never => {
            shop.the_leases_run_out().await;
            // A worker completes it.
            shop.database.comes_to(KEYS_IN_FLIGHT, 0).await;
            if crash == Crash::Begin {
                // What was never committed can't be recovered.
                let checkouts = shop.database.count_of("checkouts").await;
                assert_eq!(checkouts, 0, "{case}");
                return false;
            }
        }
    }
    let answer = shop.until_definite(&body).await;
    let expected = match end {
        End::Completed => 201,
        End::Declined => 402,
        End::OutOfStock => 400,
    };
    assert_eq!(answer.status, expected, "{case}: {answer:?}");
    let again = shop.client().post("/checkouts", "key-1", &body).await;
    assert!(again.is_replay(), "{case}");
    assert_eq!(again.status, answer.status, "{case}");
    assert_eq!(again.body, answer.body, "{case}");
    shop.assert_consistent(end, &case).await;
    true
}

/// Each crash is retried in one way, and the next one in the next way: a line takes seconds. With
/// `TESTS=all`, each is retried in every way.
async fn table(modes: &[bool], end: End, crashes: &[Crash], retries: &[Retry]) {
    let (mut lines, mut checkouts) = (0, 0);
    for mode in modes {
        for (number, crash) in crashes.iter().enumerate() {
            for (way, retry) in retries.iter().enumerate() {
                if !tests_all() && way != number % retries.len() {
                    continue;
                }
                lines += 1;
                checkouts += usize::from(line(*mode, end, *crash, *retry).await);
            }
        }
    }
    report(&format!(
        "{lines} crashes of checkouts to be {end:?}: {checkouts} checkouts, no step twice"
    ));
}

#[tokio::test]
async fn a_checkout_that_crashes_in_a_step_goes_on_there() {
    let crashes = [
        Crash::Begin,
        Crash::During("create_order"),
        Crash::During("create_charge"),
        Crash::During("allocate_inventory"),
        Crash::End,
    ];
    table(&MODES[..1], End::Completed, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_checkout_that_crashes_between_steps_goes_on_with_the_next() {
    let crashes = [
        Crash::Before("create_order"),
        Crash::Before("create_charge"),
        Crash::Before("allocate_inventory"),
    ];
    table(&MODES[..1], End::Completed, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_declined_checkout_that_crashes_is_undone_once() {
    let crashes = [
        Crash::During("create_charge"),
        Crash::Before("cancel_order"),
        Crash::During("cancel_order"),
        Crash::End,
    ];
    table(&MODES[..1], End::Declined, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_checkout_out_of_stock_that_crashes_is_undone_once() {
    let crashes = [
        Crash::During("allocate_inventory"),
        Crash::Before("create_refund"),
        Crash::During("create_refund"),
        Crash::During("cancel_order"),
        Crash::End,
    ];
    table(&MODES[..1], End::OutOfStock, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_checkout_whose_charge_crashes_across_the_network_charges_once() {
    let crashes = [
        Crash::Before("create_charge"),
        Crash::Asking("create_charge"),
        Crash::Executed("create_charge"),
        Crash::During("create_charge"),
    ];
    table(&MODES[1..], End::Completed, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_checkout_whose_refund_crashes_across_the_network_refunds_once() {
    let crashes = [
        Crash::Asking("create_refund"),
        Crash::Executed("create_refund"),
        Crash::During("create_refund"),
    ];
    table(&MODES[1..], End::OutOfStock, &crashes, EVERY_RETRY).await;
}

#[tokio::test]
async fn a_declined_checkout_that_crashes_across_the_network_is_undone_once() {
    let crashes = [
        Crash::Executed("create_charge"),
        Crash::During("cancel_order"),
    ];
    let after_the_lease = [Retry::AfterTheLease];
    table(&MODES[1..], End::Declined, &crashes, &after_the_lease).await;
}
