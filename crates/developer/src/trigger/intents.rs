//! What the events of payments, setups, customers and cards need.

use charge_once_client::{
    Customer, Error, NewCustomer, NewPaymentIntent, NewPaymentMethod, NewSetupIntent,
};

use super::{
    AMOUNT, ASKING_METHOD, CURRENCY, DECLINED_METHOD, DESCRIPTION, EventType, METHOD, Maker,
    unusable,
};
use crate::say;

impl Maker {
    /// An intent that comes as far as the event needs.
    pub(super) async fn payment(&self, event: EventType) -> Result<String, Error> {
        let is_manual = event == EventType::PaymentIntentAmountCapturableUpdated;
        let intent = NewPaymentIntent {
            amount: AMOUNT,
            currency: CURRENCY.to_owned(),
            capture_method: is_manual.then(|| "manual".to_owned()),
            description: Some(DESCRIPTION.to_owned()),
            // Without redirects, a confirmation needs no address to return to.
            payment_method_types: Some(vec!["card".to_owned()]),
            ..NewPaymentIntent::default()
        };
        todo!()
    }
}
