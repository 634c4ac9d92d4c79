//! A setup intent: a card is made ready for later payments. No money moves.

use super::{
    payment_intent::{AllowRedirects, FutureUsage, HolderPage},
    payment_method::{Challenge, PaymentMethod, Session},
    prelude::*,
    test_cards::Decline,
};

named! {
    /// Where a setup intent stands.
    pub enum SetupStatus {
        /// It has no method, or the last one was refused.
        RequiresPaymentMethod,
        /// It has a method, which was not asked.
        RequiresConfirmation,
        /// The card's holder must authenticate.
        RequiresAction,
        /// The method is ready.
        Succeeded,
        /// Closed for good.
        Canceled,
    }
}

impl SetupStatus {
    /// The status of a setup intent that has this method, or none, and was not confirmed.
    fn with(method: Option<PaymentMethodId>) -> Self {
        match method {
            Some(_) => Self::RequiresConfirmation,
            None => Self::RequiresPaymentMethod,
        }
    }

    /// Whether anything may still become of it.
    pub fn is_open(self) -> bool {
        !matches!(self, Self::Succeeded | Self::Canceled)
    }
}

named! {
    /// Why a client cancels.
    pub enum SetupCancellationReason {
        /// The customer left.
        Abandoned,
        /// The customer wished it.
        RequestedByCustomer,
        /// It was made twice.
        Duplicate,
    }
}

/// What is set up, and for whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupTerms {
    /// Whether redirects are allowed, if the methods are chosen automatically; `None`: the client
    /// named the only one, `card`.
    pub automatic_payment_methods: Option<AllowRedirects>,
    /// Who gets the method.
    #[serde(rename = "customer_id")]
    pub customer: Option<CustomerId>,
    /// For people.
    pub description: Option<String>,
    /// The client's own names.
    pub metadata: Metadata,
    /// What is set up.
    #[serde(rename = "payment_method_id")]
    pub payment_method: Option<PaymentMethodId>,
    /// What the method is for.
    pub usage: FutureUsage,
}

/// A setup intent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetupIntent {
    /// Which one.
    pub id: SetupIntentId,
    /// What the client said.
    #[serde(flatten)]
    pub terms: SetupTerms,
    /// What the shop's pages know it by.
    pub client_secret: String,
    /// Where it stands.
    pub status: SetupStatus,
    /// Why the last attempt failed, in JSON, as the client saw it.
    #[serde(with = "columns::json_text")]
    pub last_setup_error: Option<String>,
    /// Where the holder authenticates, while that is awaited.
    #[serde(flatten)]
    pub holder_page: Option<HolderPage>,
    /// Why it was canceled.
    pub cancellation_reason: Option<SetupCancellationReason>,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// What a confirmation leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetupStep {
    /// The method is ready.
    Succeed,
    /// Its holder authenticates first.
    Authenticate,
    /// The card declines.
    Decline(Decline),
}

/// The setup intent doesn't stand where the verb needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnexpectedSetupStatus(pub SetupStatus);

impl SetupIntent {
    /// The setup intent that `terms` begin.
    pub fn begun(
        id: SetupIntentId,
        client_secret: String,
        terms: SetupTerms,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            status: SetupStatus::with(terms.payment_method),
            terms,
            client_secret,
            last_setup_error: None,
            holder_page: None,
            cancellation_reason: None,
            version: 1,
            created_at,
        }
    }

    fn must_be_open(&self) -> Result<(), UnexpectedSetupStatus> {
        let status = UnexpectedSetupStatus(self.status);
        self.status.is_open().then_some(()).ok_or(status)
    }

    /// The setup intent with other terms. It must not have ended if other things are set up, or for
    /// another customer, or if the request names either again. An authentication is void then.
    pub fn updated(
        mut self,
        terms: SetupTerms,
        names_what: bool,
    ) -> Result<Self, UnexpectedSetupStatus> {
        let what = |terms: &SetupTerms| (terms.customer, terms.payment_method);
        if names_what || what(&self.terms) != what(&terms) {
            self.must_be_open()?;
            self.holder_page = None;
            self.status = SetupStatus::with(terms.payment_method);
        }
        self.terms = terms;
        self.last_setup_error = None;
        Ok(self)
    }

    /// What a confirmation with `method` leads to.
    pub fn confirm(&self, method: &PaymentMethod) -> Result<SetupStep, UnexpectedSetupStatus> {
        self.must_be_open()?;
        Ok(match method.challenge(Session::On) {
            Challenge::Ask | Challenge::CannotAsk => SetupStep::Authenticate,
            Challenge::None => match method.test_card.early_decline() {
                Some(decline) => SetupStep::Decline(decline),
                None => SetupStep::Succeed,
            },
        })
    }

    /// The setup intent whose holder is to authenticate with `method`.
    #[must_use]
    pub fn challenged(mut self, method: PaymentMethodId, page: HolderPage) -> Self {
        self.status = SetupStatus::RequiresAction;
        self.terms.payment_method = Some(method);
        self.holder_page = Some(page);
        self.last_setup_error = None;
        self
    }

    /// Whether it waits for the holder to whom this token was given.
    pub fn waits_for(&self, token: &str) -> bool {
        let page = self.holder_page.as_ref();
        page.is_some_and(|page| page.opens_with(token))
    }

    /// Whether a method that is ready may be charged without its holder.
    pub fn sets_up(&self) -> bool {
        self.terms.usage == FutureUsage::OffSession
    }

    /// The setup intent whose method is ready.
    #[must_use]
    pub fn succeeded(mut self, method: PaymentMethodId) -> Self {
        self.status = SetupStatus::Succeeded;
        self.terms.payment_method = Some(method);
        self.holder_page = None;
        self.last_setup_error = None;
        self
    }

    /// The setup intent without its method, which was refused for the reason in `error`.
    #[must_use]
    pub fn failed(mut self, error: Option<String>) -> Self {
        self.status = SetupStatus::RequiresPaymentMethod;
        self.terms.payment_method = None;
        self.holder_page = None;
        self.last_setup_error = error;
        self
    }

    /// The setup intent that is closed for good.
    pub fn canceled(
        mut self,
        reason: Option<SetupCancellationReason>,
    ) -> Result<Self, UnexpectedSetupStatus> {
        self.must_be_open()?;
        self.status = SetupStatus::Canceled;
        self.holder_page = None;
        self.cancellation_reason = reason;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::payment_method::sample as method;

    fn new() -> SetupIntent {
        let terms = SetupTerms {
            automatic_payment_methods: None,
            customer: None,
            description: None,
            metadata: Metadata::new(),
            payment_method: None,
            usage: FutureUsage::OffSession,
        };
        let id = SetupIntentId(Uuid::nil());
        SetupIntent::begun(id, String::new(), terms, DateTime::UNIX_EPOCH)
    }

    #[test]
    fn what_has_ended_takes_no_verb_but_a_change_of_words() {
        let method_id = PaymentMethodId(Uuid::nil());
        let ended = [new().succeeded(method_id), new().canceled(None).unwrap()];
        for setup in ended {
            let status = UnexpectedSetupStatus(setup.status);
            assert_eq!(setup.confirm(&method("pm_card_visa")), Err(status));
            assert_eq!(setup.clone().canceled(None), Err(status));
            let mut terms = setup.terms.clone();
            terms.description = Some("new".to_owned());
            assert!(setup.clone().updated(terms.clone(), false).is_ok());
            assert_eq!(setup.clone().updated(terms.clone(), true), Err(status));
            terms.customer = Some(CustomerId(Uuid::nil()));
            assert_eq!(setup.updated(terms, false), Err(status));
        }
        let (url, return_url) = ("token".to_owned(), None);
        let asked = new().challenged(method_id, HolderPage { url, return_url });
        let failed = new().failed(Some("declined".to_owned()));
        for open in [new(), asked, failed] {
            assert!(open.confirm(&method("pm_card_visa")).is_ok());
            assert!(open.canceled(None).is_ok());
        }
    }
}
