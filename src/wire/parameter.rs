//! What a parameter can be: how it is read, and how the OpenAPI document describes it.
//!
//! Promise: both are one type's, so they can't disagree. A request names the types
//! ([`parameters!`]), and a command gets their `Value`.

use std::{marker::PhantomData, mem};

use charge_once_strict_params::{EXPAND_MAX, Fields, is_empty};
use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        Array, ArrayBuilder, KnownFormat, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr,
        Required, Schema, SchemaFormat, Type,
        path::{Parameter as QueryParameter, ParameterIn},
        schema::{AdditionalProperties, SchemaType},
    },
};

use super::{
    error::{ApiError, ErrorCode},
    params::Params,
};
use crate::domain::{
    change::Change,
    ids::{ChargeId, ID_CHARS, OrderId},
    money::{AMOUNT_MAX, Currency},
};

/// Declares the parameters of a request: a name, a [`Parameter`], and what it means. From it come a
/// struct of their values, which [`ParameterSet`] fills, and what the OpenAPI document says of them
/// in a body (`as` names its schema) or in a query.
///
/// They are checked in the order in which they are declared. Where a field has no comment, the
/// document says what the type says of itself.
macro_rules! parameters {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident $(as $schema:literal)? {
            $($(#[doc = $field_about:literal])* $field:ident: $parameter:ty,)+
        }
        $(example $example:tt)?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        #[allow(missing_docs, reason = "some parameters are what their types say")]
        $vis struct $name {
            $(
                $(#[doc = $field_about])*
                $vis $field: <$parameter as $crate::wire::parameter::Parameter>::Value,
            )+
        }

        impl $crate::wire::parameter::ParameterSet for $name {
            fn read(
                fields: &mut charge_once_strict_params::Fields<'_>,
                params: &$crate::wire::params::Params,
            ) -> Result<Self, $crate::wire::error::ApiError> {
                use $crate::wire::parameter::{Field, Parameter};
                $(
                    let $field =
                        <$parameter as Parameter>::read(&mut Field::new(fields, stringify!($field), params))?;
                )+
                Ok(Self { $($field),+ })
            }
        }

        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                use $crate::wire::parameter::{object, with_property};
                let object = object(&[$($about),+]);
                $(
                    let object = with_property::<$parameter>(
                        object, stringify!($field), &[$($field_about),*],
                    );
                )+
                $(let object = $crate::wire::parameter::with_example(object, serde_json::json!($example));)?
                object.into()
            }
        }

        impl utoipa::ToSchema for $name {
            $(
                fn name() -> std::borrow::Cow<'static, str> {
                    $schema.into()
                }
            )?
        }

        impl utoipa::IntoParams for $name {
            fn into_params(
                _: impl Fn() -> Option<utoipa::openapi::path::ParameterIn>,
            ) -> Vec<utoipa::openapi::path::Parameter> {
                use $crate::wire::parameter::in_query;
                let parameters = [$(
                    in_query::<$parameter>(stringify!($field), &[$($field_about),*]),
                )+];
                parameters.into_iter().flatten().collect()
            }
        }
    };
}
pub(crate) use parameters;

/// The parameters of one object, which [`parameters!`] declares.
pub trait ParameterSet: Sized {
    /// Checks them. The caller refuses others.
    fn read(fields: &mut Fields<'_>, params: &Params) -> Result<Self, ApiError>;

    /// Checks them, and that there are no others.
    fn parse(params: &Params) -> Result<Self, ApiError> {
        let mut fields = params.fields()?;
        let parsed = Self::read(&mut fields, params)?;
        fields.finish()?;
        Ok(parsed)
    }
}

impl ParameterSet for () {
    fn read(_fields: &mut Fields<'_>, _params: &Params) -> Result<Self, ApiError> {
        Ok(())
    }
}

impl<A: ParameterSet, B: ParameterSet> ParameterSet for (A, B) {
    fn read(fields: &mut Fields<'_>, params: &Params) -> Result<Self, ApiError> {
        Ok((A::read(fields, params)?, B::read(fields, params)?))
    }
}

/// One member of an object, to be checked.
pub struct Field<'f, 'a> {
    /// All members.
    pub fields: &'f mut Fields<'a>,
    /// Its name.
    pub name: &'static str,
    /// The request.
    pub params: &'f Params,
}

impl<'f, 'a> Field<'f, 'a> {
    /// `name` is that of a struct's field, which may be a word of Rust's: `r#type`.
    pub fn new(fields: &'f mut Fields<'a>, name: &'static str, params: &'f Params) -> Self {
        let name = name.strip_prefix("r#").unwrap_or(name);
        Self {
            fields,
            name,
            params,
        }
    }

    /// A refusal of it.
    pub fn invalid(&self, message: impl AsRef<str>) -> ApiError {
        self.fields.invalid(self.name, message).into()
    }
}

/// A parameter as a request declares it. That is a [`ValueKind`], `Option` or [`Change`] of one, or
/// [`Kept`].
pub trait Parameter {
    /// What a command gets.
    type Value;
    /// Whether a request must have it.
    const REQUIRED: bool = false;
    /// Whether a body may say `null`, which means that there is none. In a query, nothing is `null`.
    const NULLABLE: bool = false;

    /// Checks it.
    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, ApiError>;

    /// Its schema, without `null`. `about` is what it means in this request, or empty.
    fn schema(about: String) -> RefOr<Schema>;

    /// How it is named and described in a query.
    fn in_query(name: &str, about: String) -> Vec<QueryParameter> {
        let mut schema = Self::schema(about);
        let (brackets, about) = match &mut schema {
            RefOr::T(Schema::Array(list)) => ("[]", list.description.take()),
            RefOr::T(Schema::Object(object)) => ("", object.description.take()),
            RefOr::Ref(reference) => ("", Some(mem::take(&mut reference.description))),
            RefOr::T(_) => ("", None),
        };
        let parameter = QueryParameter::builder()
            .name(format!("{name}{brackets}"))
            .parameter_in(ParameterIn::Query)
            .description(about)
            .required(if Self::REQUIRED {
                Required::True
            } else {
                Required::False
            })
            .schema(Some(schema));
        vec![parameter.build()]
    }
}

/// A kind of value. Alone, it is a parameter that a request must have.
pub trait ValueKind {
    /// What a command gets.
    type Value;

    /// Checks it. `None`: it is absent, `null` or the empty string.
    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self::Value>, ApiError>;

    /// Its schema.
    fn schema() -> RefOr<Schema>;
}

impl<K: ValueKind> Parameter for K {
    type Value = K::Value;
    const REQUIRED: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<K::Value, ApiError> {
        K::read(field)?.ok_or_else(|| field.fields.missing(field.name).into())
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// A request may leave it out.
impl<K: ValueKind> Parameter for Option<K> {
    type Value = Option<K::Value>;
    const NULLABLE: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, ApiError> {
        K::read(field)
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// On an update, `null` and the empty string unset it.
impl<K: ValueKind> Parameter for Change<K> {
    type Value = Change<K::Value>;
    const NULLABLE: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, ApiError> {
        if field.fields.given(field.name).is_some_and(is_empty) {
            return Ok(Change::Unset);
        }
        Ok(K::read(field)?.map_or(Change::Keep, Change::Set))
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// What an update may change and can't unset. `None` keeps it.
pub struct Kept<K>(PhantomData<K>);

impl<K: ValueKind> Parameter for Kept<K> {
    type Value = Option<K::Value>;

    fn read(field: &mut Field<'_, '_>) -> Result<Self::Value, ApiError> {
        let unsets = |value: &Value| is_empty(value) || value.as_array().is_some_and(Vec::is_empty);
        if field.fields.given(field.name).is_some_and(unsets) {
            return Err(field.invalid("Must not be empty."));
        }
        K::read(field)
    }

    fn schema(about: String) -> RefOr<Schema> {
        described(K::schema(), about)
    }
}

/// A kind of value that is written as text.
pub trait TextKind {
    /// What a command gets.
    type Value;
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

    fn read(field: &mut Field<'_, '_>) -> Result<Option<K::Value>, ApiError> {
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

/// A reference of the client's own.
pub type Reference = Text<255>;
/// Text for people.
pub type Description = Text<1_000>;

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

/// An integer from `LEAST` to `MOST`.
pub struct Integer<const LEAST: i64, const MOST: i64>;

impl<const LEAST: i64, const MOST: i64> ValueKind for Integer<LEAST, MOST> {
    type Value = i64;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i64>, ApiError> {
        Ok(field.fields.integer(field.name, LEAST..=MOST)?)
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

/// An amount in minor units, from `LEAST` to [`AMOUNT_MAX`].
pub struct Amount<const LEAST: i64 = 1>;

impl<const LEAST: i64> ValueKind for Amount<LEAST> {
    type Value = i64;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<i64>, ApiError> {
        match field.fields.number(field.name) {
            None => Ok(None),
            Some(Some(amount)) if amount > AMOUNT_MAX => {
                let param = field.fields.param(field.name);
                Err(ApiError::explained(ErrorCode::AmountTooLarge).with_param(param))
            }
            Some(Some(amount)) if amount >= LEAST => Ok(Some(amount)),
            Some(_) => Err(field.invalid(format!(
                "Must be an integer from {LEAST} to {AMOUNT_MAX}, in minor units."
            ))),
        }
    }

    fn schema() -> RefOr<Schema> {
        <Integer<LEAST, AMOUNT_MAX> as ValueKind>::schema()
    }
}

impl ValueKind for bool {
    type Value = Self;

    fn read(field: &mut Field<'_, '_>) -> Result<Option<Self>, ApiError> {
        Ok(field.fields.boolean(field.name)?)
    }

    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new().schema_type(Type::Boolean).into()
    }
}

impl TextKind for Currency {
    type Value = Self;
    const MUST_BE: &'static str = "Must be the ISO 4217 code of a currency in use, such as usd.";

    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    fn schema() -> ObjectBuilder {
        let code = text()
            .format(Some(SchemaFormat::Custom("iso-4217".to_owned())))
            .pattern(Some("^[A-Za-z]{3}$"))
            .description(Some("The ISO 4217 code of a currency in use, in any case."));
        with_example(code, "usd")
    }
}

/// Longest id that is worth parsing, in characters; one has about 30.
pub const ID_MAX_CHARS: usize = 255;

macro_rules! ids {
    ($($id:ident),+) => {$(
        impl TextKind for $id {
            type Value = Self;
            const MAX_CHARS: usize = ID_MAX_CHARS;
            const MUST_BE: &'static str = "Must be the id of an object of that kind.";

            fn parse(text: &str) -> Option<Self> {
                Self::parse(text)
            }

            fn schema() -> ObjectBuilder {
                text().pattern(Some(id_pattern(Self::PREFIX)))
            }
        }
    )+};
}

ids!(ChargeId, OrderId);

/// What ids of a kind look like: TypeID's 26 characters, the first of which has three bits.
pub fn id_pattern(prefix: &str) -> String {
    format!("^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{{}}}$", ID_CHARS - 1)
}

/// A reference that a reply can show as a whole object.
pub trait ExpandName: ToSchema {
    /// What `expand` calls it.
    const NAME: &'static str;
}

macro_rules! expandable {
    ($($name:ident = $text:literal: $about:literal;)+) => {$(
        #[doc = $about]
        pub struct $name;

        impl ExpandName for $name {
            const NAME: &'static str = $text;
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                text().description(Some($about)).enum_values(Some([$text])).into()
            }
        }

        impl ToSchema for $name {}
    )+};
}

expandable! {
    ExpandCharge = "charge": "Shows the whole charge.";
    ExpandRefunds = "refunds": "Shows the refunds of the charge.";
    ExpandDataCharge = "data.charge": "Shows the whole charge in each object of a list.";
    ExpandDataRefunds = "data.refunds": "Shows the refunds in each charge of a list.";
}

/// The parameter `expand`: whether it asks for `E`, the one reference that can be expanded there.
pub struct Expand<E>(PhantomData<E>);

impl<E: ExpandName> Parameter for Expand<E> {
    type Value = bool;
    const NULLABLE: bool = true;

    fn read(field: &mut Field<'_, '_>) -> Result<bool, ApiError> {
        Ok(field.fields.expands(E::NAME)?)
    }

    fn schema(about: String) -> RefOr<Schema> {
        let list = list_of::<E>()
            .description(Some("References to expand in the reply."))
            .max_items(Some(EXPAND_MAX));
        described(list.into(), about)
    }
}

/// The schema of an object without properties.
pub fn object(about: &[&str]) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Object)
        .description(Some(text_of(about)))
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

/// The schema of an object with one more property.
pub fn with_property<P: Parameter>(
    object: ObjectBuilder,
    name: &str,
    about: &[&str],
) -> ObjectBuilder {
    let schema = P::schema(text_of(about));
    let schema = if P::NULLABLE {
        nullable(schema)
    } else {
        schema
    };
    let object = object.property(name, schema);
    if P::REQUIRED {
        object.required(name)
    } else {
        object
    }
}

/// How a query names and describes a parameter.
pub fn in_query<P: Parameter>(name: &str, about: &[&str]) -> Vec<QueryParameter> {
    P::in_query(name.strip_prefix("r#").unwrap_or(name), text_of(about))
}

/// What a comment says, from its lines.
fn text_of(comment: &[&str]) -> String {
    let lines: Vec<_> = comment.iter().map(|line| line.trim()).collect();
    lines.join("\n")
}

/// A schema with an example. Swagger UI fills in `example`, and none of `examples`.
pub fn with_example(schema: ObjectBuilder, example: impl Into<Value>) -> ObjectBuilder {
    let mut schema = schema.build();
    schema.example = Some(example.into());
    schema.into()
}

/// The schema of any text.
pub fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// A reference to the schema of `T`, which `http/openapi/` lists.
pub fn reference<T: ToSchema>() -> RefOr<Schema> {
    Ref::from_schema_name(T::name()).into()
}

/// The schema of a list.
pub fn list_of<T: ToSchema>() -> ArrayBuilder {
    ArrayBuilder::new().items(reference::<T>())
}

/// A schema with what it means, unless that is empty.
pub fn described(mut schema: RefOr<Schema>, about: impl Into<String>) -> RefOr<Schema> {
    let about = about.into();
    match &mut schema {
        _ if about.is_empty() => {}
        RefOr::Ref(reference) => reference.description = about,
        RefOr::T(Schema::Object(Object { description, .. }))
        | RefOr::T(Schema::Array(Array { description, .. })) => *description = Some(about),
        RefOr::T(_) => {}
    }
    schema
}

/// What a schema allows, and `null`, which means that there is none.
pub fn nullable(mut schema: RefOr<Schema>) -> RefOr<Schema> {
    if let RefOr::T(
        Schema::Object(Object { schema_type, .. }) | Schema::Array(Array { schema_type, .. }),
    ) = &mut schema
    {
        if let SchemaType::Type(only) = schema_type {
            *schema_type = SchemaType::from_iter([only.clone(), Type::Null]);
        }
        return schema;
    }
    let null = ObjectBuilder::new().schema_type(Type::Null);
    OneOfBuilder::new().item(schema).item(null).into()
}
