//! The console, and the log of requests behind it.

mod pages;
mod request_log;
mod sign_in;
mod visit;
