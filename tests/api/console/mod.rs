//! The console, and the log of requests behind it.

mod actions;
mod lists;
mod overview;
mod pages;
mod protocol;
mod report;
mod request_log;
mod search;
mod sign_in;
mod story;
pub mod visit;
mod webhooks;

use self::visit::{CONSOLE, SLOW, Visit, log_holds, visited};
use crate::support::prelude::*;
