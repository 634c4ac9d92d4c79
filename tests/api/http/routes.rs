//! The edges of the route table: what is not there, and other methods.

use crate::support::prelude::*;

#[tokio::test]
async fn what_is_not_there_is_404_and_other_methods_are_405_with_allow_in_the_envelope() {
    let server = TestServer::start().await;
    let bare = |method: Method, path: &str| Answer::of(server.client.bare(method, path));
    for path in [
        "/nothing",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/charges/ch_1/nothing",
        "/v2/charges",
        "/charges/",
    ] {
        for method in [Method::GET, Method::POST, Method::DELETE] {
            let answer = bare(method.clone(), path).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (404, "route_not_found"),
                "{method} {path}"
            );
        }
    }
    let paths = [
        "/",
        "/livez",
        "/readyz",
        "/errors",
        "/openapi.json",
        "/swagger-ui/",
        "/charges",
        "/v1/charges",
        "/v1/charges/ch_1",
        "/orders",
        "/orders/or_1",
        "/idempotency-keys",
        "/v1/idempotency-keys/k",
        "/workflows",
        "/v1/workflows/w",
    ];
    for path in paths {
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            let answer = bare(method.clone(), path).await;
            assert_eq!(
                (answer.status.as_u16(), answer.code().as_str()),
                (405, "method_not_allowed"),
                "{method} {path}"
            );
            let allow = answer.header("allow").expect("Allow");
            assert!(allow.starts_with("GET, HEAD"), "{method} {path}: {allow}");
            let posts = matches!(path, "/charges" | "/v1/charges" | "/orders");
            assert!(!posts || allow.contains("POST"), "{method} {path}: {allow}");
        }
    }
    // What `Allow` names is really there.
    let head = server
        .client
        .request(Method::HEAD, "/charges")
        .bearer_auth(API_KEY);
    assert_eq!(
        Answer::of(head).await.status,
        401,
        "two Authorization headers are none"
    );
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
        assert!(
            reply.starts_with(&format!("HTTP/1.1 {status} ")),
            "{line}: {reply}"
        );
        assert!(
            reply.contains(&format!("\"code\":\"{code}\"")),
            "{line}: {reply}"
        );
        assert!(reply.contains("request-id: req_"), "{line}: {reply}");
        assert_eq!(
            status == 405,
            reply.contains("\r\nallow: GET"),
            "{line}: {reply}"
        );
    }
}
