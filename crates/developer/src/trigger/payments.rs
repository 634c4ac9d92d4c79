//! What the events of payments, setups, customers and kept cards need.

use charge_once_client::{Error, NewPaymentIntent, NewSetupIntent, Request};
use serde::de::DeserializeOwned;

use super::{AMOUNT, CURRENCY, DESCRIPTION, Maker, say};

/// Test cards, of which each use makes a payment method.
pub(super) const CARD: &str = "pm_card_visa";
pub(super) const DECLINED_METHOD: &str = "pm_card_chargeDeclined";
/// The holder of this one must authenticate.
pub(super) const ASKING_CARD: &str = "pm_card_authenticationRequired";

impl Maker {
    /// A payment that nothing was asked for yet. Returns the intent's id.
    pub(super) async fn intent(&self, capture_method: Option<&str>) -> Result<String, Error> {
        let intent = NewPaymentIntent {
            capture_method: capture_method.map(str::to_owned),
            description: Some(DESCRIPTION.to_owned()),
            // A confirmation then needs no address that the card's holder returns to.
            payment_method_types: vec!["card".to_owned()],
            ..NewPaymentIntent::new(AMOUNT, CURRENCY)
        };
        let intent = self.client.create_payment_intent(&intent)?.send().await?.id;
        say(&format!("began {intent}"));
        Ok(intent)
    }

    /// A payment with this card, whatever comes of it.
    pub(super) async fn payment(
        &self,
        card: &str,
        capture_method: Option<&str>,
    ) -> Result<String, Error> {
        let intent = self.intent(capture_method).await?;
        let confirmation = ConfirmPaymentIntent {
            payment_method: Some(card.to_owned()),
            ..ConfirmPaymentIntent::default()
        };
        let confirmation = self.client.confirm_payment_intent(&intent, &confirmation)?;
        confirm(&intent, card, confirmation).await?;
        Ok(intent)
    }

    pub(super) async fn canceled_intent(&self) -> Result<String, Error> {
        let intent = self.intent(None).await?;
        let cancel = self
            .client
            .cancel_payment_intent(&intent, &Cancellation::default())?;
        cancel.send().await?;
        say(&format!("canceled {intent}"));
        Ok(intent)
    }

    /// The setup of a card that was not asked yet.
    pub(super) async fn setup_intent(&self) -> Result<String, Error> {
        let setup = NewSetupIntent {
            description: Some(DESCRIPTION.to_owned()),
            payment_method_types: vec!["card".to_owned()],
            ..NewSetupIntent::default()
        };
        let setup = self.client.create_setup_intent(&setup)?.send().await?.id;
        say(&format!("began {setup}"));
        Ok(setup)
    }

    /// The setup of this card, whatever comes of it.
    pub(super) async fn setup(&self, card: &str) -> Result<String, Error> {
        let setup = self.setup_intent().await?;
        let confirmation = ConfirmSetupIntent {
            payment_method: Some(card.to_owned()),
            ..ConfirmSetupIntent::default()
        };
        let confirmation = self.client.confirm_setup_intent(&setup, &confirmation)?;
        confirm(&setup, card, confirmation).await?;
        Ok(setup)
    }

    pub(super) async fn canceled_setup(&self) -> Result<String, Error> {
        let setup = self.setup_intent().await?;
        self.client.cancel_setup_intent(&setup)?.send().await?;
        say(&format!("canceled {setup}"));
        Ok(setup)
    }
}

/// Asks the card. A decline is an outcome: the event tells of it.
async fn confirm<T: DeserializeOwned>(
    id: &str,
    card: &str,
    confirmation: Request<T>,
) -> Result<(), Error> {
    match confirmation.send().await {
        Ok(_) => say(&format!("confirmed {id} with {card}")),
        Err(Error::Declined(_)) => say(&format!("{card} was declined for {id}")),
        Err(error) => return Err(error),
    }
    Ok(())
}
