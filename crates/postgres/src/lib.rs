#![doc = include_str!("../README.md")]

#[cfg(feature = "api-keys")]
pub mod api_keys;
#[cfg(feature = "database")]
pub mod database;
#[cfg(feature = "embedded")]
pub mod embedded;
