//! The pages for people: what a browser is shown.

use crate::support::prelude::*;

const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";

async fn browse(client: &Client, path: &str) -> Answer {
    Answer::of(client.bare(Method::GET, path).header("accept", BROWSER)).await
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[tokio::test]
async fn the_root_answers_a_browser_with_a_page_and_a_program_with_json() {
    let server = TestServer::start().await;
    let page = browse(&server.client, "/").await;
    let kind = page.header("content-type");
    assert_eq!(kind, Some("text/html; charset=utf-8"));
    let html = text(&page);
    assert!(html.contains("Ready to serve."), "{html}");
    let links = html.split("href=\"").skip(1);
    let links = links.map(|rest| rest.split('"').next().unwrap());
    let links: Vec<_> = links.collect();
    assert!(links.len() >= 5, "{links:?}");
    for link in links {
        assert!(link.starts_with('/'), "{link}");
        let target = browse(&server.client, link).await;
        assert_eq!(target.status, 200, "{link}");
    }
    for accept in ["*/*", "application/json"] {
        let request = server.client.bare(Method::GET, "/");
        let answer = Answer::of(request.header("accept", accept)).await;
        assert_eq!(answer.json()["name"], "charge-once", "{accept}");
    }
}

#[tokio::test]
async fn no_page_may_load_anything_from_another_host_or_run_a_script_of_its_own() {
    let server = TestServer::start().await;
    for path in ["/", "/errors", "/swagger-ui/"] {
        let page = browse(&server.client, path).await;
        let policy = page.header("content-security-policy").expect(path);
        let is_closed = policy.starts_with("default-src 'none';");
        let scripts = policy.split(';').find(|part| part.contains("script-src"));
        let are_own = scripts.is_none_or(|part| part.trim() == "script-src 'self'");
        let loads_nothing = is_closed && are_own && !policy.contains("http");
        assert!(loads_nothing, "{path}: {policy}");
        assert!(!text(&page).contains("https://"), "{path}");
    }
}

#[tokio::test]
async fn there_is_an_icon() {
    let server = TestServer::start().await;
    for path in ["/favicon.svg", "/favicon.ico"] {
        let icon = Answer::of(server.client.bare(Method::GET, path)).await;
        assert_eq!(icon.header("content-type"), Some("image/svg+xml"), "{path}");
        assert!(text(&icon).starts_with("<svg"), "{path}");
    }
}
