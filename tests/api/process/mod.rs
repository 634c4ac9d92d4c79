//! The program: its command line, its configuration and its databases.

mod first_use;
mod logs;
mod metrics;
mod operator;
mod pgbouncer;
mod program;
mod request_lines;
mod roles;
mod secrecy;
mod session_defaults;
mod traces;
