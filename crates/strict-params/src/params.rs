//! A request's parameters, as they were decoded.

use serde_json::{Map, Value};

use crate::{
    Encoding, Error, Fields, is_empty,
    path::{ParamPath, Step},
};

/// Names, in as many lists as they are declared in.
pub type NameLists = &'static [&'static [&'static str]];

/// Parameters as they were decoded: syntax without meaning.
#[derive(Debug, Clone)]
pub struct Params {
    /// How they were written.
    pub encoding: Encoding,
    /// The root object, or why there is none. That is a refusal like any other, for programs that
    /// store the refusals of their requests.
    pub tree: Result<Map<String, Value>, Error>,
    grants: Vec<&'static str>,
    not_offered: NameLists,
}

impl Params {
    /// Decoded parameters of a request without grants.
    #[must_use]
    pub fn new(encoding: Encoding, tree: Result<Map<String, Value>, Error>) -> Self {
        Self {
            encoding,
            tree,
            grants: Vec::new(),
            not_offered: &[],
        }
    }

    /// Names parameters, with their brackets, that clients may expect because a service like this
    /// one has them. Where one is refused, the reason is
    /// [`NotOffered`](crate::Reason::NotOffered): such a name is no typing mistake.
    pub fn not_offered(&mut self, names: NameLists) {
        self.not_offered = names;
    }

    /// Lets parameters have values that only some requests may have, if `is_granted`. The name is
    /// the application's own, and [`Fields::is_granted`] asks for it.
    pub fn grant(&mut self, name: &'static str, is_granted: bool) {
        if is_granted {
            self.grants.push(name);
        }
    }

    /// The fields of the root, or the refusal of a body that could not be decoded.
    pub fn fields(&self) -> Result<Fields<'_>, Error> {
        let tree = self.tree.as_ref().map_err(Clone::clone)?;
        let fields = Fields::new(self.encoding, tree);
        Ok(fields.granted(&self.grants).without(self.not_offered))
    }

    /// Refuses the first empty value: for queries, which have nothing to unset. If an empty filter
    /// were none, a program whose variable isn't set would be shown every object.
    pub fn must_not_be_empty(&self) -> Result<(), Error> {
        fn check(members: &Map<String, Value>, place: &ParamPath<'_>) -> Result<(), Error> {
            members.iter().try_for_each(|(name, value)| {
                let place = place.within(Step::Name(name));
                match value {
                    Value::Object(members) => check(members, &place),
                    value if is_empty(value) => {
                        Err(Error::invalid(place.to_param(), "Must not be empty."))
                    }
                    _ => Ok(()),
                }
            })
        }
        let tree = self.tree.as_ref().map_err(Clone::clone)?;
        check(tree, &ParamPath::Root)
    }

    /// About how many bytes they have: their names and texts.
    #[must_use]
    pub fn weight(&self) -> usize {
        fn of(value: &Value) -> usize {
            match value {
                Value::Null | Value::Bool(_) | Value::Number(_) => 8,
                Value::String(text) => text.len(),
                Value::Array(values) => values.iter().map(of).sum(),
                Value::Object(members) => of_members(members),
            }
        }
        fn of_members(members: &Map<String, Value>) -> usize {
            let weights = members.iter().map(|(name, value)| name.len() + of(value));
            weights.sum()
        }
        self.tree.as_ref().map_or(0, of_members)
    }
}
