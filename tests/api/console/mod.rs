//! The console, and the log of requests behind it.

mod request_log;
