//! Only what the service signed, and only for a while.

use webhook_receiver::{TOLERANCE_SECONDS, verify};

use crate::support::{Receiver, SECRET, charge_succeeded, now, signature};

#[test]
fn a_signature_is_the_one_that_openssl_computes() {
    // printf '1795000000.{"id":"evt_1"}' | openssl dgst -sha256 -hmac whsec_test
    let header = "t=1795000000,\
                  v1=9768205fbb644a6a645cdd13f225c6791ed91580e4d16c14b9a8e73cd4ba4393";
    let body = br#"{"id":"evt_1"}"#;
    assert_eq!(verify("whsec_test", header, body, 1_795_000_000), Ok(()));
}

#[test]
fn a_signature_is_good_for_five_minutes_in_both_directions() {
    let tolerance = TOLERANCE_SECONDS.cast_signed();
    let header = signature(SECRET, 1_795_000_000, "{}");
    let at = |now| verify(SECRET, &header, b"{}", now).is_ok();
    for (offset, good) in [
        (0, true),
        (tolerance, true),
        (tolerance + 1, false),
        (-tolerance, true),
        (-tolerance - 1, false),
    ] {
        assert_eq!(at(1_795_000_000 + offset), good, "{offset}");
    }
    assert!(!at(i64::MIN) && !at(i64::MAX));
}

#[test]
fn one_of_several_signatures_is_enough() {
    let ours = signature(SECRET, 0, "{}");
    let (time, ours) = ours.split_once(',').unwrap();
    let theirs = signature("whsec_of_another_endpoint", 0, "{}");
    let (_, theirs) = theirs.split_once(',').unwrap();
    for header in [
        format!("{time},{theirs},{ours}"),
        format!("{time},v0=old,{ours},{theirs}"),
        format!("{ours},{time}"),
    ] {
        assert_eq!(verify(SECRET, &header, b"{}", 0), Ok(()), "{header}");
    }
    let header = format!("{time},{theirs}");
    assert!(verify(SECRET, &header, b"{}", 0).is_err());
}

#[tokio::test]
async fn a_delivery_with_a_bad_signature_is_refused_and_leaves_nothing() {
    let receiver = Receiver::start().await;
    let body = charge_succeeded("evt_1");
    let tolerance = TOLERANCE_SECONDS.cast_signed();
    let good = signature(SECRET, now(), &body);
    let (time, v1) = good.split_once(',').unwrap();
    for bad in [
        String::new(),
        "t=,v1=".to_owned(),
        "t=soon,v1=00".to_owned(),
        time.to_owned(),
        v1.to_owned(),
        format!("{time},v1="),
        format!("{time},v1=not-hexadecimal"),
        // Cut off, and one that belongs to another time.
        good[..good.len() - 2].to_owned(),
        format!("t={},{v1}", now() + 60),
        signature("whsec_of_another_endpoint", now(), &body),
        signature(SECRET, now(), &charge_succeeded("evt_2")),
        signature(SECRET, now() - tolerance - 60, &body),
        signature(SECRET, now() + tolerance + 60, &body),
    ] {
        assert_eq!(receiver.deliver_signed(&bad, &body).await, 400, "{bad}");
    }
    assert_eq!(receiver.effects().await, (0, 0));
    assert_eq!(receiver.deliver_signed(&good, &body).await, 200);
    assert_eq!(receiver.effects().await, (1, 2000));
}
