//! A fault plan: faults that act on a test account's requests and webhooks without being asked for.

use sha2::{Digest, Sha256};

use super::prelude::*;

/// Most plans of one account.
pub const PLANS_MAX: i64 = 32;

/// The target of a plan about every request.
pub const EVERY_REQUEST: &str = "*";

/// What the target of a plan about webhooks begins with. The type of event follows, or `*`.
pub const EVENT: &str = "event ";

named! {
    /// What happens to a request, by the names of the header `Fault`, or to a webhook.
    pub enum PlannedFault {
        /// The work is done, and its reply does not reach the client.
        ReplyLost,
        /// The request does not reach the work.
        RequestLost,
        /// The work begins later.
        Delay,
        /// 500 instead of the work.
        #[strum(serialize = "500")]
        InternalError,
        /// 503 instead of the work.
        #[strum(serialize = "503")]
        Unavailable,
        /// 429 instead of the work.
        #[strum(serialize = "429")]
        RateLimited,
        /// The answer of a key whose first request has not ended.
        InUse,
        /// The webhook is delivered, and once it is taken, again.
        WebhookTwice,
        /// The webhook is sent later.
        WebhookLate,
        /// The webhook is sent after later ones: it is delayed as by `WebhookLate`.
        WebhookOutOfOrder,
        /// The webhook is never sent, and counts as delivered.
        WebhookLost,
    }
}

impl PlannedFault {
    /// Whether it acts on webhooks, and not on requests.
    pub fn is_of_webhooks(self) -> bool {
        self.as_str().starts_with("webhook_")
    }
}

/// A plan, with what it has done so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// Which one.
    pub id: FaultPlanId,
    /// What it is about: `POST /refunds`, `/refunds` or `*` for requests, or an event.
    pub target: String,
    /// What happens.
    pub fault: PlannedFault,
    /// How long a delay is, in seconds.
    pub seconds: i64,
    /// It acts on the first N.
    pub first: Option<i64>,
    /// It acts on every Nth.
    pub every: Option<i64>,
    /// The chance that it acts, in percent.
    pub percent: Option<i64>,
    /// Makes the chance the same each time.
    pub seed: i64,
    /// It acts on no more.
    pub acts_at_most: i64,
    /// How many it was about, so far.
    pub matched: i64,
    /// On how many of them it has acted.
    pub acted: i64,
    /// When it was made, by the database's clock.
    pub created_at: DateTime<Utc>,
}

impl FaultPlan {
    /// Whether it acts on the last one that it counted.
    pub fn acts(&self) -> bool {
        let chosen = match (self.first, self.every) {
            (Some(first), _) => self.matched <= first,
            (None, Some(every)) => self.matched % every.max(1) == 0,
            (None, None) => self.draw() < self.percent.unwrap_or(0),
        };
        chosen && self.acted < self.acts_at_most
    }

    /// A number from 0 to 99 that depends on the seed and the count alone.
    fn draw(&self) -> i64 {
        let seeded = Sha256::new().chain_update(self.seed.to_be_bytes());
        let digest = seeded.chain_update(self.matched.to_be_bytes()).finalize();
        let number = digest.iter().take(4);
        number.fold(0, |number, byte| number * 256 + i64::from(*byte)) % 100
    }
}

/// The targets of the plans that are about a request of this route, without `/v1`.
pub fn targets_of_request(method: &str, route: &str) -> [String; 3] {
    [
        format!("{method} {route}"),
        route.to_owned(),
        EVERY_REQUEST.to_owned(),
    ]
}

/// The targets of the plans that are about an event of this type.
pub fn targets_of_event(event_type: &str) -> [String; 2] {
    [format!("{EVENT}{event_type}"), format!("{EVENT}*")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(first: Option<i64>, every: Option<i64>, percent: Option<i64>) -> FaultPlan {
        FaultPlan {
            id: FaultPlanId(uuid::Uuid::nil()),
            target: EVERY_REQUEST.to_owned(),
            fault: PlannedFault::Unavailable,
            seconds: 0,
            first,
            every,
            percent,
            seed: 7,
            acts_at_most: 1_000,
            matched: 0,
            acted: 0,
            created_at: DateTime::UNIX_EPOCH,
        }
    }

    /// On which of the first `count` it acts, if it may act on `most`.
    fn acted(mut plan: FaultPlan, count: i64, most: i64) -> Vec<i64> {
        plan.acts_at_most = most;
        let mut acted = Vec::new();
        for matched in 1..=count {
            plan.matched = matched;
            if plan.acts() {
                plan.acted += 1;
                acted.push(matched);
            }
        }
        acted
    }

    #[test]
    fn a_plan_acts_on_the_first_or_on_every_nth() {
        assert_eq!(acted(plan(Some(2), None, None), 9, 100), [1, 2]);
        assert_eq!(acted(plan(None, Some(3), None), 9, 100), [3, 6, 9]);
        assert_eq!(acted(plan(None, Some(3), None), 9, 2), [3, 6]);
        assert_eq!(acted(plan(None, Some(1), None), 3, 100), [1, 2, 3]);
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed() {
        let some = acted(plan(None, None, Some(30)), 1_000, 1_000);
        assert_eq!(some, acted(plan(None, None, Some(30)), 1_000, 1_000));
        assert!((200..400).contains(&some.len()), "{}", some.len());
        let other = FaultPlan {
            seed: 8,
            ..plan(None, None, Some(30))
        };
        assert_ne!(some, acted(other, 1_000, 1_000));
        assert_eq!(acted(plan(None, None, Some(100)), 50, 1_000).len(), 50);
    }
}
