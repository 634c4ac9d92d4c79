//! The kinds of values that parameters have, and how a request may leave them out or change them.

use std::marker::PhantomData;

use serde_json::Value;
use utoipa::{
    ToSchema,
    openapi::{KnownFormat, ObjectBuilder, RefOr, Schema, SchemaFormat, Type},
};

use crate::{
    EXPAND_MAX, Error, Expansion, Field, Parameter, ParameterSet, is_empty,
    schema::{described, id_pattern, list_of, not_empty, reference, text},
};

/// A kind of value. Alone, it is a parameter that a request must have.
pub trait ValueKind {
    /// What the program gets.
    type Value;
    /// Whether `null` and the empty string mean none where a request may leave it out. A variable
    /// that is unset by mistake makes an empty value, so what decides about money refuses it.
    const EMPTY_IS_NONE: bool = true;

    /// Checks it. `None`: it is absent, `null` or the empty string.
    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self::Value>, Error>;

    /// Its schema.
    fn schema() -> RefOr<Schema>;
}

impl<K: ValueKind> Parameter for K {
    type Value = K::Value;
    const REQUIRED: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<K::Value, Error> {
        K::read(field)?.ok_or_else(|| field.fields.missing(field.name))
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// A request may leave it out. An empty value is none, or refused: see
/// [`ValueKind::EMPTY_IS_NONE`].
impl<K: ValueKind> Parameter for Option<K> {
    type Value = Option<K::Value>;
    const NULLABLE: bool = K::EMPTY_IS_NONE;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, Error> {
        if !K::EMPTY_IS_NONE {
            field.must_not_be_empty()?;
        }
        K::read(field)
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// What an update does to one optional value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    Keep,
    /// It is removed.
    Unset,
    /// It becomes this.
    Set(T),
}

impl<T> Change<T> {
    /// The value after the change.
    pub fn apply(self, current: Option<T>) -> Option<T> {
        match self {
            Self::Keep => current,
            Self::Unset => None,
            Self::Set(value) => Some(value),
        }
    }

    /// The change with its value, if there is one, made into another.
    pub fn map<U>(self, into: impl FnOnce(T) -> U) -> Change<U> {
        self.and_then(|value| Change::Set(into(value)))
    }

    /// The change with its value, if there is one, made into another, unless that fails.
    pub fn try_map<U, E>(self, into: impl FnOnce(T) -> Result<U, E>) -> Result<Change<U>, E> {
        Ok(match self {
            Self::Keep => Change::Keep,
            Self::Unset => Change::Unset,
            Self::Set(value) => Change::Set(into(value)?),
        })
    }

    /// What its value says, if there is one.
    pub fn and_then<U>(self, says: impl FnOnce(T) -> Change<U>) -> Change<U> {
        match self {
            Self::Keep => Change::Keep,
            Self::Unset => Change::Unset,
            Self::Set(value) => says(value),
        }
    }
}

/// On an update, `null` and the empty string unset it.
impl<K: ValueKind> Parameter for Change<K> {
    type Value = Change<K::Value>;
    const NULLABLE: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, Error> {
        if field.fields.given(field.name).is_some_and(is_empty) {
            return Ok(Change::Unset);
        }
        Ok(K::read(field)?.map_or(Change::Keep, Change::Set))
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// What a request may leave out, but not name without a value: what an update can't unset, and what
/// decides about money. `None`: it is left out, and an update keeps it.
pub struct Kept<K>(PhantomData<K>);

impl<K: ValueKind> Parameter for Kept<K> {
    type Value = Option<K::Value>;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, Error> {
        let is_empty_list = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if field.fields.given(field.name).is_some_and(is_empty_list) {
            return Err(field.empty());
        }
        field.must_not_be_empty()?;
        K::read(field)
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(not_empty(K::schema()), about)
    }
}

/// A kind of value that is written as text.
pub trait TextKind {
    /// What the program gets.
    type Value;
    /// See [`ValueKind::EMPTY_IS_NONE`].
    const EMPTY_IS_NONE: bool = true;
    /// Longer text is refused as such.
    const MAX_CHARS: usize = usize::MAX;
    /// The message of other refusals.
    const MUST_BE: &'static str;

    /// `None` for text that is refused.
    fn parse(text: &str) -> Option<Self::Value>;

    /// Its schema, which begins with [`text`].
    fn schema() -> ObjectBuilder;
}

impl<K: TextKind> ValueKind for K {
    type Value = K::Value;
    const EMPTY_IS_NONE: bool = K::EMPTY_IS_NONE;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<K::Value>, Error> {
        let Some(text) = field.fields.text(field.name, K::MAX_CHARS)? else {
            return Ok(None);
        };
        let parsed = K::parse(&text).map(Some);
        parsed.ok_or_else(|| field.invalid(K::MUST_BE))
    }

    fn schema() -> RefOr<Schema> {
        K::schema().into()
    }
}

/// Text of at most `MAX` characters. The empty text is none, so the document says that a text that
/// must be there has `MIN` characters at least.
pub struct Text<const MAX: usize, const MIN: usize = 0>;

impl<const MAX: usize, const MIN: usize> TextKind for Text<MAX, MIN> {
    type Value = String;
    const MAX_CHARS: usize = MAX;
    const MUST_BE: &'static str = "Must be a string.";

    fn parse(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        let least = (MIN > 0).then_some(MIN);
        text().max_length(Some(MAX)).min_length(least)
    }
}

/// A list of at most `MAX` texts, each of the kind `K`. One of less than `MIN` is none, so the
/// document says that a list that must be there has as many.
pub struct ListOf<K, const MAX: usize, const MIN: usize = 0>(PhantomData<K>);

impl<K: TextKind + ToSchema, const MAX: usize, const MIN: usize> ValueKind for ListOf<K, MAX, MIN> {
    type Value = Vec<K::Value>;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self::Value>, Error> {
        if field.fields.given(field.name).is_none() {
            return Ok(None);
        }
        let texts = field.fields.texts(field.name, 0..=MAX, K::MAX_CHARS)?;
        let parsed = |(index, text): (usize, &String)| {
            let refused = || field.fields.invalid_element(field.name, index, K::MUST_BE);
            K::parse(text).ok_or_else(refused)
        };
        let values: Vec<_> = texts
            .iter()
            .enumerate()
            .map(parsed)
            .collect::<Result<_, _>>()?;
        Ok((values.len() >= MIN).then_some(values))
    }

    fn schema() -> RefOr<Schema> {
        let least = (MIN > 0).then_some(MIN);
        list_of::<K>().max_items(Some(MAX)).min_items(least).into()
    }
}

/// Longest id that is worth parsing, in characters; a TypeID has about 30.
pub const ID_MAX_CHARS: usize = 255;

/// Text that names an object of any kind: every TypeID has this syntax. What it names is checked
/// where it is looked up.
pub struct AnyId;

impl TextKind for AnyId {
    type Value = String;
    const MAX_CHARS: usize = ID_MAX_CHARS;
    const MUST_BE: &'static str = "Must be an id.";

    fn parse(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn schema() -> ObjectBuilder {
        text().pattern(Some(id_pattern("[a-z]+")))
    }
}

/// An integer from `LEAST` to `MOST`.
pub struct Integer<const LEAST: i64, const MOST: i64>;

impl<const LEAST: i64, const MOST: i64> ValueKind for Integer<LEAST, MOST> {
    type Value = i64;
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i64>, Error> {
        field.fields.integer(field.name, LEAST..=MOST)
    }

    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Int64)))
            .minimum(Some(LEAST))
            .maximum(Some(MOST))
            .into()
    }
}

impl ValueKind for bool {
    type Value = Self;
    const EMPTY_IS_NONE: bool = false;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, Error> {
        field.fields.boolean(field.name)
    }

    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Boolean).into()
    }
}

/// An object with the parameters `P`.
pub struct Nested<P>(PhantomData<P>);

impl<P: ParameterSet + ToSchema> ValueKind for Nested<P> {
    type Value = P;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<P>, Error> {
        let Some(mut fields) = field.fields.object(field.name)? else {
            return Ok(None);
        };
        let parsed = P::read(&mut fields)?;
        fields.finish()?;
        Ok(Some(parsed))
    }

    fn schema() -> RefOr<Schema> {
        reference::<P>()
    }
}

/// References that a reply can show as whole objects, each as a path of members:
/// `latest_charge.refunds`. [`expandable!`](crate::expandable) makes one.
pub trait Expandables: ToSchema {
    /// The paths, without what they begin with.
    const PATHS: &'static [&'static str];
    /// What each begins with in a request: `data.` where the reply is a list.
    const PREFIX: &'static str;
}

/// Declares what replies can show whole, and the schemas of that. `pub One, Many = ["owner",
/// "owner.home"]: "About.";` makes the structs `One` and `Many`, whose [`Expandables`] are `owner`
/// and `owner.home`. A request for a list names them as `data.owner` and `data.owner.home`.
#[macro_export]
macro_rules! expandable {
    ($($vis:vis $one:ident, $list:ident = [$($path:literal),+]: $about:literal;)+) => {$(
        $crate::expandable!(@ $vis $one, "", [$($path),+], $about);
        $crate::expandable!(@ $vis $list, "data.", [$($path),+], $about);
    )+};
    (@ $vis:vis $name:ident, $prefix:literal, [$($path:literal),+], $about:literal) => {
        #[doc = $about]
        $vis struct $name;

        impl $crate::Expandables for $name {
            const PATHS: &'static [&'static str] = &[$($path),+];
            const PREFIX: &'static str = $prefix;
        }

        impl $crate::utoipa::PartialSchema for $name {
            fn schema() -> $crate::utoipa::openapi::RefOr<$crate::utoipa::openapi::Schema> {
                let names = [$(concat!($prefix, $path)),+];
                let name = $crate::schema::text().enum_values(Some(names));
                name.description(Some($about)).into()
            }
        }

        impl $crate::utoipa::ToSchema for $name {}
    };
}

/// The parameter `expand`: which of the references `E` are shown as whole objects.
pub struct Expand<E>(PhantomData<E>);

impl<E: Expandables> Parameter for Expand<E> {
    type Value = Expansion;

    fn read(field: &mut Field<'_, '_>) -> Result<Expansion, Error> {
        field.must_not_be_empty()?;
        field.fields.expands(E::PREFIX, E::PATHS)
    }

    fn schema(about: String) -> RefOr<Schema> {
        let list = list_of::<E>()
            .description(Some("References to expand in the reply."))
            .max_items(Some(EXPAND_MAX));
        described(list.into(), about)
    }
}
