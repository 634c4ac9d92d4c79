//! A charge that was made with the other setting of PROCESSOR_URL: no waiting helps.

use serde_json::json;

use crate::support::{
    harness::{ServerProcess, TestDatabase, charge},
    processor::Processor,
};

#[tokio::test]
async fn a_retry_is_not_advised_where_the_process_is_set_up_for_another_processor() {
    let processor = Processor::start().await;
    let url = processor.url();
    let across: &[(&str, &str)] = &[("PROCESSOR_URL", &url)];
    for (made_with, asked_with) in [(across, [].as_slice()), (&[], across)] {
        let database = TestDatabase::create().await;
        let server = ServerProcess::start(&database, made_with);
        let mut body = charge();
        body["capture"] = false.into();
        let id = server.client.post("/charges", "key-1", &body).await.id();
        drop(server);

        let server = ServerProcess::start(&database, asked_with);
        for (path, body) in [
            (format!("/charges/{id}/capture"), json!({})),
            ("/refunds".to_owned(), json!({"charge": id})),
        ] {
            let answer = server.client.post_new(&path, &body).await;
            assert_eq!(answer.code(), "service_unavailable", "{path}");
            assert_eq!(
                answer.header("stripe-should-retry"),
                Some("false"),
                "{path}"
            );
        }
    }
}
