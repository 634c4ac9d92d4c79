//! Events as clients see them and as webhooks carry them.

use std::collections::BTreeSet;

use charge_once_strict_params::Parameter;
use serde::{Serialize, Serializer, ser};
use serde_json::value::RawValue;

use super::prelude::*;
use crate::{domain::event::EventType, webhooks::Event};

/// The types of Stripe's events, one a line: those that endpoints of its SDKs of 2023 to 2026
/// enable.
const STRIPE_EVENT_TYPES: &str = include_str!("stripe_event_types.txt");

/// The types of Stripe's events, and those of this program.
pub fn known_types() -> impl Iterator<Item = &'static str> {
    let own = EventType::ALL.iter().map(|event_type| event_type.as_str());
    own.chain(STRIPE_EVENT_TYPES.lines())
}

/// Whether it is the name of an event that happens here, or of one that happens at Stripe only.
pub fn is_known_type(name: &str) -> bool {
    known_types().any(|known| known == name)
}

/// Whether it is the name of an event, and none that happens here.
pub fn is_never_sent(name: &str) -> bool {
    EventType::parse(name).is_none() && is_known_type(name)
}

/// The longest name of a type of event that is looked at.
pub const EVENT_TYPE_MAX_CHARS: usize = 100;

/// Most types of events that a list may be asked for.
const LISTED_TYPES_MAX: usize = 20;

/// A type of event, or all of a group: `charge.*`. The types that happen here.
pub struct EventFilter;

impl TextKind for EventFilter {
    type Value = Vec<&'static str>;
    const MUST_BE: &'static str = "Must be a type of event, or a group of them such as charge.*.";

    fn parse(text: &str) -> Option<Self::Value> {
        let of = |is_asked_for: &dyn Fn(&str) -> bool| {
            let types = EventType::ALL.iter().map(|event_type| event_type.as_str());
            let happen = types.filter(|name| is_asked_for(name)).collect();
            known_types().any(is_asked_for).then_some(happen)
        };
        match text.strip_suffix('*') {
            Some(group) if group.ends_with('.') => of(&|name| name.starts_with(group)),
            Some(_) => None,
            None => of(&|name| name == text),
        }
    }

    fn schema() -> ObjectBuilder {
        let types = EventType::ALL.iter().map(|event_type| event_type.as_str());
        let group = |name: &str| Some(format!("{}.*", name.split_once('.')?.0));
        let groups: BTreeSet<_> = types.clone().filter_map(group).collect();
        text().enum_values(Some(types.chain(groups.iter().map(String::as_str))))
    }
}

/// Some types of events; those that happen here. `None`: all.
pub struct EventTypes;

impl Parameter for EventTypes {
    type Value = Option<Vec<&'static str>>;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, Error> {
        let named = field
            .fields
            .texts(field.name, 0..=LISTED_TYPES_MAX, EVENT_TYPE_MAX_CHARS)?;
        if let Some(index) = named.iter().position(|name| !is_known_type(name)) {
            let message = "Must be a type of event, such as charge.succeeded.";
            return Err(field.fields.invalid_element(field.name, index, message));
        }
        let happen = named.iter().filter_map(|name| EventType::parse(name));
        let happen: BTreeSet<_> = happen.map(EventType::as_str).collect();
        Ok((!named.is_empty()).then(|| happen.into_iter().collect()))
    }

    fn schema(about: String) -> RefOr<Schema> {
        let types = list_of::<EventType>().max_items(Some(LISTED_TYPES_MAX));
        described(types.into(), about)
    }
}

impl PartialSchema for EventType {
    fn schema() -> RefOr<Schema> {
        let types = Self::ALL.iter().map(|event_type| event_type.as_str());
        text().enum_values(Some(types)).into()
    }
}

impl ToSchema for EventType {}

views! {
    /// An event, as clients see it and as webhooks carry it.
    pub struct EventView as Event from event: Event {
        /// `evt_…`
        id: String [example = "evt_01kar2w7n9e4xt8f5mq0v3z6yd"] = EventId(event.id).to_string();
        /// Always `event`.
        always object: &'static str = "event";
        /// The version of Stripe's API that the request named, or else the default; in a webhook,
        /// the one that its endpoint has. Null of events before there were versions.
        maybe api_version: String [example = "2026-10-28.endive"] = event.api_version;
        created = event.created_at.timestamp();
        /// What it happened to.
        data: EventDataView =
            EventDataView::of(event.object, event.object_version, event.previous_attributes);
        /// Always false.
        always livemode: bool = false;
        /// Deliveries to webhook endpoints that are still to be made.
        pending_webhooks: i64 [example = 0] = event.pending_webhooks;
        /// The request that made it happen.
        request: EventRequestView =
            EventRequestView::of(event.request_id, event.idempotency_key);
        /// What happened.
        #[serde(rename = "type")]
        event_type: String [example = "charge.succeeded"] = event.event_type;
    }

    /// What an event happened to.
    pub struct EventDataView as EventData
        of(object: String, object_version: Option<i64>, previous_attributes: Option<String>)
    {
        /// What the type names, such as the charge of `charge.succeeded`, as it was right after the
        /// change.
        #[serde(serialize_with = "as_it_was_shown")]
        object: String [value_type = Object] = object;
        /// The version of the object right after the change, greater with each: of two events about
        /// an object, the one with the greater version is newer.
        #[serde(skip_serializing_if = "Option::is_none")]
        object_version: Option<i64> [example = 2] = object_version;
        /// Of a change, the members that changed, with the values that they had; of members with
        /// members of their own, such as metadata, only those that changed.
        #[serde(serialize_with = "as_it_was_told", skip_serializing_if = "Option::is_none")]
        previous_attributes: Option<String> [value_type = Option<Object>] = previous_attributes;
    }

    /// The request that made an event happen.
    pub struct EventRequestView as EventRequest of(id: String, key: String) {
        /// The `req_…` that executed.
        id: String [example = "req_01kar2w7n9e4xt8f5mq0v3z6yd"] = id;
        /// The key it executed under; null for a DELETE without one, and for the form of a holder's
        /// page.
        maybe idempotency_key: String [example = "8e03978e-40d5-43dd-bc93-6894a57f9324"] =
            key_of_client(key);
    }
}

/// The JSON text itself, and not a string that holds it.
fn as_it_was_shown<S: Serializer>(json: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let json: &RawValue = serde_json::from_str(json).map_err(ser::Error::custom)?;
    json.serialize(serializer)
}

/// The same, of JSON that may be absent.
fn as_it_was_told<S: Serializer>(json: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    as_it_was_shown(json.as_deref().unwrap_or("null"), serializer)
}

/// The key of an event, if a client sent it: a DELETE may have none, and that of a holder's page
/// begins with a comma, which no client can send.
pub fn key_of_client(key: String) -> Option<String> {
    let is_sent = !key.is_empty() && !key.starts_with(',');
    is_sent.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `an_event_type_is_a_noun_and_what_happened_to_it` asks: another one is a 500.
    #[test]
    fn a_type_is_a_noun_a_dot_and_what_happened() {
        for event_type in EventType::ALL {
            let name = event_type.as_str();
            let words: Vec<&str> = name.split('.').collect();
            let is_word = |word: &&str| {
                !word.is_empty() && word.bytes().all(|c| c == b'_' || c.is_ascii_lowercase())
            };
            assert!(words.len() == 2 && words.iter().all(is_word), "{name}");
        }
    }

    #[test]
    fn a_filter_is_a_type_or_a_group_of_types_and_gives_those_that_happen() {
        let parse = EventFilter::parse;
        assert_eq!(parse("charge.failed"), Some(vec!["charge.failed"]));
        let refunds = parse("refund.*");
        assert_eq!(
            refunds,
            Some(vec!["refund.created", "refund.failed", "refund.updated"])
        );
        // Stripe has them, and none happens here.
        for never in ["invoice.paid", "invoice.*", "charge.dispute.*"] {
            assert_eq!(parse(never), Some(Vec::new()), "{never}");
        }
        for wrong in [
            "",
            "*",
            "charge",
            "charge*",
            "charge.",
            "charge.s*",
            "sheep.*",
            "*.updated",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_types_of_stripe_are_in_order_and_each_is_there_once() {
        assert!(
            STRIPE_EVENT_TYPES
                .lines()
                .is_sorted_by(|one, next| one < next)
        );
        assert!(known_types().all(|name| name.len() <= EVENT_TYPE_MAX_CHARS));
    }
}
