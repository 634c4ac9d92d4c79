//! Single values: keys, ids, amounts, URLs, and stored replies.

use std::net::{IpAddr, Ipv6Addr};

use charge_once::{
    domain::{
        ids::ChargeId,
        money::{AMOUNT_MAX, Currency},
    },
    http::reply::render,
    idempotency::{IdempotencyKey, Record, Reply},
    webhooks::{check_url, is_public, literal_address},
};
use charge_once_developer::amount::minor_units;
use charge_once_strict_params::{canonical_integer, card_numbers::holds_card_number};
use chrono::Utc;
use proptest::{collection::vec, prelude::*};
use url::Url;

use crate::{fuzz, mutation::mutated};

/// The contract's rule about keys, written once more.
fn is_key(bare: &[u8]) -> bool {
    let allowed = |byte: &u8| (0x21..=0x7e).contains(byte) && !b"\"\\,".contains(byte);
    let mistakes: [&[u8]; 5] = [b"undefined", b"null", b"None", b"nil", b"NaN"];
    (1..=255).contains(&bare.len()) && bare.iter().all(allowed) && !mistakes.contains(&bare)
}

#[test]
fn keys() {
    let visible = vec(0x20_u8..0x80, 0..300);
    let headers = prop_oneof![vec(any::<u8>(), 0..20), visible, vec(Just(b'k'), 250..260)];
    fuzz(&headers, |bytes| {
        prop_assert_eq!(IdempotencyKey::parse(&bytes).is_ok(), {
            let quoted = bytes.len() >= 2 && bytes.starts_with(b"\"") && bytes.ends_with(b"\"");
            match quoted {
                true => is_key(&bytes[1..bytes.len() - 1]),
                false => is_key(&bytes),
            }
        });
        if let Ok(key) = IdempotencyKey::parse(&bytes) {
            let quoted = format!("\"{}\"", key.as_str());
            prop_assert_eq!(IdempotencyKey::parse(quoted.as_bytes()), Ok(key));
        }
        Ok(())
    });
}

/// Cursors are ids: one spelling each, in the order of the UUIDs.
#[test]
fn ids() {
    let texts = prop_oneof![
        "(ch|re|)_[0-7][0-9a-z]{25}",
        "\\PC{0,40}",
        "ch_[0-9A-Zilou]{26}"
    ];
    fuzz(&(texts, any::<[u128; 2]>()), |(text, [one, other])| {
        if let Some(id) = ChargeId::parse(&text) {
            prop_assert_eq!(id.to_string(), text);
        }
        let [one, other] = [one, other].map(|bits| ChargeId(uuid::Uuid::from_u128(bits)));
        prop_assert_eq!(ChargeId::parse(&one.to_string()), Some(one));
        prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
        Ok(())
    });
}

#[test]
fn amounts() {
    let texts = prop_oneof!["[-+]?[0-9]{0,25}(\\.[0-9]{0,5})?", "\\PC{0,12}"];
    let codes = prop_oneof![
        "[a-zA-Z]{3}",
        "\\PC{0,4}",
        Just("usd".to_owned()),
        Just("JPY".to_owned())
    ];
    fuzz(&(texts, codes), |(text, code)| {
        if let Some(number) = canonical_integer(&text) {
            prop_assert_eq!(number.to_string(), text.clone());
        }
        if let Some(currency) = Currency::parse(&code) {
            prop_assert_eq!(currency.to_string(), code.to_ascii_lowercase());
            if let Ok(minor_units) = minor_units(&text, currency.decimals()) {
                prop_assert!(minor_units >= 0);
                let digits: String = text.chars().filter(char::is_ascii_digit).collect();
                let written: i128 = digits.parse().unwrap();
                prop_assert!(i128::from(minor_units) >= written);
                prop_assert!(minor_units <= AMOUNT_MAX || written > 0);
            }
        }
        Ok(())
    });
}

const URL_TOKENS: &[&str] = &[
    "http://",
    "https://",
    "127.0.0.1",
    "[::1]",
    "[::ffff:10.0.0.1]",
    "0x7f.1",
    "2130706433",
    "localhost",
    "@",
    ":",
    "/",
    "#",
    "?",
    "%2e",
    "\\",
    "\t",
    "\u{3002}",
    "169.254.169.254",
    ":0",
];

#[test]
fn webhook_urls() {
    let texts =
        mutated("url", URL_TOKENS).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    fuzz(&texts, |text| {
        if check_url(&text, false).is_ok() {
            let url = Url::parse(&text).unwrap();
            prop_assert!(literal_address(&url).is_none_or(is_public));
            prop_assert!(url.username().is_empty() && url.password().is_none());
            prop_assert_eq!(check_url(&text, true), Ok(()));
            // A second reader sends to the same place.
            prop_assert!(check_url(url.as_str(), false).is_ok());
        }
        Ok(())
    });
}

/// An IPv6 address that holds an IPv4 address is as public as that one at most.
#[test]
fn addresses() {
    fuzz(&any::<[u8; 4]>(), |octets| {
        let v4 = std::net::Ipv4Addr::from(octets);
        let [a, b] = [0, 2].map(|at| u16::from_be_bytes([octets[at], octets[at + 1]]));
        // Behind a NAT64 gateway (RFC 6052).
        let translated = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, a, b);
        for holder in [v4.to_ipv6_mapped(), translated] {
            prop_assert!(is_public(IpAddr::V4(v4)) || !is_public(IpAddr::V6(holder)));
        }
        let is_private = v4.is_private() || v4.is_loopback() || v4.is_link_local();
        prop_assert!(!(is_private && is_public(IpAddr::V4(v4))));
        Ok(())
    });
}

#[test]
fn card_numbers() {
    let texts = prop_oneof![
        "[0-9 .-]{0,60}",
        "([0-9\u{ff10}-\u{ff19}]{4}[ \u{a0}\u{2009}\u{2013}./-]){0,12}",
        "\\PC{0,80}",
        "[0-9]{0,4000}"
    ];
    fuzz(&texts, |text| {
        let in_a_sentence = format!("x; {text}; x");
        prop_assert_eq!(holds_card_number(&text), holds_card_number(&in_a_sentence));
        let spoiled: String = text
            .chars()
            .flat_map(|character| ['x', character])
            .collect();
        prop_assert!(!holds_card_number(&spoiled));
        Ok(())
    });
}

/// A stored reply is shown with its status, its bytes and every header, in order; or it is refused.
#[test]
fn stored_replies() {
    let header = ("[a-z][a-z0-9-]{0,12}", "[ -~]{0,30}");
    let replies = (
        100_u16..1000,
        vec(header, 0..6),
        vec(any::<u8>(), 0..200),
        any::<bool>(),
    );
    fuzz(&replies, |(status, headers, body, replayed)| {
        let now = Utc::now();
        let record = Record {
            reply: Reply {
                status,
                headers: headers.clone(),
                body: body.clone(),
                resource_id: None,
            },
            request_id: "req_1".to_owned(),
            method: "POST".to_owned(),
            path: "/charges".to_owned(),
            label: None,
            fingerprint_version: 1,
            fingerprint: vec![0; 32],
            created_at: now,
            expires_at: now,
            is_sealed: false,
        };
        let Ok(response) = render(&record, replayed) else {
            return Ok(());
        };
        prop_assert_eq!(response.status().as_u16(), status);
        for (name, _) in &headers {
            let shown = response.headers().get_all(name.as_str());
            let shown: Vec<_> = shown
                .map(|value| value.to_str().unwrap().to_owned())
                .collect();
            let stored = headers.iter().filter(|(other, _)| other == name);
            // The HTTP layer trims what surrounds a value.
            let stored: Vec<_> = stored.map(|(_, value)| value.clone()).collect();
            prop_assert!(shown.len() >= stored.len());
            prop_assert_eq!(&shown[..stored.len()], &stored[..]);
        }
        let bytes = actix_web::body::MessageBody::try_into_bytes(response.into_body()).unwrap();
        prop_assert_eq!(&bytes[..], &body[..]);
        Ok(())
    });
}
