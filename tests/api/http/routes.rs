//! The edges of the route table: what is not there, and other methods.

use crate::support::prelude::*;

#[tokio::test]
async fn what_is_not_there_is_404_and_other_methods_are_405_with_allow_in_the_envelope() {
    let server = TestServer::start().await;
    let bare = |method: Method, path: &str| Answer::of(server.client.bare(method, path));
    let missing = "/nothing /v1 /v1/ /v1/nothing /charges/ch_1/nothing /v2/charges /charges/";
    for path in missing.split(' ') {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let refused = error(&bare(method.clone(), path).await);
            let expected = (404, "route_not_found".into());
            assert_eq!(refused, expected, "{method} {path}");
        }
    }
    let paths = "/ /livez /readyz /errors /openapi.json /swagger-ui/ /charges /v1/charges \
                 /v1/charges/ch_1 /orders /orders/or_1 /idempotency-keys /v1/idempotency-keys/k \
                 /workflows /v1/workflows/w";
    for path in paths.split(' ') {
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let answer = bare(method.clone(), path).await;
            let expected = (405, "method_not_allowed".into());
            assert_eq!(error(&answer), expected, "{method} {path}");
            let allow = answer.header("allow").expect("Allow");
            assert!(allow.starts_with("GET, HEAD"), "{method} {path}: {allow}");
            let posts = matches!(path, "/charges" | "/v1/charges" | "/orders");
            assert!(!posts || allow.contains("POST"), "{method} {path}: {allow}");
        }
    }
    for (path, allow) in [
        ("/inventory", "GET, HEAD"),
        ("/v1/customers/search", "GET, HEAD"),
        ("/inventory/mug", "GET, HEAD, PUT"),
        ("/v1/inventory/mug", "GET, HEAD, PUT"),
        ("/webhook_endpoints", "GET, HEAD, POST"),
        ("/v1/webhook_endpoints/we_1", "GET, HEAD, POST, DELETE"),
        ("/webhook_endpoints/we_1/deliveries", "GET, HEAD"),
    ] {
        let all = "POST PUT PATCH DELETE OPTIONS".split(' ');
        for method in all.filter(|method| !allow.contains(method)) {
            let request = server.client.request(method.parse().unwrap(), path);
            let answer = Answer::of(request).await;
            let expected = (405, "method_not_allowed".into());
            assert_eq!(error(&answer), expected, "{method} {path}");
            assert_eq!(answer.header("allow"), Some(allow), "{method} {path}");
        }
    }
    // What `Allow` names is really there.
    let head = server.client.request(Method::HEAD, "/charges");
    // Two Authorization headers are none.
    let head = Answer::of(head.bearer_auth(API_KEY)).await;
    assert_eq!(head.status, 401);
}

#[tokio::test]
async fn unusual_but_well_formed_requests_get_the_envelope_too() {
    let server = TestServer::start().await;
    let heads = [
        ("GET /swagger-ui/nothing.js", 404, "route_not_found"),
        ("GET /swagger-ui/%ff", 404, "route_not_found"),
        ("GET /swagger-ui/../livez", 404, "route_not_found"),
        ("POST /swagger-ui/", 405, "method_not_allowed"),
        ("POST /swagger-ui/index.html", 405, "method_not_allowed"),
        ("POST /openapi.json", 405, "method_not_allowed"),
        ("DELETE /swagger-ui", 405, "method_not_allowed"),
        ("GET /%", 404, "route_not_found"),
        ("GET /%ff%00", 404, "route_not_found"),
        ("GET //charges", 404, "route_not_found"),
        ("GET /../charges", 404, "route_not_found"),
        ("BREW /charges", 405, "method_not_allowed"),
        ("TRACE /charges", 405, "method_not_allowed"),
        ("GET /charges/%ff", 401, "api_key_missing"),
        ("GET /charges/%2e%2e", 401, "api_key_missing"),
        ("GET /idempotency-keys/%", 401, "api_key_missing"),
    ];
    for (line, status, code) in heads {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        );
        let reply = send_raw(&server.client, request.as_bytes()).await;
        let status_line = format!("HTTP/1.1 {status} ");
        assert!(reply.starts_with(&status_line), "{line}: {reply}");
        for part in [&*format!("\"code\":\"{code}\""), "request-id: req_"] {
            assert!(reply.contains(part), "{line}: {reply}");
        }
        let allows = reply.contains("\r\nallow: GET");
        assert_eq!(status == 405, allows, "{line}: {reply}");
    }
}
