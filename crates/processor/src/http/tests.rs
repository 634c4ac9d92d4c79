//! How replies are interpreted, one by one.

use super::*;
use crate::{
    Answer,
    test_cards::{Decline, PROCESSING_ERROR},
};

const KEY: Uuid = Uuid::from_u128(0x0192_3f45_6789_7abc_8def_0123_4567_89ab);

fn said(status: u16, body: &str) -> InstructionOutcome {
    let body = body.replace("KEY", &KEY.to_string());
    let status = StatusCode::from_u16(status).unwrap_or_default();
    classify(KEY, Attempt::Replied(status, body.into_bytes()))
}

#[test]
fn only_a_whole_answer_for_this_key_is_an_answer() {
    let done = InstructionOutcome::Answered(Answer::Done);
    assert_eq!(said(200, r#"{"key":"KEY","status":"done"}"#), done);
    assert_eq!(said(200, r#"{"status":"done","key":"KEY","x":1}"#), done);
    for (body, decline) in [
        (
            r#"{"key":"KEY","status":"declined","code":"processing_error"}"#,
            PROCESSING_ERROR,
        ),
        (
            r#"{"key":"KEY","status":"declined","code":"card_declined","decline_code":"lost_card"}"#,
            Decline::named("card_declined", Some("lost_card")),
        ),
    ] {
        assert_eq!(
            said(200, body),
            InstructionOutcome::Answered(Answer::Declined(decline))
        );
    }
}

#[test]
fn operations_are_below_whatever_path_the_processor_is_at() {
    for (url, operations) in [
        ("http://host:1", "http://host:1/operations"),
        ("http://host/", "http://host/operations"),
        ("https://u:p@host/a/b/", "https://u:p@host/a/b/operations"),
        ("https://host/a/b", "https://host/a/b/operations"),
    ] {
        assert_eq!(
            operations_below(url).map(String::from).as_deref(),
            Some(operations)
        );
    }
    for url in [
        "",
        "host:8081",
        "ftp://host",
        "http://",
        "http://h/?a",
        "http://h/#a",
    ] {
        assert_eq!(operations_below(url), None, "{url}");
    }
}

#[test]
fn only_the_processor_s_own_word_for_this_key_is_not_executed() {
    let body = r#"{"key":"KEY","status":"not_executed"}"#;
    assert!(matches!(
        said(503, body),
        InstructionOutcome::NotExecuted(_)
    ));
    assert!(matches!(
        classify(KEY, Attempt::NotSent(String::new())),
        InstructionOutcome::NotExecuted(_)
    ));
}

#[test]
fn everything_else_is_doubt() {
    let another = r#"{"key":"00000000-0000-0000-0000-000000000000","status":"done"}"#;
    let another_refused =
        r#"{"key":"00000000-0000-0000-0000-000000000000","status":"not_executed"}"#;
    let done = r#"{"key":"KEY","status":"done"}"#;
    let refused = r#"{"key":"KEY","status":"not_executed"}"#;
    for (status, body) in [
        (200, another),
        (503, another_refused),
        (200, ""),
        (200, "{"),
        (200, "<html>"),
        (200, r#"{"status":"done"}"#),
        (200, r#"{"key":"KEY"}"#),
        (200, r#"{"key":"KEY","status":"Done"}"#),
        (
            200,
            r#"{"key":"KEY","status":"done","code":"expired_card"}"#,
        ),
        (200, r#"{"key":"KEY","status":"declined"}"#),
        (200, r#"{"key":"KEY","status":"done","status":"declined"}"#),
        (200, r#"{"key":"KEY","status":"done"}{}"#),
        (200, refused),
        (201, done),
        (202, done),
        (204, ""),
        (302, done),
        (400, r#"{"key":"KEY","status":"invalid"}"#),
        (404, r#"{"key":"KEY","status":"not_found"}"#),
        (404, refused),
        (409, r#"{"key":"KEY","status":"in_progress"}"#),
        (422, r#"{"key":"KEY","status":"another_instruction"}"#),
        (500, r#"{"key":"KEY","status":"unknown"}"#),
        (500, refused),
        (500, done),
        (502, refused),
        (503, ""),
        (503, done),
        (503, r#"{"status":"not_executed"}"#),
    ] {
        assert!(
            matches!(said(status, body), InstructionOutcome::Unknown(_)),
            "{status} {body}"
        );
    }
    let broken = classify(KEY, Attempt::Broken(String::new()));
    assert!(matches!(broken, InstructionOutcome::Unknown(_)));
}
