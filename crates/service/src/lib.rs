// Without the feature, its example does not compile.
#![cfg_attr(any(feature = "settings", not(doctest)), doc = include_str!("../README.md"))]

#[cfg(feature = "connections")]
pub mod connections;
#[cfg(feature = "edge")]
pub mod edge;
#[cfg(feature = "faults")]
pub mod faults;
#[cfg(feature = "http-client")]
pub mod http_client;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(feature = "prometheus")]
pub mod prometheus;
#[cfg(feature = "request-log")]
pub mod request_log;
#[cfg(feature = "retention")]
pub mod retention;
#[cfg(feature = "settings")]
pub mod settings;
#[cfg(feature = "supervisor")]
pub mod supervisor;
#[cfg(feature = "traces")]
pub mod traces;
