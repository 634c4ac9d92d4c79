//! `HttpProcessor` and the simulator: what one says, the other understands.

use charge_once::{
    domain::test_cards::by_token,
    processor::{Answer, CardProcessor, HttpProcessor, InstructionOutcome},
};
use chrono::{DateTime, Utc};

use crate::support::{
    prelude::*,
    processor::{authorize, capture, refund},
};

/// Long enough for a loaded machine.
const AMPLE: Duration = Duration::from_secs(20);

/// For the cases that must run into it.
const SHORT: Duration = Duration::from_millis(600);

fn in_time() -> DateTime<Utc> {
    Utc::now() + Duration::from_secs(3600)
}

#[track_caller]
fn assert_unknown(asked: &InstructionOutcome, case: &str) {
    let is_unknown = matches!(asked, InstructionOutcome::Unknown(_));
    assert!(is_unknown, "{case}: {asked:?}");
}

#[tokio::test]
async fn it_understands_the_service_in_every_answer_and_through_every_fault() {
    let service = Processor::start().await;
    let processor = HttpProcessor::new(&service.url(), AMPLE, || None).unwrap();
    let key = Uuid::now_v7();
    let taken = authorize("ch_1", "tok_visa");
    let done = InstructionOutcome::Answered(Answer::Done);
    assert_unknown(&processor.look_up(key).await, "never seen");
    for fault in ["error_before", "drop_before", "error_after", "drop_after"] {
        service.set_fault(json!({"fault": fault})).await;
        let asked = processor.execute(key, &taken, in_time()).await;
        assert_unknown(&asked, fault);
    }
    let refuse = json!({"fault": "refuse", "count": 3});
    service.set_fault(refuse).await;
    let asked = processor.execute(key, &taken, in_time()).await;
    let is_not_executed = matches!(asked, InstructionOutcome::NotExecuted(_));
    assert!(is_not_executed, "{asked:?}");
    assert_eq!(processor.execute(key, &taken, in_time()).await, done);
    assert_eq!(processor.look_up(key).await, done);
    let another = processor.execute(key, &capture("ch_1", 1), in_time()).await;
    assert_unknown(&another, "another instruction");
    let declined = by_token("tok_chargeDeclinedInsufficientFunds").unwrap();
    let key = Uuid::now_v7();
    let instruction = authorize("ch_2", declined.tokens[0]);
    let asked = processor.execute(key, &instruction, in_time()).await;
    let InstructionOutcome::Answered(Answer::Declined(decline)) = &asked else {
        panic!("{asked:?}");
    };
    assert_eq!(decline.decline_code, Some("insufficient_funds"));
    assert_eq!(processor.look_up(key).await, asked);
    let back = refund("ch_1", 500);
    let asked = processor.execute(Uuid::now_v7(), &back, in_time()).await;
    assert_eq!(asked, done);
    assert_eq!(service.sums("ch_1").await, [2000, 2000, 0, 500]);
    assert_eq!(service.lines().await, 3);
}

/// The processor is slower than the client's patience, and executes all the same.
#[tokio::test]
async fn a_call_that_runs_out_of_time_is_doubt_and_its_effect_may_still_come() {
    let service = Processor::start().await;
    let processor = HttpProcessor::new(&service.url(), SHORT, || None).unwrap();
    let key = Uuid::now_v7();
    let long = json!({"fault": "delay_before", "milliseconds": 600_000});
    service.set_fault(long).await;
    let instruction = authorize("ch_1", "tok_visa");
    let asked = processor.execute(key, &instruction, in_time()).await;
    assert_unknown(&asked, "out of time");
    assert_unknown(&processor.look_up(key).await, "in progress");
    service.reset_faults().await;
    eventually("the effect comes", || async {
        processor.look_up(key).await == InstructionOutcome::Answered(Answer::Done)
    })
    .await;
    assert_eq!(service.lines().await, 1);
}

#[tokio::test]
async fn what_arrives_after_its_time_is_not_executed_and_takes_nothing_back() {
    let service = Processor::start().await;
    let processor = HttpProcessor::new(&service.url(), AMPLE, || None).unwrap();
    let key = Uuid::now_v7();
    let instruction = authorize("ch_1", "tok_visa");
    let too_late = Utc::now() - Duration::from_secs(1);
    let asked = processor.execute(key, &instruction, too_late).await;
    assert!(
        matches!(&asked, InstructionOutcome::NotExecuted(why) if why.contains("clock")),
        "{asked:?}"
    );
    assert_eq!(service.lines().await, 0);
    let done = InstructionOutcome::Answered(Answer::Done);
    let asked = processor.execute(key, &instruction, in_time()).await;
    assert_eq!(asked, done);
    // What was executed stays executed: the answer is the key's.
    let asked = processor.execute(key, &instruction, too_late).await;
    assert_eq!(asked, done);
    assert_eq!(service.lines().await, 1);
}

#[tokio::test]
async fn a_time_that_is_none_is_not_an_instruction() {
    let service = Processor::start().await;
    let key = Uuid::now_v7();
    let put = service
        .request(reqwest::Method::PUT, &format!("/operations/{key}"))
        .header("not-after", "tomorrow")
        .json(&authorize("ch_1", "tok_visa"));
    assert_eq!(put.send().await.unwrap().status(), 400);
    assert_eq!(service.lines().await, 0);
}
