//! One attempt: the bytes of a request, over one network, and what came back.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use charge_once_client::transport::http_client_builder;

use crate::history::{Reply, Request, Verdict};

/// Longer than the service's own limits with the longest wait that is asked for, so that most
/// unknown outcomes are the service's word and some are the client's impatience.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(12);

/// An HTTP client whose requests take so long at most.
pub(crate) fn http(limit: Duration) -> anyhow::Result<reqwest::Client> {
    let client = http_client_builder()?.timeout(limit);
    client.build().context("the HTTP client")
}

#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) name: String,
    pub(crate) api_key: String,
}

/// Sends requests to replicas, each behind a network of its own.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    replicas: Vec<SocketAddr>,
}

impl Client {
    pub(crate) fn new(replicas: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let http = http(ATTEMPT_LIMIT)?;
        Ok(Self { http, replicas })
    }

    pub(crate) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// What came of one attempt at a request that has a key.
    pub(crate) async fn attempt(
        &self,
        account: &Account,
        key: &str,
        request: &Request,
        replica: usize,
    ) -> Verdict {
        match self.send(account, key, request, replica).await {
            Ok(reply) => reply.judge(),
            Err(error) => Verdict::Unknown(kind_of(&error).to_owned()),
        }
    }

    async fn send(
        &self,
        account: &Account,
        key: &str,
        request: &Request,
        replica: usize,
    ) -> reqwest::Result<Reply> {
        let url = self.url(replica, &request.path);
        let mut sending = self
            .http
            .request(request.method.clone(), url)
            .bearer_auth(&account.api_key)
            .header("idempotency-key", key)
            .header("content-type", request.media_type)
            .body(request.body.clone());
        if let Some(seconds) = request.wait {
            sending = sending.header("prefer", format!("wait={seconds}"));
        }
        read(sending.send().await?).await
    }

    /// Reads an object. `None`: no answer that says whether it exists. A table that stays locked,
    /// for instance, is a 409.
    pub(crate) async fn get(&self, account: &Account, path: &str, replica: usize) -> Option<Reply> {
        let url = self.url(replica, path);
        let sending = self.http.get(url).bearer_auth(&account.api_key).send();
        let reply = read(sending.await.ok()?).await.ok()?;
        matches!(reply.status, 200 | 404).then_some(reply)
    }

    /// Sends a form without a key, as a page in a browser does, or deletes an object. `None`: no
    /// answer that says what became of it.
    pub(crate) async fn send_without_key(
        &self,
        method: reqwest::Method,
        account: Option<&Account>,
        path: &str,
        form: &'static str,
        replica: usize,
    ) -> Option<Reply> {
        let mut sending = self.http.request(method, self.url(replica, path));
        if let Some(account) = account {
            sending = sending.bearer_auth(&account.api_key);
        }
        if !form.is_empty() {
            let media_type = "application/x-www-form-urlencoded";
            sending = sending.header("content-type", media_type).body(form);
        }
        let reply = read(sending.send().await.ok()?).await.ok()?;
        (reply.status < 500 && !matches!(reply.status, 408 | 409 | 429)).then_some(reply)
    }

    fn url(&self, replica: usize, path: &str) -> String {
        let address = self.replicas.get(replica % self.replicas.len().max(1));
        address.map_or_else(String::new, |address| format!("http://{address}{path}"))
    }
}

async fn read(response: reqwest::Response) -> reqwest::Result<Reply> {
    let status = response.status().as_u16();
    let headers = response.headers().iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    let headers = headers.collect();
    Ok(Reply {
        status,
        headers,
        body: response.bytes().await?.to_vec(),
    })
}

/// What kind of failure it was, without addresses: to be counted.
fn kind_of(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    }
}
