//! A payment method: a card that is kept to be charged, and who may charge it.

use super::{
    charge::{Card, KeptCard},
    people::BillingDetails,
    prelude::*,
    test_cards::{Authentication, TestCard},
};

named! {
    /// Whether a shop may show the method to its customer again.
    #[derive(Default)]
    pub enum AllowRedisplay {
        /// The customer was not asked.
        #[default]
        Unspecified,
        /// Only where it was saved.
        Limited,
        /// Everywhere.
        Always,
    }
}

/// How many methods a customer may have: all of them are detached, with an event for each, in the
/// transaction that deletes the customer.
pub const METHODS_OF_A_CUSTOMER_MAX: i64 = 500;

/// A payment method that is to be kept.
#[derive(Debug, Clone)]
pub struct NewPaymentMethod {
    /// The card and its expiry date.
    pub card: Card,
    /// Whether a security code came with it.
    pub has_cvc: bool,
    /// Who the bill goes to.
    pub billing: BillingDetails,
    /// Whether a shop may show it again.
    pub allow_redisplay: AllowRedisplay,
    /// The client's own names.
    pub metadata: Metadata,
}

/// How far a method has come. It begins as new, and only a method of a customer is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "AttachmentColumns", into = "AttachmentColumns")]
pub enum Attachment {
    /// It may be attached, or used once.
    New,
    /// It belongs to this customer.
    To(CustomerId),
    /// It was used without a customer, and never is again.
    UsedUp,
    /// It was taken from its customer, and never comes back.
    Detached,
}

/// An attachment as a row has it.
#[derive(Serialize, Deserialize)]
struct AttachmentColumns {
    customer_id: Option<CustomerId>,
    #[serde(with = "columns::happened")]
    used_up_at: bool,
    #[serde(with = "columns::happened")]
    detached_at: bool,
}

impl From<AttachmentColumns> for Attachment {
    fn from(columns: AttachmentColumns) -> Self {
        match (columns.customer_id, columns.used_up_at, columns.detached_at) {
            (Some(customer), ..) => Self::To(customer),
            (None, true, _) => Self::UsedUp,
            (None, false, true) => Self::Detached,
            (None, false, false) => Self::New,
        }
    }
}

impl From<Attachment> for AttachmentColumns {
    fn from(attachment: Attachment) -> Self {
        Self {
            customer_id: match attachment {
                Attachment::To(customer) => Some(customer),
                Attachment::New | Attachment::UsedUp | Attachment::Detached => None,
            },
            used_up_at: attachment == Attachment::UsedUp,
            detached_at: attachment == Attachment::Detached,
        }
    }
}

/// A payment method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentMethod {
    /// Which one.
    pub id: PaymentMethodId,
    /// Who may use it.
    #[serde(flatten)]
    pub attachment: Attachment,
    /// What the processor knows the card by.
    #[serde(rename = "card_token", with = "columns::card_token")]
    pub test_card: &'static TestCard,
    /// All that is shown of the card.
    #[serde(flatten)]
    pub card: KeptCard,
    /// Equal for two methods of the same card.
    #[serde(rename = "card_fingerprint")]
    pub fingerprint: String,
    /// Whether a security code came with it.
    #[serde(rename = "card_has_cvc")]
    pub has_cvc: bool,
    /// Whether its holder has agreed to charges without being asked again.
    #[serde(rename = "is_set_up")]
    pub set_up: bool,
    /// Who the bill goes to.
    #[serde(rename = "billing_details")]
    pub billing: BillingDetails,
    /// Whether a shop may show it again.
    pub allow_redisplay: AllowRedisplay,
    /// The client's own names.
    pub metadata: Metadata,
    /// The charge whose request made it, where a processor across a network was to be asked.
    #[serde(rename = "made_for_charge_id")]
    pub made_for: Option<ChargeId>,
    /// 1 when it is written, and one more with each change.
    pub version: i64,
    /// When it was written, by the database's clock.
    pub created_at: DateTime<Utc>,
}

/// Why a payment method can't be used, attached, changed or detached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaymentMethodRefusal {
    /// It was used without a customer.
    UsedUp,
    /// It was detached.
    Detached,
    /// It belongs to a customer, and the request names none.
    CustomerMissing,
    /// It belongs to another customer.
    OtherCustomer,
    /// It belongs to no customer, so it can't be changed or taken from one.
    NotAttached,
}

impl PaymentMethod {
    /// A method that belongs to no customer yet.
    pub fn made(
        id: PaymentMethodId,
        new: NewPaymentMethod,
        fingerprint: String,
        created_at: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            attachment: Attachment::New,
            test_card: new.card.test_card,
            card: new.card.into(),
            fingerprint,
            has_cvc: new.has_cvc,
            set_up: false,
            billing: new.billing,
            allow_redisplay: new.allow_redisplay,
            metadata: new.metadata,
            made_for: None,
            version: 1,
            created_at,
        }
    }

    /// Its customer.
    pub fn customer(&self) -> Option<CustomerId> {
        match self.attachment {
            Attachment::To(customer) => Some(customer),
            Attachment::New | Attachment::UsedUp | Attachment::Detached => None,
        }
    }

    /// Whether something that is paid by `customer`, or by a stranger, may be paid with it.
    pub fn may_pay_for(&self, customer: Option<CustomerId>) -> Result<(), PaymentMethodRefusal> {
        match (self.attachment, customer) {
            (Attachment::New, _) => Ok(()),
            (Attachment::To(owner), Some(customer)) if owner == customer => Ok(()),
            (Attachment::To(_), Some(_)) => Err(PaymentMethodRefusal::OtherCustomer),
            (Attachment::To(_), None) => Err(PaymentMethodRefusal::CustomerMissing),
            (Attachment::UsedUp, _) => Err(PaymentMethodRefusal::UsedUp),
            (Attachment::Detached, _) => Err(PaymentMethodRefusal::Detached),
        }
    }

    /// Whether it may be attached to `customer`. `false`: it is.
    pub fn attach(&self, customer: CustomerId) -> Result<bool, PaymentMethodRefusal> {
        self.may_pay_for(Some(customer))?;
        Ok(self.attachment == Attachment::New)
    }

    /// Whether it may be changed, or taken from its customer.
    pub fn must_be_attached(&self) -> Result<CustomerId, PaymentMethodRefusal> {
        self.customer().ok_or(PaymentMethodRefusal::NotAttached)
    }

    /// Whether a pending charge decides what becomes of it, if there is one: a new method pays
    /// once.
    pub fn may_be_held(&self) -> bool {
        self.attachment == Attachment::New
    }

    /// Whether its holder must authenticate before it is charged or set up.
    pub fn challenge(&self, session: Session) -> Challenge {
        match (session, self.test_card.authentication) {
            (Session::OnDemand, _) => Challenge::Ask,
            (Session::On, Authentication::Never) => Challenge::None,
            (Session::On, _) => Challenge::Ask,
            (Session::Off, Authentication::Never | Authentication::OnSession) => Challenge::None,
            (Session::Off, Authentication::UntilSetUp) if self.set_up => Challenge::None,
            (Session::Off, Authentication::UntilSetUp | Authentication::Always) => {
                Challenge::CannotAsk
            }
        }
    }
}

/// Whether the holder of the card is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Session {
    /// The holder is there, and authenticates if the card asks for it.
    On,
    /// The holder is there, and authenticates whatever the card asks for.
    OnDemand,
    /// The holder isn't there.
    Off,
}

/// Whether a card's holder must authenticate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// No.
    None,
    /// Yes: nothing is charged before.
    Ask,
    /// Yes, and the holder isn't there: the card declines.
    CannotAsk,
}

/// A method of this test card that has no customer yet, for tests.
#[cfg(test)]
pub(super) fn sample(token: &str) -> PaymentMethod {
    let new = NewPaymentMethod {
        card: Card {
            test_card: super::test_cards::by_token(token).unwrap(),
            exp_month: 12,
            exp_year: 2099,
        },
        has_cvc: true,
        billing: BillingDetails::default(),
        allow_redisplay: AllowRedisplay::default(),
        metadata: Metadata::new(),
    };
    let id = PaymentMethodId(uuid::Uuid::from_u128(1));
    PaymentMethod::made(id, new, String::new(), DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn method(token: &str, attachment: Attachment, set_up: bool) -> PaymentMethod {
        PaymentMethod {
            attachment,
            set_up,
            ..sample(token)
        }
    }

    #[test]
    fn a_method_is_used_by_its_customer_or_once_by_a_stranger() {
        use Attachment::{Detached, New, To};
        use PaymentMethodRefusal as Refusal;
        let [anna, bob] = [1, 2].map(|id| CustomerId(Uuid::from_u128(id)));
        for (attachment, customer, expected) in [
            (New, None, Ok(())),
            (New, Some(anna), Ok(())),
            (To(anna), Some(anna), Ok(())),
            (To(anna), Some(bob), Err(Refusal::OtherCustomer)),
            (To(anna), None, Err(Refusal::CustomerMissing)),
            (Attachment::UsedUp, None, Err(Refusal::UsedUp)),
            (Attachment::UsedUp, Some(anna), Err(Refusal::UsedUp)),
            (Detached, None, Err(Refusal::Detached)),
            (Detached, Some(anna), Err(Refusal::Detached)),
        ] {
            let method = method("pm_card_visa", attachment, false);
            assert_eq!(method.may_pay_for(customer), expected, "{attachment:?}");
        }
    }

    #[test]
    fn each_card_asks_its_holder_when_its_issuer_wants_it() {
        use Challenge::{Ask, CannotAsk, None};
        // Token, on session, off session, and off session once it was set up.
        let table = [
            ("visa", None, None, None),
            ("authenticationRequired", Ask, CannotAsk, CannotAsk),
            ("authenticationRequiredOnSetup", Ask, CannotAsk, None),
            ("authenticationRequiredSetupForOffSession", Ask, None, None),
            ("threeDSecure2Required", Ask, CannotAsk, CannotAsk),
        ];
        for (card, on, off, off_set_up) in table {
            let token = &format!("pm_card_{card}");
            let challenge =
                |session, set_up| method(token, Attachment::New, set_up).challenge(session);
            assert_eq!(challenge(Session::On, false), on, "{token}");
            assert_eq!(challenge(Session::On, true), on, "{token}");
            assert_eq!(challenge(Session::Off, false), off, "{token}");
            assert_eq!(challenge(Session::Off, true), off_set_up, "{token}");
            assert_eq!(challenge(Session::OnDemand, false), Ask, "{token}");
        }
    }
}
