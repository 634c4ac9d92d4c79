//! `charge-once openapi`: the document that the server serves.

use super::{BoxError, print_document};
use crate::http::openapi;

pub(super) fn run() -> Result<(), BoxError> {
    print_document(&openapi::document().to_pretty_json()?)
}
