//! A client of one server, and the replies that it gets.

use reqwest::{Response, StatusCode, header::HeaderMap};

use crate::support::prelude::*;

/// A client of one server, with the dev account's key.
#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    http: reqwest::Client,
    pub api_key: String,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        // No pool of connections: a test that kills servers must not meet a half-dead one.
        let http = http_client_builder()
            .unwrap()
            .pool_max_idle_per_host(0)
            // As a browser does, for pages.
            .redirect(reqwest::redirect::Policy::limited(3))
            .build()
            .unwrap();
        Self {
            address,
            http,
            api_key: API_KEY.to_owned(),
        }
    }

    /// The same server, another API key.
    pub fn with_api_key(&self, key: &str) -> Self {
        Self {
            api_key: key.to_owned(),
            ..self.clone()
        }
    }

    /// Another server, the same API key.
    pub fn at(&self, other: &Self) -> Self {
        Self {
            address: other.address,
            ..self.clone()
        }
    }

    /// A request without credentials.
    pub fn bare(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("http://{}{path}", self.address))
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.bare(method, path).bearer_auth(&self.api_key)
    }

    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    /// A JSON body, or anything else that serializes.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Answer {
        Answer::of(self.keyed(Method::POST, path, key).json(body)).await
    }

    fn keyed(&self, method: Method, path: &str, key: &str) -> RequestBuilder {
        self.request(method, path).header("idempotency-key", key)
    }

    /// Under a key of its own: a new operation.
    pub async fn post_new(&self, path: &str, body: &Value) -> Answer {
        self.post(path, &Uuid::now_v7().to_string(), body).await
    }

    /// Sets a level of inventory.
    pub async fn put(&self, path: &str, key: &str, body: &Value) -> Answer {
        let body = body.to_string();
        self.send_raw(Method::PUT, path, key, "application/json", body.as_bytes())
            .await
    }

    /// With a header that asks for a fault. `None`: the connection ended without a byte of a reply.
    pub async fn post_with_fault(
        &self,
        fault: &str,
        path: &str,
        key: &str,
        body: &Value,
    ) -> Option<Answer> {
        let request = self.keyed(Method::POST, path, key).header("fault", fault);
        self.reply_or_none(request.json(body)).await
    }

    /// `None`: the connection ended without a byte of a reply.
    pub async fn reply_or_none(&self, request: RequestBuilder) -> Option<Answer> {
        match request.send().await {
            Ok(response) => Some(Answer::read(response).await),
            Err(error) => {
                assert!(!error.is_connect() && !error.is_timeout(), "{error:?}");
                None
            }
        }
    }

    pub async fn post_raw(&self, path: &str, key: &str, media_type: &str, body: &[u8]) -> Answer {
        self.send_raw(Method::POST, path, key, media_type, body)
            .await
    }

    /// Sends a raw body with a method of its own.
    pub async fn send_raw(
        &self,
        method: Method,
        path: &str,
        key: &str,
        media_type: &str,
        body: &[u8],
    ) -> Answer {
        let request = self.keyed(method, path, key).body(body.to_vec());
        Answer::of(request.header("content-type", media_type)).await
    }

    pub async fn charge(&self, key: &str) -> Answer {
        self.post("/charges", key, &charge()).await
    }

    /// A charge with these headers, the key among them.
    pub async fn charge_with_headers(&self, headers: &[(&str, &str)]) -> Answer {
        let request = self.request(Method::POST, "/charges").json(&charge());
        let add =
            |request: RequestBuilder, (name, value): &(&str, &str)| request.header(*name, *value);
        Answer::of(headers.iter().fold(request, add)).await
    }

    pub fn sending(&self, path: &str, key: &str, body: Value) -> JoinHandle<Answer> {
        let (client, path, key) = (self.clone(), path.to_owned(), key.to_owned());
        tokio::spawn(async move { client.post(&path, &key, &body).await })
    }

    pub fn charging(&self, key: &str) -> JoinHandle<Answer> {
        self.sending("/charges", key, charge())
    }

    /// In the background, with `Prefer: wait=…`.
    pub fn sending_and_waiting(
        &self,
        seconds: u32,
        path: &str,
        key: &str,
        body: Value,
    ) -> JoinHandle<Answer> {
        let (client, path, key) = (self.clone(), path.to_owned(), key.to_owned());
        tokio::spawn(async move { client.post_waiting(seconds, &path, &key, &body).await })
    }

    /// Sends a request in the background to a server that dies before it answers.
    pub fn sending_in_vain(&self, path: &str, key: &str, body: &Value) -> JoinHandle<()> {
        let request = self.request(Method::POST, path);
        let request = request.header("idempotency-key", key).json(body);
        tokio::spawn(async move {
            let answered = request.send().await.map(|reply| reply.status());
            assert!(answered.is_err(), "an answer after kill -9: {answered:?}");
        })
    }

    /// With `Prefer: wait=…`: how long to wait for a duplicate's owner.
    pub async fn post_waiting(&self, seconds: u32, path: &str, key: &str, body: &Value) -> Answer {
        let request = self.keyed(Method::POST, path, key).json(body);
        Answer::of(request.header("prefer", format!("wait={seconds}"))).await
    }

    /// Repeats the request for as long as the reply says that a retry makes sense.
    pub async fn charge_until_definite(&self, key: &str) -> Answer {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let answer = self.charge(key).await;
            if answer.header("stripe-should-retry") != Some("true") {
                return answer;
            }
            assert!(tokio::time::Instant::now() < deadline, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns when requests that were sent before have reached their handlers. Needs a server
    /// with `WORKERS=1`: one thread takes them in turn, so once later ones are answered, earlier
    /// ones are where they wait.
    pub async fn let_earlier_requests_arrive(&self) {
        for _ in 0..20 {
            self.get("/charges").await;
        }
    }
}

#[derive(Debug, Clone)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    pub async fn of(request: RequestBuilder) -> Self {
        Self::read(request.send().await.unwrap()).await
    }

    pub async fn read(response: Response) -> Self {
        Self {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes().await.unwrap().to_vec(),
        }
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("not JSON: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The envelope's code; fails where there is no whole envelope.
    pub fn code(&self) -> String {
        let error = &self.json()["error"];
        for member in ["type", "code", "message", "doc_url"] {
            assert!(error[member].is_string(), "no {member} in {error}");
        }
        error["code"].as_str().unwrap().to_owned()
    }

    /// A refusal, in short: status, code and the parameter at fault.
    pub fn refusal(&self) -> (u16, String, Option<String>) {
        let param = self.json()["error"]["param"].as_str().map(str::to_owned);
        (self.status.as_u16(), self.code(), param)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replayed") == Some("true")
    }

    pub fn id(&self) -> String {
        let object = self.json();
        object["id"]
            .as_str()
            .expect("an object with an id")
            .to_owned()
    }

    /// The same status, bytes and end-to-end headers: what a replay promises.
    pub fn assert_replays(&self, original: &Self) {
        assert!(self.is_replay(), "not marked as a replay: {self:?}");
        assert_eq!(self.status, original.status);
        assert_eq!(self.body, original.body, "the bytes differ");
        let of_one_reply = "request-id idempotent-replayed preference-applied idempotency-key date \
                            connection";
        let end_to_end = |answer: &Self| {
            let headers = answer.headers.iter();
            let mut headers: Vec<_> = headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .filter(|(name, _)| !of_one_reply.split(' ').any(|known| known == name))
                .collect();
            headers.sort();
            headers
        };
        assert_eq!(end_to_end(self), end_to_end(original), "the headers differ");
    }
}
