//! `charge-once config-table`: the table of variables for the documentation.

use super::{BoxError, print};
use crate::config;

pub(super) fn run() -> Result<(), BoxError> {
    print(config::markdown_table().trim_end())
}
