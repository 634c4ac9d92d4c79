//! Who gets in, and who doesn't.

use super::*;

async fn first_page(server: &TestServer) -> String {
    let request = server.client.bare(Method::GET, "/");
    text(&Answer::of(request.header("accept", "text/html")).await.body)
}

#[tokio::test]
async fn without_the_variable_nothing_of_the_console_can_be_reached() {
    let server = TestServer::start().await;
    let mut visit = Visit::signed_out(&server.client);
    let below = "live sign-in style.css script.js keys/key-1 charges playground protocol";
    let below = below.split(' ').map(|path| format!("/console/{path}"));
    for path in below.chain(["/console".to_owned(), "/console/".to_owned()]) {
        let refused = error(&visit.get(&path).await);
        assert_eq!(refused, (404, "route_not_found".to_owned()), "{path}");
    }
    let sign_in = visit.sign_in(API_KEY).await;
    assert_eq!(sign_in.status, 404);
    assert_eq!(sign_in.header("set-cookie"), None);
    first_page(&server).await.must_lack(&["/console"]);
    let initializer = visit.page("/swagger-ui/swagger-initializer.js").await;
    assert!(initializer.starts_with("const HAS_CONSOLE = false;"));
}

#[tokio::test]
async fn the_first_page_and_swagger_ui_lead_to_it() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::signed_out(&server.client);
    first_page(&server).await.must_have(&["href=\"/console\""]);
    let initializer = visit.page("/swagger-ui/swagger-initializer.js").await;
    assert!(initializer.starts_with("const HAS_CONSOLE = true;"));
}

#[tokio::test]
async fn an_api_key_opens_it_and_its_cookie_is_for_this_site_s_pages_only() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let mut visit = Visit::signed_out(&server.client);
    for path in ["/console", "/console/live"] {
        let answer = visit.get(path).await;
        assert_eq!(answer.status, 303, "{path}");
        assert_eq!(answer.header("location"), Some("/console/sign-in"));
    }
    assert_has(&visit.page("/console/sign-in").await, "type=\"password\"");
    let answer = visit.sign_in(API_KEY).await;
    assert_eq!(answer.status, 303);
    let cookie = answer.header("set-cookie").unwrap();
    let (value, attributes) = cookie.split_once("; ").unwrap();
    assert_eq!(value.len(), "charge_once_console=".len() + 64);
    let expected = "Path=/console; Max-Age=43200; HttpOnly; SameSite=Strict";
    assert_eq!(attributes, expected);
    let page = visit.page("/console").await;
    page.must_have(&["Sign out"]);
    page.must_lack(&[API_KEY]);
}

#[tokio::test]
async fn who_follows_a_link_to_a_page_gets_there_after_signing_in_and_to_no_other_site() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::signed_out(&server.client);
    let story = "/console/keys/a%2Fb";
    let answer = visit.get(story).await;
    let sign_in = answer.header("location").unwrap();
    assert_eq!(sign_in, "/console/sign-in?next=%2Fconsole%2Fkeys%2Fa%252Fb");
    let filtered = visit.get("/console?status=402&path=%2Forders").await;
    let next = "/console/sign-in?next=%2Fconsole%3Fstatus%3D402%26path%3D%252Forders";
    assert_eq!(filtered.header("location"), Some(next));
    let field = "<input type=\"hidden\" name=\"next\" value=";
    let form = visit.page(sign_in).await;
    assert!(form.contains(&format!("{field}\"{story}\"")), "{form}");
    let fields = [("api_key", "wrong"), ("next", story)];
    let refused = visit.post("/console/sign-in", &fields).await;
    assert!(text(&refused.body).contains(&format!("{field}\"{story}\"")));
    for (next, leads_to) in [
        (story, story),
        ("/console?status=402", "/console?status=402"),
        ("", "/console"),
        ("https://example.com/console/", "/console"),
        ("//example.com/console/", "/console"),
        ("/console.example.com", "/console"),
        ("/swagger-ui/", "/console"),
        ("/console/\r\nset-cookie: a=b", "/console"),
        ("/console/\u{e4}", "/console"),
    ] {
        let fields = [("api_key", API_KEY), ("next", next)];
        let answer = visit.post("/console/sign-in", &fields).await;
        assert_eq!(answer.header("location"), Some(leads_to), "{next}");
        let mut query = form_urlencoded::Serializer::new(String::new());
        let query = query.append_pair("next", next).finish();
        let form = visit.page(&format!("/console/sign-in?{query}")).await;
        let has_field = form.contains(field);
        assert_eq!(has_field, leads_to != "/console", "{next}");
    }
}

#[tokio::test]
async fn a_key_that_the_api_refuses_opens_nothing_and_is_not_shown() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let mut visit = Visit::signed_out(&server.client);
    for wrong in ["", "nonsense", "sk_test_stranger_1", "sk_test_<script>"] {
        let answer = visit.sign_in(wrong).await;
        assert_eq!(answer.status, 401, "{wrong}");
        assert_eq!(answer.header("set-cookie"), None);
        let page = text(&answer.body);
        page.must_have(&["role=\"alert\">This is no API key"]);
        page.must_lack(&["Authorization"]);
        assert!(wrong.is_empty() || !page.contains(wrong), "{page}");
    }
}

#[tokio::test]
async fn the_rate_limit_of_the_account_counts_here_too() {
    let server = TestServer::start_with(&[CONSOLE, ("RATE_LIMIT", "1")]).await;
    let mut visit = Visit::signed_out(&server.client);
    assert_eq!(visit.sign_in(API_KEY).await.status, 303);
    let answers = [visit.get("/console").await, visit.get("/console").await];
    let limited = answers.iter().find(|answer| answer.status == 429);
    let page = text(&limited.expect("one is limited").body);
    page.must_have(&["Try again in a moment."]);
    page.must_lack(&["Retry-After"]);
}

#[tokio::test]
async fn who_signs_out_or_has_no_token_of_this_process_sees_nothing() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let mut visit = Visit::begin(&server).await;
    let signed_out = visit.post("/console/sign-out", &[]).await;
    assert_eq!(signed_out.status, 303);
    let cookie = signed_out.header("set-cookie").unwrap();
    cookie.must_have(&["Max-Age=0"]);
    assert_eq!(visit.get("/console").await.status, 303);
    for cookie in [
        "charge_once_console=".to_owned(),
        format!("charge_once_console={}", "0".repeat(64)),
        "other=1; charge_once_console=x".to_owned(),
    ] {
        visit.cookie = Some(cookie);
        assert_eq!(visit.get("/console").await.status, 303);
    }
}

#[tokio::test]
async fn who_signs_in_again_leaves_no_session_behind() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let mut visit = Visit::begin(&server).await;
    let former = visit.cookie.clone();
    assert_eq!(visit.sign_in("sk_test_stranger_1").await.status, 401);
    assert_eq!(visit.get("/console").await.status, 200);
    assert_eq!(visit.sign_in(API_KEY).await.status, 303);
    assert_eq!(visit.get("/console").await.status, 200);
    assert_ne!(visit.cookie, former);
    visit.cookie = former;
    assert_eq!(visit.get("/console").await.status, 303);
}

#[tokio::test]
async fn a_revoked_key_s_session_shows_nothing_within_seconds() {
    let (server, visit) = visited().await;
    let revoke = "UPDATE api_keys SET revoked_at = now()";
    server.database.execute(revoke).await;
    let is_over = async || visit.get("/console").await.status == 303;
    eventually("the session is over", is_over).await;
}

#[tokio::test]
async fn a_form_that_another_site_sends_does_nothing() {
    let (_server, visit) = visited().await;
    for origin in ["", "null", "https://evil.example", "http://127.0.0.1"] {
        for (path, fields) in [
            ("/console/sign-out", &[][..]),
            ("/console/sign-in", &[("api_key", API_KEY)]),
        ] {
            let form = visit.form(path, fields);
            let answer = Answer::of(match origin {
                "" => form,
                _ => form.header("origin", origin),
            });
            let answer = answer.await;
            assert_eq!(answer.status, 403, "{origin:?} {path}");
            assert_eq!(answer.header("set-cookie"), None);
        }
    }
    assert_eq!(visit.get("/console").await.status, 200);
}

#[tokio::test]
async fn a_form_is_bounded() {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let mut visit = Visit::signed_out(&server.client);
    let answer = visit.sign_in(&"x".repeat(5000)).await;
    assert_eq!(answer.status, 413);
    assert!(text(&answer.body).contains("<h1>Payload Too Large</h1>"));
}
