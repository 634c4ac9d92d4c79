//! A visit to the console: a browser that keeps its cookie and follows no redirect.

use crate::support::prelude::*;

pub const CONSOLE: (&str, &str) = ("CONSOLE", "true");

/// Failed attempts wait for hours, and the worker doesn't look by itself.
pub const SLOW: &[(&str, &str)] = &[
    CONSOLE,
    ("WEBHOOK_POLL_INTERVAL", "1h"),
    ("WEBHOOK_RETRY_MIN", "1h"),
    ("WEBHOOK_RETRY_MAX", "8h"),
];

pub async fn visited() -> (TestServer, Visit) {
    let server = TestServer::start_with(&[CONSOLE]).await;
    let visit = Visit::begin(&server).await;
    (server, visit)
}

pub async fn log_holds(database: &TestDatabase, requests: i64) {
    let logged = "SELECT count(*) FROM request_log";
    database.comes_to(logged, requests).await;
}

pub struct Visit {
    address: SocketAddr,
    host: String,
    http: reqwest::Client,
    pub cookie: Option<String>,
}

impl Visit {
    pub async fn begin(server: &TestServer) -> Self {
        Self::begin_with(&server.client, API_KEY).await
    }

    pub async fn begin_with(client: &Client, api_key: &str) -> Self {
        let mut visit = Self::signed_out(client);
        let answer = visit.sign_in(api_key).await;
        assert_eq!(answer.status, 303, "{answer:?}");
        assert_eq!(answer.header("location"), Some("/console"));
        visit
    }

    /// Signed in at a server that is reached by the name `host`.
    pub async fn begin_under(client: &Client, host: &str) -> Self {
        let mut visit = Self {
            host: host.to_owned(),
            ..Self::signed_out(client)
        };
        assert_eq!(visit.sign_in(API_KEY).await.status, 303);
        visit
    }

    pub fn signed_out(client: &Client) -> Self {
        Self {
            address: client.address,
            host: client.address.to_string(),
            http: http_client_builder().unwrap().build().unwrap(),
            cookie: None,
        }
    }

    /// Sends the form, and keeps the cookie.
    pub async fn sign_in(&mut self, api_key: &str) -> Answer {
        let answer = self.post("/console/sign-in", &[("api_key", api_key)]).await;
        if let Some(cookie) = answer.header("set-cookie") {
            self.cookie = Some(cookie.split(';').next().unwrap().to_owned());
        }
        answer
    }

    /// A request with the cookie, and nothing else that a browser sends.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        let request = self.http.request(method, url).header("host", &self.host);
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub async fn page(&self, path: &str) -> String {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        text(&answer.body)
    }

    pub async fn object(&self, list: &str, id: &str) -> String {
        self.page(&format!("/console/{list}/{id}")).await
    }

    /// A form, as one of the console's pages sends it.
    pub async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = format!("http://{}", self.host);
        Answer::of(self.form(path, fields).header("origin", origin)).await
    }

    /// Where a form sends the browser.
    pub async fn sent_to(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(path, fields).await;
        assert_eq!(answer.status, 303, "{path}: {answer:?}");
        answer.header("location").unwrap().to_owned()
    }

    pub fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        self.request(Method::POST, path)
            .header("content-type", FORM)
            .body(form)
    }
}
