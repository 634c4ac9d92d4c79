//! What a parameter is: how it is read, and how an OpenAPI document describes it.
//!
//! Promise: both are one type's, so they can't disagree. A request names the types
//! ([`parameters!`](crate::parameters)), and the program gets their `Value`.

use std::{marker::PhantomData, mem};

use utoipa::{
    IntoParams, PartialSchema,
    openapi::{
        ObjectBuilder, RefOr, Required, Schema,
        path::{Parameter as QueryParameter, ParameterIn},
    },
};

use crate::{
    Error, Expansion, Fields, Params, is_empty,
    schema::{not_empty, nullable},
};

/// Declares the parameters of a request: a name, a [`Parameter`], and what it means. From it come a
/// struct of their values, which [`ParameterSet`] fills, and what the OpenAPI document says of them
/// in a body (`as` names its schema) or in a query. `pub struct Refund as "NewRefund" { amount:
/// Option<Integer<1, 9>>, }` makes `pub struct Refund { pub amount: Option<i64> }`, which is a
/// `ParameterSet`, a `utoipa::ToSchema` named `NewRefund`, and a `utoipa::IntoParams`.
///
/// They are checked in the order in which they are declared. Where a field has no comment, the
/// document says what the type says of itself. `example {…}` behind the fields is an example of the
/// whole body. `into Address` behind the fields, and before the example, makes an `Address` of
/// them: a struct with the same fields, each by `Into`. Several sets may stand one after the other.
#[macro_export]
macro_rules! parameters {
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident $(as $schema:literal)? {
            $($(#[doc = $field_about:literal])* $field:ident: $parameter:ty,)+
        }
        $(into $whole:ident)?
        $(example $example:tt)?
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        #[allow(missing_docs, reason = "some parameters are what their types say")]
        $vis struct $name {
            $(
                $(#[doc = $field_about])*
                $vis $field: <$parameter as $crate::Parameter>::Value,
            )+
        }

        $crate::parameters!(@into $name { $($field)+ } $($whole)?);

        impl $crate::ParameterSet for $name {
            fn read(fields: &mut $crate::Fields<'_>) -> ::std::result::Result<Self, $crate::Error> {
                $(
                    let $field = <$parameter as $crate::Parameter>::read(
                        &mut $crate::Field::new(fields, stringify!($field)),
                    )?;
                )+
                Ok(Self { $($field),+ })
            }
        }

        impl $crate::utoipa::PartialSchema for $name {
            fn schema() -> $crate::utoipa::openapi::RefOr<$crate::utoipa::openapi::Schema> {
                let object = $crate::schema::object(&[$($about),+]);
                $(
                    let object = $crate::schema::with_member::<$parameter>(
                        object, stringify!($field), &[$($field_about),*],
                    );
                )+
                $(
                    let object = $crate::schema::with_example(
                        object, $crate::serde_json::json!($example),
                    );
                )?
                object.into()
            }
        }

        impl $crate::utoipa::ToSchema for $name {
            $(
                fn name() -> ::std::borrow::Cow<'static, str> {
                    $schema.into()
                }
            )?
        }

        impl $crate::utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<$crate::utoipa::openapi::path::ParameterIn>,
            ) -> Vec<$crate::utoipa::openapi::path::Parameter> {
                let parameters = [$(
                    $crate::schema::in_query::<$parameter>(
                        stringify!($field), &[$($field_about),*],
                    ),
                )+];
                parameters.into_iter().flatten().collect()
            }
        }
    )+};
    (@into $name:ident { $($field:ident)+ }) => {};
    (@into $name:ident { $($field:ident)+ } $whole:ident) => {
        impl From<$name> for $whole {
            fn from(params: $name) -> Self {
                Self { $($field: params.$field.into()),+ }
            }
        }
    };
}

/// The parameters of one object, which [`parameters!`](crate::parameters) declares. Two sets are
/// read together as a tuple, and `()` has none.
pub trait ParameterSet: Sized {
    /// Checks them. The caller refuses others.
    fn read(fields: &mut Fields<'_>) -> Result<Self, Error>;

    /// Checks them, and that there are no others.
    fn parse(params: &Params) -> Result<Self, Error> {
        Ok(Self::parse_expanding(params)?.0)
    }

    /// Checks them as [`parse`](Self::parse) does, for code that shows whatever they name by
    /// `expand`.
    fn parse_expanding(params: &Params) -> Result<(Self, Expansion), Error> {
        params.read(|mut fields| {
            let parsed = (Self::read(&mut fields)?, fields.expansion().clone());
            fields.finish()?;
            Ok(parsed)
        })
    }
}

/// For requests that have none.
impl ParameterSet for () {
    fn read(_fields: &mut Fields<'_>) -> Result<Self, Error> {
        Ok(())
    }
}

impl<A: ParameterSet, B: ParameterSet> ParameterSet for (A, B) {
    fn read(fields: &mut Fields<'_>) -> Result<Self, Error> {
        Ok((A::read(fields)?, B::read(fields)?))
    }
}

/// One member of an object, to be checked.
pub struct Field<'f, 'a> {
    /// All members.
    pub fields: &'f mut Fields<'a>,
    /// The name of this one.
    pub name: &'static str,
}

impl<'f, 'a> Field<'f, 'a> {
    /// `name` is that of a struct's field, which may be a word of Rust's: `r#type`.
    pub fn new(fields: &'f mut Fields<'a>, name: &'static str) -> Self {
        let name = plain(name);
        Self { fields, name }
    }

    /// A refusal of it.
    pub fn invalid(&self, message: impl AsRef<str>) -> Error {
        self.fields.invalid(self.name, message)
    }

    /// The refusal of an empty value of it.
    pub fn empty(&self) -> Error {
        self.invalid("Must not be empty.")
    }

    /// Refuses `null` and the empty string. A request may leave it out.
    pub fn must_not_be_empty(&mut self) -> Result<(), Error> {
        match self.fields.given(self.name).is_some_and(is_empty) {
            true => Err(self.empty()),
            false => Ok(()),
        }
    }
}

/// The name of a struct's field without what lets it be a word of Rust's.
pub(crate) fn plain(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}

/// A parameter as a request declares it. That is a [`ValueKind`](crate::ValueKind), `Option`,
/// [`Change`](crate::Change) or [`Kept`](crate::Kept) of one, or a type of the application's own.
pub trait Parameter {
    /// What the program gets.
    type Value;
    /// Whether a request must have it.
    const REQUIRED: bool = false;
    /// Whether a body may say `null`, which means that there is none. In a query, nothing is
    /// `null`.
    const NULLABLE: bool = false;

    /// Checks it.
    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, Error>;

    /// Its schema, without `null`. `about` is what it means in this request, or empty.
    fn schema(about: String) -> RefOr<Schema>;

    /// The schema of the object that it is a member of, with it.
    fn in_object(object: ObjectBuilder, name: &str, about: String) -> ObjectBuilder {
        let schema = match Self::NULLABLE {
            true => nullable(Self::schema(about)),
            false => Self::schema(about),
        };
        let object = object.property(name, schema);
        match Self::REQUIRED {
            true => object.required(name),
            false => object,
        }
    }

    /// How it is named and described in a query.
    fn in_query(name: &str, about: String) -> Vec<QueryParameter> {
        let mut schema = Self::schema(about);
        if !matches!(schema, RefOr::T(Schema::Array(_))) {
            schema = not_empty(schema);
        }
        let (brackets, about) = match &mut schema {
            RefOr::T(Schema::Array(list)) => ("[]", list.description.take()),
            RefOr::T(Schema::Object(object)) => ("", object.description.take()),
            RefOr::Ref(reference) => ("", Some(mem::take(&mut reference.description))),
            RefOr::T(_) => ("", None),
        };
        let required = match Self::REQUIRED {
            true => Required::True,
            false => Required::False,
        };
        let parameter = QueryParameter::builder()
            .name(format!("{name}{brackets}"))
            .parameter_in(ParameterIn::Query)
            .description(about)
            .required(required)
            .schema(Some(schema));
        vec![parameter.build()]
    }
}

/// All parameters of another set, as if each of them was declared here: what several requests have
/// in common is declared once. The field's name is the program's own.
pub struct Include<S>(PhantomData<S>);

impl<S: ParameterSet + PartialSchema + IntoParams> Parameter for Include<S> {
    type Value = S;

    fn read(field: &mut Field<'_, '_>) -> Result<S, Error> {
        S::read(field.fields)
    }

    fn schema(_: String) -> RefOr<Schema> {
        S::schema()
    }

    fn in_object(object: ObjectBuilder, _: &str, about: String) -> ObjectBuilder {
        let RefOr::T(Schema::Object(set)) = Self::schema(about) else {
            return object;
        };
        let properties = set.properties.into_iter();
        let object = properties.fold(object, |object, (name, schema)| {
            object.property(name, schema)
        });
        set.required
            .into_iter()
            .fold(object, ObjectBuilder::required)
    }

    fn in_query(_: &str, _: String) -> Vec<QueryParameter> {
        S::into_params(|| None)
    }
}

#[cfg(test)]
mod tests;
