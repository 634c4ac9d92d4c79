//! `charge-once webhooks listen`: an account's events for a receiver that is being developed.
//!
//! Promise: each event that happens while it runs is sent once, in the order of the ids, signed
//! by the code that signs webhooks. A server that restarts costs time and no event.

use std::time::Duration;

use charge_once_client::Error;
use charge_once_webhooks::{Message, Secret, Sender, Settings, UrlRefusal, check_url};
use chrono::{DateTime, SecondsFormat, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::{
    BoxError,
    feed::{Feed, FeedError, NewEvent},
    print, say,
    service::{self, AFTER_HELP, Service, api_key},
    trigger::event_types,
};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long a poll tries, before the loss of the service is told.
const POLL_DEADLINE: Duration = Duration::from_secs(5);

/// The longest pause between polls of a service that doesn't answer.
const PAUSE_MAX: Duration = Duration::from_secs(8);

/// The longest that an answer is waited for, as the server waits.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);

/// What the signing secret is derived for, so that it is of use for nothing else.
const SECRET_PURPOSE: &[u8] = b"charge-once webhooks listen";

/// Where to forward events, and which.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct ListenArguments {
    #[command(flatten)]
    service: Service,
    /// Where events are sent, this machine included.
    #[arg(long, value_name = "URL")]
    forward_to: String,
    /// Only events of these types, separated by commas. Default: all.
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = event_types())]
    events: Vec<String>,
    /// How long the receiver may take to answer; at most 60s.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "10s",
        value_parser = humantime::parse_duration
    )]
    timeout: Duration,
}

/// Forwards events until Ctrl-C. `settings` say what the receiver sees of the sender.
pub fn run(arguments: &ListenArguments, settings: Settings) -> Result<(), BoxError> {
    check_url(&arguments.forward_to, true)
        .map_err(|refusal| format!("--forward-to {}", explain(refusal)))?;
    if arguments.timeout.is_zero() || arguments.timeout > TIMEOUT_MAX {
        return Err("--timeout must be longer than nothing and at most 60s".into());
    }
    // Ctrl-C is how it ends, so a requested stop is a success.
    service::block_on(listen(arguments, settings), || Ok(()))
}

fn explain(refusal: UrlRefusal) -> &'static str {
    match refusal {
        UrlRefusal::NotAbsolute => "must be a whole URL, such as http://127.0.0.1:3000/webhooks",
        UrlRefusal::Scheme => "must begin with http:// or https://",
        UrlRefusal::Credentials => "must not hold a user name or a password",
        UrlRefusal::Fragment => "must not have a fragment",
        UrlRefusal::PortZero => "must not name port 0",
        UrlRefusal::NotPublic => "must not name a private address",
        UrlRefusal::NotPlain => {
            "must be written plainly: scheme and host in lower case, no space, no default port, and \
             a path in its shortest form"
        }
    }
}

async fn listen(arguments: &ListenArguments, settings: Settings) -> Result<(), BoxError> {
    let service = &arguments.service;
    let secret = secret_of(&api_key()?);
    // The receiver is on this machine or wherever its developer wants.
    let settings = Settings {
        allow_private: true,
        timeout: arguments.timeout,
        ..settings
    };
    let receiver = Receiver {
        sender: Sender::new(&settings)?,
        url: &arguments.forward_to,
        secret,
    };
    // Not [`Service::client`], which says when it tries again: this command tells by itself what it
    // waits for.
    let client = service.builder(POLL_DEADLINE)?.build()?;
    let refused = |error| match error {
        FeedError::Client(error) => service.explain(error),
        FeedError::Unreadable(_) | FeedError::TooMany => error.into(),
    };
    let mut feed = Feed::open(client).await.map_err(refused)?;
    print(&format!("Signing secret: {}", receiver.secret.reveal()))?;
    print(&format!(
        "Forwarding events of {} to {}. Ctrl-C ends it.",
        service.url(),
        receiver.url
    ))?;
    // `Some` while the service doesn't answer: the next pause.
    let mut lost = None;
    loop {
        match feed.poll().await {
            Ok(events) => {
                if lost.take().is_some() {
                    say("the service answers again");
                }
                let wanted = |event: &NewEvent| {
                    arguments.events.is_empty() || arguments.events.contains(&event.event_type)
                };
                for event in events.into_iter().filter(wanted) {
                    receiver.forward(event).await?;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            Err(FeedError::Client(Error::GaveUp(gave_up))) => {
                let pause = lost.unwrap_or(POLL_INTERVAL);
                if lost.is_none() {
                    say(&format!(
                        "the service doesn't answer: {}; trying until it does",
                        gave_up.last
                    ));
                }
                tokio::time::sleep(rand::random_range(pause / 2..=pause)).await;
                lost = Some((pause * 2).min(PAUSE_MAX));
            }
            Err(error) => return Err(refused(error)),
        }
    }
}

/// One secret for one API key, in every run, so that it can stay in a receiver's settings. The key
/// can't be computed from it.
#[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
fn secret_of(api_key: &str) -> Secret {
    let mut mac = Hmac::<Sha256>::new_from_slice(api_key.as_bytes()).expect("a key of any length");
    mac.update(SECRET_PURPOSE);
    let derived = hex::encode(mac.finalize().into_bytes());
    Secret::of(format!("{}{derived}", Secret::PREFIX))
}

struct Receiver<'a> {
    sender: Sender,
    url: &'a str,
    secret: Secret,
}

impl Receiver<'_> {
    /// Sends an event once, and says what the receiver answered.
    async fn forward(&self, event: NewEvent) -> Result<(), BoxError> {
        let body = event.text.get().as_bytes().to_vec();
        let message = Message {
            url: self.url,
            secret: &self.secret,
            at: Utc::now().timestamp(),
            standard_id: None,
            object_version: event.object_version,
            body,
        };
        let attempt = self.sender.send(message).await;
        let answer = match attempt.response_status {
            Some(_) => attempt.to_string(),
            None => format!("not delivered: {attempt}"),
        };
        let time = DateTime::from_timestamp(attempt.at, 0).unwrap_or_default();
        print(&format!(
            "{}  {}  {}  {}",
            time.to_rfc3339_opts(SecondsFormat::Secs, true),
            event.event_type,
            event.id,
            answer
        ))
    }
}
