//! Decodes `application/x-www-form-urlencoded` bodies and query strings.
//!
//! Promise: bracketed names give the tree that the same request has in JSON, with strings for
//! leaves: `items[0][quantity]=2` and `items[][quantity]=2` are lists, `metadata[order_id]=1` is a
//! map. A name that is malformed, repeated or used in two ways is refused, naming the field and
//! never its value; nothing a client sent is dropped or overwritten.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    MAX_DEPTH, MAX_VALUES, TOO_MANY_VALUES,
    error::Error,
    path::{ParamPath, Step, param},
};

/// Greatest index of a list item. Indexes have no gaps and [`MAX_VALUES`] bounds
/// the items, so that a greater one can only be a mistake.
const MAX_INDEX: usize = MAX_VALUES - 1;

const MALFORMED: &str = "A parameter name must be a name followed by any number of bracketed \
                         names, such as items[0][quantity].";
const MIXED: &str = "A parameter must be either a single value, a list with indexes, a list with \
                     empty brackets, or a map.";
const REPEATED: &str = "A single value must not be given more than once.";

/// Decodes `body`, whose size the caller has bounded, to its root map.
///
/// `maps` are the parameters whose brackets always hold a member name. Elsewhere digits in brackets
/// are an index; in these, such as `metadata`, the client may name a member `0`.
///
/// Refuses whatever the promise of this module does not cover.
pub(crate) fn decode(body: &[u8], maps: &[&str]) -> Result<Map<String, Value>, Error> {
    let raw_pairs = body.split(|byte| *byte == b'&');
    let raw_pairs = raw_pairs.filter(|pair| !pair.is_empty());
    let mut root = BTreeMap::new();
    // The root is one of them.
    let (mut values, mut containers) = (0, 1);
    for (raw_pair, (name, value)) in raw_pairs.zip(form_urlencoded::parse(body)) {
        let (raw_name, raw_value) = split_pair(raw_pair);
        check_encoding(raw_name).map_err(|message| Error::malformed(None, message))?;
        let steps = parse_name(&name, maps)?;
        containers += check_encoding(raw_value)
            .and_then(|()| graft_member(&mut root, &steps, value.into_owned()))
            .map_err(|message| Error::malformed(param(&steps), message))?;
        values += 1;
        if values > MAX_VALUES || containers > MAX_VALUES {
            return Err(Error::malformed(None, TOO_MANY_VALUES));
        }
    }
    finish_members(root, &ParamPath::Root)
}

/// The name and the value of a pair, still encoded. A pair without `=` is a name
/// with an empty value, as in the URL Standard.
fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = pair.splitn(2, |byte| *byte == b'=');
    let mut next = || parts.next().unwrap_or_default();
    (next(), next())
}

/// Refuses what `form_urlencoded` would silently repair: the URL Standard keeps a
/// stray `%` and replaces bytes that are not UTF-8, either of which would store
/// something other than what the client meant.
fn check_encoding(raw: &[u8]) -> Result<(), &'static str> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        // RFC 3986, section 2.1: a percent sign and two hexadecimal digits.
        let high = bytes.next().and_then(hex_digit);
        let low = bytes.next().and_then(hex_digit);
        let (Some(high), Some(low)) = (high, low) else {
            return Err("A percent sign must be followed by two hexadecimal digits.");
        };
        decoded.push(high * 16 + low);
    }
    if str::from_utf8(&decoded).is_err() {
        return Err("Parameter names and values must be encoded in UTF-8.");
    }
    // PostgreSQL stores no NUL in text, so that a string with one could be accepted
    // here and then fail halfway through a request.
    if decoded.contains(&0) {
        return Err("Parameter names and values must not contain U+0000.");
    }
    Ok(())
}

fn hex_digit(byte: u8) -> Option<u8> {
    u8::try_from(char::from(byte).to_digit(16)?).ok()
}

/// Reads `items[0][quantity]` as the steps that lead to the value.
fn parse_name<'a>(name: &'a str, maps: &[&str]) -> Result<Vec<Step<'a>>, Error> {
    let (root, mut rest) = name.split_at(name.find('[').unwrap_or(name.len()));
    if root.is_empty() || root.contains(']') {
        return Err(Error::malformed(None, MALFORMED));
    }
    let is_map_root = maps.contains(&root);
    let mut steps = vec![Step::Name(root)];
    while !rest.is_empty() {
        let refuse = |message: &str| Error::malformed(param(&steps), message);
        let (segment, after) = rest
            .strip_prefix('[')
            .and_then(|bracketed| bracketed.split_once(']'))
            .filter(|(segment, _)| !segment.contains('['))
            .ok_or_else(|| refuse(MALFORMED))?;
        if steps.len() == MAX_DEPTH {
            return Err(refuse(&format!(
                "Parameters must not be nested more than {MAX_DEPTH} levels deep."
            )));
        }
        let step = parse_segment(segment, is_map_root).map_err(refuse)?;
        // Whether `a[][]` and `a[][0]` continue the last item or open another has no
        // agreed answer, so that only a member may follow empty brackets.
        if steps.last() == Some(&Step::Next) && !matches!(step, Step::Name(_)) {
            return Err(Error::malformed(param(&steps), MALFORMED));
        }
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

fn parse_segment(segment: &str, is_map_root: bool) -> Result<Step<'_>, &'static str> {
    if is_map_root {
        return match segment {
            "" => Err("A map must be given with a name in its brackets."),
            name => Ok(Step::Name(name)),
        };
    }
    if segment.is_empty() {
        return Ok(Step::Next);
    }
    if !segment.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Step::Name(segment));
    }
    // A leading zero would give one item two names.
    let is_canonical = segment == "0" || !segment.starts_with('0');
    segment
        .parse()
        .ok()
        .filter(|index| is_canonical && *index <= MAX_INDEX)
        .map(Step::Index)
        .ok_or("A list index must be a number from 0 to 999 without leading zeros.")
}

/// A tree under construction. It tells the two spellings of a list apart, so that they are not
/// mixed, and keeps indexed items in order whatever order they come in.
enum FormNode {
    Leaf(String),
    Map(BTreeMap<String, FormNode>),
    Indexed(BTreeMap<usize, FormNode>),
    Appended(Vec<FormNode>),
}

impl FormNode {
    fn branch(steps: &[Step<'_>], value: String) -> Self {
        let Some((step, rest)) = steps.split_first() else {
            return Self::Leaf(value);
        };
        let child = Self::branch(rest, value);
        match *step {
            Step::Name(name) => Self::Map(BTreeMap::from([(name.to_owned(), child)])),
            Step::Index(index) => Self::Indexed(BTreeMap::from([(index, child)])),
            Step::Next => Self::Appended(vec![child]),
        }
    }

    /// Adds `value` at the end of `steps`, unless something there is in its way, and returns how
    /// many maps and lists that took.
    fn graft(&mut self, steps: &[Step<'_>], value: String) -> Result<usize, &'static str> {
        match (steps.split_first(), self) {
            (None, Self::Leaf(_)) => Err(REPEATED),
            (Some(_), Self::Map(members)) => graft_member(members, steps, value),
            (Some((Step::Index(index), rest)), Self::Indexed(items)) => {
                if let Some(item) = items.get_mut(index) {
                    return item.graft(rest, value);
                }
                items.insert(*index, Self::branch(rest, value));
                Ok(rest.len())
            }
            (Some((Step::Next, rest)), Self::Appended(items)) => {
                if let Some(item) = items.last_mut().filter(|item| item.continues(rest)) {
                    return item.graft(rest, value);
                }
                items.push(Self::branch(rest, value));
                Ok(rest.len())
            }
            _ => Err(MIXED),
        }
    }

    /// Whether this list item, the last so far, is the one that `items[]` followed
    /// by `steps` means. It is, as Rack has it, until a member repeats.
    fn continues(&self, steps: &[Step<'_>]) -> bool {
        matches!(self, Self::Map(_)) && !steps.is_empty() && !self.holds(steps)
    }

    fn holds(&self, steps: &[Step<'_>]) -> bool {
        match (steps.split_first(), self) {
            (None, Self::Leaf(_)) => true,
            (Some((Step::Name(name), rest)), Self::Map(members)) => {
                members.get(*name).is_some_and(|member| member.holds(rest))
            }
            (Some((Step::Index(index), rest)), Self::Indexed(items)) => {
                items.get(index).is_some_and(|item| item.holds(rest))
            }
            _ => false,
        }
    }

    /// The finished tree below `path`. Only now can a missing index be told from
    /// one that is yet to come.
    fn into_value(self, path: &ParamPath<'_>) -> Result<Value, Error> {
        match self {
            Self::Leaf(text) => Ok(Value::String(text)),
            Self::Map(members) => finish_members(members, path).map(Value::Object),
            Self::Indexed(items) => {
                if items.keys().enumerate().any(|(at, index)| at != *index) {
                    let message = "List indexes must begin at 0 and leave no gap.";
                    return Err(Error::malformed(path.to_param(), message));
                }
                finish_items(items.into_values(), path)
            }
            Self::Appended(items) => finish_items(items, path),
        }
    }
}

fn graft_member(
    members: &mut BTreeMap<String, FormNode>,
    steps: &[Step<'_>],
    value: String,
) -> Result<usize, &'static str> {
    let Some((Step::Name(name), rest)) = steps.split_first() else {
        return Err(MIXED);
    };
    if let Some(member) = members.get_mut(*name) {
        return member.graft(rest, value);
    }
    members.insert((*name).to_owned(), FormNode::branch(rest, value));
    Ok(rest.len())
}

fn finish_members(
    members: BTreeMap<String, FormNode>,
    path: &ParamPath<'_>,
) -> Result<Map<String, Value>, Error> {
    members
        .into_iter()
        .map(|(name, node)| {
            let value = node.into_value(&path.within(Step::Name(&name)))?;
            Ok((name, value))
        })
        .collect()
}

fn finish_items(
    items: impl IntoIterator<Item = FormNode>,
    path: &ParamPath<'_>,
) -> Result<Value, Error> {
    items
        .into_iter()
        .enumerate()
        .map(|(index, node)| node.into_value(&path.within(Step::Index(index))))
        .collect()
}

#[cfg(test)]
mod tests;
