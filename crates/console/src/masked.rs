//! Stored JSON as people read it.
//!
//! Promise: members named `secret`, `client_secret` and `api_key` are masked at any depth, and so
//! are client secrets and tokens of holders' pages in any text. Members keep their order, and
//! numbers their digits.

use std::fmt;

use charge_once_strict_params::card_numbers::holds_card_number;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

/// Members whose values are shown to the client that made the request, and to no page.
const SECRETS: [&str; 3] = ["secret", "client_secret", "api_key"];

const MASK: &str = "••••••••";

/// The text, indented; `None` if it is not JSON.
pub(super) fn pretty(json: &[u8]) -> Option<String> {
    Shown::parse(json)?.pretty()
}

/// A text without what completes a payment: the end of a client secret, and the token that is the
/// last part of the address of a holder's page.
pub(super) fn text(text: &str) -> String {
    let after = |text: &str, mark: &str| text.find(mark).map(|at| at + mark.len());
    let secret_in = |text: &str| {
        let mut marks = text.match_indices("_secret_");
        let (at, mark) = marks.find(|(at, _)| {
            let before = text.get(..*at).unwrap_or_default();
            let kind = before.trim_end_matches(|letter: char| letter.is_ascii_alphanumeric());
            kind.len() < *at && (kind.ends_with("pi_") || kind.ends_with("seti_"))
        })?;
        Some(at + mark.len())
    };
    let token_in = |text: &str| {
        let page = after(text, "/authenticate/")?;
        let (intent, _) = text.get(page..)?.match_indices('/').nth(1)?;
        Some(page + intent + 1)
    };
    let (mut shown, mut rest) = (String::new(), text);
    while let Some(at) = [secret_in(rest), token_in(rest)]
        .into_iter()
        .flatten()
        .min()
        && let Some((before, hidden)) = rest.split_at_checked(at)
    {
        rest = hidden.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric());
        shown.push_str(before);
        shown.push_str(MASK);
    }
    shown + rest
}

/// What a receiver of webhooks answered: any text, whose end is cut off where it is long. What
/// looks like a secret of this service is masked in it, whether or not it is JSON.
pub(super) fn reply(answered: &str) -> String {
    const PREFIXES: [&str; 5] = ["whsec_", "sk_test_", "sk_live_", "rk_test_", "rk_live_"];
    if holds_card_number(answered) {
        return "Not shown: it may hold the number of a card.".to_owned();
    }
    // JSON is masked at any depth. What follows finds secrets in other texts.
    let parsed = pretty(answered.as_bytes());
    let answered = parsed.as_deref().unwrap_or(answered);
    let is_part = |letter: char| !letter.is_whitespace() && !"\"'\\&,;<>}".contains(letter);
    // Behind the name of a member, and what stands before its value.
    let value_in = |lower: &str, name: &str| {
        let mut names = lower.match_indices(name);
        names.find_map(|(at, _)| {
            let rest = lower.get(at + name.len()..)?;
            let value = rest.trim_start_matches(['"', '\'', '\\', ' ', '\n', ':', '=']);
            let (before, _) = rest.split_at_checked(rest.len() - value.len())?;
            before
                .contains([':', '='])
                .then_some(lower.len() - value.len())
        })
    };
    let (mut shown, mut rest) = (String::new(), answered);
    loop {
        let lower = rest.to_ascii_lowercase();
        let prefixed = PREFIXES.iter().filter_map(|prefix| {
            let at = lower.find(prefix)?;
            Some(at + prefix.len())
        });
        let named = SECRETS.iter().filter_map(|name| value_in(&lower, name));
        let Some((before, hidden)) = prefixed
            .chain(named)
            .min()
            .and_then(|at| rest.split_at_checked(at))
        else {
            break;
        };
        shown.push_str(before);
        shown.push_str(MASK);
        rest = hidden.trim_start_matches(is_part);
    }
    let shown = text(&(shown + rest));
    pretty(shown.as_bytes()).unwrap_or(shown)
}

/// A JSON value whose members keep their order.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Shown {
    Null,
    Truth(bool),
    Number(serde_json::Number),
    Text(#[serde(deserialize_with = "masked_text")] String),
    List(Vec<Shown>),
    Object(
        #[serde(
            serialize_with = "masked_members",
            deserialize_with = "members_in_order"
        )]
        Vec<(String, Shown)>,
    ),
}

impl Shown {
    /// `None` if it is not JSON.
    pub(super) fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_slice(json).ok()
    }

    pub(super) fn pretty(&self) -> Option<String> {
        serde_json::to_string_pretty(self).ok()
    }

    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        let Self::Object(members) = self else {
            return None;
        };
        let found = members.iter().find(|(member, _)| member == name);
        found.map(|(_, value)| value)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.member(name)?.as_text()
    }

    /// What an error of the API says; empty if it says nothing.
    pub(super) fn error_message(&self) -> &str {
        let error = self.member("error");
        error
            .and_then(|error| error.text("message"))
            .unwrap_or_default()
    }

    /// The member at the end of a path such as `charge.customer`: the object that has it, its name,
    /// and itself.
    pub(super) fn at<'a>(&'a self, path: &'a str) -> Option<(&'a Self, &'a str, &'a Self)> {
        let (of, name) = match path.rsplit_once('.') {
            Some((before, name)) => (self.at(before)?.2, name),
            None => (self, path),
        };
        Some((of, name, of.member(name)?))
    }

    /// The elements of a member that is a list.
    pub(super) fn list(&self, name: &str) -> &[Self] {
        let Some(Self::List(elements)) = self.member(name) else {
            return &[];
        };
        elements
    }

    /// Itself, if it is a text.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Null | Self::Truth(_) | Self::Number(_) | Self::List(_) | Self::Object(_) => None,
        }
    }

    /// A member that is a whole number.
    pub(super) fn number(&self, name: &str) -> Option<i64> {
        match self.member(name)? {
            Self::Number(number) => number.as_i64(),
            Self::Null | Self::Truth(_) | Self::Text(_) | Self::List(_) | Self::Object(_) => None,
        }
    }
}

/// Whether the value of such a member is shown to no page.
pub(super) fn is_secret(name: &str) -> bool {
    SECRETS.contains(&name)
}

fn masked_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|read| text(&read))
}

fn masked_members<S: Serializer>(members: &[(String, Shown)], to: S) -> Result<S::Ok, S::Error> {
    let mut object = to.serialize_map(Some(members.len()))?;
    for (name, value) in members {
        if is_secret(name) && !matches!(value, Shown::Null) {
            object.serialize_entry(name, MASK)?;
        } else {
            object.serialize_entry(name, value)?;
        }
    }
    object.end()
}

fn members_in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Shown)>, D::Error> {
    struct MemberVisitor;

    impl<'de> Visitor<'de> for MemberVisitor {
        type Value = Vec<(String, Shown)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = object.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }

    from.deserialize_map(MemberVisitor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_masked_at_any_depth_and_the_rest_is_as_it_was() {
        let json = r#"{"z":1,"secret":"whsec_1","a":[{"api_key":{"x":"sk_test_1"},"b":-2}],"client_secret":"pi_1_secret_2","n":null}"#;
        let shown = pretty(json.as_bytes()).unwrap_or_default();
        let compact: String = shown.split_whitespace().collect();
        let expected = r#"{"z":1,"secret":"MASK","a":[{"api_key":"MASK","b":-2}],"client_secret":"MASK","n":null}"#
            .replace("MASK", MASK);
        assert_eq!(compact, expected);
    }

    #[test]
    fn what_completes_a_payment_is_masked_in_any_text() {
        let page = "https://pay.example/authenticate/acct_1/pi_2/";
        let plain = "a plain \u{e9} text".to_owned();
        for (told, shown) in [
            (format!("{page}aB3"), format!("{page}MASK")),
            (format!("see {page}aB3?x=1"), format!("see {page}MASK?x=1")),
            (
                "/done?pi=pi_1&pi_client_secret=pi_1_secret_aB3&s=ok".to_owned(),
                "/done?pi=pi_1&pi_client_secret=pi_1_secret_MASK&s=ok".to_owned(),
            ),
            (
                "gift_secret_santa, /authenticate/c/d, seti_1_secret_a".to_owned(),
                "gift_secret_santa, /authenticate/c/d, seti_1_secret_MASK".to_owned(),
            ),
            (plain.clone(), plain),
        ] {
            assert_eq!(text(&told), shown.replace("MASK", MASK));
        }
    }

    #[test]
    fn a_reply_of_a_receiver_is_masked_even_where_it_is_cut_off() {
        for (told, shown) in [
            ("ok", "ok"),
            (r#"{"got": 1}"#, "{\n  \"got\": 1\n}"),
            (
                r#"{"secret": "a b", "x": "whsec_abc", "cli"#,
                r#"{"secret": "MASK b", "x": "whsec_MASK", "cli"#,
            ),
            (r#"{"api_key":"sk_te"#, r#"{"api_key":"MASK"#),
            (
                r#"{\"client_secret\":\"x\"} Secret=y&a=sk_test_9."#,
                r#"{\"client_secret\":\"MASK\"} Secret=MASK&a=sk_test_MASK"#,
            ),
            ("a secret is kept", "a secret is kept"),
            (
                "card 4242424242424242",
                "Not shown: it may hold the number of a card.",
            ),
        ] {
            assert_eq!(reply(told), shown.replace("MASK", MASK), "{told}");
        }
    }

    #[test]
    fn what_is_no_json_is_not_shown() {
        for text in ["", "secret", "{\"secret\":\"x\"", "{} {}"] {
            assert_eq!(pretty(text.as_bytes()), None, "{text}");
        }
    }
}
