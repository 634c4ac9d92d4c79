//! Sound on big tables: the plans of all statements, and locks that would make requests queue.

mod clocks;
mod locks;
mod plans;
mod statements;
mod tables;
mod turns;
