//! Part of the OpenAPI document: an example request for every test card.

use charge_once_service::openapi::operations;
use serde_json::{Value, json};
use utoipa::{
    Modify,
    openapi::{OpenApi, RefOr, example::Example},
};

use crate::domain::test_cards::{Authentication, Decision, DeclineCode, TEST_CARDS, TestCard};

/// Adds the examples to the operations that take a card.
pub(super) struct CardExamples;

impl Modify for CardExamples {
    fn modify(&self, document: &mut OpenApi) {
        for operation in operations(document) {
            let body = match operation.operation_id.as_deref() {
                Some("createCharge") => json!({"amount": 2000, "currency": "usd"}),
                Some("payOrder") => json!({}),
                Some("createCheckout") => json!({
                    "currency": "usd",
                    "items": [{"sku": "mug", "quantity": 2, "unit_amount": 1200}],
                }),
                Some(_) | None => continue,
            };
            if let Some(RefOr::T(request)) = &mut operation.request_body
                && let Some(RefOr::T(content)) = request.content.get_mut("application/json")
            {
                for card in TEST_CARDS {
                    let example = RefOr::T(example(card, body.clone()));
                    content.examples.insert(card.token().to_owned(), example);
                }
            }
        }
    }
}

fn example(card: &TestCard, mut body: Value) -> Example {
    if let Some(members) = body.as_object_mut() {
        members.insert("source".to_owned(), card.token().into());
    }
    Example::builder()
        .summary(format!("{}: {}", card.token(), answer(card)))
        .value(Some(body))
        .build()
}

/// What a charge of the card gets, in words.
pub fn answer(card: &TestCard) -> String {
    if card.authentication != Authentication::Never {
        return format!("402 {}", DeclineCode::AuthenticationRequired.as_str());
    }
    match card.decision {
        Decision::Approve => "succeeds".to_owned(),
        Decision::ApproveSlowly => "succeeds after two seconds".to_owned(),
        Decision::Outage => "503, the processor is down".to_owned(),
        Decision::Decline(decline) => match decline.decline_code {
            Some(reason) => format!("402 {}, {reason}", decline.code.as_str()),
            None => format!("402 {}", decline.code.as_str()),
        },
    }
}
