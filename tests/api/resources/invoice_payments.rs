//! `/invoice_payments`: always empty, and there because pay-rails asks for it.

use crate::support::prelude::*;

#[tokio::test]
async fn no_invoice_is_ever_paid_and_asking_is_no_error() {
    let server = TestServer::start().await;
    // As pay-rails asks, for every charge with a PaymentIntent.
    let by_pay_rails = "payment[type]=payment_intent&payment[payment_intent]=pi_1&status=paid\
                        &expand[]=data.invoice.total_discount_amounts.discount";
    for query in [
        "",
        "limit=100",
        "invoice=in_1&status=open",
        "expand[0]=data.payment",
        by_pay_rails,
    ] {
        for prefix in ["", "/v1"] {
            let path = format!("{prefix}/invoice_payments");
            let listed = server.client.get(&format!("{path}?{query}")).await;
            assert_eq!(listed.status, 200, "{query}");
            let expected = json!({"object": "list", "data": [], "has_more": false, "url": path});
            assert_eq!(listed.json(), expected, "{query}");
        }
    }
    let wrong = "
        status=void             parameter_invalid status
        payment=pi_1            parameter_invalid payment
        payment[type]=card      parameter_invalid payment[type]
        payment[id]=pi_1        parameter_unknown payment[id]
        starting_after=inpay_1  parameter_invalid starting_after
        limit=0                 parameter_invalid limit
        page=1                  parameter_unknown page";
    assert_refuses_queries(&server.client, "/invoice_payments", wrong).await;
}

#[tokio::test]
async fn they_are_read_only_and_not_for_strangers() {
    let server = TestServer::start().await;
    let path = "/v1/invoice_payments";
    let created = server.client.post_new(path, &json!({})).await;
    assert_eq!(created.code(), "method_not_allowed");
    assert_eq!(created.header("allow"), Some("GET, HEAD"));
    let stranger = Answer::of(server.client.bare(Method::GET, path)).await;
    assert_eq!(stranger.code(), "api_key_missing");
    let one = server.client.get(&format!("{path}/inpay_1")).await;
    assert_eq!(one.code(), "route_not_found");
}
