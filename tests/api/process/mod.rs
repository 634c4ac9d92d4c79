//! The program: its command line, its configuration and its databases.

mod first_use;
mod logs;
mod operator;
mod program;
mod roles;
mod session_defaults;
