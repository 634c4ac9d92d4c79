//! The migrations: which of them never change again, the rules for those to come, and databases of
//! release 0.2.

mod adoption;
mod documented;
mod linter;
mod queries;
mod rules;
mod sequence;
