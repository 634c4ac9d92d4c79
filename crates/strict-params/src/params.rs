//! A request's parameters, as they were decoded.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::{
    Encoding, Error, Fields, is_empty,
    path::{ParamPath, Step},
};

/// Parameters as they were decoded: syntax without meaning.
///
/// A request may wait for long before its parameters are read, so they are kept in one piece, which
/// is hardly longer than what was sent. As a tree they would take up to a hundred times as much.
#[derive(Debug, Clone)]
pub struct Params {
    /// How they were written.
    pub encoding: Encoding,
    /// The root object in MessagePack, which escapes nothing, or why there is none.
    packed: Result<Box<[u8]>, Error>,
    grants: Vec<Cow<'static, str>>,
    not_offered: &'static [&'static str],
}

impl Params {
    /// Decoded parameters of a request without grants. Why there are none is a refusal like any
    /// other, for programs that store the refusals of their requests.
    #[must_use]
    pub fn new(encoding: Encoding, tree: Result<Map<String, Value>, Error>) -> Self {
        Self {
            encoding,
            packed: tree.and_then(|tree| {
                let packed = rmp_serde::to_vec(&tree).map_err(|_| unreadable())?;
                Ok(packed.into())
            }),
            grants: Vec::new(),
            not_offered: &[],
        }
    }

    /// Names parameters, with their brackets, that clients may expect because a service like this
    /// one has them. Where one is refused, the reason is
    /// [`NotOffered`](crate::Reason::NotOffered): such a name is no typing mistake.
    pub fn not_offered(&mut self, names: &'static [&'static str]) {
        self.not_offered = names;
    }

    /// Lets parameters have values that only some requests may have, if `is_granted`. The name is
    /// the application's own, and [`Fields::is_granted`] asks for it.
    pub fn grant(&mut self, name: impl Into<Cow<'static, str>>, is_granted: bool) {
        if is_granted {
            self.grants.push(name.into());
        }
    }

    /// Whether the request was [granted](Self::grant) `name`.
    #[must_use]
    pub fn is_granted(&self, name: &str) -> bool {
        self.grants.iter().any(|grant| grant == name)
    }

    /// The root object. Fails with the refusal of a body that could not be decoded.
    fn tree(&self) -> Result<Map<String, Value>, Error> {
        let packed = self.packed.as_deref().map_err(Clone::clone)?;
        rmp_serde::from_slice(packed).map_err(|_| unreadable())
    }

    /// Reads the fields of the root. Fails with the refusal of a body that could not be decoded.
    pub fn read<T>(&self, read: impl FnOnce(Fields<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let tree = self.tree()?;
        let fields = Fields::new(self.encoding, &tree);
        read(fields.granted(&self.grants, self.not_offered))
    }

    /// Refuses the first empty value: for queries, which have nothing to unset. If an empty filter
    /// were none, a program whose variable isn't set would be shown every object.
    pub fn must_not_be_empty(&self) -> Result<(), Error> {
        fn check(members: &Map<String, Value>, place: &ParamPath<'_>) -> Result<(), Error> {
            members.iter().try_for_each(|(name, value)| {
                let place = place.within(Step::Name(name));
                if let Value::Object(members) = value {
                    return check(members, &place);
                }
                if is_empty(value) {
                    return Err(Error::invalid(place.to_param(), "Must not be empty."));
                }
                Ok(())
            })
        }
        check(&self.tree()?, &ParamPath::Root)
    }

    /// About how many bytes they have.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.packed.as_ref().map_or(0, |packed| packed.len())
    }
}

fn unreadable() -> Error {
    Error::malformed(None, "The parameters could not be read.")
}
