//! What the nouns of this room import by one line.

pub(in crate::wire) use charge_once_strict_params::{
    Change, Error, Expand, Field, Integer, Kept, Nested, ParameterSet, Text, TextKind, ValueKind,
    parameters,
    schema::{described, list_of, reference, text, with_example},
};
pub(in crate::wire) use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema},
};

pub(in crate::wire) use super::{
    error::{ApiError, ErrorCode},
    list::{Expandable, List},
    metadata::MetadataParam,
    parameter::*,
    people::*,
    view::views,
};
pub(in crate::wire) use crate::domain::{
    ids::*,
    metadata::{Metadata, MetadataChange},
    money::{Currency, Money},
};
