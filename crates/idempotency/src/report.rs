//! What is known of a key, in words and as JSON: for a command that an operator runs.
//!
//! Promise: no body is told, because it may hold secrets. What is told describes one moment: that
//! nothing is stored never means that a new key is safe.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};

use crate::{Inspected, KnownRequest, LeasedKey};

/// All that the tables of this crate tell of one key.
#[derive(Debug)]
pub struct KeyReport {
    /// The key.
    pub key: String,
    /// Its record, or its request in flight.
    pub found: Inspected,
    /// While its request takes several transactions.
    pub lease: Option<LeasedKey>,
}

impl KeyReport {
    /// `completed`, `abandoned`, `expired`, `in_doubt`, `in_flight` or `nothing`.
    pub fn state(&self) -> &'static str {
        self.found.status().unwrap_or("nothing")
    }

    /// Lines for a person. A path or a label may hold any character that its client sent, line
    /// breaks too: escape each line where it is printed.
    pub fn lines(&self) -> Vec<String> {
        let state = match self.state() {
            "in_doubt" => {
                "in doubt: an attempt may have been executed, and its answer is not known. A retry \
                 with this key is safe"
            }
            "in_flight" => "in flight: a retry with this key is safe",
            "nothing" => {
                "nothing is stored now, and no request is at work. It was never used, it has \
                 expired, or its request failed. Unless it has expired, only a retry with the same \
                 key is safe"
            }
            "expired" => {
                "its outcome is no longer kept. The key is remembered: a request with it is refused"
            }
            "abandoned" => "given up: no request with it is executed",
            completed => completed,
        };
        let mut lines = vec![
            format!("key      {}", self.key),
            format!("state    {state}"),
        ];
        match self.found.request() {
            Some(request) => lines.extend(lines_of(&request)),
            None if matches!(self.found, Inspected::InFlight(_)) => lines.push(
                "request  another process is at work on it, and has committed nothing yet"
                    .to_owned(),
            ),
            None => {
                if let Inspected::Expired(expired) = &self.found {
                    let resource = expired.answer.resource_id.as_deref().unwrap_or("unknown");
                    lines.push(format!("made     {resource}"));
                }
            }
        }
        let lease = self.lease.as_ref();
        lines.extend(lease.map(|lease| format!("lease    {}", lease.standing())));
        lines
    }

    /// `key`, `state`, `lease`, and what is known of the first request.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut told = object(json!({
            "key": self.key,
            "state": self.state(),
            "lease": self.lease.as_ref().map(LeasedKey::to_json),
        }));
        if let Inspected::Expired(expired) = &self.found {
            told.extend(object(json!({
                "resource": expired.answer.resource_id,
                "expired_at": expired.at.map(rfc_3339),
            })));
        }
        if let Some(request) = self.found.request() {
            told.extend(request_to_json(&request));
        }
        told
    }
}

fn lines_of(request: &KnownRequest) -> Vec<String> {
    let KnownRequest {
        method,
        path,
        request_id,
        ..
    } = request;
    let first = format!("request  {method} {path}  {request_id}");
    let about = request.resource_id.as_ref();
    let about = about.map_or_else(String::new, |resource| format!(", about {resource}"));
    let is_sealed = request.outcome.is_some_and(|outcome| outcome.is_sealed);
    let sealed = if is_sealed { ", sealed" } else { "" };
    let (mut lines, expires) = match &request.outcome {
        None => (vec![first + &about], String::new()),
        Some(outcome) => (
            vec![first, format!("reply    {}{sealed}{about}", outcome.status)],
            format!(", expires {:.0}", outcome.expires_at),
        ),
    };
    let used = request.created_at.as_ref();
    lines.extend(used.map(|created_at| format!("used     {created_at:.0}{expires}")));
    lines.push(format!("print    {}", hex(&request.fingerprint)));
    let workflow = request.label.as_ref();
    lines.extend(workflow.map(|workflow| format!("workflow {workflow}")));
    lines
}

fn request_to_json(request: &KnownRequest) -> Map<String, Value> {
    let mut told = object(json!({
        "request": request.request_id,
        "method": request.method,
        "path": request.path,
        "resource": request.resource_id,
        "workflow": request.label,
        "fingerprint": hex(&request.fingerprint),
        "created_at": request.created_at.map(rfc_3339),
    }));
    if let Some(outcome) = &request.outcome {
        let ended = json!({
            "status": outcome.status,
            "sealed": outcome.is_sealed,
            "expires_at": rfc_3339(outcome.expires_at),
        });
        told.extend(object(ended));
    }
    told
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else {
        return Map::new();
    };
    members
}

fn rfc_3339(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl LeasedKey {
    /// Who works on it, and what is known of its effect: a part of a line for a person.
    pub fn standing(&self) -> String {
        let status = self.request.status().replace('_', " ");
        let work = if self.is_held {
            "a process is at work on it".to_owned()
        } else {
            format!(
                "the reconciler continues it after {:.0}",
                self.recover_after
            )
        };
        format!(
            "{status}, taken over {} times, {work}; operation {}",
            self.takeovers, self.operation
        )
    }

    /// All but the account, which an application has a name for.
    pub fn to_json(&self) -> Map<String, Value> {
        object(json!({
            "key": self.key,
            "request": self.request.request_id,
            "method": self.request.method,
            "path": self.request.path,
            "created_at": self.request.created_at.map(rfc_3339),
            "operation": self.operation.to_string(),
            "in_doubt": self.request.in_doubt,
            "takeovers": self.takeovers,
            "is_held": self.is_held,
            "leased_until": rfc_3339(self.leased_until),
            "recover_after": rfc_3339(self.recover_after),
        }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::indexing_slicing,
        reason = "a test may stop at the first surprise"
    )]

    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::{
        Record, Reply,
        fingerprint::{NO_FINGERPRINT, OF_ANY_REQUEST},
    };

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(seconds, 0).unwrap_or_default()
    }

    fn record(status: u16) -> Record {
        Record {
            reply: Reply {
                resource_id: Some("booking-1".to_owned()),
                ..Reply::raw_json(status, "secret")
            },
            request_id: "req_1".to_owned(),
            method: "POST".to_owned(),
            path: "/bookings".to_owned(),
            label: Some("trip".to_owned()),
            fingerprint_version: 1,
            fingerprint: vec![1, 0xab],
            created_at: at(0),
            expires_at: at(60),
            is_sealed: true,
        }
    }

    fn in_doubt() -> KeyReport {
        let request = KnownRequest {
            in_doubt: true,
            ..KnownRequest::from(&record(0))
        };
        KeyReport {
            key: "one".to_owned(),
            found: Inspected::InFlight(Some(request.clone())),
            lease: Some(LeasedKey {
                account_id: Uuid::nil(),
                key: "one".to_owned(),
                request,
                operation: Uuid::nil(),
                is_held: false,
                leased_until: at(1),
                recover_after: at(2),
                takeovers: 3,
            }),
        }
    }

    #[test]
    fn a_key_in_doubt_is_told_with_its_lease() {
        let report = in_doubt();
        assert_eq!(
            report.lines().join("\n"),
            "key      one\n\
             state    in doubt: an attempt may have been executed, and its answer is not known. A \
             retry with this key is safe\n\
             request  POST /bookings  req_1, about booking-1\n\
             used     1970-01-01 00:00:00 UTC\n\
             print    01ab\n\
             workflow trip\n\
             lease    in doubt, taken over 3 times, the reconciler continues it after \
             1970-01-01 00:00:02 UTC; operation 00000000-0000-0000-0000-000000000000"
        );
        let json = report.to_json();
        assert_eq!(json["state"], "in_doubt");
        assert_eq!(json.get("status"), None);
        assert_eq!(json["lease"]["recover_after"], "1970-01-01T00:00:02Z");
    }

    #[test]
    fn a_completed_key_is_told_with_its_status_and_without_its_body() {
        let report = KeyReport {
            found: Inspected::Completed(Arc::new(record(201))),
            lease: None,
            ..in_doubt()
        };
        let (text, json) = (report.lines().join("\n"), report.to_json());
        let reply = "\nreply    201, sealed, about booking-1\nused     1970-01-01 00:00:00 UTC, expires 1970-01-01 \
                     00:01:00 UTC\n";
        assert!(text.contains(reply), "{text}");
        assert_eq!(json["state"], "completed");
        assert_eq!(json["status"], 201);
        assert_eq!(json["expires_at"], "1970-01-01T00:01:00Z");
        assert!(!text.contains("secret") && !Value::from(json).to_string().contains("secret"));
    }

    #[test]
    fn a_key_that_was_given_up_is_not_told_as_completed() {
        let given_up = Record {
            fingerprint_version: OF_ANY_REQUEST,
            fingerprint: NO_FINGERPRINT.to_vec(),
            ..record(409)
        };
        let report = KeyReport {
            found: Inspected::Completed(Arc::new(given_up)),
            lease: None,
            ..in_doubt()
        };
        let text = report.lines().join("\n");
        assert!(text.contains("\nstate    given up: no request"), "{text}");
        assert_eq!(report.to_json()["state"], "abandoned");
    }

    #[test]
    fn that_nothing_is_stored_is_not_told_as_safety() {
        let report = KeyReport {
            found: Inspected::Nothing,
            lease: None,
            ..in_doubt()
        };
        let text = report.lines().join("\n");
        assert!(text.contains("only a retry with the same key is safe"));
        let nothing = json!({"key": "one", "state": "nothing", "lease": null});
        assert_eq!(Value::Object(report.to_json()), nothing);
    }
}
