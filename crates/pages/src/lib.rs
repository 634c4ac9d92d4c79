#![doc = include_str!("../README.md")]

mod page;
mod query;

pub use page::{Cursor, ID_SLACK, Listed, NamePage, Page, id_after};
pub use query::{
    Created, ENDING_BEFORE, LIMIT_DEFAULT, LIMIT_MAX, Limit, PageQuery, STARTING_AFTER,
};
