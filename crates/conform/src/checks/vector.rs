//! Follows the steps of a check, as `vectors/README.md` explains them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{Flaw, Seen, same, unknown};
use crate::{
    api::{Api, Ask, Reply, Tally, given},
    config::{Template, fill_from},
};

/// The steps for an API that makes such promises.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    #[serde(default)]
    when: BTreeMap<String, Value>,
    #[serde(default)]
    unless: BTreeMap<String, Value>,
    steps: Vec<Step>,
}

/// A request, and what must come of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// The name of a request of the config, or several of which the first one that is there is
    /// sent. Sent again, it is a retry.
    send: String,
    /// Whether it is another request than before.
    #[serde(default)]
    new: bool,
    /// Whether it is left out if the config lacks it.
    #[serde(default)]
    optional: bool,
    /// Whether it is retried until there is an answer that stays.
    #[serde(default)]
    settle: bool,
    #[serde(default)]
    account: Option<Account>,
    /// In the place of the check's key.
    #[serde(default)]
    keys: Option<Vec<String>>,
    #[serde(default)]
    query: Option<String>,
    /// The promise that names another path.
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    respelled: bool,
    #[serde(default)]
    made_seconds_ago: u64,
    #[serde(default)]
    signed_seconds_ago: u64,
    /// Without this reply, nothing is known.
    #[serde(default)]
    given: Option<String>,
    /// Without this one, the rule is broken.
    #[serde(default)]
    expect: Option<String>,
    /// What a request costs that doesn't succeed.
    #[serde(default)]
    cost: Option<String>,
    #[serde(default)]
    detail: Option<Detail>,
    /// How many effects the request has from here to the next step with effects, or to the end.
    #[serde(default)]
    effects: Option<Effects>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Account {
    Rotated,
    Other,
    Wrong,
    Forged,
    Unsigned,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Effects {
    Number(u64),
    Told(AsTold),
}

/// One if it got a success, and none otherwise.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AsTold {
    AsTold,
}

/// What matters less than the rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Detail {
    expect: String,
    cost: String,
    mend: String,
}

/// What was sent by one check.
struct Course<'a> {
    api: &'a Api,
    promises: Value,
    key: String,
    /// Requests by name, and the first reply to each.
    asks: BTreeMap<&'a str, (Ask, Option<Reply>)>,
    first: Option<Reply>,
    counting: Option<(Tally<'a>, Ask, Effects, u64)>,
    statuses: Vec<String>,
    judged: usize,
}

pub(super) async fn follow(api: &Api, cases: &'static [Case]) -> Seen {
    let promises = serde_json::to_value(&api.config.promises).unwrap_or_default();
    let mut lacking = String::new();
    let mut fit = cases.iter().filter(|case| {
        let other = case.unfit(&promises);
        lacking = other.clone().unwrap_or_default();
        other.is_none()
    });
    let Some(case) = fit.next() else {
        drop(fit);
        return unknown(format!("promises.{lacking}"));
    };
    let mut course = Course {
        api,
        promises,
        key: api.key(),
        asks: BTreeMap::new(),
        first: None,
        counting: None,
        statuses: Vec::new(),
        judged: 0,
    };
    let mut seen = Ok(());
    for step in &case.steps {
        seen = course.take(step).await;
        if seen.is_err() {
            break;
        }
    }
    course.count(seen).await?;
    match course.judged {
        0 => unknown("the config lacks each request that is judged"),
        _ => Ok(course.statuses.join(", then ")),
    }
}

impl Case {
    /// The promise that is another one.
    fn unfit(&self, promises: &Value) -> Option<String> {
        let is = |name: &String, value: &Value| match (promises.get(name), value) {
            (Some(made), Value::Array(any)) => any.contains(made),
            (made, value) => made == Some(value),
        };
        let lacking = self.when.iter().find(|(name, value)| !is(name, value));
        let unfit = lacking.or_else(|| self.unless.iter().find(|(name, value)| is(name, value)));
        unfit.map(|(name, _)| format!("{name} is {}", promises.get(name).unwrap_or(&Value::Null)))
    }
}

impl<'a> Course<'a> {
    async fn take(&mut self, step: &'static Step) -> Result<(), Flaw> {
        let api = self.api;
        let mut named = step.send.split('|').map(|name| api.config.request(name));
        let found = named.find_map(|template| template);
        if step.optional && found.is_none() {
            return Ok(());
        }
        let request = given(found, &format!("[{}]", step.send.replace('|', "] or [")))?;
        let ask = self.ask(step, request)?;
        if let Some(effects) = step.effects {
            self.count(Ok(())).await?;
            self.counting = Some((api.tally(&[&ask]).await?, ask.clone(), effects, 0));
        }
        let reply = match step.settle {
            true => api.settle(&ask).await?,
            false => api.send(&ask).await?,
        };
        self.statuses.push(reply.status.to_string());
        if let Some((_, counted, _, told)) = &mut self.counting
            && counted.number == ask.number
            && reply.is_success()
        {
            *told = 1;
        }
        let is_given = |expected| self.judge(step, expected, &reply).is_ok();
        if !step.given.as_deref().is_none_or(is_given) {
            let expected = step.given.as_deref().unwrap_or_default();
            return unknown(match expected {
                "unauthorized" => format!("accounts.wrong must get 401 or 403, and got {reply}"),
                _ => format!("[{}] needs {expected}, and got {reply}", step.send),
            });
        }
        if let Some(expected) = &step.expect {
            self.judge(step, expected, &reply)?;
            self.judged += 1;
        }
        if let Some(detail) = &step.detail
            && self.judge(step, &detail.expect, &reply).is_err()
        {
            let what = format!("not {}: {reply}", detail.expect);
            return Err(Flaw::lesser(what, &detail.cost, &detail.mend));
        }
        if let Some((_, first)) = self.asks.get_mut(step.send.as_str()) {
            first.get_or_insert(reply.clone());
        }
        self.first.get_or_insert(reply);
        Ok(())
    }

    /// The request of the step: that of an earlier one with its name, unless it is new.
    fn ask(&mut self, step: &'static Step, request: &Template) -> Result<Ask, Flaw> {
        let api = self.api;
        if step.new || !self.asks.contains_key(step.send.as_str()) {
            let mut ask = api.ask(request).with_keys(vec![self.key.clone()]);
            if let Some(first) = &self.first {
                fill_from(&mut ask.template, &first.body);
            }
            ask.template.fill_key(&self.key);
            if let Some(keys) = &step.keys {
                let keys = keys.iter().map(|key| self.spelled(key));
                ask.keys = keys.collect();
            }
            let _ = self.asks.insert(&step.send, (ask, None));
        }
        let ask = self
            .asks
            .get(step.send.as_str())
            .map(|(ask, _)| ask.clone());
        let mut ask = given(ask.as_ref(), &step.send)?.clone();
        if let Some(keys) = &step.keys
            && !keys.iter().any(|key| key.contains("{new}"))
        {
            ask.keys = keys.iter().map(|key| self.spelled(key)).collect();
        }
        let accounts = &api.config.accounts;
        if let Some(account) = step.account {
            ask.credential = match account {
                Account::Rotated => given(accounts.rotated.as_ref(), "accounts.rotated")?.clone(),
                Account::Other => given(accounts.other.as_ref(), "accounts.other")?.clone(),
                Account::Wrong => given(accounts.wrong.as_ref(), "accounts.wrong")?.clone(),
                // Of another secret.
                Account::Forged => "whsec_Zm9yZ2VkZm9yZ2VkZm9yZ2VkZm9yZ2Vk".to_owned(),
                Account::Unsigned => String::new(),
            };
        }
        if let (Some(query), Some(path)) = (&step.query, &mut ask.template.path) {
            path.push(if path.contains('?') { '&' } else { '?' });
            path.push_str(query);
        }
        if let Some(name) = &step.path {
            let path = self.promises.get(name).and_then(Value::as_str);
            let path = given(path.as_ref(), &format!("promises.{name}"))?;
            ask.template.path = Some((*path).to_owned());
        }
        if step.respelled {
            given(ask.template.json.as_ref(), "effect.json")?;
            ask.is_respelled = true;
        }
        Ok(ask
            .created_before(step.made_seconds_ago)
            .signed_before(step.signed_seconds_ago))
    }

    fn spelled(&self, key: &str) -> String {
        let of_length = |length: usize| -> String {
            let padded = format!("{:x<length$}", self.api.key());
            padded.chars().take(length).collect()
        };
        let length_max = self.api.config.promises.key_length_max;
        key.replace("{key}", &self.key)
            .replace("{new}", &self.api.key())
            .replace("{longest}", &of_length(length_max))
            .replace("{longer}", &of_length(length_max + 1))
    }

    fn judge(&self, step: &'static Step, expected: &str, reply: &Reply) -> Result<(), Flaw> {
        let (api, made) = (self.api, &self.api.config.promises);
        let earlier = self
            .asks
            .get(step.send.as_str())
            .and_then(|it| it.1.as_ref());
        let is_marked = api.is_marked(reply);
        let is_as = |other: &Reply| reply.is_same_outcome(other);
        let is_replay = is_marked || self.first.as_ref().is_some_and(is_as);
        let mut words = expected.to_owned();
        if let Some(name) = expected.strip_prefix("promises.") {
            match self.promises.get(name) {
                Some(Value::Array(statuses)) => {
                    let is_one = statuses.is_empty() || statuses.contains(&reply.status.into());
                    return is_one
                        .then_some(())
                        .ok_or_else(|| Flaw::violated("another status"));
                }
                Some(Value::String(one)) => words.clone_from(one),
                _ => return unknown(format!("there is no {expected}")),
            }
        }
        let holds = match words.as_str() {
            "open" => return unknown(format!("nothing is promised; it got {reply}")),
            "answer" => api.is_definite(reply),
            "success" => reply.is_success(),
            "first" => reply.is_success() && !is_marked,
            "refusal" => reply.is_refusal(),
            "unauthorized" => matches!(reply.status, 401 | 403),
            "server_error" => reply.status >= 500,
            "marked" => made.replay_header.is_none() || is_marked,
            "apart" => {
                let is_alike = is_replay && made.id(&reply.body).is_some();
                !reply.is_success() || !(is_marked || is_alike)
            }
            "replay" => return earlier.map_or(Ok(()), |first| same(first, reply)),
            "kept" => reply.is_refusal() || earlier.is_some_and(is_as),
            "refused" => reply.is_refusal() && !is_replay,
            "same" => is_replay,
            "separate" => !is_replay && !made.reuse.contains(&reply.status) && reply.status < 500,
            "problem" => match no_problem(reply) {
                None => true,
                Some(what) => return Err(Flaw::violated(format!("{what}: {reply}"))),
            },
            status => status.parse() == Ok(reply.status),
        };
        if holds {
            return Ok(());
        }
        let told = self
            .first
            .as_ref()
            .map(|first| format!("after {}, ", first.status));
        let told = told.unwrap_or_default();
        let flaw = Flaw::violated(format!("{told}[{}] got {reply}: no {words}", step.send));
        Err(match &step.cost {
            Some(cost) if !reply.is_success() => flaw.costing(cost),
            _ => flaw,
        })
    }

    /// Ends the counting of effects that an earlier step began.
    async fn count(&mut self, seen: Result<(), Flaw>) -> Result<(), Flaw> {
        let Some((tally, ask, effects, told)) = self.counting.take() else {
            return seen;
        };
        let expected = match effects {
            Effects::Number(number) => number,
            Effects::Told(AsTold::AsTold) => told,
        };
        self.api.counted(&tally, &ask, expected, seen).await?;
        let noun = if expected == 1 { "effect" } else { "effects" };
        if let Some(last) = self.statuses.last_mut() {
            last.push_str(&format!(" ({expected} {noun})"));
        }
        Ok(())
    }
}

/// Why a refusal isn't one of RFC 9457.
fn no_problem(reply: &Reply) -> Option<String> {
    let media_type = reply.header("content-type").unwrap_or("no media type");
    if !media_type.starts_with("application/problem+json") {
        return Some(media_type.to_owned());
    }
    let Ok(Value::Object(members)) = serde_json::from_slice(&reply.body) else {
        return Some("no object of JSON".to_owned());
    };
    let told = members.get("status").and_then(Value::as_u64);
    if told.is_some_and(|status| status != u64::from(reply.status)) {
        return Some("its member status is another one".to_owned());
    }
    let tells = ["type", "title"]
        .iter()
        .any(|name| members.get(*name).is_some_and(Value::is_string));
    (!tells).then(|| "it has neither type nor title".to_owned())
}
