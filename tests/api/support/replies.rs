//! What replies say, compared in a line.

use serde::de::DeserializeOwned;

use crate::support::prelude::*;

/// A request that is refused: its body or its query, the code, and the parameter at fault.
pub type Refused = (Value, String, String);

/// The rows of a table that is written in JSON.
pub fn rows<T: DeserializeOwned>(table: Value) -> Vec<T> {
    serde_json::from_value(table).unwrap()
}

/// What [`Answer::refusal`] is for a code, each of which has its status, and a parameter.
pub fn refusal(code: &str, param: &str) -> (u16, String, Option<String>) {
    let status = match code {
        "resource_missing" => 404,
        "invalid_number" | "invalid_expiry_month" => 402,
        _ => 400,
    };
    (status, code.to_owned(), Some(param.to_owned()))
}

/// A body with some parameters set.
pub fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// A table of [`Refused`] whose bodies say only what differs from a right one.
pub fn differing_from(right: &Value, mut table: Value) -> Value {
    for row in table.as_array_mut().unwrap() {
        row[0] = with(right.clone(), &row[0]);
    }
    table
}

/// Each body of a table of [`Refused`] is refused by its code, and names its parameter.
pub async fn assert_refuses(client: &Client, path: &str, table: Value) {
    for (body, code, param) in &rows::<Refused>(table) {
        let refused = client.post_new(path, body).await;
        assert_eq!(refused.refusal(), refusal(code, param), "{path} {body}");
    }
}

/// As [`assert_refuses`] does; and each refusal is stored, and replayed to a retry.
pub async fn assert_stores_refusals(client: &Client, path: &str, table: Value) {
    for (body, code, param) in &rows::<Refused>(table) {
        let key = Uuid::now_v7().to_string();
        let refused = client.post(path, &key, body).await;
        assert_eq!(refused.refusal(), refusal(code, param), "{path} {body}");
        client.post(path, &key, body).await.assert_replays(&refused);
    }
}

/// Each query of a table is refused. A line of it: the query, the code, and the parameter at fault.
pub async fn assert_refuses_queries(client: &Client, path: &str, table: &str) {
    for line in table.lines().filter(|line| !line.is_empty()) {
        let [query, code, param] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("not three words: {line}");
        };
        let refused = client.get(&format!("{path}?{query}")).await;
        let expected = (400, code.to_owned(), Some(param.to_owned()));
        assert_eq!(refused.refusal(), expected, "{path}?{query}");
    }
}

/// The ids on a page of a list, and whether there are more.
pub async fn page(client: &Client, path: &str) -> (Vec<String>, bool) {
    let answer = client.get(path).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.json());
    let list = answer.json();
    (ids(&list), list["has_more"].as_bool().unwrap())
}

pub fn ids(list: &Value) -> Vec<String> {
    let objects = list["data"].as_array().unwrap().iter();
    let ids = objects.map(|object| object["id"].as_str().unwrap().to_owned());
    ids.collect()
}

fn at<'a>(value: &'a Value, names: &str) -> &'a Value {
    names.split('/').fold(value, |at, name| &at[name])
}

impl Answer {
    /// A member that is text. A name with slashes leads to a member of a member.
    pub fn text_of(&self, names: &str) -> String {
        let shown = self.json();
        at(&shown, names).as_str().unwrap().to_owned()
    }

    /// Compares the whole [`Answer::refusal`].
    #[track_caller]
    pub fn assert_refusal<'a>(&self, status: u16, code: &str, param: impl Into<Option<&'a str>>) {
        let (its_status, its_code, its_param) = self.refusal();
        let told = (its_status, its_code.as_str(), its_param.as_deref());
        assert_eq!(told, (status, code, param.into()), "{}", self.json());
    }
}

pub trait Shows {
    fn shown(&self) -> Value;

    /// It has these members, and perhaps others. A name with slashes leads to a member of a member.
    #[track_caller]
    fn assert_shows(&self, members: Value) {
        let shown = self.shown();
        for (names, value) in members.as_object().unwrap() {
            assert_eq!(at(&shown, names), value, "{names} of {shown}");
        }
    }
}

impl Shows for Value {
    fn shown(&self) -> Value {
        self.clone()
    }
}

impl Shows for Answer {
    fn shown(&self) -> Value {
        self.json()
    }
}
