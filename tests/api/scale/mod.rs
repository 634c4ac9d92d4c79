//! Sound on big tables and with many accounts: the plans of all statements, and locks that would
//! make requests queue.

mod accounts;
mod clocks;
mod locks;
mod moved_rows;
mod moves;
mod neighbors;
mod plans;
mod retention;
mod shard_load;
mod shards;
pub mod statements;
mod strangers;
mod tables;
mod turns;
