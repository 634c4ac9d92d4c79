//! A payment intent: one payment from the wish to the money, through as many cards as it takes.
//!
//! ```text
//! requires_payment_method ─ method ─▶ requires_confirmation ─ confirm ─▶ succeeded
//!      ▲                                   │        ▲             ├────▶ requires_capture ─ capture ─▶ succeeded
//!      └──────── a decline, or a failed ───┘        │             └────▶ requires_action ─ the holder authenticates
//!                authentication                     └─ update ─────────────┘
//! ```
//!
//! It can be canceled until money was taken. With a processor across a network, it is `processing`
//! while an answer is out.

use sha2::{Digest, Sha256};

use super::{
    charge::{Authorization, Card, NewCharge},
    payment_method::{Challenge, PaymentMethod, Session},
    people::Shipping,
    prelude::*,
};

named! {
    /// Where an intent stands.
    pub enum IntentStatus {
        /// It has no method, or the last one declined.
        RequiresPaymentMethod,
        /// It has a method, which was not asked.
        RequiresConfirmation,
        /// The card's holder must authenticate.
        RequiresAction,
        /// The processor has not answered.
        Processing,
        /// The money is promised.
        RequiresCapture,
        /// The money was taken.
        Succeeded,
        /// Closed for good, without money.
        Canceled,
    }
}

impl IntentStatus {
    /// The status of an intent that has this method, or none, and was not confirmed.
    fn with(method: Option<PaymentMethodId>) -> Self {
        match method {
            Some(_) => Self::RequiresConfirmation,
            None => Self::RequiresPaymentMethod,
        }
    }

    /// Whether nothing was promised, and nothing is being asked for.
    pub fn is_unpaid(self) -> bool {
        matches!(
            self,
            Self::RequiresPaymentMethod | Self::RequiresConfirmation | Self::RequiresAction
        )
    }
}

named! {
    /// When promised money is taken.
    #[derive(Default)]
    pub enum CaptureMethod {
        /// At once.
        #[default]
        AutomaticAsync,
        /// At once; the older name.
        Automatic,
        /// When the client asks for it.
        Manual,
    }

    /// What follows when the holder has authenticated.
    #[derive(Default)]
    pub enum ConfirmationMethod {
        /// The card is charged.
        #[default]
        Automatic,
        /// The client confirms once more.
        Manual,
    }

    /// What a payment's method is used for afterwards.
    pub enum FutureUsage {
        /// Payments without the holder.
        OffSession,
        /// Payments with the holder.
        OnSession,
    }

    /// Whether a method may send its holder to another page. Cards do, to authenticate.
    #[derive(Default)]
    pub enum AllowRedirects {
        /// It may: a confirmation says where the holder returns to.
        #[default]
        Always,
        /// It may not.
        Never,
    }

    /// Which cards' holders must authenticate.
    #[derive(Default)]
    pub enum ThreeDSecure {
        /// Those whose issuers want it.
        #[default]
        Automatic,
        /// All.
        Any,
        /// All, and no issuer may let it be.
        Challenge,
    }

    /// Why a client cancels.
    pub enum CancellationReason {
        /// It was made twice.
        Duplicate,
        /// It was a fraud's.
        Fraudulent,
        /// The customer wished it.
        RequestedByCustomer,
        /// The customer left.
        Abandoned,
    }
}

/// What is to be paid, how, and by whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IntentTerms {
    /// How much, from 1 to 99 999 999 minor units.
    #[serde(flatten)]
    pub amount: Money,
    /// Whether redirects are allowed, if the methods are chosen automatically; `None`: the client
    /// named the only one, `card`.
    pub automatic_payment_methods: Option<AllowRedirects>,
    /// When the money is taken.
    pub capture_method: CaptureMethod,
    /// What follows an authentication.
    pub confirmation_method: ConfirmationMethod,
    /// Who pays.
    #[serde(rename = "customer_id")]
    pub customer: Option<CustomerId>,
    /// What no rule reads.
    #[serde(flatten, with = "columns::details")]
    pub details: IntentDetails,
    /// The client's own names.
    pub metadata: Metadata,
    /// What is charged.
    #[serde(rename = "payment_method_id")]
    pub payment_method: Option<PaymentMethodId>,
    /// Which cards' holders must authenticate.
    pub request_three_d_secure: ThreeDSecure,
    /// What the method is used for afterwards.
    pub setup_future_usage: Option<FutureUsage>,
}

/// What a client says of a payment, and no rule reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IntentDetails {
    /// For people.
    pub description: Option<String>,
    /// Where the receipt goes.
    pub receipt_email: Option<String>,
    /// Where the goods go.
    pub shipping: Option<Shipping>,
    /// Behind the seller's name on the card statement.
    pub statement_descriptor_suffix: Option<String>,
}

/// The page on which a card's holder authenticates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderPage {
    /// Its whole address. The last part is a token that can't be guessed: it opens the page.
    #[serde(rename = "holder_page_url")]
    pub url: String,
    /// Where the holder goes afterwards.
    pub return_url: Option<String>,
}

impl HolderPage {
    /// Whether this token opens it. Hashes are compared, so that the time it takes says nothing of
    /// how much of a guess is right.
    pub fn opens_with(&self, token: &str) -> bool {
        let own = self.url.rsplit('/').next().unwrap_or_default();
        Sha256::digest(own) == Sha256::digest(token)
    }
}

/// A payment intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentIntent {
    /// Which one.
    pub id: PaymentIntentId,
    /// What the client said.
    #[serde(flatten)]
    pub terms: IntentTerms,
    /// What the shop's pages know it by.
    pub client_secret: String,
    /// Where it stands.
    pub status: IntentStatus,
    /// While it is processing: where it stood before, as the request that asks has changed it.
    pub status_before: Option<IntentStatus>,
    /// While the processor is asked: what it was before that request.
    #[serde(rename = "before_operation", skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Self>>,
    /// Minor units that are promised and not taken.
    pub amount_capturable: i64,
    /// Minor units taken.
    pub amount_received: i64,
    /// The charge that promised the money.
    #[serde(rename = "charge_id")]
    pub charge: Option<ChargeId>,
    /// The newest charge, a failed one included.
    #[serde(rename = "latest_charge_id")]
    pub latest_charge: Option<ChargeId>,
    /// Why the last attempt failed, in JSON, as the client saw it.
    #[serde(with = "columns::json_text")]
    pub last_payment_error: Option<String>,
    /// Where the holder authenticates, while that is awaited.
    #[serde(flatten)]
    pub holder_page: Option<HolderPage>,
    /// The holder has authenticated, and the client is to confirm once more.
    pub is_authenticated: bool,
    /// When it was canceled.
    pub canceled_at: Option<DateTime<Utc>>,
    /// Why it was canceled.
    pub cancellation_reason: Option<CancellationReason>,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

impl IntentTerms {
    /// What a card's holder authenticates for.
    fn payment(&self) -> impl PartialEq + use<> {
        (
            self.amount,
            self.automatic_payment_methods,
            self.capture_method,
            self.customer,
            self.setup_future_usage,
        )
    }
}

/// What a confirmation allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmation {
    /// The card's holder isn't there.
    pub off_session: bool,
    /// The holder is there, and is not to be asked for anything.
    pub error_on_requires_action: bool,
}

/// What a confirmation leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The card is charged.
    Charge,
    /// Its holder authenticates first.
    Authenticate,
    /// The card declines, because its holder isn't there to authenticate: a failed charge.
    DeclineOffSession,
    /// Its holder would have to authenticate, and the client doesn't want that: no charge.
    RefuseAction,
}

/// The intent doesn't stand where the verb needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnexpectedStatus(pub IntentStatus);

/// Why promised money can't be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentCaptureRefusal {
    /// None is promised.
    UnexpectedStatus(IntentStatus),
    /// More than is promised.
    TooLarge {
        /// What is promised, in minor units.
        capturable: i64,
    },
}

impl PaymentIntent {
    /// The intent that `terms` begin.
    pub fn begun(
        id: PaymentIntentId,
        client_secret: String,
        terms: IntentTerms,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            status: IntentStatus::with(terms.payment_method),
            terms,
            client_secret,
            status_before: None,
            before: None,
            amount_capturable: 0,
            amount_received: 0,
            charge: None,
            latest_charge: None,
            last_payment_error: None,
            holder_page: None,
            is_authenticated: false,
            canceled_at: None,
            cancellation_reason: None,
            version: 1,
            created_at,
        }
    }

    /// The intent with other terms, and with another method if it `gets_method`.
    ///
    /// A new method is to be confirmed, and so is what a holder was authenticating for, if it
    /// changed. The last error is forgotten in any case.
    pub fn updated(
        mut self,
        terms: IntentTerms,
        gets_method: bool,
    ) -> Result<Self, UnexpectedStatus> {
        if gets_method || self.terms.payment() != terms.payment() {
            self.must_be_confirmable()?;
            self.is_authenticated = false;
            self.holder_page = None;
            self.status = IntentStatus::with(terms.payment_method);
        }
        self.terms = terms;
        self.last_payment_error = None;
        Ok(self)
    }

    /// Whether it may be confirmed: until money is promised.
    pub fn must_be_confirmable(&self) -> Result<(), UnexpectedStatus> {
        let status = UnexpectedStatus(self.status);
        self.status.is_unpaid().then_some(()).ok_or(status)
    }

    /// Whether the holder of this method has authenticated for it.
    pub fn is_authenticated_with(&self, method: PaymentMethodId) -> bool {
        self.is_authenticated && self.terms.payment_method == Some(method)
    }

    /// What a confirmation with `method` leads to.
    pub fn confirm(
        &self,
        method: &PaymentMethod,
        confirmation: Confirmation,
    ) -> Result<NextStep, UnexpectedStatus> {
        self.must_be_confirmable()?;
        if self.is_authenticated_with(method.id) {
            return Ok(NextStep::Charge);
        }
        let session = match (confirmation.off_session, self.terms.request_three_d_secure) {
            (true, _) => Session::Off,
            (false, ThreeDSecure::Automatic) => Session::On,
            (false, ThreeDSecure::Any | ThreeDSecure::Challenge) => Session::OnDemand,
        };
        Ok(match method.challenge(session) {
            Challenge::None => NextStep::Charge,
            Challenge::CannotAsk => NextStep::DeclineOffSession,
            Challenge::Ask if confirmation.error_on_requires_action => NextStep::RefuseAction,
            Challenge::Ask => NextStep::Authenticate,
        })
    }

    /// The intent whose holder is to authenticate with `method`.
    #[must_use]
    pub fn challenged(mut self, method: PaymentMethodId, page: HolderPage) -> Self {
        self.status = IntentStatus::RequiresAction;
        self.terms.payment_method = Some(method);
        self.holder_page = Some(page);
        self.is_authenticated = false;
        self.last_payment_error = None;
        self
    }

    /// What follows when the holder has authenticated. `false`: nothing waits for that.
    pub fn may_authenticate(&self) -> bool {
        self.status == IntentStatus::RequiresAction
    }

    /// The intent whose holder has authenticated, where the client confirms once more.
    #[must_use]
    pub fn authenticated(mut self) -> Self {
        self.status = IntentStatus::RequiresConfirmation;
        self.holder_page = None;
        self.is_authenticated = true;
        self
    }

    /// The intent while the processor is asked, with what it was `before`.
    #[must_use]
    pub fn asked(mut self, before: Self) -> Self {
        self.before = Some(Box::new(before));
        self
    }

    /// The intent while the processor is asked for the money of `charge`.
    #[must_use]
    pub fn processing(mut self, charge: ChargeId, before: Self) -> Self {
        self.status_before = Some(self.status);
        self.status = IntentStatus::Processing;
        self.latest_charge = Some(charge);
        self.asked(before)
    }

    /// The intent that the processor has answered about: where it stood, with what the request that
    /// asked has changed.
    #[must_use]
    pub fn resumed(mut self) -> Self {
        self.status = self.status_before.take().unwrap_or(self.status);
        self.before = None;
        self
    }

    /// The intent as it was before the processor was asked. `None`: it isn't asked.
    #[must_use]
    pub fn restored(&self) -> Option<Self> {
        let before = self.before.as_deref().cloned();
        before.map(|before| Self {
            status_before: None,
            ..before
        })
    }

    /// The intent whose charge has the processor's answer. `error` is what a decline is shown as.
    #[must_use]
    pub fn answered(
        mut self,
        method: PaymentMethodId,
        charge: ChargeId,
        said: Authorization,
        error: Option<String>,
    ) -> Self {
        self.latest_charge = Some(charge);
        self.holder_page = None;
        self.is_authenticated = false;
        match said {
            Authorization::Declined(_) => self.failed(error),
            Authorization::Approved => {
                let amount = self.terms.amount.minor_units;
                self.terms.payment_method = Some(method);
                self.charge = Some(charge);
                self.last_payment_error = None;
                if self.terms.capture_method == CaptureMethod::Manual {
                    self.status = IntentStatus::RequiresCapture;
                    self.amount_capturable = amount;
                } else {
                    self.status = IntentStatus::Succeeded;
                    self.amount_received = amount;
                }
                self
            }
        }
    }

    /// The intent without its method, which failed for the reason in `error`.
    #[must_use]
    pub fn failed(mut self, error: Option<String>) -> Self {
        self.status = IntentStatus::RequiresPaymentMethod;
        self.terms.payment_method = None;
        self.holder_page = None;
        self.is_authenticated = false;
        self.last_payment_error = error;
        self
    }

    /// How much is taken, in minor units, when a capture asks for `amount` or for all of it.
    pub fn capture(&self, amount: Option<i64>) -> Result<i64, IntentCaptureRefusal> {
        if self.status != IntentStatus::RequiresCapture {
            return Err(IntentCaptureRefusal::UnexpectedStatus(self.status));
        }
        let capturable = self.amount_capturable;
        match amount.unwrap_or(capturable) {
            amount if amount > capturable => Err(IntentCaptureRefusal::TooLarge { capturable }),
            amount => Ok(amount),
        }
    }

    /// The intent of which `amount` was taken; the rest is released.
    #[must_use]
    pub fn captured(mut self, amount: i64) -> Self {
        self.status = IntentStatus::Succeeded;
        self.amount_capturable = 0;
        self.amount_received = amount;
        self.before = None;
        self
    }

    /// Whether it may be canceled: until money was taken, and not while an answer is out.
    pub fn must_be_cancelable(&self) -> Result<(), UnexpectedStatus> {
        let may = self.status.is_unpaid() || self.status == IntentStatus::RequiresCapture;
        may.then_some(()).ok_or(UnexpectedStatus(self.status))
    }

    /// The intent that is closed for good. What was promised is released.
    #[must_use]
    pub fn canceled(mut self, at: DateTime<Utc>) -> Self {
        self.status = IntentStatus::Canceled;
        self.amount_capturable = 0;
        self.holder_page = None;
        self.is_authenticated = false;
        self.canceled_at = Some(at);
        self.before = None;
        self
    }

    /// The customer that the method stays with after a success.
    pub fn keeps_method_for(&self) -> Option<CustomerId> {
        self.terms.setup_future_usage.and(self.terms.customer)
    }

    /// The charge that a confirmation makes.
    pub fn charge_with(&self, card: Card) -> NewCharge {
        let terms = &self.terms;
        NewCharge {
            amount: terms.amount,
            card,
            capture: terms.capture_method != CaptureMethod::Manual,
            customer: terms.customer.map(|customer| customer.to_string()),
            description: terms.details.description.clone(),
            statement_descriptor: None,
            receipt_email: terms.details.receipt_email.clone(),
            metadata: terms.metadata.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
