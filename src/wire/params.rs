//! A request's parameters, and [`parameters!`], which declares them.

use charge_once_strict_params::{Encoding, Error, Fields, Reason};
use serde_json::{Map, Value};

use super::error::{ApiError, ErrorCode};
use crate::domain::test_cards::LOST_REPLY;

/// Declares the parameters of a request: a name, a [`Parameter`](super::parameter::Parameter), and what it
/// means. From it come a struct of their values, which [`ParameterSet`](super::parameter::ParameterSet) fills,
/// and what the OpenAPI document says of them in a body (`as` names its schema) or in a query.
///
/// They are checked in the order in which they are declared. Where a field has no comment, the document says
/// what the type says of itself.
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

/// The parameter whose members have names that the client chooses.
pub const MAPS: &[&str] = &["metadata"];

/// Parameters as they were decoded: syntax without meaning.
#[derive(Debug, Clone)]
pub struct Params {
    /// How they were written.
    pub encoding: Encoding,
    /// The root object, or why there is none: a refusal like any other, to be stored.
    pub tree: Result<Map<String, Value>, ApiError>,
    /// Whether `source` may be `tok_lostReply`. To all other accounts that is no token.
    pub allows_lost_reply: bool,
    /// Whether `url` may name an address that is not public.
    pub allows_private_url: bool,
}

impl Params {
    /// Decoded parameters of an ordinary account.
    pub fn new(encoding: Encoding, tree: Result<Map<String, Value>, ApiError>) -> Self {
        Self {
            encoding,
            tree,
            allows_lost_reply: false,
            allows_private_url: false,
        }
    }

    /// The fields of the root, or the refusal of a body that could not be decoded.
    pub fn fields(&self) -> Result<Fields<'_>, ApiError> {
        let tree = self.tree.as_ref().map_err(Clone::clone)?;
        Ok(Fields::new(self.encoding, tree))
    }

    /// Refuses all, for requests that have none.
    pub fn refuse_any(&self) -> Result<(), ApiError> {
        Ok(self.fields()?.finish()?)
    }

    /// Whether `source` names the card whose replies get lost, and may.
    pub fn loses_its_reply(&self) -> bool {
        self.allows_lost_reply
            && self.tree.as_ref().is_ok_and(|tree| {
                tree.get("source").and_then(Value::as_str) == Some(LOST_REPLY.token())
            })
    }

    /// About how many bytes they have: their names and texts.
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
            members
                .iter()
                .map(|(name, value)| name.len() + of(value))
                .sum()
        }
        self.tree.as_ref().map_or(0, of_members)
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        let code = match error.reason {
            Reason::Malformed => ErrorCode::BodyInvalid,
            Reason::Missing => ErrorCode::ParameterMissing,
            Reason::Unknown => ErrorCode::ParameterUnknown,
            Reason::Invalid => ErrorCode::ParameterInvalid,
        };
        Self::new(code, error.message).with_param(error.param)
    }
}
