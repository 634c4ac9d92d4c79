//! `charge-once processor` under faults: crashes, lost replies, and the faults that it is told to
//! have make.

use tokio::{io::AsyncWriteExt, net::TcpStream};

use crate::support::{
    postgres_proxy::{NetworkFault, PostgresProxy},
    prelude::*,
    processor::{
        FOREVER, authorize, broke_a_rule, capture, done, only, promise, refund, sends_to_a_delay,
    },
};

#[tokio::test]
async fn after_kill_9_a_resend_gets_the_answer_or_executes() {
    for (fault, executed) in [("delay_after", true), ("delay_before", false)] {
        let processor = Arc::new(Processor::start().await);
        let key = Uuid::now_v7();
        let reply = sends_to_a_delay(&processor, key, fault).await;
        assert_eq!(processor.lines().await, usize::from(executed), "{fault}");
        processor.signal(Signal::SIGKILL);
        assert_eq!(reply.await.unwrap(), None);
        let again = Processor::start_on(processor.database.clone(), &[]);
        if !executed {
            assert_eq!(again.look_up(key).await, only(404, key, "not_found"));
        }
        again.executes(key, &authorize("ch_1", "tok_visa")).await;
        assert_eq!(again.look_up(key).await, done(key), "{fault}");
        assert_eq!(again.lines().await, 1, "{fault}");
        assert_eq!(again.sums("ch_1").await, [2000, 2000, 0, 0], "{fault}");
    }
}

#[tokio::test]
async fn each_fault_before_the_effect_leaves_nothing_and_each_one_after_it_one_line() {
    let processor = Processor::start().await;
    for (fault, executed) in [
        ("refuse", false),
        ("error_before", false),
        ("drop_before", false),
        ("error_after", true),
        ("drop_after", true),
    ] {
        let key = Uuid::now_v7();
        let charge = format!("ch_{fault}");
        let instruction = authorize(&charge, "tok_visa");
        let twice = json!({"fault": fault, "count": 2});
        processor.set_fault(twice).await;
        let expected = match fault {
            "refuse" => only(503, key, "not_executed"),
            "error_before" | "error_after" => only(500, key, "unknown"),
            _ => None,
        };
        for _ in 0..2 {
            assert_eq!(processor.put(key, &instruction).await, expected, "{fault}");
        }
        let kept = match executed {
            true => done(key),
            false => only(404, key, "not_found"),
        };
        assert_eq!(processor.look_up(key).await, kept, "{fault}");
        assert_eq!(processor.put(key, &instruction).await, done(key), "{fault}");
        assert_eq!(processor.sums(&charge).await, [2000, 2000, 0, 0], "{fault}");
    }
    assert_eq!(processor.lines().await, 5);
}

#[tokio::test]
async fn a_refusal_of_a_resend_takes_nothing_back() {
    let processor = Processor::start().await;
    let key = Uuid::now_v7();
    let instruction = authorize("ch_1", "tok_visa");
    processor.set_fault(json!({"fault": "drop_after"})).await;
    processor.set_fault(json!({"fault": "refuse"})).await;
    assert_eq!(processor.put(key, &instruction).await, None);
    let refused = processor.put(key, &instruction).await;
    assert_eq!(refused, only(503, key, "not_executed"));
    assert_eq!(processor.put(key, &instruction).await, done(key));
    assert_eq!(processor.lines().await, 1);
}

#[tokio::test]
async fn a_delay_before_the_effect_is_in_progress_and_one_on_the_way_is_not_known_of() {
    let processor = Arc::new(Processor::start().await);
    for (fault, meanwhile) in [
        ("delay_before", "in_progress"),
        ("delay_arrival", "not_found"),
    ] {
        let key = Uuid::now_v7();
        let lines = processor.lines().await;
        let late = sends_to_a_delay(&processor, key, fault).await;
        assert_eq!(processor.look_up(key).await.unwrap().1["status"], meanwhile);
        assert_eq!(processor.lines().await, lines);
        let second = processor.put(key, &authorize("ch_1", "tok_visa")).await;
        if fault == "delay_before" {
            assert_eq!(second, only(409, key, "in_progress"));
        } else {
            assert_eq!(second, done(key), "the first one hasn't arrived");
        }
        processor.reset_faults().await;
        assert_eq!(late.await.unwrap(), done(key), "{fault}");
        assert_eq!(processor.lines().await, lines + 1);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_undoes_nothing() {
    let processor = Processor::start().await;
    let key = Uuid::now_v7();
    let long = json!({"fault": "delay_before", "milliseconds": FOREVER});
    processor.set_fault(long).await;
    let body = serde_json::to_string(&authorize("ch_1", "tok_visa")).unwrap();
    let mut client = TcpStream::connect(processor.address).await.unwrap();
    let length = body.len();
    let request = format!(
        "PUT /operations/{key} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    processor.delays(1).await;
    // Of the ways to go away, a reset is the one that cancels a handler.
    client.set_zero_linger().unwrap();
    drop(client);
    // Both worker threads have looked at their connections when they have answered a few more.
    for _ in 0..20 {
        processor.look_up(key).await;
    }
    processor.reset_faults().await;
    let holds = || async { processor.look_up(key).await == done(key) };
    eventually("the operation is executed", holds).await;
}

// The proxy needs a thread beside the one that waits for the banner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_unknown_whether_it_came_through_or_not() {
    let database = TestDatabase::create_empty().await;
    let proxy = PostgresProxy::in_front_of(&database.url).await;
    let processor = Processor::start_through(database, &proxy.url, &[]);
    for (fault, executed) in [
        (NetworkFault::LosesAnswersToCommit, true),
        (NetworkFault::LosesCommits, false),
    ] {
        let key = Uuid::now_v7();
        let charge = format!("ch_{key}");
        let lost = proxy.lost_commits();
        proxy.inject(fault);
        let reply = processor.put(key, &authorize(&charge, "tok_visa")).await;
        assert_eq!(reply, only(500, key, "unknown"), "{fault:?}");
        assert_eq!(proxy.lost_commits(), lost + 1);
        proxy.inject(NetworkFault::None);
        let open = "SELECT count(*) FROM pg_stat_activity
                     WHERE datname = current_database() AND state LIKE 'idle in%'";
        // PostgreSQL has ended the lost session.
        processor.database.comes_to(open, 0).await;
        let sums = if executed { [2000, 2000, 0, 0] } else { [0; 4] };
        assert_eq!(processor.sums(&charge).await, sums, "{fault:?}");
        let resent = processor.put(key, &authorize(&charge, "tok_visa")).await;
        assert_eq!(resent, done(key), "{fault:?}");
        let sums = processor.sums(&charge).await;
        assert_eq!(sums, [2000, 2000, 0, 0], "{fault:?}");
    }
}

#[tokio::test]
async fn a_commit_that_postgres_refuses_is_not_executed() {
    let processor = Processor::start().await;
    let sql = "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = 'check_violation'; END $$;
         CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON processor.operations
             DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse();";
    processor.database.execute(sql).await;
    let key = Uuid::now_v7();
    let reply = processor.put(key, &authorize("ch_1", "tok_visa")).await;
    assert_eq!(reply, only(503, key, "not_executed"));
    assert_eq!(processor.lines().await, 0);
    assert_eq!(processor.sums("ch_1").await, [0; 4]);
}

#[tokio::test]
async fn a_switch_for_one_verb_leaves_the_others_alone() {
    let processor = Processor::start().await;
    for (fault, verb) in [("refuse", "capture"), ("error_before", "look_up")] {
        let fault = json!({"fault": fault, "verb": verb});
        processor.set_fault(fault).await;
    }
    let (promised, captured) = (Uuid::now_v7(), Uuid::now_v7());
    processor.executes(promised, &promise("ch_1")).await;
    let refused = processor.put(captured, &capture("ch_1", 2000)).await;
    assert_eq!(refused, only(503, captured, "not_executed"));
    processor.executes(captured, &capture("ch_1", 2000)).await;
    let unknown = only(500, captured, "unknown");
    assert_eq!(processor.look_up(captured).await, unknown);
    assert_eq!(processor.look_up(captured).await, done(captured));
}

#[tokio::test]
async fn faults_are_shown_reset_and_refused_where_they_make_no_sense() {
    let processor = Processor::start().await;
    let set = async |fault: Value| {
        let request = processor.request(Method::POST, "/faults").json(&fault);
        request.send().await.unwrap().status().as_u16()
    };
    for senseless in [
        json!({}),
        json!({"fault": "explode"}),
        json!({"fault": "refuse", "count": 0}),
        json!({"fault": "refuse", "times": 1}),
        json!({"fault": "refuse", "milliseconds": 1}),
        json!({"fault": "delay_after"}),
        json!({"fault": "delay_after", "milliseconds": 600_001}),
    ] {
        assert_eq!(set(senseless.clone()).await, 400, "{senseless}");
    }
    let one = json!({"fault": "refuse", "count": 2, "verb": "refund"});
    assert_eq!(set(one.clone()).await, 200);
    let shown = processor.request(Method::GET, "/faults");
    let shown: Value = shown.send().await.unwrap().json().await.unwrap();
    assert_eq!(shown, json!({"faults": [one], "delaying": 0}));
    processor.reset_faults().await;
    let key = Uuid::now_v7();
    let reply = processor.put(key, &refund("ch_1", 1)).await;
    assert_eq!(reply, broke_a_rule(key));
}
