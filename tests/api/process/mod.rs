//! The program: its command line, its configuration and its databases.

mod first_use;
mod logs;
mod program;
mod session_defaults;
