//! The program: its command line, its configuration and its databases.

mod embedded;
mod program;
mod session_defaults;
