//! The program: its command line, its configuration and its databases.

mod dev_api_key;
mod first_use;
// The locales of glibc are made from sources.
#[cfg(target_os = "linux")]
mod locale;
mod logs;
mod metrics;
mod operator;
mod pgbouncer;
mod program;
mod request_lines;
mod roles;
mod schemas;
mod secrecy;
mod server_check;
mod session_defaults;
mod standby;
mod traces;
mod workers;
