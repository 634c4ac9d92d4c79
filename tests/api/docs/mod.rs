//! What is published about the service, and the shape of the code.

mod copied_crates;
mod documented_replies;
mod documents;
mod endpoint_places;
pub mod layers;
mod published_crates;
mod readme;
mod sdk_table;
mod shown_commands;
mod type_names;
mod words;
