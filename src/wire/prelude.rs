//! What the nouns of this room import by one line.

pub(super) use charge_once_strict_params::{
    Change, Error, Expand, Field, Include, Integer, Kept, ListOf, Nested, ParameterSet, Text,
    TextKind, ValueKind, parameters,
    schema::{described, list_of, reference, text, with_example},
};
pub(super) use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema},
};

pub(super) use super::{
    error::{ApiError, ErrorCode},
    list::Expandable,
    metadata::MetadataParam,
    parameter::*,
    people::*,
    view::views,
};
pub(super) use crate::domain::{
    ids::*,
    metadata::{Metadata, MetadataChange},
    money::{Currency, Money},
};
