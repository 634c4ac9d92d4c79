//! `charge-once openapi`: the document that the server serves.

use super::{BoxError, print};
use crate::http::openapi;

pub(super) fn run() -> Result<(), BoxError> {
    print(&openapi::document().to_pretty_json()?)
}
