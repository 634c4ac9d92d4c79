//! What happens to deliveries, told as it happens: for metrics, log lines and traces of an
//! application.

use std::time::Duration;

use tracing::Span;

use crate::{Attempt, Claimed};

/// Is told what happens. It must be fast, and must neither block nor panic.
pub trait Observer: Send + Sync + 'static {
    /// An attempt is about to be made, in the span that is returned. If that has the fields
    /// `http.response.status_code` and `otel.status_code`, they are filled in.
    fn begins(&self, delivery: &Claimed) -> Span {
        let _ = delivery;
        Span::none()
    }

    /// An attempt has ended. The next one is made `again` after it, unless it was the last.
    fn ended(&self, delivery: &Claimed, attempt: &Attempt, again: Option<Duration>) {
        if !attempt.succeeded() && again.is_none() {
            let (delivery, status) = (delivery.id, attempt.response_status);
            tracing::warn!(%delivery, status, error = attempt.error, "gave a webhook up");
        }
    }
}

/// Where an application tells nothing more.
pub(crate) struct Unobserved;

impl Observer for Unobserved {}
