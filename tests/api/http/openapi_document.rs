//! `/openapi.json`: compressed once, and sent again only to clients that don't have it.

use std::io::Read;

use flate2::read::GzDecoder;

use crate::support::{openapi::document, prelude::*};

async fn get(server: &TestServer, method: Method, headers: &[(&str, &str)]) -> Answer {
    let mut request = server.client.bare(method, "/openapi.json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request).await
}

fn unpacked(body: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(body).read_to_end(&mut plain).unwrap();
    plain
}

#[tokio::test]
async fn the_document_is_compressed_for_clients_that_accept_it() {
    let server = TestServer::start().await;
    let plain = get(&server, Method::GET, &[]).await;
    let expected = serde_json::to_vec(&charge_once::http::openapi::document()).unwrap();
    assert_eq!(plain.body, expected);
    assert_eq!(plain.json(), document());
    for (accepted, is_gzip) in [
        ("gzip", true),
        ("GZIP;q=0.5", true),
        ("deflate, gzip, br, zstd", true),
        ("br;q=1.0, gzip;q=0.8, *;q=0.1", true),
        ("identity;q=0, gzip", true),
        ("identity, gzip;q=0.5", false),
        ("identity", false),
        ("br", false),
        ("gzip;q=0", false),
        ("*", false),
        ("*;q=0", false),
        ("", false),
        ("nonsense;;q=x", false),
    ] {
        let answer = get(&server, Method::GET, &[("accept-encoding", accepted)]).await;
        assert_eq!(answer.status, 200, "{accepted}");
        let length = answer.body.len();
        for (name, value) in [
            ("vary", Some("accept-encoding")),
            ("content-type", Some(JSON)),
            ("content-encoding", is_gzip.then_some("gzip")),
            ("content-length", Some(&*length.to_string())),
        ] {
            assert_eq!(answer.header(name), value, "{name} for {accepted}");
        }
        if is_gzip {
            let plain = expected.len();
            assert!(length * 5 < plain, "{length} of {plain}");
            assert_eq!(unpacked(&answer.body), expected, "{accepted}");
        } else {
            assert_eq!(answer.body, expected, "{accepted}");
        }
    }
}

#[tokio::test]
async fn a_client_that_has_the_document_is_told_so() {
    let server = TestServer::start().await;
    let gzip = ("accept-encoding", "gzip");
    let tag = async |headers: &[(&str, &str)]| {
        let answer = get(&server, Method::GET, headers).await;
        answer.header("etag").expect("a tag").to_owned()
    };
    let (plain_tag, gzip_tag) = (tag(&[]).await, tag(&[gzip]).await);
    // The same bytes have the same tag, and two forms have two.
    assert_eq!(tag(&[]).await, plain_tag);
    assert_ne!(plain_tag, gzip_tag);
    let is_quoted = plain_tag.starts_with('"') && plain_tag.ends_with('"');
    assert!(is_quoted, "{plain_tag}");
    let weak = format!("W/{plain_tag}");
    let among_others = format!("\"other\", {plain_tag}");
    for (known, accepted, is_known) in [
        (plain_tag.as_str(), "", true),
        (&gzip_tag, "gzip", true),
        (&weak, "", true),
        (&among_others, "", true),
        ("*", "", true),
        (&gzip_tag, "", false),
        (&plain_tag, "gzip", false),
        ("\"other\"", "", false),
        ("nonsense", "", false),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let headers = [("if-none-match", known), ("accept-encoding", accepted)];
            let answer = get(&server, method, &headers).await;
            let status = if is_known { 304 } else { 200 };
            assert_eq!(answer.status, status, "{known} {accepted}");
            let current = match accepted {
                "" => &*plain_tag,
                _ => &gzip_tag,
            };
            for (name, value) in [
                ("etag", current),
                ("vary", "accept-encoding"),
                ("cache-control", "no-cache"),
            ] {
                assert_eq!(answer.header(name), Some(value), "{name} for {known}");
            }
            assert!(!is_known || answer.body.is_empty(), "{known}");
        }
    }
}
