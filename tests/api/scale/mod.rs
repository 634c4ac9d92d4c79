//! Sound on big tables: the plans of all statements, and locks that would make requests queue.

mod clocks;
mod locks;
mod neighbors;
mod plans;
mod retention;
pub mod statements;
mod strangers;
mod tables;
mod turns;
