#![doc = include_str!("../README.md")]

pub mod amount;
pub mod audit;
pub mod completions;
pub mod faults;
pub mod feed;
pub mod healthcheck;
pub mod listen;
pub mod pay;
pub mod report;
pub mod seed;
pub mod service;
mod terminal;
pub mod trigger;

pub use self::{
    service::stop_signal,
    terminal::{print, print_document, say},
};

/// Any error, for the person at the terminal.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
