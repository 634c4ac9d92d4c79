//! The migrations: which of them never change again, and the rules for those to come.

mod documented;
mod linter;
mod queries;
mod rules;
mod sequence;
