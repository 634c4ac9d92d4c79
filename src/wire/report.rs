//! The report on an account's client, as clients see it.

use charge_once_service::request_log::{
    LoggedRequest,
    report::{Finding, FindingKind, Tested, began},
};

use super::prelude::*;

/// What a finding is, why it matters, and what to change.
fn words(kind: FindingKind) -> [&'static str; 3] {
    match kind {
        FindingKind::DoubleEffect => [
            "One operation was done twice, under two keys.",
            "The first reply was lost, and the client asked again with another key. So the server saw \
             a new request, and did it again: a second payment, or a second refund.",
            "Make one key for each operation, store it with the order before the first request, and send \
             each retry with it.",
        ],
        FindingKind::WebhookActedOnTwice => [
            "A webhook came twice, and was acted on twice.",
            "Webhooks are delivered at least once. What the handler did the first time, it did again.",
            "Remember the ids of the events that you have handled, or derive the key of what the \
             handler sends from the event's id.",
        ],
        FindingKind::LostEffect => [
            "The server did what the client asked for, and the client never learned of it.",
            "Its reply was lost, and the client neither asked again with the same key nor looked for \
             the object. So its books are wrong.",
            "Retry with the same key until there is an answer, also after a restart: store the key \
             before the first request.",
        ],
        FindingKind::NewKeyAfterFailure => [
            "After a failure, the client asked again with another key.",
            "This time nothing had been done before. If only the reply is lost, the same code makes \
             two payments.",
            "Keep the key until there is an answer that is final: a 2xx, or a 4xx other than 408, 409 and \
             429.",
        ],
        FindingKind::NoKey => [
            "Requests without an Idempotency-Key.",
            "A retry of such a request is a new request to the server, and does its work again. This \
             server accepted each under a key that it made itself, which no retry can send.",
            "Send a key with each request that changes something. stripe-php makes \
             one after Stripe::setMaxNetworkRetries(2).",
        ],
        FindingKind::RetryOfFinalAnswer => [
            "The client repeated a request after a final refusal.",
            "A 4xx is stored with its key, so each retry gets the same answer.",
            "Retry only after 408, 409, 429, 5xx and no answer. A corrected request needs a new key.",
        ],
        FindingKind::RetryWithoutWaiting => [
            "The client tried again twice in a row without waiting.",
            "Many such clients at once keep an overloaded server down.",
            "Wait half a second before the first retry, double the pause for each further one, and \
             add jitter.",
        ],
    }
}

views! {
    /// What is wrong with a client that uses the account, and the requests that show it.
    pub struct ReportView as Report
        of(tested: &Tested, findings: &[Finding<'_>], next: Option<RequestId>)
    where {
        let at = |request: Option<&LoggedRequest>| request.map(|one| began(one).as_secs());
        let (from, to) = (at(tested.requests.first()), at(tested.requests.last()));
        let (requests, count) = (tested.requests.len(), findings.len());
        let faults = tested.requests.iter().filter(|one| one.fault.is_some()).count();
        let found = if count == 0 { "Nothing".to_owned() } else { count.to_string() };
    } {
        /// Always `report`.
        always object: &'static str = "report";
        /// Requests on which a fault acted.
        faults: usize = faults;
        /// The worst first.
        findings: Vec<FindingView> = findings.iter().map(FindingView::from).collect();
        /// When the first request of the window came, in unix seconds.
        maybe from: u64 = from;
        /// There may be older requests: `before` for the next report.
        maybe next: String = next.map(|id| id.to_string());
        /// How many requests the report is about.
        requests: usize = requests;
        /// What was found, in one line.
        summary: String [example = "Nothing found in 12 requests, 3 faults."] =
            format!("{found} found in {requests} requests, {faults} faults.");
        /// When the last one came.
        maybe to: u64 = to;
    }

    /// One thing that is wrong with a client.
    pub struct FindingView as Finding from finding: &Finding<'_> where {
        let [title, why, change] = words(finding.kind);
    } {
        /// Always `finding`.
        always object: &'static str = "finding";
        /// What to change.
        change: &'static str = change;
        /// How many requests show it.
        count: usize = finding.count;
        /// The webhook that the client answered: evt_…
        maybe event: String = finding.event.map(|id| EventId(id).to_string());
        /// The objects that it made.
        objects: Vec<String> = finding.objects.iter().map(ToString::to_string).collect();
        /// The requests that show it, the oldest first: ten at most.
        requests: Vec<SentView> = finding.requests.iter().copied().map(SentView::from).collect();
        /// critical: money moved twice, or is lost; warning: it will, when a reply is lost at
        /// another moment; note: it costs time.
        severity: &'static str = finding.kind.severity().as_str();
        /// What it is, in one sentence.
        title: &'static str = title;
        /// double_effect, webhook_acted_on_twice, lost_effect, new_key_after_failure, no_key,
        /// retry_of_final_answer or retry_without_waiting.
        r#type: &'static str = finding.kind.as_str();
        /// Why it matters.
        why: &'static str = why;
    }

    /// A request that was sent.
    pub struct SentView as SentRequest from request: &LoggedRequest {
        /// Its `Request-Id`.
        id: String = RequestId(request.id).to_string();
        /// Always `request`.
        always object: &'static str = "request";
        /// When it came, in unix milliseconds.
        at: u64 = u64::try_from(began(request).as_millis()).unwrap_or(u64::MAX);
        /// How long it took, in milliseconds.
        duration: u64 = u64::try_from(request.duration.as_millis()).unwrap_or(u64::MAX);
        /// The fault that acted on it.
        maybe fault: String = request.fault.clone();
        /// Its key.
        maybe idempotency_key: String = request.idempotency_key.clone();
        /// Its method.
        method: String = request.method.clone();
        /// How it ended.
        outcome: &'static str = request.outcome.as_str();
        /// Its path, or the route where the path must not be kept.
        path: String = request.path.clone().unwrap_or_else(|| request.route.clone());
        /// The status of its reply; null: the client got none.
        maybe status: u16 = request.status;
    }
}
