//! `charge-once trigger`: makes an event happen, by making what it needs. Without an event, it
//! lists their types.
//!
//! Promise: it sends the requests that bring the event about, each once under a key of its own, and
//! shows the event that came of them. It invents no event.

use std::{pin::Pin, time::Duration};

use charge_once_client::{
    Cancellation, Capture, ChargeUpdate, Client, Confirmation, CustomerUpdate, Error, Event,
    ListQuery, MetadataUpdate, NewCharge, NewCheckout, NewCustomer, NewItem, NewOrder,
    NewPaymentIntent, NewRefund, NewSetupIntent, Order, Payment, PaymentMethodUpdate, Refund,
    SetupCancellation, SetupConfirmation,
};
use charge_once_processor::{
    Answer, CardProcessor, HttpProcessor, Instruction, InstructionOutcome,
};
use chrono::Utc;
use clap::builder::PossibleValuesParser;
use serde_json::Value;
use uuid::Uuid;

use super::{
    BoxError, print, say,
    service::{self, AFTER_HELP, Service},
};

const DEADLINE: Duration = Duration::from_secs(10);

/// How long the simulated card processor may take for an answer.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(10);

/// Events in which the one that happened is looked for: more than happen meanwhile.
const LOOKED_THROUGH: u32 = 100;

const CURRENCY: &str = "usd";
const AMOUNT: i64 = 2000;
const DECLINED_CARD: &str = "tok_chargeDeclined";

/// Payment methods: one that succeeds, one whose holder must authenticate, and one that is
/// declined.
const CARD: &str = "pm_card_visa";
const HOLDERS_CARD: &str = "pm_card_threeDSecure2Required";
const DECLINED_METHOD: &str = "pm_card_chargeDeclined";

const RETURN_URL: &str = "https://example.com/return";

/// The stock-keeping unit of the checkouts that are made here, and what there is of it.
const SKU: &str = "charge-once-trigger";
const STOCK: i64 = 1000;

/// What objects made here say of themselves.
const DESCRIPTION: &str = "Made by charge-once trigger";

/// Which event to make happen, and where.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct TriggerArguments {
    #[command(flatten)]
    service: Service,
    /// The type of the event. Without it, all types are listed.
    #[arg(value_name = "EVENT", value_parser = event_types())]
    event: Option<String>,
    /// For refund.failed only: the simulator that the service has as its PROCESSOR_URL. The money
    /// is given back there first, so that the service's refund is refused.
    #[arg(long, value_name = "URL", requires = "event")]
    processor_url: Option<String>,
}

/// Makes what an event needs. Returns the id of the object that it happens to, or of that object's
/// charge.
type Make = for<'m> fn(&'m Maker) -> Pin<Box<dyn Future<Output = Result<String, Error>> + 'm>>;

const REFUND_FAILED: &str = "refund.failed";

const EVENTS: [(&str, Make); 32] = [
    ("charge.succeeded", |m| Box::pin(m.charge(true))),
    ("charge.failed", |m| Box::pin(m.declined_charge())),
    ("charge.captured", |m| Box::pin(m.captured_charge())),
    ("charge.updated", |m| Box::pin(m.updated_charge())),
    ("charge.refunded", |m| {
        Box::pin(async move { Ok(m.refund().await?.charge) })
    }),
    ("refund.created", |m| {
        Box::pin(async move { Ok(m.refund().await?.id) })
    }),
    (REFUND_FAILED, |m| Box::pin(m.refused_refund())),
    ("refund.updated", |m| Box::pin(m.updated_refund())),
    ("customer.created", |m| Box::pin(m.customer())),
    ("customer.updated", |m| Box::pin(m.updated_customer())),
    ("customer.deleted", |m| Box::pin(m.deleted_customer())),
    ("payment_method.attached", |m| Box::pin(m.attached_method())),
    ("payment_method.updated", |m| Box::pin(m.updated_method())),
    ("payment_method.detached", |m| Box::pin(m.detached_method())),
    ("payment_intent.created", |m| {
        Box::pin(m.intent("automatic"))
    }),
    ("payment_intent.requires_action", |m| {
        Box::pin(m.confirmed_intent("automatic", HOLDERS_CARD))
    }),
    ("payment_intent.amount_capturable_updated", |m| {
        Box::pin(m.confirmed_intent("manual", CARD))
    }),
    ("payment_intent.succeeded", |m| {
        Box::pin(m.confirmed_intent("automatic", CARD))
    }),
    ("payment_intent.payment_failed", |m| {
        Box::pin(m.confirmed_intent("automatic", DECLINED_METHOD))
    }),
    ("payment_intent.canceled", |m| Box::pin(m.canceled_intent())),
    ("setup_intent.created", |m| Box::pin(m.setup())),
    ("setup_intent.requires_action", |m| {
        Box::pin(m.confirmed_setup(HOLDERS_CARD))
    }),
    ("setup_intent.succeeded", |m| {
        Box::pin(m.confirmed_setup(CARD))
    }),
    ("setup_intent.setup_failed", |m| {
        Box::pin(m.declined_setup())
    }),
    ("setup_intent.canceled", |m| Box::pin(m.canceled_setup())),
    ("order.created", |m| Box::pin(m.order())),
    ("order.updated", |m| Box::pin(m.updated_order())),
    ("order.paid", |m| {
        Box::pin(async move { Ok(m.paid_order().await?.id) })
    }),
    ("order.canceled", |m| Box::pin(m.canceled_order())),
    ("order.refunded", |m| Box::pin(m.refunded_order())),
    ("checkout.completed", |m| Box::pin(m.checkout(None))),
    ("checkout.canceled", |m| {
        Box::pin(m.checkout(Some(DECLINED_CARD)))
    }),
];

/// The names of the types of events.
pub(crate) fn event_types() -> PossibleValuesParser {
    PossibleValuesParser::new(EVENTS.map(|(name, _)| name))
}

/// Runs it to its end.
pub fn run(arguments: &TriggerArguments) -> Result<(), BoxError> {
    service::block_on(trigger(arguments), || {
        Err("stopped before it was done".into())
    })
}

async fn trigger(arguments: &TriggerArguments) -> Result<(), BoxError> {
    let Some(event) = arguments.event.as_deref() else {
        return EVENTS.iter().try_for_each(|(name, _)| print(name));
    };
    // The parser of the arguments takes no other name.
    let known = EVENTS.iter().find(|(name, _)| *name == event);
    let (event, make) = known.ok_or("there is no such event")?;
    let service = &arguments.service;
    if *event != REFUND_FAILED && arguments.processor_url.is_some() {
        return Err("--processor-url is for refund.failed only: leave it out".into());
    }
    let processor = arguments.processor_url.as_deref();
    let processor = processor.map(|url| HttpProcessor::new(url, PROCESSOR_TIMEOUT, || None));
    let processor = processor.transpose();
    let processor = processor.map_err(|error| format!("--processor-url can't be used: {error}"))?;
    let maker = Maker {
        client: service.client(DEADLINE)?,
        processor,
    };
    let explain = |error| service.explain(error);
    let made = make(&maker).await.map_err(explain)?;
    let found = maker.find(event, &made).await.map_err(explain)?;
    let found = found.ok_or_else(|| {
        format!("{made} was made, but the last events of its type don't include its own")
    })?;
    print(&format!("{}  {}  {made}", found.event_type, found.id))
}

struct Maker {
    client: Client,
    processor: Option<HttpProcessor>,
}

impl Maker {
    async fn charge(&self, capture: bool) -> Result<String, Error> {
        let charge = NewCharge {
            capture: Some(capture),
            description: Some(DESCRIPTION.to_owned()),
            ..NewCharge::new(AMOUNT, CURRENCY)
        };
        let charge = self.client.create_charge(&charge)?.send().await?.id;
        let verb = if capture { "charged" } else { "authorized" };
        Ok(did(verb, charge))
    }

    async fn declined_charge(&self) -> Result<String, Error> {
        let charge = NewCharge {
            source: Some(DECLINED_CARD.to_owned()),
            description: Some(DESCRIPTION.to_owned()),
            ..NewCharge::new(AMOUNT, CURRENCY)
        };
        let sent = self.client.create_charge(&charge)?.send().await;
        let charge = declined(sent.map(|charge| charge.id))?;
        Ok(did("declined", charge))
    }

    async fn captured_charge(&self) -> Result<String, Error> {
        let charge = self.charge(false).await?;
        let capture = self.client.capture_charge(&charge, &Capture::default())?;
        capture.send().await?;
        Ok(did("captured", charge))
    }

    async fn updated_charge(&self) -> Result<String, Error> {
        let charge = self.charge(true).await?;
        let update = ChargeUpdate {
            description: Some(format!("{DESCRIPTION}, and updated")),
            ..ChargeUpdate::default()
        };
        self.client.update_charge(&charge, &update)?.send().await?;
        Ok(did("updated", charge))
    }

    async fn refund(&self) -> Result<Refund, Error> {
        let charge = self.charge(true).await?;
        self.refund_of(charge).await
    }

    async fn refund_of(&self, charge: String) -> Result<Refund, Error> {
        let refund = NewRefund {
            charge,
            ..NewRefund::default()
        };
        let refund = self.client.create_refund(&refund)?.send().await?;
        say(&format!("refunded {} by {}", refund.charge, refund.id));
        Ok(refund)
    }

    async fn updated_refund(&self) -> Result<String, Error> {
        let refund = self.refund().await?.id;
        let update = self.client.update_refund(&refund, &metadata_update())?;
        update.send().await?;
        Ok(did("updated", refund))
    }

    /// A refund that the processor refuses, because it has given the money back already.
    async fn refused_refund(&self) -> Result<String, Error> {
        let processor = self.processor.as_ref().ok_or_else(|| {
            unusable(
                "refund.failed happens only where a card processor across a network refuses a \
                 refund: run the simulator and the service with it (docs/processor.md), and set \
                 --processor-url to the simulator",
            )
        })?;
        let charge = self.charge(true).await?;
        let taken = Instruction::Refund {
            charge: charge.clone(),
            refund: format!("re_{}", Uuid::now_v7().simple()),
            amount: AMOUNT,
        };
        let not_after = Utc::now() + PROCESSOR_TIMEOUT * 2;
        match processor.execute(Uuid::now_v7(), &taken, not_after).await {
            InstructionOutcome::Answered(Answer::Done) => {}
            InstructionOutcome::Answered(Answer::Declined(_)) => {
                return Err(unusable(
                    "--processor-url: it doesn't know the charge; it must be the simulator that the \
                     service has as its PROCESSOR_URL",
                ));
            }
            InstructionOutcome::NotExecuted(why) | InstructionOutcome::Unknown(why) => {
                return Err(unusable(&format!(
                    "--processor-url: no answer that counts: {why}"
                )));
            }
        }
        let refund = NewRefund {
            charge: charge.clone(),
            ..NewRefund::default()
        };
        match self.client.create_refund(&refund)?.send().await {
            Err(Error::Declined(_)) => {
                say(&format!("a refund of {charge} was refused"));
                Ok(charge)
            }
            Ok(refund) => Err(unusable(&format!("{} was not refused", refund.id))),
            Err(error) => Err(error),
        }
    }

    async fn customer(&self) -> Result<String, Error> {
        let customer = NewCustomer {
            description: Some(DESCRIPTION.to_owned()),
            ..NewCustomer::default()
        };
        let customer = self.client.create_customer(&customer)?.send().await?.id;
        Ok(did("created", customer))
    }

    async fn deleted_customer(&self) -> Result<String, Error> {
        let customer = self.customer().await?;
        self.client.delete_customer(&customer).await?;
        Ok(did("deleted", customer))
    }

    async fn attached_method(&self) -> Result<String, Error> {
        let customer = self.customer().await?;
        let attach = self.client.attach_payment_method(CARD, &customer)?;
        let method = attach.send().await?.id;
        Ok(did("attached", method))
    }

    async fn updated_customer(&self) -> Result<String, Error> {
        let customer = self.customer().await?;
        let update = CustomerUpdate {
            description: Some(format!("{DESCRIPTION}, and updated")),
            ..CustomerUpdate::default()
        };
        let update = self.client.update_customer(&customer, &update)?;
        update.send().await?;
        Ok(did("updated", customer))
    }

    async fn updated_method(&self) -> Result<String, Error> {
        let method = self.attached_method().await?;
        let update = PaymentMethodUpdate {
            metadata: metadata_update().metadata,
            ..PaymentMethodUpdate::default()
        };
        let update = self.client.update_payment_method(&method, &update)?;
        update.send().await?;
        Ok(did("updated", method))
    }

    async fn detached_method(&self) -> Result<String, Error> {
        let method = self.attached_method().await?;
        self.client.detach_payment_method(&method)?.send().await?;
        Ok(did("detached", method))
    }

    async fn canceled_setup(&self) -> Result<String, Error> {
        let setup = self.setup().await?;
        let reason = SetupCancellation::default();
        let cancel = self.client.cancel_setup_intent(&setup, &reason)?;
        cancel.send().await?;
        Ok(did("canceled", setup))
    }

    async fn canceled_intent(&self) -> Result<String, Error> {
        let intent = self.intent("automatic").await?;
        let reason = Cancellation::default();
        let cancel = self.client.cancel_payment_intent(&intent, &reason)?;
        cancel.send().await?;
        Ok(did("canceled", intent))
    }

    async fn intent(&self, capture_method: &str) -> Result<String, Error> {
        let intent = NewPaymentIntent {
            capture_method: Some(capture_method.to_owned()),
            description: Some(DESCRIPTION.to_owned()),
            ..NewPaymentIntent::new(AMOUNT, CURRENCY)
        };
        let intent = self.client.create_payment_intent(&intent)?.send().await?.id;
        Ok(did("began", intent))
    }

    async fn confirmed_intent(&self, capture_method: &str, method: &str) -> Result<String, Error> {
        let intent = self.intent(capture_method).await?;
        let confirmation = Confirmation {
            payment_method: Some(method.to_owned()),
            return_url: Some(RETURN_URL.to_owned()),
            ..Confirmation::default()
        };
        let confirm = self.client.confirm_payment_intent(&intent, &confirmation)?;
        let outcome = match confirm.send().await {
            Ok(confirmed) => confirmed.status,
            Err(Error::Declined(_)) if method == DECLINED_METHOD => "declined".to_owned(),
            Err(error) => return Err(error),
        };
        say(&format!("confirmed {intent}: {outcome}"));
        Ok(intent)
    }

    async fn setup(&self) -> Result<String, Error> {
        let setup = NewSetupIntent {
            description: Some(DESCRIPTION.to_owned()),
            ..NewSetupIntent::default()
        };
        let setup = self.client.create_setup_intent(&setup)?.send().await?.id;
        Ok(did("began", setup))
    }

    async fn confirmed_setup(&self, method: &str) -> Result<String, Error> {
        let setup = self.setup().await?;
        let confirmation = confirmation(method);
        let confirm = self.client.confirm_setup_intent(&setup, &confirmation)?;
        let status = confirm.send().await?.status;
        say(&format!("confirmed {setup}: {status}"));
        Ok(setup)
    }

    async fn declined_setup(&self) -> Result<String, Error> {
        let setup = self.setup().await?;
        let confirmation = confirmation(DECLINED_METHOD);
        let confirm = self.client.confirm_setup_intent(&setup, &confirmation)?;
        match confirm.send().await {
            Err(Error::Declined(_)) => {
                say(&format!("the card of {setup} was declined"));
                Ok(setup)
            }
            Ok(_) => Err(unusable(&format!("the card of {setup} was not declined"))),
            Err(error) => Err(error),
        }
    }

    async fn order(&self) -> Result<String, Error> {
        let order = NewOrder {
            currency: CURRENCY.to_owned(),
            items: vec![item()],
            ..NewOrder::default()
        };
        let order = self.client.create_order(&order)?.send().await?.id;
        Ok(did("opened", order))
    }

    async fn updated_order(&self) -> Result<String, Error> {
        let order = self.order().await?;
        let update = self.client.update_order(&order, &metadata_update())?;
        update.send().await?;
        Ok(did("updated", order))
    }

    async fn canceled_order(&self) -> Result<String, Error> {
        let order = self.order().await?;
        self.client.cancel_order(&order)?.send().await?;
        Ok(did("canceled", order))
    }

    async fn paid_order(&self) -> Result<Order, Error> {
        let order = self.order().await?;
        let payment = self.client.pay_order(&order, &Payment::default())?;
        let order = payment.send().await?;
        say(&format!("paid {}", order.id));
        Ok(order)
    }

    async fn refunded_order(&self) -> Result<String, Error> {
        let order = self.paid_order().await?;
        self.refund_of(order.charge.unwrap_or_default()).await?;
        Ok(order.id)
    }

    /// Returns the id of the checkout, or of the declined charge that canceled it.
    async fn checkout(&self, source: Option<&str>) -> Result<String, Error> {
        self.client.set_inventory(SKU, STOCK)?.send().await?;
        let checkout = NewCheckout {
            currency: CURRENCY.to_owned(),
            items: vec![item()],
            source: source.map(str::to_owned),
            ..NewCheckout::default()
        };
        let sent = self.client.create_checkout(&checkout)?.send().await;
        let sent = sent.map(|checkout| checkout.id);
        let made = match source {
            None => sent?,
            Some(_) => declined(sent)?,
        };
        say(&format!("checked out: {made}"));
        Ok(made)
    }

    /// The newest event of this type about the object, or about what the charge belongs to.
    async fn find(&self, event: &str, made: &str) -> Result<Option<Event>, Error> {
        let query = ListQuery {
            limit: Some(LOOKED_THROUGH),
            event_type: Some(event.to_owned()),
            ..ListQuery::default()
        };
        let names =
            |object: &Value, member| object.get(member).and_then(Value::as_str) == Some(made);
        let page = self.client.list_events(&query).await?;
        Ok(page.data.into_iter().find(|event| {
            let object = &event.data.object;
            names(object, "id") || names(object, "charge")
        }))
    }
}

/// Says what was done to the object with this id, and returns the id.
fn did(verb: &str, id: String) -> String {
    say(&format!("{verb} {id}"));
    id
}

/// The charge that a decline leaves.
fn declined(sent: Result<String, Error>) -> Result<String, Error> {
    match sent {
        Err(Error::Declined(refusal)) => refusal
            .charge
            .ok_or_else(|| unusable("the service declined, and named no charge")),
        Ok(id) => Err(unusable(&format!(
            "{id} was not declined, though its card is one that always is"
        ))),
        Err(error) => Err(error),
    }
}

fn confirmation(method: &str) -> SetupConfirmation {
    SetupConfirmation {
        payment_method: Some(method.to_owned()),
        return_url: Some(RETURN_URL.to_owned()),
    }
}

fn unusable(why: &str) -> Error {
    Error::Unusable(why.to_owned())
}

fn item() -> NewItem {
    NewItem {
        sku: Some(SKU.to_owned()),
        description: Some(DESCRIPTION.to_owned()),
        quantity: 1,
        unit_amount: AMOUNT,
    }
}

fn metadata_update() -> MetadataUpdate {
    MetadataUpdate {
        metadata: [("updated_by".to_owned(), "charge-once trigger".to_owned())].into(),
    }
}
