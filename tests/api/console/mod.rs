//! The console, and the log of requests behind it.

mod actions;
mod lists;
mod pages;
mod report;
mod request_log;
mod sign_in;
mod story;
pub mod visit;

use self::visit::{CONSOLE, Visit, log_holds, visited};
use crate::support::prelude::*;
