//! The events of an account as they come, read from `GET /events`.
//!
//! Promise: each event that is committed after [`Feed::open`] is returned once, whatever fails in
//! between. An event's id and time are those of the beginning of its transaction, so it can appear
//! below events that were read before. Each poll therefore reads the last seconds again, by the
//! times that the service gave, and leaves out the events that it knows.

use std::collections::HashMap;

use charge_once_client::{Client, Error, ListQuery};
use serde::Deserialize;
use serde_json::value::RawValue;

/// How far below the newest event another one can still appear, in seconds: longer than a
/// transaction lasts.
const OVERLAP_SECONDS: i64 = 30;

/// Events on a page: as many as the service allows.
const PAGE_EVENTS: u32 = 100;

/// Events that one poll reads at most, those that are known included. They are held in memory.
const POLL_EVENTS_MAX: usize = 10_000;

/// An event that was not returned before.
pub struct NewEvent {
    /// `evt_…`
    pub id: String,
    /// `charge.succeeded`, …
    pub event_type: String,
    /// The version of the object right after, if it has one.
    pub object_version: Option<i64>,
    /// The whole event, in the very text that the service sent.
    pub text: Box<RawValue>,
}

/// Why a poll returned nothing.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The service refused, or didn't answer.
    #[error(transparent)]
    Client(#[from] Error),
    /// An event without what every event has.
    #[error("the service sent an event that can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Not all can be read at once.
    #[error(
        "more than {POLL_EVENTS_MAX} events came faster than they were forwarded, and not all can be \
         read: start again, and events from then on are forwarded"
    )]
    TooMany,
}

/// What is read of an event here.
#[derive(Deserialize)]
struct Head {
    id: String,
    created: i64,
    #[serde(rename = "type")]
    event_type: String,
    data: HeadData,
}

#[derive(Deserialize)]
struct HeadData {
    object_version: Option<i64>,
}

/// Reads events as they come.
pub struct Feed {
    client: Client,
    /// Older events were all read. `None` while there has been no event.
    since: Option<i64>,
    /// When the events since then were created, by id.
    known: HashMap<String, i64>,
}

impl Feed {
    /// Begins now: what is there already is not returned.
    pub async fn open(client: Client) -> Result<Self, FeedError> {
        let newest = ListQuery {
            limit: Some(1),
            ..ListQuery::default()
        };
        let newest = client.list_events(&newest).await?.data.pop();
        let mut feed = Self {
            client,
            since: newest.map(|event| event.created - OVERLAP_SECONDS),
            known: HashMap::new(),
        };
        feed.poll().await?;
        Ok(feed)
    }

    /// The events that were not returned before, the oldest first. After an error nothing is lost:
    /// the next poll reads the same again.
    pub async fn poll(&mut self) -> Result<Vec<NewEvent>, FeedError> {
        let mut query = ListQuery {
            limit: Some(PAGE_EVENTS),
            created_from: self.since,
            ..ListQuery::default()
        };
        let (mut new, mut times, mut newest) = (Vec::new(), Vec::new(), None);
        let mut read = 0;
        loop {
            let page = self.client.list_event_texts(&query).await?;
            let is_first = query.starting_after.is_none();
            for text in page.data {
                let head: Head = serde_json::from_str(text.get())?;
                read += 1;
                if is_first {
                    // Of this page only: while older ones are read, an event may appear on it.
                    newest = newest.max(Some(head.created));
                }
                query.starting_after = Some(head.id.clone());
                if !self.known.contains_key(&head.id) {
                    times.push((head.id.clone(), head.created));
                    new.push(NewEvent {
                        id: head.id,
                        event_type: head.event_type,
                        object_version: head.data.object_version,
                        text,
                    });
                }
            }
            if !page.has_more {
                break;
            }
            if read >= POLL_EVENTS_MAX {
                return Err(FeedError::TooMany);
            }
        }
        self.known.extend(times);
        self.since = self.since.max(newest.map(|at| at - OVERLAP_SECONDS));
        if let Some(since) = self.since {
            self.known.retain(|_, created| *created >= since);
        }
        new.reverse();
        Ok(new)
    }
}
