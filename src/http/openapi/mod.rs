//! The OpenAPI 3.1 document.
//!
//! Promise: an endpoint is described where its handler is: parameters, body, replies and the codes
//! that it answers. This folder puts the descriptions together and adds what follows from them.

mod cards;
mod headers;
mod webhooks;

pub use cards::answer;

use std::{
    io,
    sync::{Arc, LazyLock},
};

use charge_once_service::openapi::{
    ExampleKeys, FormBodies, References, SharedResponses, served::ServedDocument,
};
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use self::{cards::CardExamples, headers::ReplyHeaders, webhooks::WebhooksSection};
use super::{
    account, charges, checkouts, customers, events, fault_plans, health, idempotency_keys,
    inventory, invoice_payments, orders,
    parameters::IDEMPOTENCY_KEY,
    payment_intents, payment_methods,
    policy::{self, UsualPolicy},
    refunds, report, setup_intents, test_accounts, webhook_endpoints, workflows,
};
use crate::{
    config::Values,
    domain::event::EventType,
    wire::{
        checkouts::ItemWithSkuParams,
        customers::{AnyCustomerView, InvoiceSettingsParams, Locale},
        error::Envelope,
        intent_parameters::{
            AutomaticMethodsParams, CustomerAcceptanceParams, MandateDataParams,
            OnlineAcceptanceParams,
        },
        list::Expandable,
        metadata::MetadataParam,
        orders::ItemParams,
        parameter::*,
        payment_intents::{
            CardOptionsParams, ParcelParams, PaymentIntentView, PaymentMethodOptionsParams,
        },
        payment_methods::{
            CardByTokenParams, CardChangeParams, MethodCard, PaymentMethodDataParams,
            PaymentMethodView, RadarOptionsParams,
        },
        people::{AddressParams, BillingDetailsParams, ShippingParams},
        problem::Problem,
        source::{CardParams, SourceParam, TestToken},
        webhook_endpoints::EnabledEvent,
    },
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "charge-once",
        description = "A payments API in which a retried request never charges twice.\n\nEvery \
            POST and PUT needs an `Idempotency-Key`. Send a request twice with the same key and \
            you get the same answer twice, and one charge.\n\n**Try it:** Authorize with the \
            API key that the start-up banner shows, \
            open Charges and `POST /charges`, Try it out, Execute. Execute again: \
            the same charge, and the header `idempotent-replayed: true`.\n\nEvery error code is \
            explained at [/errors](/errors).",
    ),
    servers(
        (
            url = "/",
            description = "IETF dialect: key reuse is 422, a duplicate in flight is 409 at once",
        ),
        (
            url = "/v1",
            description = "Stripe's dialect: key reuse is 400, a duplicate in flight waits",
        ),
    ),
    paths(
        charges::create, charges::list, charges::retrieve, charges::update, charges::capture,
        refunds::create, refunds::list, refunds::retrieve, refunds::update,
        refunds::list_of_charge,
        orders::create, orders::list, orders::retrieve, orders::update, orders::pay,
        orders::cancel,
        checkouts::create, checkouts::list, checkouts::retrieve,
        customers::create, customers::list, customers::retrieve, customers::update,
        customers::delete, customers::search,
        payment_methods::list_of_customer, payment_methods::retrieve_of_customer,
        payment_intents::create, payment_intents::list, payment_intents::retrieve,
        payment_intents::update, payment_intents::confirm, payment_intents::capture,
        payment_intents::cancel,
        payment_methods::create, payment_methods::list, payment_methods::retrieve,
        payment_methods::update, payment_methods::attach, payment_methods::detach,
        inventory::set, inventory::retrieve, inventory::list,
        account::retrieve,
        invoice_payments::list,
        setup_intents::create, setup_intents::list, setup_intents::retrieve,
        setup_intents::update, setup_intents::confirm, setup_intents::cancel,
        events::list, events::retrieve,
        webhook_endpoints::create, webhook_endpoints::list, webhook_endpoints::retrieve,
        webhook_endpoints::update, webhook_endpoints::delete,
        webhook_endpoints::list_deliveries,
        idempotency_keys::retrieve, idempotency_keys::look_up, idempotency_keys::abandon,
        policy::retrieve,
        workflows::list, workflows::look_up,
        health::livez, health::readyz,
        test_accounts::create, test_accounts::expire_keys,
        fault_plans::create, fault_plans::list, fault_plans::delete, report::retrieve,
    ),
    // Schemas of parameters don't come by themselves.
    components(schemas(
        Envelope<'static>, AddressParams, AutomaticMethodsParams, BillingDetailsParams,
        CardByTokenParams, CardChangeParams, CardOptionsParams, CardParams,
        CustomerAcceptanceParams, EnabledEvent,
        EventType, ExpandCharge, ExpandCharges, ExpandCustomer, ExpandCustomers, ExpandNewCharge,
        ExpandOrder,
        ExpandOrders, ExpandPaymentIntent, ExpandPaymentIntents, ExpandPaymentMethod,
        ExpandPaymentMethods, ExpandRefund, ExpandRefunds, ExpandSetupIntent,
        ExpandSetupIntents, Expandable<AnyCustomerView>,
        Expandable<PaymentIntentView>, Expandable<PaymentMethodView>, InvoiceSettingsParams,
        ItemParams, ItemWithSkuParams, Locale, MandateDataParams, MetadataParam, MethodCard,
        OnlineAcceptanceParams, ParcelParams, PaymentIntentView, PaymentMethodDataParams,
        PaymentMethodOptionsParams, Problem, RadarOptionsParams,
        ShippingParams, SourceParam, TestToken,
    )),
    tags(
        (name = "Charges"), (name = "Refunds"), (name = "Orders"), (name = "Checkouts"),
        (name = "Customers"), (name = "Payment methods"), (name = "Payment intents"),
        (name = "Setup intents"), (name = "Inventory"), (name = "Events"), (name = "Webhooks"),
        (name = "Idempotency keys"), (name = "Account"),
        (name = "Workflows"), (name = "Health"),
        (
            name = "Test",
            description = "For tests of a client's retries. These routes exist only where the server \
                runs with FAULTS=true, as `make run` starts it, and take the API key of a test account \
                or DEV_API_KEY. With such a key, the header `Fault` of a request with a key asks for a \
                fault.",
        ),
    ),
    security(("bearer" = []), ("basic" = [])),
    modifiers(
        &SecuritySchemes,
        // First, while copies are as what they are copied from.
        &References,
        &FormBodies, &ReplyHeaders, &SharedResponses, &EXAMPLE_KEYS, &CardExamples,
        &WebhooksSection, &UsualPolicy,
    ),
)]
struct Document;

/// The document, as `openapi/openapi.json` holds it.
pub fn document() -> utoipa::openapi::OpenApi {
    Document::openapi()
}

static USUAL: LazyLock<(utoipa::openapi::OpenApi, io::Result<Arc<ServedDocument>>)> =
    LazyLock::new(|| {
        let document = document();
        let served = ServedDocument::of(&document).map(Arc::new);
        (document, served)
    });

/// A copy of the document, which is put together once in a process.
pub fn usual() -> utoipa::openapi::OpenApi {
    USUAL.0.clone()
}

/// The document as programs get it from a server with these settings. That of the usual ones is
/// rendered and compressed once in a process.
pub fn served(values: &Values) -> io::Result<Arc<ServedDocument>> {
    let (usual, served) = &*USUAL;
    let mut document = usual.clone();
    policy::add_to(&mut document, values);
    if document != *usual {
        return ServedDocument::of(&document).map(Arc::new);
    }
    let served = served.as_ref().map(Arc::clone);
    served.map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

const EXAMPLE_KEYS: ExampleKeys = ExampleKeys {
    header: IDEMPOTENCY_KEY,
};

struct SecuritySchemes;

impl Modify for SecuritySchemes {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let components = document.components.get_or_insert_default();
        for (name, scheme, hint) in [
            (
                "bearer",
                HttpAuthScheme::Bearer,
                "An API key: `sk_test_…`. A server that was started for development shows one in \
                 its start-up banner.",
            ),
            (
                "basic",
                HttpAuthScheme::Basic,
                "The API key, `sk_test_…`, as the user name, and no password.",
            ),
        ] {
            let http = HttpBuilder::new().scheme(scheme).description(Some(hint));
            let scheme = SecurityScheme::Http(http.build());
            components
                .security_schemes
                .insert(name.to_owned(), scheme.into());
        }
    }
}
