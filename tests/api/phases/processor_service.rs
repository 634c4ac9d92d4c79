//! `charge-once processor`: its own promise, its rules, and its faults on request.

use charge_once::domain::test_cards::{Decision, TEST_CARDS};

use crate::support::{
    prelude::*,
    processor::{
        authorize, broke_a_rule, capture, done, only, promise, refund, sends, sends_to_a_delay,
    },
};

#[tokio::test]
async fn fifty_sends_of_one_key_at_once_leave_one_line_and_agree() {
    let processor = Arc::new(Processor::start().await);
    let key = Uuid::now_v7();
    let mut sending = Vec::new();
    for _ in 0..50 {
        sending.push(sends(&processor, key));
    }
    let mut answered = 0;
    for reply in sending {
        let reply = reply.await.unwrap();
        if reply == done(key) {
            answered += 1;
        } else {
            assert_eq!(reply, only(409, key, "in_progress"));
        }
    }
    assert!(answered >= 1);
    assert_eq!(processor.lines().await, 1);
    assert_eq!(processor.sums("ch_1").await, [2000, 2000, 0, 0]);
    let instruction = authorize("ch_1", "tok_visa");
    processor.executes(key, &instruction).await;
    assert_eq!(processor.look_up(key).await, done(key));
}

#[tokio::test]
async fn of_two_processes_on_one_database_one_executes_a_key() {
    let first = Processor::start().await;
    let second = Processor::start_on(first.database.clone(), &[]);
    for _ in 0..20 {
        let key = Uuid::now_v7();
        let instruction = authorize(&format!("ch_{key}"), "tok_visa");
        let replies = tokio::join!(first.put(key, &instruction), second.put(key, &instruction));
        for reply in [replies.0, replies.1] {
            let is_fine = reply == done(key) || reply == only(409, key, "in_progress");
            assert!(is_fine, "{reply:?}");
        }
        assert_eq!(second.put(key, &instruction).await, done(key));
        assert_eq!(first.sums(&format!("ch_{key}")).await, [2000, 2000, 0, 0]);
    }
    assert_eq!(first.lines().await, 20);
}

/// The unique key decides even where both processes have found the key free: the first one's line
/// is held back, uncommitted, until the second one waits for it.
#[tokio::test]
async fn a_key_that_another_process_commits_meanwhile_is_not_executed_again() {
    let processor = Arc::new(Processor::start().await);
    let promised = Uuid::now_v7();
    processor.put(promised, &promise("ch_2")).await;
    // An authorization looks again, and finds the other one's line.
    for (instruction, charge, sums, is_told) in [
        (authorize("ch_1", "tok_visa"), "ch_1", [0; 4], true),
        (capture("ch_2", 2000), "ch_2", [2000, 0, 0, 0], false),
    ] {
        let key = Uuid::now_v7();
        let mut other = processor.database.pool.begin().await.unwrap();
        sqlx::query("INSERT INTO processor.operations (key, instruction) VALUES ($1, $2)")
            .bind(key)
            .bind(sqlx::types::Json(&instruction))
            .execute(&mut *other)
            .await
            .unwrap();
        let sending = Arc::clone(&processor);
        let reply = tokio::spawn(async move { sending.put(key, &instruction).await });
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        // It waits for the other one's line.
        processor.database.comes_to(waiting, 1).await;
        other.commit().await.unwrap();
        let told = match is_told {
            true => done(key),
            false => only(409, key, "in_progress"),
        };
        assert_eq!(reply.await.unwrap(), told);
        assert_eq!(processor.look_up(key).await, done(key));
        assert_eq!(processor.sums(charge).await, sums, "its own are undone");
    }
    assert_eq!(processor.lines().await, 3);
}

#[tokio::test]
async fn a_key_with_another_instruction_is_refused_and_keeps_its_answer() {
    let processor = Processor::start().await;
    let key = Uuid::now_v7();
    processor.executes(key, &promise("ch_1")).await;
    for another in [
        authorize("ch_1", "tok_visa"),
        promise("ch_2"),
        capture("ch_1", 2000),
        refund("ch_1", 2000),
    ] {
        let reply = processor.put(key, &another).await;
        assert_eq!(reply, only(422, key, "another_instruction"));
    }
    processor.executes(key, &promise("ch_1")).await;
    assert_eq!(processor.lines().await, 1);
    assert_eq!(processor.sums("ch_1").await, [2000, 0, 0, 0]);
}

#[tokio::test]
async fn every_test_card_decides_and_its_decline_is_kept() {
    let processor = Processor::start().await;
    for card in TEST_CARDS {
        let (key, token) = (Uuid::now_v7(), card.tokens[0]);
        let expected = match card.decision {
            Decision::Approve | Decision::ApproveSlowly => done(key),
            Decision::Outage => only(503, key, "not_executed"),
            Decision::Decline(decline) => {
                let mut body =
                    json!({"key": key, "status": "declined", "code": decline.code.as_str()});
                if let Some(reason) = decline.decline_code {
                    body["decline_code"] = reason.into();
                }
                Some((200, body))
            }
        };
        let charge = format!("ch_{token}");
        for _ in 0..2 {
            let reply = processor.put(key, &authorize(&charge, token)).await;
            assert_eq!(reply, expected, "{token}");
        }
        let kept = match card.decision {
            Decision::Outage => only(404, key, "not_found"),
            Decision::Approve | Decision::ApproveSlowly | Decision::Decline(_) => expected,
        };
        assert_eq!(processor.look_up(key).await, kept, "{token}");
        let amount = if kept == done(key) { 2000 } else { 0 };
        let sums = processor.sums(&charge).await;
        assert_eq!(sums, [amount, amount, 0, 0], "{token}");
    }
    let unknown = Uuid::now_v7();
    let no_card = authorize("ch_1", "tok_nobody");
    let reply = processor.put(unknown, &no_card).await;
    assert_eq!(reply, broke_a_rule(unknown));
}

#[tokio::test]
async fn it_refuses_by_its_own_rules_what_exceeds_the_charge() {
    let processor = Processor::start().await;
    let new = Uuid::now_v7;
    let book = async |instruction, is_done: bool, sums: [i64; 4]| {
        let key = new();
        let expected = match is_done {
            true => done(key),
            false => broke_a_rule(key),
        };
        let reply = processor.put(key, &instruction).await;
        assert_eq!(reply, expected, "{instruction:?}");
        assert_eq!(processor.sums("ch_1").await, sums, "{instruction:?}");
    };
    book(capture("ch_1", 1), false, [0, 0, 0, 0]).await;
    book(refund("ch_1", 1), false, [0, 0, 0, 0]).await;
    book(promise("ch_1"), true, [2000, 0, 0, 0]).await;
    book(refund("ch_1", 1999), false, [2000, 0, 0, 0]).await;
    book(capture("ch_1", 2001), false, [2000, 0, 0, 0]).await;
    book(capture("ch_1", 1500), true, [2000, 1500, 500, 0]).await;
    book(capture("ch_1", 1), false, [2000, 1500, 500, 0]).await;
    book(refund("ch_1", 1501), false, [2000, 1500, 500, 0]).await;
    book(refund("ch_1", 1000), true, [2000, 1500, 500, 1000]).await;
    book(refund("ch_1", 501), false, [2000, 1500, 500, 1000]).await;
    book(refund("ch_1", 500), true, [2000, 1500, 500, 1500]).await;

    // A release: the whole of what was promised, once.
    for instruction in [promise("ch_2"), refund("ch_2", 2000)] {
        processor.executes(new(), &instruction).await;
    }
    assert_eq!(processor.sums("ch_2").await, [2000, 0, 2000, 0]);
    for late in [capture("ch_2", 1), refund("ch_2", 2000)] {
        let key = new();
        assert_eq!(processor.put(key, &late).await, broke_a_rule(key));
    }

    // It doesn't know that two authorizations were meant to be one: a double charge shows.
    for _ in 0..2 {
        let double = authorize("ch_3", "tok_visa");
        processor.executes(new(), &double).await;
    }
    assert_eq!(processor.sums("ch_3").await, [4000, 4000, 0, 0]);
}

#[tokio::test]
async fn refunds_at_once_never_exceed_what_was_captured() {
    let processor = Arc::new(Processor::start().await);
    let key = Uuid::now_v7();
    let instruction = authorize("ch_1", "tok_visa");
    processor.executes(key, &instruction).await;
    let refunds: Vec<_> = (0..12)
        .map(|_| {
            let processor = processor.clone();
            tokio::spawn(async move {
                let key = Uuid::now_v7();
                processor.put(key, &refund("ch_1", 500)).await == done(key)
            })
        })
        .collect();
    let mut refunded = 0;
    for refund in refunds {
        refunded += usize::from(refund.await.unwrap());
    }
    assert_eq!(refunded, 4);
    assert_eq!(processor.sums("ch_1").await, [2000, 2000, 0, 2000]);
}

#[tokio::test]
async fn what_is_no_instruction_is_refused_and_leaves_no_line() {
    let processor = Processor::start().await;
    let key = Uuid::now_v7();
    for body in [
        "",
        "{}",
        "[]",
        r#"{"verb":"steal","charge":"ch_1","amount":1}"#,
        r#"{"verb":"capture","charge":"ch_1","amount":0}"#,
        r#"{"verb":"capture","charge":"ch_1","amount":-1}"#,
        r#"{"verb":"capture","charge":"ch_1","amount":100000000}"#,
        r#"{"verb":"capture","charge":"ch_1","amount":1.5}"#,
        r#"{"verb":"capture","charge":"","amount":1}"#,
        r#"{"verb":"capture","charge":"ch_\u0000","amount":1}"#,
    ] {
        let put = processor.request(Method::PUT, &format!("/operations/{key}"));
        let response = put.body(body).send().await.unwrap();
        assert_eq!(response.status(), 400, "{body}");
    }
    assert_eq!(processor.look_up(key).await, only(404, key, "not_found"));
    assert_eq!(processor.lines().await, 0);
}

#[tokio::test]
async fn past_its_window_a_key_is_forgotten_and_a_resend_charges_again() {
    let processor = Processor::start_with(&[("PROCESSOR_KEY_WINDOW", "1h")]).await;
    let key = Uuid::now_v7();
    let instruction = authorize("ch_1", "tok_visa");
    processor.executes(key, &instruction).await;
    let age = async |minutes: i32| {
        let sql = format!(
            "UPDATE processor.operations SET executed_at = now() - interval '{minutes} minutes'"
        );
        processor.database.execute(sql).await;
    };
    age(59).await;
    processor.executes(key, &instruction).await;
    assert_eq!(processor.lines().await, 1);
    age(61).await;
    assert_eq!(processor.look_up(key).await, only(404, key, "not_found"));
    processor.executes(key, &instruction).await;
    assert_eq!(processor.lines().await, 2, "the first line stays");
    assert_eq!(processor.sums("ch_1").await, [4000, 4000, 0, 0]);
    processor.executes(key, &instruction).await;
    assert_eq!(processor.lines().await, 2);
}

#[tokio::test]
async fn without_its_database_it_says_not_executed_and_is_not_ready() {
    let processor = Processor::start().await;
    let readyz = || async {
        let request = processor.request(Method::GET, "/readyz");
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(readyz().await, 200);
    let sql = "ALTER SCHEMA processor RENAME TO gone; ALTER TABLE _sqlx_migrations RENAME TO m";
    processor.database.execute(sql).await;
    assert_eq!(readyz().await, 503);
    let key = Uuid::now_v7();
    let reply = processor.put(key, &authorize("ch_1", "tok_visa")).await;
    assert_eq!(reply, only(503, key, "not_executed"));
    // A look-up can't say so.
    assert_eq!(processor.look_up(key).await, only(500, key, "unknown"));
}

#[tokio::test]
async fn it_refuses_to_share_the_api_s_database() {
    let database = TestDatabase::create().await;
    let output = Command::new(env!("CARGO_BIN_EXE_charge-once"))
        .arg("processor")
        .env("PROCESSOR_BIND_ADDRESS", "127.0.0.1:0")
        .env("PROCESSOR_DATABASE_URL", &database.url)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'processor'";
    assert_eq!(database.count(schemas).await, 0);
}

#[tokio::test]
async fn sigterm_ends_it_with_exit_code_0_even_while_it_delays() {
    let processor = Arc::new(Processor::start().await);
    let key = Uuid::now_v7();
    let reply = sends_to_a_delay(&processor, key, "delay_after").await;
    processor.signal(Signal::SIGTERM);
    assert_eq!(reply.await.unwrap(), done(key), "it is in flight");
    let mut processor = Arc::into_inner(processor).unwrap();
    let ended = tokio::task::spawn_blocking(move || processor.child.wait().unwrap());
    assert_eq!(ended.await.unwrap().code(), Some(0));
}
