//! The service itself as the sender.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use axum::{
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use charge_once::{cli::api_key::ensure_dev_key, config::Config, database, server};
use example_test_support::{empty_database, eventually, http_client};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::support::{Receiver, charge, effects, serve};

const API_KEY: &str = "sk_test_of_the_receiver";

/// Starts the service on a database of its own; returns its URL.
async fn start_service() -> String {
    let database_url = empty_database().await;
    let variables = [
        ("DATABASE_URL", database_url.as_str()),
        ("BIND_ADDRESS", "127.0.0.1:0"),
        ("DEV_API_KEY", API_KEY),
        ("WORKERS", "1"),
        ("WEBHOOK_ALLOW_PRIVATE", "true"),
        ("WEBHOOK_POLL_INTERVAL", "10ms"),
        ("WEBHOOK_RETRY_MIN", "1ms"),
        ("WEBHOOK_RETRY_MAX", "2ms"),
    ];
    let config = Config::from_lookup(|name| {
        let mut known = variables.iter().filter(|(variable, _)| *variable == name);
        known.next().map(|(_, value)| (*value).to_owned())
    })
    .unwrap();
    let database = database::connect(&database_url, &config).await.unwrap();
    ensure_dev_key(&database, API_KEY).await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        server::serve(
            listener.into(),
            database.into(),
            &config,
            std::future::pending(),
        )
        .await
        .unwrap();
    });
    url
}

/// Sends a POST to the service; returns the object that was made.
async fn create(http: &reqwest::Client, url: String, key: &str, body: &Value) -> Value {
    let request = http.post(url).bearer_auth(API_KEY).json(body);
    let response = request.header("idempotency-key", key).send().await.unwrap();
    assert_eq!(response.status().as_u16(), 201);
    response.json().await.unwrap()
}

/// Charges 20.00 USD; returns the charge's id.
async fn create_charge(http: &reqwest::Client, service: &str) -> String {
    let charge = json!({"amount": 2000, "currency": "usd", "source": "tok_visa"});
    let made = create(http, format!("{service}/charges"), "charge-1", &charge).await;
    made["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn events_that_arrive_in_the_reverse_order_leave_the_charge_as_it_is() {
    let service = start_service().await;
    let http = http_client();
    let refunded = create_charge(&http, &service).await;
    let refunds = format!("{service}/refunds");
    let refund = json!({"charge": refunded, "amount": 500});
    create(&http, refunds, "refund-1", &refund).await;
    // The newest first.
    let request = http.get(format!("{service}/events")).bearer_auth(API_KEY);
    let events: Value = request.send().await.unwrap().json().await.unwrap();
    let events: Vec<_> = events["data"].as_array().unwrap().iter().collect();
    assert_eq!(events.last().unwrap()["type"], "charge.succeeded");

    let receiver = Receiver::start().await;
    for event in events {
        assert_eq!(receiver.deliver(&event.to_string()).await, 200);
    }
    assert_eq!(charge(&receiver.pool).await, (2000, 500));
}

#[tokio::test]
async fn a_charge_is_counted_once_though_the_first_receipts_of_its_event_are_lost() {
    let service = start_service().await;
    let http = http_client();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hook = json!({
        "url": format!("http://{}/webhooks", listener.local_addr().unwrap()),
        "enabled_events": ["*"],
    });
    let hooks = format!("{service}/webhook_endpoints");
    let endpoint = create(&http, hooks, "hook-1", &hook).await;
    let secret = endpoint["secret"].as_str().unwrap().to_owned();

    let pool = webhook_receiver::connect(&empty_database().await)
        .await
        .unwrap();
    let deliveries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&deliveries);
    // The sender hears nothing of the first three receipts, so it delivers again.
    let lose_receipts = from_fn(move |request: Request, next: Next| {
        let delivery = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            let response: Response = next.run(request).await;
            assert_eq!(response.status(), StatusCode::OK);
            match delivery {
                0..3 => StatusCode::BAD_GATEWAY.into_response(),
                _ => response,
            }
        }
    });
    let app = webhook_receiver::app(pool.clone(), secret).layer(lose_receipts);
    serve(listener, app);

    create_charge(&http, &service).await;

    let id = endpoint["id"].as_str().unwrap();
    let path = format!("{service}/webhook_endpoints/{id}/deliveries");
    eventually("the service has a receipt", || async {
        let request = http.get(&path).bearer_auth(API_KEY);
        let list: Value = request.send().await.unwrap().json().await.unwrap();
        list["data"][0]["status"] == "succeeded"
    })
    .await;
    assert_eq!(deliveries.load(Ordering::SeqCst), 4);
    assert_eq!(effects(&pool).await, (1, 2000));
}
