//! What endpoints import by one line.

pub(super) use actix_web::{HttpRequest, HttpResponse, web::Data};
pub(super) use charge_once_strict_params::pages::PageQuery;
pub(super) use charge_once_strict_params::{Expand, Text, parameters};

pub(super) use super::{
    app::App,
    endpoints::endpoints,
    error::{HttpError, HttpResult},
    error_responses::{DeletionErrors, MutatingErrors, ObjectErrors, ReadErrors, errors},
    parameters::{DeletionHeaders, KeyText, MutatingHeaders},
    reads,
    reply::{run, run_verb},
    request::{Caller, Deletion, MutatingRequest, no_query, path_id, query_params},
};
pub(super) use crate::{
    domain::ids::*,
    store,
    wire::{
        error::{ApiError, ErrorCode},
        list::List,
        parameter::*,
        view::views,
    },
};
