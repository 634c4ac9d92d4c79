//! One function for each call of the API.
//!
//! Promise: a function that changes something returns a [`Request`], which has its key already and
//! has sent nothing yet. A function that reads just reads, and one that deletes, which needs no
//! key, just deletes.

use std::{
    collections::BTreeMap,
    marker::PhantomData,
    sync::atomic::{AtomicBool, Ordering},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::{
    Client,
    error::{Error, Result},
    keyed_request::{KeyedRequest, Method, abandoned_by, abandonment_path, checked, named},
    lists::{ListQuery, Page, with_query},
    objects::{
        Charge, Checkout, Customer, Event, FaultPlan, Inventory, KeyStatus, Order, PaymentIntent,
        PaymentMethod, Refund, Report, SetupIntent, TestAccount, WebhookDelivery, WebhookEndpoint,
    },
    requests::{
        Cancellation, Capture, ChargeUpdate, Confirmation, CustomerUpdate, IntentCapture,
        MetadataUpdate, NewCharge, NewCheckout, NewCustomer, NewFaultPlan, NewOrder,
        NewPaymentIntent, NewPaymentMethod, NewRefund, NewSetupIntent, NewWebhookEndpoint, Payment,
        PaymentIntentUpdate, PaymentMethodUpdate, SetupCancellation, SetupConfirmation,
        SetupIntentUpdate, WebhookEndpointUpdate,
    },
    sending::{Message, Reply, send},
};

/// A change, prepared: sent never, once or several times, it happens at most once.
#[derive(Debug)]
#[must_use = "nothing happens until it is sent"]
pub struct Request<T> {
    client: Client,
    operation: KeyedRequest,
    was_sent: AtomicBool,
    answer: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Request<T> {
    /// Names the operation by something of your own that exists once for it, such as an order's
    /// number. The same name on another machine, or in another process, is the same operation.
    pub fn with_key(mut self, key: impl Into<String>) -> Result<Self> {
        self.operation.key = checked("a key", key.into())?;
        Ok(self)
    }

    /// Links the operation to others of the same workflow, a name of your own: [`Client::workflow`]
    /// lists them. The first attempt decides the workflow, and a retry doesn't change it.
    pub fn with_workflow(mut self, name: impl Into<String>) -> Result<Self> {
        let name = checked("the name of a workflow", name.into())?;
        self.operation.workflow = Some(name);
        Ok(self)
    }

    /// The idempotency key.
    pub fn key(&self) -> &str {
        self.operation.key()
    }

    /// What will be sent.
    pub fn operation(&self) -> &KeyedRequest {
        &self.operation
    }

    /// Sends until the outcome is known. After [`Error::GaveUp`], call it again: same key, same
    /// bytes.
    pub async fn send(&self) -> Result<T> {
        self.send_for_reply().await?.object()
    }

    /// Sends as [`Request::send`] does, and returns the reply as it came.
    pub async fn send_for_reply(&self) -> Result<Reply> {
        let was_sent = self.was_sent.swap(true, Ordering::SeqCst);
        self.client.execute(&self.operation, was_sent).await
    }

    /// Makes sure that nothing is executed from now on, and says what was: the outcome, as
    /// [`Request::send`] does, or [`Error::Abandoned`]. [`Error::GaveUp`] means that the service
    /// still can't say: the store then keeps that the key is to be given up.
    pub async fn give_up(&self) -> Result<T> {
        self.was_sent.store(true, Ordering::SeqCst);
        self.client.give_up(&self.operation).await?.object()
    }
}

impl Client {
    /// Charges a card.
    pub fn create_charge(&self, charge: &NewCharge) -> Result<Request<Charge>> {
        self.change("/charges".to_owned(), charge)
    }

    /// Reads a charge.
    pub async fn retrieve_charge(&self, id: &str) -> Result<Charge> {
        self.read(below("/charges", id, "")?).await
    }

    /// Changes what is written on a charge, never its money.
    pub fn update_charge(&self, id: &str, update: &ChargeUpdate) -> Result<Request<Charge>> {
        self.change(below("/charges", id, "")?, update)
    }

    /// Takes money that was promised.
    pub fn capture_charge(&self, id: &str, capture: &Capture) -> Result<Request<Charge>> {
        self.change(below("/charges", id, "/capture")?, capture)
    }

    /// Lists charges; filters `customer`, `order`.
    pub async fn list_charges(&self, query: &ListQuery) -> Result<Page<Charge>> {
        self.read(query.after("/charges")).await
    }

    /// Gives money back.
    pub fn create_refund(&self, refund: &NewRefund) -> Result<Request<Refund>> {
        self.change("/refunds".to_owned(), refund)
    }

    /// Reads a refund.
    pub async fn retrieve_refund(&self, id: &str) -> Result<Refund> {
        self.read(below("/refunds", id, "")?).await
    }

    /// Changes a refund's metadata.
    pub fn update_refund(&self, id: &str, update: &MetadataUpdate) -> Result<Request<Refund>> {
        self.change(below("/refunds", id, "")?, update)
    }

    /// Lists refunds; filter `charge`.
    pub async fn list_refunds(&self, query: &ListQuery) -> Result<Page<Refund>> {
        self.read(query.after("/refunds")).await
    }

    /// Lists the refunds of a charge.
    pub async fn list_refunds_of_charge(
        &self,
        id: &str,
        query: &ListQuery,
    ) -> Result<Page<Refund>> {
        self.read(query.after(&below("/charges", id, "/refunds")?))
            .await
    }

    /// Writes down who pays.
    pub fn create_customer(&self, customer: &NewCustomer) -> Result<Request<Customer>> {
        self.change("/customers".to_owned(), customer)
    }

    /// Reads a customer. Of one who was deleted, only the id is left.
    pub async fn retrieve_customer(&self, id: &str) -> Result<Customer> {
        self.read(below("/customers", id, "")?).await
    }

    /// Changes what is known of a customer.
    pub fn update_customer(&self, id: &str, update: &CustomerUpdate) -> Result<Request<Customer>> {
        self.change(below("/customers", id, "")?, update)
    }

    /// Lists customers; filter `email`.
    pub async fn list_customers(&self, query: &ListQuery) -> Result<Page<Customer>> {
        self.read(query.after("/customers")).await
    }

    /// Forgets a customer, and detaches all payment methods. `false`: there is no such customer,
    /// now; where an answer was lost, an earlier attempt of this call may have deleted it.
    pub async fn delete_customer(&self, id: &str) -> Result<bool> {
        self.delete(&below("/customers", id, "")?).await
    }

    /// Keeps a card.
    pub fn create_payment_method(
        &self,
        method: &NewPaymentMethod,
    ) -> Result<Request<PaymentMethod>> {
        self.change("/payment_methods".to_owned(), method)
    }

    /// Reads a payment method.
    pub async fn retrieve_payment_method(&self, id: &str) -> Result<PaymentMethod> {
        self.read(below("/payment_methods", id, "")?).await
    }

    /// Changes what is written on a customer's payment method.
    pub fn update_payment_method(
        &self,
        id: &str,
        update: &PaymentMethodUpdate,
    ) -> Result<Request<PaymentMethod>> {
        self.change(below("/payment_methods", id, "")?, update)
    }

    /// Keeps a card for a customer's later payments. `id` may also be a test card such as
    /// `pm_card_visa`, of which a new method is made.
    pub fn attach_payment_method(
        &self,
        id: &str,
        customer: &str,
    ) -> Result<Request<PaymentMethod>> {
        let of = BTreeMap::from([("customer", customer)]);
        self.change(below("/payment_methods", id, "/attach")?, &of)
    }

    /// Takes a card from its customer, for good.
    pub fn detach_payment_method(&self, id: &str) -> Result<Request<PaymentMethod>> {
        let path = below("/payment_methods", id, "/detach")?;
        self.change(path, &serde_json::Map::new())
    }

    /// Lists payment methods; filter `customer`, which must be there.
    pub async fn list_payment_methods(&self, query: &ListQuery) -> Result<Page<PaymentMethod>> {
        self.read(query.after("/payment_methods")).await
    }

    /// Lists the payment methods of a customer.
    pub async fn list_payment_methods_of_customer(
        &self,
        id: &str,
        query: &ListQuery,
    ) -> Result<Page<PaymentMethod>> {
        self.read(query.after(&below("/customers", id, "/payment_methods")?))
            .await
    }

    /// Reads a payment method, if it is this customer's.
    pub async fn retrieve_payment_method_of_customer(
        &self,
        customer: &str,
        id: &str,
    ) -> Result<PaymentMethod> {
        let methods = below("/customers", customer, "/payment_methods")?;
        self.read(below(&methods, id, "")?).await
    }

    /// Opens an order.
    pub fn create_order(&self, order: &NewOrder) -> Result<Request<Order>> {
        self.change("/orders".to_owned(), order)
    }

    /// Reads an order.
    pub async fn retrieve_order(&self, id: &str) -> Result<Order> {
        self.read(below("/orders", id, "")?).await
    }

    /// Changes an order's metadata.
    pub fn update_order(&self, id: &str, update: &MetadataUpdate) -> Result<Request<Order>> {
        self.change(below("/orders", id, "")?, update)
    }

    /// Makes the order's one charge.
    pub fn pay_order(&self, id: &str, payment: &Payment) -> Result<Request<Order>> {
        self.change(below("/orders", id, "/pay")?, payment)
    }

    /// Closes an open order for good.
    pub fn cancel_order(&self, id: &str) -> Result<Request<Order>> {
        self.change(below("/orders", id, "/cancel")?, &serde_json::Map::new())
    }

    /// Lists orders; filters `customer`, `client_order_id`.
    pub async fn list_orders(&self, query: &ListQuery) -> Result<Page<Order>> {
        self.read(query.after("/orders")).await
    }

    /// Sells: opens an order, charges it, and takes the items from the inventory, under one key.
    /// What can't be completed is undone before it is refused: [`Error::Declined`], or
    /// [`Error::Invalid`] with the code `out_of_stock`. A retry continues a checkout where it
    /// stopped.
    pub fn create_checkout(&self, checkout: &NewCheckout) -> Result<Request<Checkout>> {
        self.change("/checkouts".to_owned(), checkout)
    }

    /// Reads a checkout, with its steps so far.
    pub async fn retrieve_checkout(&self, id: &str) -> Result<Checkout> {
        self.read(below("/checkouts", id, "")?).await
    }

    /// Lists checkouts; filter `customer`.
    pub async fn list_checkouts(&self, query: &ListQuery) -> Result<Page<Checkout>> {
        self.read(query.after("/checkouts")).await
    }

    /// Sets how many of a stock-keeping unit are there, to what was counted. A late retry may
    /// overwrite what others have set since. After [`Error::GaveUp`], find out its outcome before
    /// counting again.
    pub fn set_inventory(&self, sku: &str, quantity: i64) -> Result<Request<Inventory>> {
        let level = BTreeMap::from([("quantity", quantity)]);
        self.prepare(Method::Put, named("/inventory", sku)?, &level)
    }

    /// Reads how many are left.
    pub async fn retrieve_inventory(&self, sku: &str) -> Result<Inventory> {
        self.read(named("/inventory", sku)?).await
    }

    /// Lists levels of inventory, in the order of their skus, which are its cursors.
    pub async fn list_inventory(&self, query: &ListQuery) -> Result<Page<Inventory>> {
        self.read(query.after("/inventory")).await
    }

    /// Begins a payment. A decline of a card that is charged at once is an error; the intent stays.
    pub fn create_payment_intent(
        &self,
        intent: &NewPaymentIntent,
    ) -> Result<Request<PaymentIntent>> {
        self.change("/payment_intents".to_owned(), intent)
    }

    /// Reads a payment intent.
    pub async fn retrieve_payment_intent(&self, id: &str) -> Result<PaymentIntent> {
        self.read(below("/payment_intents", id, "")?).await
    }

    /// Changes what is to be paid, or what is written on a payment intent.
    pub fn update_payment_intent(
        &self,
        id: &str,
        update: &PaymentIntentUpdate,
    ) -> Result<Request<PaymentIntent>> {
        self.change(below("/payment_intents", id, "")?, update)
    }

    /// Charges the card, or says where its holder authenticates.
    pub fn confirm_payment_intent(
        &self,
        id: &str,
        confirmation: &Confirmation,
    ) -> Result<Request<PaymentIntent>> {
        self.change(below("/payment_intents", id, "/confirm")?, confirmation)
    }

    /// Takes what was promised; the rest is released.
    pub fn capture_payment_intent(
        &self,
        id: &str,
        capture: &IntentCapture,
    ) -> Result<Request<PaymentIntent>> {
        self.change(below("/payment_intents", id, "/capture")?, capture)
    }

    /// Closes a payment intent for good; what was promised is released.
    pub fn cancel_payment_intent(
        &self,
        id: &str,
        cancellation: &Cancellation,
    ) -> Result<Request<PaymentIntent>> {
        self.change(below("/payment_intents", id, "/cancel")?, cancellation)
    }

    /// Lists payment intents; filter `customer`.
    pub async fn list_payment_intents(&self, query: &ListQuery) -> Result<Page<PaymentIntent>> {
        self.read(query.after("/payment_intents")).await
    }

    /// Begins to make a card ready for later payments. A card whose holder must authenticate leaves
    /// the status `requires_action`: send them to the page in its `next_action`.
    pub fn create_setup_intent(&self, setup: &NewSetupIntent) -> Result<Request<SetupIntent>> {
        self.change("/setup_intents".to_owned(), setup)
    }

    /// Reads a setup intent.
    pub async fn retrieve_setup_intent(&self, id: &str) -> Result<SetupIntent> {
        self.read(below("/setup_intents", id, "")?).await
    }

    /// Changes what is set up, and for whom, or what is written on a setup intent.
    pub fn update_setup_intent(
        &self,
        id: &str,
        update: &SetupIntentUpdate,
    ) -> Result<Request<SetupIntent>> {
        self.change(below("/setup_intents", id, "")?, update)
    }

    /// Tries to set the card up.
    pub fn confirm_setup_intent(
        &self,
        id: &str,
        confirmation: &SetupConfirmation,
    ) -> Result<Request<SetupIntent>> {
        self.change(below("/setup_intents", id, "/confirm")?, confirmation)
    }

    /// Closes a setup intent that has not succeeded for good.
    pub fn cancel_setup_intent(
        &self,
        id: &str,
        cancellation: &SetupCancellation,
    ) -> Result<Request<SetupIntent>> {
        self.change(below("/setup_intents", id, "/cancel")?, cancellation)
    }

    /// Lists setup intents; filters `customer`, `payment_method`.
    pub async fn list_setup_intents(&self, query: &ListQuery) -> Result<Page<SetupIntent>> {
        self.read(query.after("/setup_intents")).await
    }

    /// Reads an event.
    pub async fn retrieve_event(&self, id: &str) -> Result<Event> {
        self.read(below("/events", id, "")?).await
    }

    /// Lists events; filter `event_type`.
    pub async fn list_events(&self, query: &ListQuery) -> Result<Page<Event>> {
        self.read(query.after("/events")).await
    }

    /// Lists events as [`Client::list_events`] does, each in the very text that the service sent:
    /// to hand it on.
    pub async fn list_event_texts(&self, query: &ListQuery) -> Result<Page<Box<RawValue>>> {
        self.read(query.after("/events")).await
    }

    /// Has events sent to a URL. The answer holds the secret that they are signed with, and no
    /// other answer does.
    pub fn create_webhook_endpoint(
        &self,
        endpoint: &NewWebhookEndpoint,
    ) -> Result<Request<WebhookEndpoint>> {
        self.change("/webhook_endpoints".to_owned(), endpoint)
    }

    /// Reads a webhook endpoint.
    pub async fn retrieve_webhook_endpoint(&self, id: &str) -> Result<WebhookEndpoint> {
        self.read(below("/webhook_endpoints", id, "")?).await
    }

    /// Changes where events are sent, which, and whether any. A delivery that falls due while the
    /// endpoint is disabled fails.
    pub fn update_webhook_endpoint(
        &self,
        id: &str,
        update: &WebhookEndpointUpdate,
    ) -> Result<Request<WebhookEndpoint>> {
        self.change(below("/webhook_endpoints", id, "")?, update)
    }

    /// Lists webhook endpoints.
    pub async fn list_webhook_endpoints(&self, query: &ListQuery) -> Result<Page<WebhookEndpoint>> {
        self.read(query.after("/webhook_endpoints")).await
    }

    /// Has no more events sent there. `false`: there is no such endpoint, now; where an answer was
    /// lost, an earlier attempt of this call may have deleted it.
    pub async fn delete_webhook_endpoint(&self, id: &str) -> Result<bool> {
        self.delete(&below("/webhook_endpoints", id, "")?).await
    }

    /// Lists what was to be sent to a webhook endpoint, with every attempt.
    pub async fn list_webhook_deliveries(
        &self,
        endpoint: &str,
        query: &ListQuery,
    ) -> Result<Page<WebhookDelivery>> {
        self.read(query.after(&below("/webhook_endpoints", endpoint, "/deliveries")?))
            .await
    }

    /// The operations of a workflow that the service has a record of, or is working on: all of
    /// them, in the order of their first use. A missing operation never means that a new key is
    /// safe.
    pub async fn workflow(&self, name: &str) -> Result<Vec<KeyStatus>> {
        let mut steps = Vec::<KeyStatus>::new();
        loop {
            let name = ("name", name.to_owned());
            let last = steps.last();
            let after = last.map(|step| ("starting_after", step.key.clone()));
            let query = with_query("/workflows", [name].into_iter().chain(after));
            let page: Page<KeyStatus> = self.read(query).await?;
            let is_last = !page.has_more || page.data.is_empty();
            steps.extend(page.data);
            if is_last {
                return Ok(steps);
            }
        }
    }

    /// What the service knows about a key. An unknown key never means that a new key is safe.
    pub async fn look_up_key(&self, key: &str) -> Result<KeyStatus> {
        self.read(with_query("/idempotency-keys", [("key", key.to_owned())]))
            .await
    }

    /// Gives a key up, of which only its name is known: no request with it is executed from now on.
    /// Its status is then `abandoned`, or `completed` by what was executed or refused before. Only
    /// within the retention: a key that the service has forgotten is one that nothing came with.
    pub fn abandon_key(&self, key: &str) -> Result<Request<KeyStatus>> {
        let path = abandonment_path(key)?;
        self.change(path, &serde_json::Map::new())?
            .with_key(abandoned_by(key))
    }

    /// Makes an account for one test, on a server with `FAULTS`.
    pub fn create_test_account(&self) -> Result<Request<TestAccount>> {
        self.change("/test/accounts".to_owned(), &serde_json::Map::new())
    }

    /// Makes a fault act on requests of this test account without the header `Fault`, or on its
    /// webhooks.
    pub fn create_fault_plan(&self, plan: &NewFaultPlan) -> Result<Request<FaultPlan>> {
        self.change("/test/faults".to_owned(), plan)
    }

    /// Lists the fault plans of this test account: all of them, the oldest first.
    pub async fn list_fault_plans(&self) -> Result<Page<FaultPlan>> {
        self.read("/test/faults".to_owned()).await
    }

    /// Ends a fault plan. `false`: there is no such plan, now.
    pub async fn delete_fault_plan(&self, id: &str) -> Result<bool> {
        self.delete(&below("/test/faults", id, "")?).await
    }

    /// What is wrong with the client that uses this test account, by its last requests, or by those
    /// before the one with the id `before`.
    pub async fn retrieve_report(&self, before: Option<&str>) -> Result<Report> {
        let before = before.map(|id| ("before", id.to_owned()));
        self.read(with_query("/test/report", before)).await
    }

    fn change<T>(&self, path: String, parameters: &impl Serialize) -> Result<Request<T>> {
        self.prepare(Method::Post, path, parameters)
    }

    fn prepare<T>(
        &self,
        method: Method,
        path: String,
        parameters: &impl Serialize,
    ) -> Result<Request<T>> {
        let now = self.inner.clock.unix_time();
        Ok(Request {
            client: self.clone(),
            operation: KeyedRequest::new(&self.inner.server, method, path, parameters, now)?,
            was_sent: AtomicBool::new(false),
            answer: PhantomData,
        })
    }

    /// `false`: there is nothing at this path, now.
    async fn delete(&self, path: &str) -> Result<bool> {
        match self.ask(&Message::Delete(path)).await {
            Ok(_) => Ok(true),
            Err(Error::Invalid(refusal)) if refusal.code == "resource_missing" => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn read<T: DeserializeOwned>(&self, path: String) -> Result<T> {
        self.ask(&Message::Read(&path)).await?.object()
    }

    async fn ask(&self, message: &Message<'_>) -> Result<Reply> {
        let deadline = self.inner.policy.deadline;
        send(&self.inner, message, false, deadline).await
    }
}

/// A path with an id in it. Ids are letters, digits and `_`; anything else could be another path.
fn below(collection: &str, id: &str, verb: &str) -> Result<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if id.is_empty() || !id.bytes().all(plain) {
        return Err(Error::Unusable(format!("this is no id: {id:?}")));
    }
    Ok(format!("{collection}/{id}{verb}"))
}
