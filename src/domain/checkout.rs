//! What a checkout is made of, which steps it takes, and what undoes them.
//!
//! ```text
//! create_order ─▶ create_charge ─▶ allocate_inventory ─▶ completed
//!                       │ declined         │ out of stock
//!                       │                  ▼
//!                       │            create_refund
//!                       ▼                  ▼
//!                  cancel_order ◀──────────┘ ─▶ canceled
//! ```

use chrono::TimeDelta;

use super::{charge::Card, operation::AskedBy, order::OrderTerms, prelude::*};

/// A checkout that is to be made.
#[derive(Debug, Clone)]
pub struct NewCheckout {
    /// Of its order. Each line has a stock-keeping unit.
    pub terms: OrderTerms,
    /// The card that pays.
    pub card: Card,
}

named! {
    /// One step of a checkout: one transaction, or one operation in phases.
    #[derive(Ord, PartialOrd)]
    pub enum StepName {
        /// Opens the order.
        CreateOrder = 1,
        /// Makes the charge for it.
        CreateCharge = 2,
        /// Takes the items from the inventory, and with that the order is paid.
        AllocateInventory = 3,
        /// Gives the charge back: there were not enough items.
        CreateRefund = 4,
        /// Closes the order that came to nothing.
        CancelOrder = 5,
    }
}

impl StepName {
    /// The planned steps.
    pub const PLAN: &'static [Self] = &[
        Self::CreateOrder,
        Self::CreateCharge,
        Self::AllocateInventory,
    ];

    /// Where it stands among the steps.
    pub fn position(self) -> i16 {
        self as i16
    }

    /// What has to be undone once this step is refused for good.
    pub fn compensation(self) -> &'static [Self] {
        match self {
            Self::CreateCharge => &[Self::CancelOrder],
            Self::AllocateInventory => &[Self::CreateRefund, Self::CancelOrder],
            Self::CreateOrder | Self::CreateRefund | Self::CancelOrder => &[],
        }
    }
}

named! {
    /// How far a step is.
    pub enum StepState {
        /// To be run, or running.
        Pending,
        /// Done, for good.
        Done,
        /// Refused, for good: what was done before is undone by later steps.
        Refused,
        /// Not to be run any more, because an earlier step was refused.
        Skipped,
    }
}

/// One step and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// What it does.
    pub name: StepName,
    /// How far it is.
    pub state: StepState,
    /// The id of what it made or changed, once it ended.
    pub resource: Option<String>,
    /// Number of attempts: one when the step becomes the next one, and one more whenever the
    /// checkout is continued after a crash or a failure.
    pub attempts: i32,
}

impl Step {
    fn planned(names: &[StepName]) -> impl Iterator<Item = Self> {
        names.iter().map(|name| Self {
            name: *name,
            state: StepState::Pending,
            resource: None,
            attempts: 0,
        })
    }
}

named! {
    /// Where a checkout stands.
    pub enum CheckoutStatus {
        /// It has steps to run, forwards or undoing, or its end is to be written.
        InProgress,
        /// The order is paid and its items are allocated.
        Completed,
        /// Nothing is left of it: no money, no items, a canceled order.
        Canceled,
    }
}

/// Why a step was refused for good, as it is told to the client when the checkout ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRefusal {
    /// The code of the error, for programs.
    #[serde(rename = "failure_code")]
    pub code: String,
    /// For people.
    #[serde(rename = "failure_message")]
    pub message: String,
    /// The parameter at fault.
    #[serde(rename = "failure_param")]
    pub param: Option<String>,
    /// The issuer's reason, for a declined card.
    pub decline_code: Option<String>,
}

/// How long after a refused refund the next one is made: a person should see why, meanwhile.
const REFUND_WAIT: TimeDelta = TimeDelta::hours(1);

/// A checkout.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Checkout {
    /// Which one.
    pub id: CheckoutId,
    /// Of its order.
    #[serde(flatten)]
    pub terms: OrderTerms,
    /// The card that pays.
    #[serde(flatten)]
    pub card: Card,
    /// The order, once there is one.
    #[serde(rename = "order_id")]
    pub order: Option<OrderId>,
    /// Why a step was refused for good, if one was.
    #[serde(flatten)]
    pub refusal: Option<StepRefusal>,
    /// Where it stands.
    pub status: CheckoutStatus,
    /// What was run, and what is to be, in the order in which steps run.
    #[serde(skip_serializing)]
    pub steps: Vec<Step>,
    /// How many refunds the processor refused to make; the next one is another operation.
    pub refused_refunds: i32,
    /// When it refused the last of them.
    pub refund_refused_at: Option<DateTime<Utc>>,
    /// The origin of its request.
    #[serde(flatten)]
    pub asked_by: AskedBy,
    /// How often it was changed, and once for its creation.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

impl Checkout {
    /// A new one, with its planned steps.
    pub fn begun(
        id: CheckoutId,
        new: NewCheckout,
        asked_by: AskedBy,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            terms: new.terms,
            card: new.card,
            order: None,
            refusal: None,
            status: CheckoutStatus::InProgress,
            steps: Step::planned(StepName::PLAN).collect(),
            refused_refunds: 0,
            refund_refused_at: None,
            asked_by,
            version: 1,
            created_at,
        }
    }

    /// The step that is to be run now; `None` once no step is left.
    pub fn next(&self) -> Option<StepName> {
        let mut steps = self.steps.iter();
        let pending = steps.find(|step| step.state == StepState::Pending);
        pending.map(|step| step.name)
    }

    fn next_mut(&mut self) -> Option<&mut Step> {
        let mut steps = self.steps.iter_mut();
        steps.find(|step| step.state == StepState::Pending)
    }

    /// With one more attempt of its next step, if there is one.
    pub fn attempted(mut self) -> Self {
        if let Some(step) = self.next_mut() {
            step.attempts += 1;
        }
        self
    }

    /// Its next step is done, and has made or changed this.
    pub fn done(mut self, resource: String) -> Self {
        if let Some(step) = self.next_mut() {
            step.state = StepState::Done;
            step.resource = Some(resource);
        }
        self.attempted()
    }

    /// Its next step is refused for good. What was to follow is not to be run any more, and what is
    /// to be run instead undoes what was.
    pub fn refused(mut self, resource: Option<String>, why: StepRefusal) -> Self {
        let mut compensation: &[StepName] = &[];
        if let Some(step) = self.next_mut() {
            step.state = StepState::Refused;
            step.resource = resource;
            compensation = step.name.compensation();
        }
        while let Some(step) = self.next_mut() {
            step.state = StepState::Skipped;
        }
        self.steps.extend(Step::planned(compensation));
        self.refusal = Some(why);
        self.attempted()
    }

    /// The processor refuses to give the money back, which must go back: the step stays, and
    /// another refund is made, but not at once.
    pub fn refund_refused(mut self, at: DateTime<Utc>) -> Self {
        self.refused_refunds += 1;
        self.refund_refused_at = Some(at);
        self
    }

    /// Whether it is too early for another refund.
    pub fn refund_waits(&self, now: DateTime<Utc>) -> bool {
        self.refund_refused_at
            .is_some_and(|at| at > now - REFUND_WAIT)
    }

    /// As it ends, with no step left. `None`: it has one, or has ended.
    pub fn ended(mut self) -> Option<Self> {
        let is_over = self.next().is_none() && self.status == CheckoutStatus::InProgress;
        self.status = match self.refusal {
            None => CheckoutStatus::Completed,
            Some(_) => CheckoutStatus::Canceled,
        };
        is_over.then_some(self)
    }

    /// The id of what a step made.
    pub fn resource(&self, name: StepName) -> Option<&str> {
        let step = self.steps.iter().find(|step| step.name == name)?;
        step.resource.as_deref()
    }

    /// The charge, if one succeeded or failed.
    pub fn charge(&self) -> Option<ChargeId> {
        self.resource(StepName::CreateCharge)
            .and_then(ChargeId::parse)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::{dialect::Dialect, money::Currency, test_cards::by_stored_token};

    fn begun() -> Checkout {
        let terms = OrderTerms {
            amount: Money {
                minor_units: 100,
                currency: Currency::of_stored("usd").unwrap(),
            },
            client_order_id: None,
            customer: None,
            items: Vec::new(),
            metadata: Metadata::new(),
        };
        let card = Card {
            test_card: by_stored_token("tok_visa").unwrap(),
            exp_month: 12,
            exp_year: 2030,
        };
        let new = NewCheckout { terms, card };
        let asked_by = AskedBy {
            dialect: Dialect::Ietf,
            api_version: None,
            request_id: "req_1".to_owned(),
            idempotency_key: "key-1".to_owned(),
        };
        Checkout::begun(CheckoutId(Uuid::nil()), new, asked_by, DateTime::UNIX_EPOCH)
    }

    fn states(checkout: &Checkout) -> Vec<(&str, &str, i32)> {
        let steps = checkout.steps.iter();
        steps
            .map(|step| (step.name.as_str(), step.state.as_str(), step.attempts))
            .collect()
    }

    #[test]
    fn a_checkout_is_completed_when_all_its_steps_are_done_and_not_before() {
        let mut checkout = begun().attempted();
        for made in ["or_1", "ch_1", "or_1"] {
            assert!(checkout.clone().ended().is_none());
            checkout = checkout.done(made.to_owned());
        }
        let expected = [
            ("create_order", "done", 1),
            ("create_charge", "done", 1),
            ("allocate_inventory", "done", 1),
        ];
        assert_eq!(states(&checkout), expected);
        let ended = checkout.ended().unwrap();
        assert_eq!(ended.status, CheckoutStatus::Completed);
        assert!(ended.ended().is_none(), "it ends once");
    }

    #[test]
    fn what_follows_a_refused_step_is_skipped_and_what_was_done_is_undone() {
        let why = || StepRefusal {
            code: "out_of_stock".to_owned(),
            message: String::new(),
            param: None,
            decline_code: None,
        };
        let declined = begun().done("or_1".to_owned()).refused(None, why());
        let expected = [
            ("create_order", "done", 0),
            ("create_charge", "refused", 1),
            ("allocate_inventory", "skipped", 0),
            ("cancel_order", "pending", 1),
        ];
        assert_eq!(states(&declined), expected);
        assert!(declined.clone().ended().is_none());
        let ended = declined.done("or_1".to_owned()).ended().unwrap();
        assert_eq!(ended.status, CheckoutStatus::Canceled);
        let charged = begun().done("or_1".to_owned()).done("ch_1".to_owned());
        let sold_out = charged.refused(None, why());
        assert_eq!(sold_out.next(), Some(StepName::CreateRefund));
        let refused = sold_out.refund_refused(DateTime::UNIX_EPOCH);
        assert_eq!(refused.next(), Some(StepName::CreateRefund));
        let (just, later) = (TimeDelta::minutes(59), TimeDelta::minutes(60));
        assert!(refused.refund_waits(DateTime::UNIX_EPOCH + just));
        assert!(!refused.refund_waits(DateTime::UNIX_EPOCH + later));
    }

    #[test]
    fn steps_run_in_the_order_that_they_are_listed_in_and_are_undone_by_later_ones() {
        assert!(StepName::ALL.is_sorted_by_key(|step| step.position()));
        for step in StepName::ALL {
            for undoing in step.compensation() {
                assert!(undoing.position() > step.position(), "{undoing:?}");
                assert!(!StepName::PLAN.contains(undoing), "{undoing:?}");
            }
        }
    }
}
