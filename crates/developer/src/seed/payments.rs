//! Customers with their cards, setups and payments.

use charge_once_client::{
    Cancellation, Customer, Error, IntentCapture, NewCustomer, NewPaymentIntent, NewRefund,
    NewSetupIntent, PaymentIntent, Refund, SetupCancellation, SetupIntent,
};

use super::{
    Seeder,
    plan::{PlannedCustomer, PlannedIntent, PlannedSetup},
};

/// Where a card's holder would go after the page of an authentication.
const RETURN_URL: &str = "https://example.com/return";

impl Seeder<'_> {
    pub(super) async fn customer(
        &mut self,
        customer: &PlannedCustomer,
    ) -> Result<&'static str, Error> {
        let key = self.keys("customer", customer)?;
        let request = self.client.create_customer(&NewCustomer {
            email: customer.email.clone(),
            name: customer.name.clone(),
            metadata: customer.metadata.clone(),
            ..NewCustomer::default()
        })?;
        let made: Customer = self.send(request, key.clone()).await?;
        for (index, card) in customer.payment_methods.iter().enumerate() {
            let request = self.client.attach_payment_method(card, &made.id)?;
            self.send(request, format!("{key}-method-{index}")).await?;
            self.count("payment methods");
        }
        for (index, setup) in customer.setup_intents.iter().enumerate() {
            let key = format!("{key}-setup-{index}");
            let state = self.setup(setup, &made.id, key).await?;
            self.count(state);
        }
        for (index, intent) in customer.payment_intents.iter().enumerate() {
            let key = format!("{key}-payment-{index}");
            let state = self.payment_of(intent, Some(&made.id), key).await?;
            self.count(state);
        }
        Ok("customers")
    }

    /// A payment of no customer.
    pub(super) async fn payment(&mut self, intent: &PlannedIntent) -> Result<&'static str, Error> {
        let key = self.keys("payment_intent", intent)?;
        self.payment_of(intent, None, key).await
    }

    async fn payment_of(
        &mut self,
        intent: &PlannedIntent,
        customer: Option<&str>,
        key: String,
    ) -> Result<&'static str, Error> {
        let request = self.client.create_payment_intent(&NewPaymentIntent {
            amount: intent.amount,
            currency: intent.currency.clone(),
            capture_method: intent.capture_method.clone(),
            confirm: intent.confirm.then_some(true),
            customer: customer.map(str::to_owned),
            description: intent.description.clone(),
            metadata: intent.metadata.clone(),
            payment_method: intent.payment_method.clone(),
            return_url: intent.confirm.then(|| RETURN_URL.to_owned()),
            ..NewPaymentIntent::default()
        })?;
        let mut made: PaymentIntent = match self.send(request, key.clone()).await {
            Err(Error::Declined(_)) => return Ok("payment intents, declined"),
            made => made?,
        };
        if let Some(amount) = intent.capture_amount {
            let capture = IntentCapture {
                amount_to_capture: Some(amount),
            };
            let request = self.client.capture_payment_intent(&made.id, &capture)?;
            made = self.send(request, format!("{key}-capture")).await?;
        }
        if intent.cancel {
            let reason = Cancellation::default();
            let request = self.client.cancel_payment_intent(&made.id, &reason)?;
            made = self.send(request, format!("{key}-cancel")).await?;
        }
        for (index, amount) in intent.refunds.iter().enumerate() {
            let request = self.client.create_refund(&NewRefund {
                payment_intent: Some(made.id.clone()),
                amount: Some(*amount),
                ..NewRefund::default()
            })?;
            let _: Refund = self.send(request, format!("{key}-refund-{index}")).await?;
        }
        Ok(match &*made.status {
            "requires_payment_method" => "payment intents, without a card",
            "requires_confirmation" => "payment intents, not confirmed",
            "requires_action" => "payment intents, waiting for the card's holder",
            "requires_capture" => "payment intents, authorized",
            "canceled" => "payment intents, canceled",
            _ if intent.refunds.is_empty() => "payment intents, paid",
            _ => "payment intents, paid and refunded",
        })
    }

    async fn setup(
        &mut self,
        setup: &PlannedSetup,
        customer: &str,
        key: String,
    ) -> Result<&'static str, Error> {
        let request = self.client.create_setup_intent(&NewSetupIntent {
            confirm: setup.confirm.then_some(true),
            customer: Some(customer.to_owned()),
            payment_method: setup.payment_method.clone(),
            return_url: setup.confirm.then(|| RETURN_URL.to_owned()),
            ..NewSetupIntent::default()
        })?;
        let mut made: SetupIntent = match self.send(request, key.clone()).await {
            Err(Error::Declined(_)) => return Ok("setup intents, declined"),
            made => made?,
        };
        if setup.cancel {
            let reason = SetupCancellation::default();
            let request = self.client.cancel_setup_intent(&made.id, &reason)?;
            made = self.send(request, format!("{key}-cancel")).await?;
        }
        Ok(match &*made.status {
            "succeeded" => "setup intents, succeeded",
            "requires_action" => "setup intents, waiting for the card's holder",
            "canceled" => "setup intents, canceled",
            _ => "setup intents, not confirmed",
        })
    }
}
