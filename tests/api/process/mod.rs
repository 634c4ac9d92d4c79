//! The program: its command line, its configuration and its databases.

mod first_use;
mod logs;
mod metrics;
mod program;
mod request_lines;
mod session_defaults;
